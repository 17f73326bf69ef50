"""FindCoordinator in each version against kio's entities."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.find_coordinator import Finder, KeyType
from holdfast.daemon.server.schemas import encode
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.records.share.keys import SharePartitionKey
from tests.pure.daemon.server.calls import (
    NODES,
    ApiWorld,
    key,
    schema,
)
from tests.world.samples import TOPIC
from tests.world.serving import FakeCluster
from tests.world.tenants import share_keys
from tests.world.timers import TimerKeys


def test_find_coordinator_answers_per_key_in_order_duplicates_included() -> None:
    world = ApiWorld()
    ninety = [key(number) for number in range(20)]
    keys = [*ninety, ninety[3], "no key", "g::" + key(1)[3:], f"g1:{key(0).split(':')[1]}==:0"]
    response = world.ask("find_coordinator", 6, key_type=2, coordinator_keys=tuple(keys))
    answers = response.coordinators
    assert [answer.key for answer in answers] == keys  # as asked, not as they are hashed
    for text, answer in zip(ninety, answers, strict=False):
        number = int(text.rsplit(":", 1)[1])
        partition = world.service.partition_for(SharePartitionKey("g1", TOPIC, number))
        assert (answer.node_id, answer.host, answer.port) == NODES[partition % 2]
        assert (answer.error_code, answer.error_message) == (ErrorCode.none, "")
    assert answers[20] == answers[3]
    assert (answers[21].error_code, answers[21].node_id, answers[21].host, answers[21].port) == (
        ErrorCode.invalid_request,
        -1,
        "",
        -1,
    )
    assert answers[21].error_message == "The key is not valid: a coordinator key is group:topic:partition."
    assert answers[22].error_code is ErrorCode.none
    assert answers[23].node_id == answers[0].node_id  # another spelling of the same key
    assert response.throttle_time == timedelta(0)


def test_the_request_recorded_from_kafka() -> None:
    body = bytes.fromhex("02021c67313a41414543417751464267634943516f4c4441304f44773a3700")
    answer = ApiWorld().ask_raw(10, 6, body)
    response, _ = entity_reader(schema("find_coordinator", 6, "response", "FindCoordinatorResponse"))(answer, 0)
    assert [(c.key, c.error_code) for c in response.coordinators] == [("g1:AAECAwQFBgcICQoLDA0ODw:7", ErrorCode.none)]


@pytest.mark.parametrize(
    ("version", "key_type"),
    # Version 0 has no key types, and share keys of version 6 are what is served.
    [
        (0, 0),
        *((version, key_type) for version in range(1, 7) for key_type in range(4) if (version, key_type) != (6, 2)),
    ],
)
def test_what_is_no_share_key_is_refused_in_every_version(version: int, key_type: int) -> None:
    types = {"key_type": key_type} if version >= 1 else {}
    keys: dict[str, Any] = {"coordinator_keys": (key(1), "x")} if version >= 4 else {"key": key(1)}
    response = ApiWorld().ask("find_coordinator", version, **types, **keys)
    entries = response.coordinators if version >= 4 else [response]
    text = "The key type 3 is unknown." if key_type == 3 else "this node coordinates share state only"
    assert len(entries) == (2 if version >= 4 else 1)
    for entry in entries:
        assert (entry.error_code, entry.node_id, entry.host, entry.port) == (ErrorCode.invalid_request, -1, "", -1)
        if version >= 1:
            assert entry.error_message == text


@pytest.mark.parametrize(
    ("key_types", "version", "answers"),
    [
        ({}, 6, {0: "this node coordinates nothing that has keys", 2: "The key type 2 is unknown."}),
        ({0: TimerKeys(1)}, 6, {0: "", 1: "this node coordinates timers only", 2: "The key type 2 is unknown."}),
        (
            {**share_keys(lambda key: key.partition), 0: TimerKeys(1)},
            5,
            {0: "", 2: "this node coordinates share state and timers only"},
        ),
    ],
    ids=["no tenant", "timers", "share state and timers"],
)
def test_refusal_names_the_state_of_the_tenants(
    key_types: dict[int, KeyType], version: int, answers: dict[int, str]
) -> None:
    make = schema("find_coordinator", version, "request", "FindCoordinatorRequest")
    read = entity_reader(schema("find_coordinator", version, "response", "FindCoordinatorResponse"))
    for key_type, text in answers.items():
        finder = Finder(version, FakeCluster(nodes=list(NODES)), key_types, lambda _: True, "denied")
        body = encode(make(key_type=key_type, coordinator_keys=("g",)))
        (answer,) = read(b"".join(finder.answer(body, 0, 1)), 0)[0].coordinators
        assert (answer.error_message, answer.node_id) == (text, -1 if text else NODES[1].node_id)


def test_find_coordinator_before_start_up_and_without_an_owner() -> None:
    world = ApiWorld()
    world.service.partition_count = 0
    response = world.ask("find_coordinator", 6, key_type=2, coordinator_keys=(key(1), key(2)))
    assert [answer.error_code for answer in response.coordinators] == [ErrorCode.coordinator_not_available] * 2
    world = ApiWorld()
    world.cluster.nodes = []
    response = world.ask("find_coordinator", 6, key_type=2, coordinator_keys=(key(1), "bad"))
    assert [answer.error_code for answer in response.coordinators] == [
        ErrorCode.coordinator_not_available,
        ErrorCode.invalid_request,
    ]


def test_find_coordinator_names_a_bounded_number_of_keys() -> None:
    with pytest.raises(MalformedBody, match="51 keys are named, at most 50"):
        ApiWorld().ask("find_coordinator", 6, key_type=2, coordinator_keys=("k",) * 51)


def test_an_empty_list_of_keys_has_an_empty_answer() -> None:
    for version in (4, 5, 6):
        response = ApiWorld().ask("find_coordinator", version, key_type=2, coordinator_keys=())
        assert (response.coordinators, response.throttle_time) == ((), timedelta(0))


def test_all_keys_of_a_request_are_answered_from_the_owners_of_its_beginning() -> None:
    world = ApiWorld()
    before, after = NODES[0], Node(7, "after.example", 9492)
    world.cluster.nodes = [before]
    keys = [key(number) for number in range(10_000)]
    make = schema("find_coordinator", 6, "request", "FindCoordinatorRequest")
    body = encode(make(key_type=2, coordinator_keys=tuple(keys)))
    pieces = []
    keys_by = share_keys(world.service.partition_for)
    for piece in Finder(6, world.cluster, keys_by, lambda _: True, "denied").answer(body, 0, 10_000):
        pieces.append(piece)
        world.cluster.nodes = [after]
    assert len(pieces) > 50
    read = entity_reader(schema("find_coordinator", 6, "response", "FindCoordinatorResponse"))
    response, _ = read(b"".join(pieces), 0)
    assert [(each.key, each.node_id) for each in response.coordinators] == [(text, before.node_id) for text in keys]
