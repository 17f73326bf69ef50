"""Probes of access rules: every call and every version, by clients who may nothing, something else, or this."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from holdfast.api import share_state, state_requests, state_responses
from holdfast.api.admin import ADMIN, AdminRequest, decode_admin_response, encode_admin_request
from holdfast.api.results import (
    DeletePartition,
    InitializePartition,
    PartitionRequest,
    ReadPartition,
    StateRequest,
    SummaryPartition,
    WritePartition,
)
from holdfast.daemon.access.acl import Acl, Operation, PatternType, Permission
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin, AdminCommand
from holdfast.daemon.server.topics_view import ShownTopic, TakeTopics, TopicQuery
from holdfast.daemon.server.wire.requests import SMALL_FRAME_BYTES, Body, Request, RequestMemory
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.sasl_calls import SASL_AUTHENTICATE, SASL_HANDSHAKE
from holdfast.metrics.instruments import Counter
from tests.pure.daemon.server.calls import ApiWorld, key, metadata_fields
from tests.world.identity.access import closed, cluster_acl, group_acl, topic_acl
from tests.world.identity.needs import CALLS as NEEDED
from tests.world.identity.needs import CHANGES, COMMANDS, LOOKS, READS
from tests.world.samples import OTHER_TOPIC, TOPIC
from tests.world.tenants import APIS, NEEDS, make_handler

PARTITIONS: dict[int, PartitionRequest] = {
    share_state.INITIALIZE: InitializePartition(1, 0, 0),
    share_state.READ: ReadPartition(1, 7),
    share_state.WRITE: WritePartition(1, 0, 0, 0, -1, ()),
    share_state.DELETE: DeletePartition(1),
    share_state.SUMMARY: SummaryPartition(1, 0),
}
CALLS = [
    (share_state.INITIALIZE, 0),
    (share_state.READ, 0),
    (share_state.WRITE, 0),
    (share_state.WRITE, 1),
    (share_state.DELETE, 0),
    (share_state.SUMMARY, 0),
    (share_state.SUMMARY, 1),
]
MINE = group_acl(Operation.ALL, "mine")
DENIED_ALL = group_acl(Operation.ALL, "*", permission=Permission.DENY)


def request_of(api_key: int, version: int, group: str, count: int = 2) -> bytes:
    each = PARTITIONS[api_key]
    partitions = [each._replace(partition=number % 3_000) for number in range(count)]
    return state_requests.encode_request(
        api_key, version, StateRequest(group, [(TOPIC, [*partitions]), (OTHER_TOPIC, [each])])
    )


def call(world: ApiWorld, api_key: int, version: int, group: str) -> list[tuple[int, bool]]:
    """Return error code and whether the text names who lacks what, for each share partition of the answer, which names all requested."""
    answered = (
        f"User:ANONYMOUS may not {NEEDED[api_key][1].value} the GROUP: no access rule allows it, or one denies it."
    )
    answer = world.ask_raw(api_key, version, request_of(api_key, version, group))
    response = state_responses.decode_response(api_key, version, answer)
    assert [(topic, [number for number, _ in results]) for topic, results in response] == [
        (TOPIC, [0, 1]),
        (OTHER_TOPIC, [1]),
    ]
    return [(result.error_code, result.error_message == answered) for _, results in response for _, result in results]


FORBIDDEN = [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True)] * 3
ALLOWED = [(ErrorCode.NONE, False)] * 3


@pytest.mark.parametrize(("api_key", "version"), CALLS)
def test_a_share_state_call_needs_its_operation_on_the_group(api_key: int, version: int) -> None:
    _, needed = NEEDED[api_key]
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE):
        world = ApiWorld(authorizer=closed(group_acl(operation, "mine")))
        is_enough = operation is needed or needed is Operation.DESCRIBE
        assert call(world, api_key, version, "mine") == (ALLOWED if is_enough else FORBIDDEN)
        assert len(world.service.requests) == is_enough
        assert call(world, api_key, version, "mine2") == FORBIDDEN
        assert len(world.service.requests) == is_enough
    for enough in (
        closed(cluster_acl(Operation.CLUSTER_ACTION)),
        closed(super_users=["User:ANONYMOUS"]),
        closed(group_acl(needed, "mi", pattern=PatternType.PREFIXED)),
        closed(group_acl(needed, "*", principal="User:*", host="10.0.0.1")),
    ):
        assert call(ApiWorld(authorizer=enough), api_key, version, "mine") == ALLOWED
    for lacking in (
        closed(),
        closed(group_acl(needed, "mine", principal="User:other")),
        closed(group_acl(needed, "mine", host="10.0.0.2")),
        closed(MINE, cluster_acl(Operation.CLUSTER_ACTION), DENIED_ALL),
        closed(cluster_acl(Operation.ALTER)),
    ):
        world = ApiWorld(authorizer=lacking)
        assert call(world, api_key, version, "mine") == FORBIDDEN
        assert world.service.requests == []


@pytest.mark.parametrize(("api_key", "version"), CALLS)
def test_a_denied_answer_does_not_depend_on_the_group(api_key: int, version: int) -> None:
    world = ApiWorld(authorizer=closed(MINE))
    answers = {world.ask_raw(api_key, version, request_of(api_key, version, group)) for group in ("has state", "x", "")}
    assert len(answers) == 1


@pytest.mark.parametrize(("api_key", "version"), CALLS)
def test_a_large_denied_call_is_answered_in_steps_and_not_begun(api_key: int, version: int) -> None:
    world = ApiWorld()
    world.handler = make_handler(
        world.service, world.cluster, Admin({}, NEEDS, 20, InternalErrors(Counter())), closed(MINE)
    )
    body = request_of(api_key, version, "other", count=1_500)
    answers: list[Body] = []
    memory = RequestMemory()
    request = Request(api_key, version, 1, b"", body, 0, "10.0.0.1:5", memory, 0)
    assert len(body) > SMALL_FRAME_BYTES
    steps = world.handler(request, answers.append)
    assert steps is not None
    assert all(steps)
    (answer,) = answers
    assert not isinstance(answer, bytes)
    response = state_responses.decode_response(api_key, version, b"".join(answer))
    assert {result.error_code for _, results in response for _, result in results} == {31}
    assert sum(len(results) for _, results in response) == 1_501
    assert world.service.requests == []
    assert memory.answer_bytes >= sum(map(len, answer))


def look_up(world: ApiWorld, version: int, key_type: int, *keys: str) -> list[tuple[ErrorCode, int]]:
    """Return error code and node of each key."""
    types = {"key_type": key_type} if version >= 1 else {}
    fields: dict[str, Any] = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    response = world.ask("find_coordinator", version, **types, **fields)
    entries = response.coordinators if version >= 4 else [response]
    return [(ErrorCode(int(each.error_code)), each.node_id) for each in entries]


SHARE, GROUP, TRANSACTION = 2, 0, 1
LOOKERS = [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.DESCRIBE]


@pytest.mark.parametrize("operation", LOOKERS)
def test_a_denied_key_is_an_error_of_that_key_alone(operation: Operation) -> None:
    world = ApiWorld(authorizer=closed(group_acl(operation, "mine")))
    mine, other, unknown = key(1, "mine"), key(1, "other"), key(9, "nobody")
    found, denied, failed, malformed, again = look_up(world, 6, SHARE, mine, other, unknown, "no key", mine)
    assert found == again
    assert (found[0], found[1] in (1, 2)) == (ErrorCode.NONE, True)
    assert denied == failed == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)
    assert malformed == (ErrorCode.INVALID_REQUEST, -1)


def test_nothing_of_the_log_is_shown_to_who_may_not_look() -> None:
    world = ApiWorld(authorizer=closed())
    world.service.partition_count = 0  # the node has not started: who may look is told so
    assert look_up(world, 6, SHARE, key(1, "x")) == [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)]
    started = ApiWorld(authorizer=closed(super_users=["User:ANONYMOUS"]))
    started.service.partition_count = 0
    assert look_up(started, 6, SHARE, key(1, "x")) == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)]


@pytest.mark.parametrize("version", range(7))
def test_keys_of_groups_are_denied_as_kafka_does_and_versions_are_looked_at_before_rights(version: int) -> None:
    nobody, somebody = ApiWorld(authorizer=closed()), ApiWorld(authorizer=closed(group_acl(Operation.READ, "mine")))
    keys = ("mine", "other")[: 2 if version >= 4 else 1]
    denied, not_here = (ErrorCode.GROUP_AUTHORIZATION_FAILED, -1), (ErrorCode.INVALID_REQUEST, -1)
    assert look_up(nobody, version, GROUP, *keys) == [denied] * len(keys)
    assert look_up(somebody, version, GROUP, *keys) == [not_here, denied][: len(keys)]
    if version >= 1:
        assert look_up(nobody, version, TRANSACTION, *keys) == [not_here] * len(keys)
        share = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1) if version >= 6 else not_here
        assert look_up(nobody, version, SHARE, key(1))[0] == share


@pytest.mark.parametrize("version", range(APIS[api_keys.METADATA].max_version + 1))
def test_metadata_is_free(version: int) -> None:
    fields = metadata_fields(version, [("x", None)])
    assert ApiWorld(authorizer=closed()).ask("metadata", version, **fields) == ApiWorld().ask(
        "metadata", version, **fields
    )


class Topics:
    """The topic `x` of a tenant, which records what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Sequence[TopicQuery] | None] = []

    def find(self, queries: Sequence[TopicQuery] | None, caller: str, take: TakeTopics) -> None:
        self.asked.append(queries)
        take([ShownTopic("x", TOPIC, 1)] * (1 if queries is None else len(queries)))

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        return 0


@pytest.mark.parametrize("version", range(APIS[api_keys.METADATA].max_version + 1))
def test_metadata_shows_users_topics_by_the_right_to_describe(version: int) -> None:
    denied, topics = ErrorCode.TOPIC_AUTHORIZATION_FAILED, Topics()
    everything = metadata_fields(version, [] if version == 0 else None)
    for operation, code in ((Operation.READ, 0), (Operation.DESCRIBE, 0), (None, denied)):
        rules = [topic_acl(operation, "x")] if operation else [topic_acl(Operation.READ, "y")]
        world = ApiWorld(authorizer=closed(*rules), topics=topics)
        topics.asked.clear()
        (topic,) = world.ask("metadata", version, **metadata_fields(version, [("x", None)])).topics
        assert (topic.name, topic.error_code) == ("x", code)
        # Of a name that the client may not know, nobody is asked.
        assert bool(topics.asked) is not bool(code)
        shown = [each.name for each in world.ask("metadata", version, **everything).topics]
        assert shown == ["__holdfast_share_state"] + ["x"] * (not code)
        if version >= 12:
            by_id = metadata_fields(version, [(None, UUID(bytes=TOPIC))])
            (topic,) = world.ask("metadata", version, **by_id).topics
            assert (topic.name, topic.error_code) == (None if code else "x", code)


@pytest.mark.parametrize("version", range(APIS[api_keys.API_VERSIONS].max_version + 1))
def test_api_versions_is_free(version: int) -> None:
    fields = {"client_software_name": "x", "client_software_version": "1"} if version >= 3 else {}
    assert ApiWorld(authorizer=closed()).ask("api_versions", version, **fields).error_code == 0


def test_no_call_is_left_out_here() -> None:
    free = {api_keys.METADATA, api_keys.API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE}
    assert APIS.keys() == free | {ADMIN} | NEEDED.keys()
    assert {api_key: name for api_key, (name, _) in NEEDED.items()} == {
        api_key: APIS[api_key].name for api_key in NEEDED
    }


def command(authorizer: Authorizer, name: str, /, **arguments: object) -> tuple[int, str, list[str]]:
    """Return error code, text, and which commands were run."""
    run: list[str] = []

    def running(each: str) -> AdminCommand:
        return lambda _: run.append(each)

    world = ApiWorld({each: running(each) for each in COMMANDS}, authorizer)
    code, text, _ = decode_admin_response(
        world.ask_raw(ADMIN, 0, encode_admin_request(AdminRequest(name, dict(arguments))))
    )
    return code, text or "", run


def rights() -> Iterator[tuple[str, Operation, Acl, Acl]]:
    """Yield each command, what it needs, a rule that is enough for it, and one that is not."""
    for name in READS:
        yield name, Operation.READ, group_acl(Operation.READ, "mine"), group_acl(Operation.ALL, "other")
    for name in LOOKS:
        yield name, Operation.DESCRIBE, cluster_acl(Operation.DESCRIBE), MINE
    for name in CHANGES:
        yield name, Operation.ALTER, cluster_acl(Operation.ALTER), cluster_acl(Operation.DESCRIBE)


@pytest.mark.parametrize(("name", "operation", "enough", "lacking"), list(rights()))
def test_an_admin_command_needs_what_its_row_says(name: str, operation: Operation, enough: Acl, lacking: Acl) -> None:
    is_group = name in READS
    given = {"group": "mine"} if is_group else {}
    assert command(closed(enough), name, **given) == (0, "", [name])
    for denied in (
        closed(),
        closed(lacking),
        closed(enough, enough._replace(permission=Permission.DENY, operation=Operation.ALL)),
    ):
        code, text, run = command(denied, name, **given)
        assert (code, run) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    what, resource = ("--group mine", "GROUP") if is_group else ("--cluster", "CLUSTER")
    also = [Operation.ALTER] if name == "decision-preview" else []  # what is previewed, which needs more
    operations = [each.value for each in (operation, *also)]
    assert f"User:ANONYMOUS may not {' and '.join(operations)} the {resource}" in text
    options = " ".join(f"--operation {each}" for each in operations)
    assert f"`holdfast acls add --allow-principal User:ANONYMOUS {options} {what}`" in text


def test_who_may_do_what_changes_may_look_and_an_unknown_command_is_denied_like_a_change() -> None:
    admin = closed(cluster_acl(Operation.ALTER))
    assert command(admin, "status") == (0, "", ["status"])
    assert command(admin, "stauts")[0] == ErrorCode.INVALID_REQUEST
    assert command(closed(cluster_acl(Operation.DESCRIBE)), "stauts")[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("right", [Operation.DESCRIBE, Operation.WRITE, Operation.DELETE])
def test_a_preview_shows_the_state_to_nobody_who_may_not_read_it(right: Operation) -> None:
    code, text, run = command(closed(group_acl(right, "mine")), "state-preview", group="mine", call="write")
    assert (code, run) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    lacks = "READ" if right is Operation.WRITE else "READ and WRITE"
    assert f"may not {lacks} the GROUP 'mine'" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_an_argument_that_a_command_does_not_take_is_refused_by_its_name(name: str) -> None:
    everything = closed(cluster_acl(Operation.ALL), group_acl(Operation.ALL, "mine"))
    takes = COMMANDS[name]
    given = dict.fromkeys(takes, "mine")
    assert command(everything, name, **given) == (0, "", [name])
    for unknown in ("pad", "Group", "partition ", "\ud800", "x" * 500):
        code, text, run = command(everything, name, **given | {unknown: 1})
        assert (code, run) == (ErrorCode.INVALID_REQUEST, [])
        assert text.startswith(f"The admin command {name} takes no argument '")
        assert text.endswith(f"; it takes {', '.join(takes) or 'none'}.")
        assert len(text) < 400


def test_a_refusal_of_a_command_is_bounded() -> None:
    _, text, _ = command(closed(), "state-preview", group="x" * 30_000)
    assert len(text) <= 1_000
    assert json.dumps(text)
