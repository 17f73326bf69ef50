"""Each call in each version against kio's entities: ApiVersions, Metadata, FindCoordinator, share-state, admin."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from structlog.testing import capture_logs

from holdfast.api import state_requests, state_responses
from holdfast.api.admin import ADMIN, AdminRequest, decode_admin_response, encode_admin_request
from holdfast.api.results import ReadPartition, ReadResult, StateRequest
from holdfast.daemon.server.admin import Admin, AdminCommand, AdminError
from holdfast.daemon.server.api_table import APIS, ApiHandler
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.connection import Api, Body, Held, Request
from holdfast.daemon.settings.listener_models import LimitSettings
from holdfast.kafka.protocol.primitives import MalformedBody, encode_string
from holdfast.records.keys import SharePartitionKey, format_key
from tests.pure.daemon.server.serving import TOPIC_ID, FakeCluster, FakeService
from tests.waiting import wait_until

NODES = [Node(1, "one", 9492), Node(2, "two", 9493)]
TOPIC_UUID = uuid.UUID(bytes=bytes(range(16, 32)))


class World:
    def __init__(self, commands: dict[str, AdminCommand] | None = None) -> None:
        self.service = FakeService()
        self.cluster = FakeCluster(nodes=list(NODES))
        limits = LimitSettings(share_partitions_per_request_max=50, admin_arguments_bytes_max=1_024)
        self.handler = ApiHandler(self.service, self.cluster, Admin(commands or {}, 20), limits)

    def ask_raw(self, api_key: int, version: int, body: bytes) -> bytes:
        answers: list[Body] = []
        self.handler(Request(api_key, version, 1, b"me", b"head" + body, 4, "10.0.0.1:5", Held(), 0), answers.append)
        (answer,) = answers
        assert isinstance(answer, bytes)
        return answer

    def ask(self, call: str, version: int, **fields: Any) -> Any:
        """Ask by means of kio's entities."""
        name = "".join(part.title() for part in call.split("_"))
        request = schema(call, version, "request", f"{name}Request")(**fields)
        buffer = BytesIO()
        entity_writer(type(request))(buffer, request)
        api_key = request.__api_key__
        answer = self.ask_raw(api_key, version, buffer.getvalue())
        response, size = entity_reader(schema(call, version, "response", f"{name}Response"))(answer, 0)
        assert size == len(answer)
        return response


def schema(call: str, version: int, direction: str, name: str) -> Any:
    return getattr(import_module(f"kio.schema.{call}.v{version}.{direction}"), name)


# ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_api_versions_advertises_the_table(version: int) -> None:
    fields = {"client_software_name": "c", "client_software_version": "1"} if version >= 3 else {}
    response = World().ask("api_versions", version, **fields)
    assert response.error_code is ErrorCode.none
    assert {key.api_key: (key.min_version, key.max_version) for key in response.api_keys} == {
        3: (0, 13),
        10: (0, 6),
        18: (0, 4),
        83: (0, 0),
        84: (0, 0),
        85: (0, 1),
        86: (0, 0),
        87: (0, 1),
        10_900: (0, 0),
    }
    if version >= 3:
        (supported,), (finalized,) = response.supported_features, response.finalized_features
        assert (supported.name, supported.min_version, supported.max_version) == ("share.version", 1, 1)
        assert (finalized.name, finalized.max_version_level) == ("share.version", 1)
        assert response.finalized_features_epoch == 0


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_an_unknown_version_of_api_versions_is_answered_with_version_0(version: int) -> None:
    answer = World().ask_raw(18, version, b"whatever a later version holds")
    response, size = entity_reader(schema("api_versions", 0, "response", "ApiVersionsResponse"))(answer, 0)
    assert size == len(answer)
    assert response.error_code is ErrorCode.unsupported_version
    assert {key.api_key for key in response.api_keys} == set(APIS)


def test_every_call_that_is_advertised_is_named() -> None:
    assert {key: api.name for key, api in APIS.items() if key < 10_000} == {
        3: "Metadata",
        10: "FindCoordinator",
        18: "ApiVersions",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
    }
    assert APIS[85][:4] == Api("WriteShareGroupState", 0, 1, flexible_from=0)[:4]


# Metadata


def metadata_fields(version: int, topics: list[tuple[str | None, uuid.UUID | None]] | None) -> dict[str, Any]:
    topic = schema("metadata", version, "request", "MetadataRequestTopic")
    fields: dict[str, Any] = {
        "topics": None
        if topics is None
        else tuple(topic(name=name, **({"topic_id": topic_id} if version >= 10 else {})) for name, topic_id in topics)
    }
    if version >= 4:
        fields["allow_auto_topic_creation"] = True
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = True
    if version >= 8:
        fields["include_topic_authorized_operations"] = True
    return fields


@pytest.mark.parametrize("version", range(14))
def test_metadata_shows_the_nodes_and_the_state_topic_led_by_its_owners(version: int) -> None:
    world = World()
    names: list[tuple[str | None, uuid.UUID | None]] = [("__holdfast_share_state", None), ("orders", None)]
    response = world.ask("metadata", version, **metadata_fields(version, names))
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == NODES
    state_topic, other = response.topics
    assert (state_topic.error_code, state_topic.name) == (ErrorCode.none, "__holdfast_share_state")
    assert [
        (p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in state_topic.partitions
    ] == [
        (ErrorCode.none, 0, 1, (1,), (1,)),
        (ErrorCode.none, 1, 2, (2,), (2,)),
        (ErrorCode.none, 2, 1, (1,), (1,)),
    ]
    assert (other.error_code, other.name, other.partitions) == (ErrorCode.unknown_topic_or_partition, "orders", ())
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == "cluster"
    if version >= 3:
        assert response.throttle_time == timedelta(0)
    if version >= 8:
        assert state_topic.topic_authorized_operations == -(1 << 31)
    if version >= 10:
        assert (state_topic.topic_id, other.topic_id) == (TOPIC_UUID, None)


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_and_of_none(version: int) -> None:
    world = World()
    everything = world.ask("metadata", version, **metadata_fields(version, [] if version == 0 else None))
    assert [topic.name for topic in everything.topics] == ["__holdfast_share_state"]
    if version >= 1:
        assert world.ask("metadata", version, **metadata_fields(version, [])).topics == ()


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_topic_id(version: int) -> None:
    stranger = uuid.UUID(int=7)
    response = World().ask("metadata", version, **metadata_fields(version, [(None, TOPIC_UUID), (None, stranger)]))
    known, unknown = response.topics
    assert (known.error_code, known.name, known.topic_id) == (ErrorCode.none, "__holdfast_share_state", TOPIC_UUID)
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.unknown_topic_id, None, stranger)


def test_the_metadata_request_recorded_from_librdkafka() -> None:
    """It asks for all topics, and its last three bytes are too many."""
    answer = World().ask_raw(3, 13, bytes.fromhex("00000000010000"))
    response, _ = entity_reader(schema("metadata", 13, "response", "MetadataResponse"))(answer, 0)
    assert [topic.name for topic in response.topics] == ["__holdfast_share_state"]


def test_metadata_before_the_state_topic_is_known_and_of_a_partition_without_owner() -> None:
    world = World()
    world.cluster.state_topic = world.cluster.cluster_id = None
    response = world.ask("metadata", 13, **metadata_fields(13, [("__holdfast_share_state", None)]))
    assert response.cluster_id is None
    assert response.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert world.ask("metadata", 13, **metadata_fields(13, None)).topics == ()
    world = World()
    world.cluster.nodes = []
    (topic,) = world.ask("metadata", 13, **metadata_fields(13, None)).topics
    assert {(p.error_code, p.leader_id, p.replica_nodes) for p in topic.partitions} == {
        (ErrorCode.leader_not_available, -1, ())
    }


def test_metadata_names_a_bounded_number_of_topics() -> None:
    with pytest.raises(MalformedBody, match="1001 topics are named, at most 1000"):
        World().ask("metadata", 9, **metadata_fields(9, [("t", None)] * 1_001))


# FindCoordinator


def key(partition: int, group_id: str = "g1") -> str:
    return format_key(SharePartitionKey(group_id, TOPIC_ID, partition))


def test_find_coordinator_answers_per_key_in_order_duplicates_included() -> None:
    world = World()
    ninety = [key(number) for number in range(20)]
    keys = [*ninety, ninety[3], "no key", "g::" + key(1)[3:], f"g1:{key(0).split(':')[1]}==:0"]
    response = world.ask("find_coordinator", 6, key_type=2, coordinator_keys=tuple(keys))
    answers = response.coordinators
    assert [answer.key for answer in answers] == keys  # as asked, not as they are hashed
    for text, answer in zip(ninety, answers, strict=False):
        number = int(text.rsplit(":", 1)[1])
        partition = world.service.partition_for(SharePartitionKey("g1", TOPIC_ID, number))
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
    answer = World().ask_raw(10, 6, body)
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
    response = World().ask("find_coordinator", version, **types, **keys)
    entries = response.coordinators if version >= 4 else [response]
    text = "The key type 3 is unknown." if key_type == 3 else "this node coordinates share state only"
    assert len(entries) == (2 if version >= 4 else 1)
    for entry in entries:
        assert (entry.error_code, entry.node_id, entry.host, entry.port) == (ErrorCode.invalid_request, -1, "", -1)
        if version >= 1:
            assert entry.error_message == text


def test_find_coordinator_before_start_up_and_without_an_owner() -> None:
    world = World()
    world.service.partition_count = 0
    response = world.ask("find_coordinator", 6, key_type=2, coordinator_keys=(key(1), key(2)))
    assert [answer.error_code for answer in response.coordinators] == [ErrorCode.coordinator_not_available] * 2
    world = World()
    world.cluster.nodes = []
    response = world.ask("find_coordinator", 6, key_type=2, coordinator_keys=(key(1), "bad"))
    assert [answer.error_code for answer in response.coordinators] == [
        ErrorCode.coordinator_not_available,
        ErrorCode.invalid_request,
    ]


def test_find_coordinator_names_a_bounded_number_of_keys() -> None:
    with pytest.raises(MalformedBody, match="51 keys are named, at most 50"):
        World().ask("find_coordinator", 6, key_type=2, coordinator_keys=("k",) * 51)


# Share-state calls


def test_a_share_call_reaches_the_service_and_its_answer_comes_back() -> None:
    world = World()
    request = StateRequest("g", [(TOPIC_ID, [ReadPartition(3, 4)])])
    world.service.answer = lambda api_key, key, asked: ReadResult(0, None, 7, 8, ())
    answer = world.ask_raw(84, 0, state_requests.encode_request(84, 0, request))
    assert world.service.requests == [(84, request)]
    assert state_responses.decode_response(84, 0, answer) == [(TOPIC_ID, [(3, ReadResult(0, None, 7, 8, ()))])]


def test_a_share_call_names_a_bounded_number_of_share_partitions() -> None:
    world = World()
    topics: list[Any] = [(TOPIC_ID, [ReadPartition(n, 4) for n in range(count)]) for count in (30, 20)]
    assert world.ask_raw(84, 0, state_requests.encode_request(84, 0, StateRequest("g", list(topics))))
    topics.append((TOPIC_ID, [ReadPartition(1, 4)]))
    with pytest.raises(MalformedBody, match="one request may name at most 50 share partitions"):
        world.ask_raw(84, 0, state_requests.encode_request(84, 0, StateRequest("g", list(topics))))
    assert len(world.service.requests) == 1


# Admin


def admin_world() -> World:
    async def slow(arguments: dict[str, Any]) -> object:
        return {"slow": arguments}

    async def endless(arguments: dict[str, Any]) -> object:
        await asyncio.Event().wait()
        return None

    def refuse(arguments: dict[str, Any]) -> object:
        raise AdminError("Partition 9 does not exist; there are 3.")

    def fail(arguments: dict[str, Any]) -> object:
        raise RuntimeError("secret")

    return World(
        {
            "echo": lambda arguments: arguments,
            "slow": slow,
            "endless": endless,
            "refuse": refuse,
            "fail": fail,
            "odd": lambda arguments: object(),
        }
    )


@pytest.mark.parametrize(
    ("command", "code", "message", "result"),
    [
        ("echo", 0, None, {"a": [1, "ü"]}),
        ("slow", 0, None, {"slow": {"a": [1, "ü"]}}),
        ("ecko", 42, "The admin command 'ecko' is unknown to this node; did you mean echo.", None),
        ("refuse", 42, "Partition 9 does not exist; there are 3.", None),
        ("fail", -1, "The command fail failed in the node; its log says why.", None),
        ("odd", -1, "The command odd failed in the node; its log says why.", None),
        ("endless", -1, "The command endless took longer than 20 ms and was given up.", None),
    ],
)
async def test_admin_commands(command: str, code: int, message: str | None, result: object) -> None:
    world = admin_world()
    answers: list[Body] = []
    body = encode_admin_request(AdminRequest(command, {"a": [1, "ü"]}))
    world.handler(Request(ADMIN, 0, 1, b"", body, 0, "peer", Held(), 0), answers.append)
    await wait_until(lambda: bool(answers))
    (answer,) = answers
    assert isinstance(answer, bytes)
    assert decode_admin_response(answer) == (code, message, result)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_large_admin_command_is_worked_off_in_steps_while_somebody_waits(is_wanted: bool) -> None:
    done: list[int] = []

    def count(arguments: dict[str, Any]) -> Any:
        for step in range(3):
            done.append(step)
            yield
        return done

    answers: list[Body] = []
    body = encode_admin_request(AdminRequest("count", {}))
    request = Request(ADMIN, 0, 1, b"", body, 0, "peer", Held(), 0)
    steps = World({"count": count}).handler(request, answers.append)
    assert steps is not None
    assert next(steps)
    assert (done, answers) == ([0], [])
    request.is_wanted = is_wanted
    assert len(list(steps)) == (2 if is_wanted else 0)
    if is_wanted:
        assert isinstance(answers[0], bytes)
        assert decode_admin_response(answers[0]).result == [0, 1, 2]
    else:
        assert answers == [b""]


def test_the_refusal_of_an_admin_command_is_short_and_can_be_sent_whatever_it_repeats() -> None:
    def refuse(arguments: dict[str, Any]) -> object:
        raise AdminError(f"There is no {arguments['what']}.")

    answers: list[bytes] = []
    admin = Admin({"refuse": refuse})
    for what in ("\ud800", "x" * 8_000_000, "\ud800" * 8_000_000):
        admin.handle(AdminRequest("refuse", {"what": what}), answers.append)
    texts = [decode_admin_response(answer).error_message or "" for answer in answers]
    assert texts[0] == "There is no \\ud800."
    assert max(map(len, texts)) < 10_000


def test_a_failed_admin_command_names_its_client_in_the_log() -> None:
    def fail(arguments: dict[str, Any]) -> object:
        raise RuntimeError("secret")

    with capture_logs() as lines:
        Admin({"fail": fail}).handle(AdminRequest("fail", {}), lambda _: None, "10.0.0.1:5")
    assert [(line["command"], line["peer"]) for line in lines] == [("fail", "10.0.0.1:5")]


def test_an_admin_command_above_its_bound_is_refused_in_few_words_and_not_run() -> None:
    ran: list[object] = []
    world = World({"echo": ran.append})
    answer = world.ask_raw(ADMIN, 0, encode_admin_request(AdminRequest("echo", {"a": "x" * 1_024})))
    assert len(answer) < 300
    assert decode_admin_response(answer) == (
        42,
        "The command has 1041 bytes with its arguments, and this node takes 1024; "
        "make the arguments shorter, or raise admin_arguments_bytes_max on the node.",
        None,
    )
    assert ran == []
    world.ask_raw(ADMIN, 0, encode_admin_request(AdminRequest("echo", {"a": "x" * 900})))
    assert len(ran) == 1


async def test_closing_cancels_admin_commands_under_way() -> None:
    async def endless(arguments: dict[str, Any]) -> object:
        await asyncio.Event().wait()
        return None

    admin = Admin({"endless": endless})
    answers: list[bytes] = []
    admin.handle(AdminRequest("endless", {}), answers.append)
    await admin.close()
    assert answers == []
    assert not admin._tasks


# Malformed bodies


def samples() -> list[tuple[int, int, bytes]]:
    """Return a body for every call and version."""
    texts = encode_string("c") + encode_string("1") + b"\x00"
    bodies = [(18, version, texts if version >= 3 else b"") for version in range(5)]
    for version in range(14):
        topics: list[tuple[str | None, uuid.UUID | None]] = [("orders", None), ("__holdfast_share_state", None)]
        request = schema("metadata", version, "request", "MetadataRequest")(**metadata_fields(version, topics))
        bodies.append((3, version, kio_bytes(request)))
    for version in range(7):
        keys: dict[str, Any] = {"coordinator_keys": (key(1), "x")} if version >= 4 else {"key": key(1)}
        types = {"key_type": 2} if version >= 1 else {}
        request = schema("find_coordinator", version, "request", "FindCoordinatorRequest")(**types, **keys)
        bodies.append((10, version, kio_bytes(request)))
    bodies.append((84, 0, state_requests.encode_request(84, 0, StateRequest("g", [(TOPIC_ID, [ReadPartition(3, 4)])]))))
    bodies.append((ADMIN, 0, encode_admin_request(AdminRequest("echo", {"a": 1}))))
    return bodies


def kio_bytes(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize(("api_key", "version", "body"), [pytest.param(*s, id=f"{s[0]}-{s[1]}") for s in samples()])
def test_cut_trailing_and_mutated_bodies_are_malformed_or_answered(api_key: int, version: int, body: bytes) -> None:
    world = admin_world()
    assert world.ask_raw(api_key, version, body)
    for length in range(len(body)):
        with pytest.raises(MalformedBody):
            world.ask_raw(api_key, version, body[:length])
    if api_key in (3, 10, 18):
        assert world.ask_raw(api_key, version, body + b"\x01\x00\x00") == world.ask_raw(api_key, version, body)
    else:
        with pytest.raises(MalformedBody):
            world.ask_raw(api_key, version, body + b"\x00")
    source = random.Random(api_key * 100 + version)
    tries: list[Callable[[bytearray], None]] = [
        lambda data: data.__setitem__(source.randrange(len(data)), source.randrange(256)),
        lambda data: data.__setitem__(slice(source.randrange(len(data)), None), b"\xff\xff\xff\xff\x07\x01\x02\x03"),
        lambda data: data.__setitem__(slice(0, 4), b"\x7f\xff\xff\xff"),
    ]
    refused = 0
    for _ in range(300 if body else 0):
        data = bytearray(body)
        source.choice(tries)(data)
        try:
            world.ask_raw(api_key, version, bytes(data))
        except MalformedBody:
            refused += 1
    assert refused > 50 or not body
