"""The client against real servers on loopback whose answers the test decides."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.api import share_state, state_responses
from holdfast.api.results import (
    DeletePartition,
    DeleteResult,
    InitializePartition,
    InitializeResult,
    PartitionResult,
    ReadPartition,
    ReadResult,
    StateRequest,
    SummaryPartition,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from holdfast.client import (
    AdminRefused,
    Client,
    ClientError,
    ClientSettings,
    Disconnected,
    RequestTimedOut,
    ShareStateError,
    Unsupported,
    connect,
)
from holdfast.client.client import parse_address
from holdfast.client.connection import Address, NodeConnection, open_connection
from holdfast.client.nodes import Nodes
from holdfast.daemon.server.admin import AdminCommand, AdminError
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.protocol import frames
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import encode_string
from holdfast.records.batches import StateBatch
from holdfast.records.keys import SharePartitionKey, format_topic_id, log_partition
from tests.pure.daemon.server.serving import TOPIC_ID, CountingTransport, Served, serve
from tests.waiting import wait_until

OTHER_TOPIC_ID = bytes(16)
Answer = Callable[[int, SharePartitionKey, Any], PartitionResult]


@dataclass
class World:
    client: Client
    served: list[Served]
    #: Seconds that the client waited between tries.
    waits: list[float]

    def asked(self, node: int = 0) -> list[list[int]]:
        """Return the partitions of each request that reached a node."""
        return [
            [asked.partition for _, partitions in request.topics for asked in partitions]
            for _, request in self.served[node].service.requests
        ]


@asynccontextmanager
async def world(
    answer: Answer | None = None,
    node_count: int = 1,
    commands: Mapping[str, AdminCommand] | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """Give a client of some nodes, which own the log partitions in turn and answer with what `answer` returns."""
    waits: list[float] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(serve(commands=commands)) for _ in range(node_count)]
        nodes = [Node(index, "127.0.0.1", each.server.port) for index, each in enumerate(served)]
        for each in served:
            each.cluster.nodes = nodes
            each.service.answer = answer
        made = ClientSettings(**settings)
        known = Nodes([parse_address(served[0].address)], made)
        client = Client(known, made, sleep=sleep, randomness=random.Random(1))
        stack.callback(client.close)
        yield World(client, served, waits)


async def test_the_five_calls() -> None:
    batch = StateBatch(1, 2, 2, 1)
    answers: dict[int, PartitionResult] = {
        share_state.INITIALIZE: InitializeResult(),
        share_state.READ: ReadResult(0, None, 1, 2, (batch,)),
        share_state.WRITE: WriteResult(),
        share_state.DELETE: DeleteResult(),
        share_state.SUMMARY: SummaryResult(0, None, 1, 2, 3, 4),
    }
    async with world(lambda api_key, key, asked: answers[api_key]) as w:
        client = w.client
        assert (
            await client.initialize("g", TOPIC_ID, 0, state_epoch=5, start_offset=-1) == answers[share_state.INITIALIZE]
        )
        assert await client.read("g", TOPIC_ID, 1, leader_epoch=6) == answers[share_state.READ]
        assert await client.write("g", TOPIC_ID, 2, 5, 6, 7, [batch], 8) == answers[share_state.WRITE]
        assert await client.delete("g", TOPIC_ID, 3) == answers[share_state.DELETE]
        assert await client.read_summary("g", TOPIC_ID, 4) == answers[share_state.SUMMARY]
        assert w.served[0].service.requests == [
            (share_state.INITIALIZE, StateRequest("g", [(TOPIC_ID, [InitializePartition(0, 5, -1)])])),
            (share_state.READ, StateRequest("g", [(TOPIC_ID, [ReadPartition(1, 6)])])),
            (share_state.WRITE, StateRequest("g", [(TOPIC_ID, [WritePartition(2, 5, 6, 7, 8, (batch,))])])),
            (share_state.DELETE, StateRequest("g", [(TOPIC_ID, [DeletePartition(3)])])),
            (share_state.SUMMARY, StateRequest("g", [(TOPIC_ID, [SummaryPartition(4, -1)])])),
        ]
        assert w.waits == []


async def test_the_forms_for_many_route_by_owner_and_keep_the_order() -> None:
    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        return ReadResult(0, None, key.partition, key.topic_id[1])

    async with world(answer, node_count=2, share_partitions_per_request_max=20) as w:
        asked = [(topic_id, ReadPartition(n, -1)) for n in range(30) for topic_id in (TOPIC_ID, OTHER_TOPIC_ID)]
        results = await w.client.read_many("g", asked)
        assert [(r.state_epoch, r.start_offset) for r in results] == [(p.partition, t[1]) for t, p in asked]
        for node in (0, 1):
            for _, request in w.served[node].service.requests:
                count = 0
                for topic_id, partitions in request.topics:
                    for partition in partitions:
                        key = SharePartitionKey("g", topic_id, partition.partition)
                        assert log_partition(key, 3) % 2 == node
                        count += 1
                assert 0 < count <= 20
        assert sum(map(len, w.asked(0))) + sum(map(len, w.asked(1))) == 60
        assert len(w.asked(0)) == 2 or len(w.asked(1)) == 2  # 60 share partitions do not fit into two requests


async def test_all_many_forms_and_an_empty_call() -> None:
    async with world() as w:
        client = w.client
        assert await client.initialize_many("g", [(TOPIC_ID, InitializePartition(1, 1, 0))]) == [InitializeResult()]
        assert await client.write_many("g", [(TOPIC_ID, WritePartition(1, 1, 1, -1, -1, ()))]) == [WriteResult()]
        assert await client.delete_many("g", [(TOPIC_ID, DeletePartition(1))]) == [DeleteResult()]
        assert await client.read_summary_many("g", [(TOPIC_ID, SummaryPartition(1, 0))]) == [SummaryResult()]
        handled = len(w.served[0].service.requests)
        assert await client.read_many("g", []) == []
        assert len(w.served[0].service.requests) == handled


@pytest.mark.parametrize("code", [3, 14, 15, 16])
async def test_what_may_succeed_later_is_tried_again_and_only_that(code: int) -> None:
    tries: dict[int, int] = {}

    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        count = tries[key.partition] = tries.get(key.partition, 0) + 1
        return WriteResult(code, "wait") if key.partition == 1 and count < 4 else WriteResult()

    async with world(answer) as w:
        asked = [(TOPIC_ID, WritePartition(n, 1, 1, -1, -1, ())) for n in range(3)]
        assert await w.client.write_many("g", asked) == [WriteResult()] * 3
        assert w.asked() == [[0, 1, 2], [1], [1], [1]]
        assert len(w.waits) == 3
        for wait_s, nominal_s in zip(w.waits, (0.1, 0.2, 0.4), strict=True):
            assert 0.8 * nominal_s <= wait_s <= 1.2 * nominal_s


@pytest.mark.parametrize("code", [-1, 31, 42, 69, 74, 124, 12_345])
async def test_every_other_code_is_final(code: int) -> None:
    async with world(lambda api_key, key, asked: WriteResult(code, "no")) as w:
        with pytest.raises(ShareStateError) as caught:
            await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, [])
        error = caught.value
        assert (error.code, error.message, error.is_retriable) == (code, "no", False)
        assert str(error) == f"{error.name} ({code}): no"
        assert w.asked() == [[1]]
        assert w.waits == []
    names = {42: "INVALID_REQUEST", 74: "FENCED_LEADER_EPOCH", 124: "FENCED_STATE_EPOCH", 12_345: "UNKNOWN_ERROR_CODE"}
    assert error.name == names.get(code, error.name)


async def test_tries_are_bounded_and_the_last_error_is_told() -> None:
    async with world(
        lambda api_key, key, asked: ReadResult(14, "still loading"),
        attempts_max=4,
        retry_backoff_ms=1_000,
        retry_backoff_max_ms=1_500,
    ) as w:
        with pytest.raises(ShareStateError, match=r"COORDINATOR_LOAD_IN_PROGRESS \(14\): still loading") as caught:
            await w.client.read("g", TOPIC_ID, 1, 0)
        assert caught.value.is_retriable
        assert w.asked() == [[1]] * 4
        assert all(
            0.8 * nominal_s <= wait_s <= 1.2 * nominal_s
            for wait_s, nominal_s in zip(w.waits, (1.0, 1.5, 1.5), strict=True)
        )
    async with world(lambda api_key, key, asked: ReadResult(14, "x"), attempts_max=1) as w:
        assert await w.client.read_many("g", [(TOPIC_ID, ReadPartition(1, 0))]) == [ReadResult(14, "x")]
        assert w.waits == []


async def test_the_coordinator_is_looked_up_once_and_again_when_it_moved() -> None:
    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        return WriteResult()

    async with world(answer, node_count=2) as w:
        first, second = w.served
        await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, [])
        requests = first.server.connections.requests + second.server.connections.requests
        await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, [])
        assert first.server.connections.requests + second.server.connections.requests == requests + 1
        owner = w.asked(1) != []
        # Now the other node owns everything, and the former owner says so.
        new_owner = w.served[1 - owner]
        for each in w.served:
            each.cluster.nodes = [Node(7, "127.0.0.1", new_owner.server.port)]
        w.served[owner].service.answer = lambda api_key, key, asked: WriteResult(16, "not here")
        before = len(w.asked(1 - owner))
        assert await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, []) == WriteResult()
        assert len(w.asked(1 - owner)) == before + 1
        assert len(w.waits) == 1


async def test_a_topic_is_given_by_its_name_which_is_looked_up_once() -> None:
    looked_up: list[str] = []
    async with world(
        commands={"resolve-topic": resolving({"orders": TOPIC_ID, "bills": OTHER_TOPIC_ID}, looked_up)}
    ) as w:
        assert await w.client.topic_id("orders") == TOPIC_ID
        await w.client.initialize("g", "orders", 0, state_epoch=1, start_offset=0)
        await asyncio.gather(*(w.client.write("g", "bills", 1, 1, 1, -1, []) for _ in range(5)))
        asked: list[tuple[str | bytes, ReadPartition]] = [
            ("bills", ReadPartition(1, -1)),
            (TOPIC_ID, ReadPartition(2, -1)),
            ("orders", ReadPartition(3, -1)),
        ]
        assert await w.client.read_many("g", asked) == [ReadResult()] * 3
        await w.client.delete("g", "orders", 4)
        await w.client.read_summary("g", "orders", 5)
        assert looked_up == ["orders", "bills"]
        requests = [request for _, request in w.served[0].service.requests]
        assert [topic_id for request in requests for topic_id, _ in request.topics] == [
            *([TOPIC_ID] + [OTHER_TOPIC_ID] * 5),
            *(OTHER_TOPIC_ID, TOPIC_ID),
            *([TOPIC_ID] * 2),
        ]


async def test_the_memory_of_topic_ids_is_bounded_and_grows_old() -> None:
    looked_up: list[str] = []
    resolve = resolving({"a": TOPIC_ID, "b": TOPIC_ID, "c": TOPIC_ID}, looked_up)
    async with world(commands={"resolve-topic": resolve}, topic_ids_cached_max=2) as w:
        for name in ("a", "b", "c", "c", "b", "a"):
            await w.client.topic_id(name)
        assert looked_up == ["a", "b", "c", "a"]
    looked_up.clear()
    async with world(commands={"resolve-topic": resolve}, topic_id_max_age_ms=1) as w:
        await w.client.topic_id("a")
        believed_until = w.client._topic_ids._known["a"][1]
        await wait_until(lambda: asyncio.get_running_loop().time() > believed_until)
        await w.client.topic_id("a")
        assert looked_up == ["a", "a"]


async def test_a_topic_that_was_made_again_is_looked_up_again() -> None:
    ids = {"orders": TOPIC_ID}

    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        if key.topic_id == TOPIC_ID:
            ids["orders"] = OTHER_TOPIC_ID
            return WriteResult(3, "unknown")
        return WriteResult()

    async with world(answer, commands={"resolve-topic": resolving(ids, [])}) as w:
        assert await w.client.write("g", "orders", 1, 1, 1, -1, []) == WriteResult()
        assert len(w.waits) == 1


async def test_a_name_that_kafka_does_not_know_is_final_and_a_kafka_that_is_away_is_waited_for() -> None:
    looked_up: list[str] = []
    resolve = resolving({"orders": TOPIC_ID}, looked_up)

    def away_at_first(arguments: dict[str, Any]) -> object:
        if not looked_up:
            looked_up.append("nobody")
            raise AdminError("Kafka cannot be reached.", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return {**resolve(arguments), "warning": "Kafka cannot be reached; this is what it said before."}

    async with world(commands={"resolve-topic": away_at_first}) as w:
        assert await w.client.write("g", "orders", 1, 1, 1, -1, []) == WriteResult()
        assert len(w.waits) == 1
        await w.client.topic_id("orders")
        assert looked_up == ["nobody", "orders", "orders"], "what Kafka did not say now is not remembered"
        with pytest.raises(AdminRefused, match="knows no topic 'odrers'"):
            await w.client.write("g", "odrers", 1, 1, 1, -1, [])
        assert len(w.waits) == 1
    async with world(commands={"resolve-topic": lambda _: {"topic_id": "short"}}) as w:
        with pytest.raises(Disconnected, match="names no topic id for 'orders'"):
            await w.client.topic_id("orders")


def resolving(ids: Mapping[str, bytes], looked_up: list[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the look-up of these topics, which notes what it was asked for."""

    def resolve(arguments: dict[str, Any]) -> dict[str, Any]:
        name = arguments["name"]
        looked_up.append(name)
        if name not in ids:
            raise AdminError(f"The cluster knows no topic {name!r}.")
        return {"topic_id": format_topic_id(ids[name])}

    return resolve


async def test_the_memory_of_coordinators_is_bounded() -> None:
    async with world(coordinators_cached_max=5) as w:
        asked = [(TOPIC_ID, ReadPartition(n, -1)) for n in range(20)]
        assert await w.client.read_many("g", asked) == [ReadResult()] * 20
        assert len(w.client._coordinators._known) == 5


async def test_a_refused_look_up_is_a_result_of_that_key_alone() -> None:
    async with world(attempts_max=2) as w:
        blank = await w.client.read_many(" ", [(TOPIC_ID, ReadPartition(1, -1))])
        assert blank == [ReadResult(42, "The key is not valid: the group id is blank.")]
        assert w.waits == []
        w.served[0].service.partition_count = 0
        with pytest.raises(ShareStateError, match="COORDINATOR_NOT_AVAILABLE"):
            await w.client.read("g", TOPIC_ID, 1, -1)
        assert len(w.waits) == 1


async def test_a_node_that_dies_is_asked_for_again() -> None:
    async with world(node_count=2) as w:
        # One that the first node does not own.
        number = next(n for n in range(9) if log_partition(SharePartitionKey("g", TOPIC_ID, n), 3) % 2 == 1)
        await w.client.write("g", TOPIC_ID, number, 1, 1, -1, [])
        await w.served[1].server.drain(deadline_ms=1_000)
        w.served[0].cluster.nodes = [Node(0, "127.0.0.1", w.served[0].server.port)]
        assert await w.client.write("g", TOPIC_ID, number, 1, 1, -1, []) == WriteResult()
        assert w.asked(0) == [[number]]


@asynccontextmanager
async def two_nodes(**settings: Any) -> AsyncIterator[World]:
    """Give a client that knows two nodes, of which the second owns everything."""
    async with world(node_count=2, **settings) as w:
        owner = Node(1, "127.0.0.1", w.served[1].server.port)
        for each in w.served:
            each.cluster.nodes = [owner]
        w.client._nodes._bootstrap = tuple(parse_address(each.address) for each in w.served)
        yield w


async def write(w: World) -> WriteResult:
    return await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, [])


async def test_a_node_that_names_itself_and_does_not_serve_is_passed_over() -> None:
    async with two_nodes(attempts_max=3) as w:
        w.served[0].cluster.nodes = [Node(0, "127.0.0.1", w.served[0].server.port)]
        w.served[0].service.answer = lambda api_key, key, asked: WriteResult(16, "another node took it")
        assert await write(w) == WriteResult()
        assert (w.asked(0), w.asked(1), len(w.waits)) == ([[1]], [[1]], 1)


async def test_a_node_that_knows_no_coordinator_now_is_passed_over_at_once() -> None:
    async with two_nodes(attempts_max=1) as w:
        w.served[0].cluster.nodes = []
        assert await write(w) == WriteResult()
        assert [len(w.asked(node)) for node in (0, 1)] == [0, 1]
        (found,) = await w.client.find([SharePartitionKey("g", TOPIC_ID, 2)])
        assert found == parse_address(w.served[1].address)


async def test_a_dead_address_that_a_node_names_is_passed_over() -> None:
    async with two_nodes(attempts_max=3) as w:
        w.served[0].cluster.nodes = [Node(9, "127.0.0.1", 1)]
        assert await write(w) == WriteResult()
        assert len(w.waits) == 1
        # The one that led nowhere is asked last from now on.
        await w.client.write("g", TOPIC_ID, 5, 1, 1, -1, [])
        assert len(w.waits) == 1


async def test_a_node_that_is_dead_is_passed_over() -> None:
    async with two_nodes(attempts_max=1) as w:
        await w.served[0].server.drain(deadline_ms=1_000)
        assert await write(w) == WriteResult()


async def test_where_no_node_knows_a_coordinator_the_last_answer_is_told() -> None:
    async with two_nodes(attempts_max=2) as w:
        for each in w.served:
            each.cluster.nodes = []
        with pytest.raises(ShareStateError, match="COORDINATOR_NOT_AVAILABLE"):
            await write(w)
        w.served[0].cluster.nodes = [Node(1, "127.0.0.1", w.served[1].server.port)]
        assert await write(w) == WriteResult()


async def test_each_of_three_nodes_is_asked_before_one_is_asked_again() -> None:
    async with world(node_count=3, attempts_max=3) as w:
        w.client._nodes._bootstrap = tuple(parse_address(each.address) for each in w.served)
        for number, each in enumerate(w.served[:2]):
            each.cluster.nodes = [Node(number, "127.0.0.1", 1)]
        w.served[2].cluster.nodes = [Node(2, "127.0.0.1", w.served[2].server.port)]
        assert await write(w) == WriteResult()
        assert len(w.waits) == 2


async def test_when_no_node_is_left_the_call_fails_as_disconnected() -> None:
    async with world(attempts_max=3) as w:
        await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, [])
        await w.served[0].server.drain(deadline_ms=1_000)
        with pytest.raises(ShareStateError, match=r"NETWORK_EXCEPTION \(13\): Nobody can be reached at") as caught:
            await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, [])
        assert caught.value.is_retriable
        assert len(w.waits) == 2


async def test_an_answer_that_does_not_come_in_time() -> None:
    async with world(attempts_max=2, request_timeout_ms=500) as w:
        w.served[0].service.is_holding = True
        with pytest.raises(ShareStateError, match=r"REQUEST_TIMED_OUT \(7\): .* gave no answer in 500 ms") as caught:
            await w.client.write("g", TOPIC_ID, 1, 1, 1, -1, [])
        assert caught.value.is_retriable
        assert w.asked() == [[1], [1]]


async def test_a_caller_that_gives_up_harms_no_other() -> None:
    async with world() as w:
        await w.client.write("g", TOPIC_ID, 0, 1, 1, -1, [])
        w.served[0].service.is_holding = True
        calls = [asyncio.create_task(w.client.write("g", TOPIC_ID, 0, 1, 1, -1, [])) for _ in range(3)]
        await wait_until(lambda: len(w.served[0].service.held) == 3)
        calls[1].cancel()
        for _ in range(3):
            w.served[0].service.release()
        assert await calls[0] == await calls[2] == WriteResult()
        with pytest.raises(asyncio.CancelledError):
            await calls[1]


async def test_requests_in_flight_are_bounded() -> None:
    async with world(requests_in_flight_max=2) as w:
        await w.client.write("g", TOPIC_ID, 0, 1, 1, -1, [])
        w.served[0].service.is_holding = True
        calls = [asyncio.create_task(w.client.write("g", TOPIC_ID, 0, 1, 1, -1, [])) for _ in range(5)]
        await wait_until(lambda: len(w.served[0].service.held) == 2)
        for _ in range(5):
            await wait_until(lambda: bool(w.served[0].service.held))
            assert len(w.served[0].service.held) <= 2
            w.served[0].service.release()
        assert await asyncio.gather(*calls) == [WriteResult()] * 5


async def test_bad_arguments_are_one_clear_error() -> None:
    async with world() as w:
        with pytest.raises(ValueError, match="A topic id has 16 bytes, not 3; a name is a string"):
            await w.client.delete("g", b"abc", 1)
        with pytest.raises(ValueError, match="A number does not fit its field"):
            await w.client.read("g", TOPIC_ID, 1, leader_epoch=1 << 40)


async def test_admin() -> None:
    async with serve(commands={"echo": lambda arguments: arguments}) as served, connect(served.address) as client:
        assert await client.admin("echo", partition=3, command="x") == {"partition": 3, "command": "x"}
        with pytest.raises(AdminRefused, match="The admin command 'ecko' is unknown to this node; did you mean echo"):
            await client.admin("ecko")


async def test_connect_needs_a_node_that_can_be_reached() -> None:
    async with serve() as served:
        address = served.address
        async with connect(["127.0.0.1:1", address]) as client:
            assert await client.delete("g", TOPIC_ID, 1) == DeleteResult()
    with pytest.raises(
        Disconnected, match=f"Nobody can be reached at 127.0.0.1:1 .* Nobody can be reached at {address}"
    ):
        async with connect(["127.0.0.1:1", address]):
            pass
    with pytest.raises(Disconnected, match="The client is closed"):
        await client.admin("echo")


@pytest.mark.parametrize(
    "text", ["localhost", "", ":9492", "::1:9492", "host:0", "host:65536", "host:-1", "host:x", "host:９"]
)
async def test_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port, as in 127"):
        async with connect(text):
            pass


def test_addresses_that_are_fine() -> None:
    assert parse_address("[::1]:9492") == Address("::1", 9492)
    assert str(parse_address("host:1")) == "host:1"


@pytest.mark.parametrize(
    ("setting", "value"), [("attempts_max", 0), ("request_timeout_ms", 1.5), ("retry_backoff_max_ms", 50)]
)
def test_settings_are_checked(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"The client setting {setting} is {value}; it must"):
        ClientSettings(**{setting: value})


async def test_connect_with_no_address() -> None:
    with pytest.raises(ValueError, match="needs the address of one node at least"):
        async with connect([]):
            pass


# Servers that misbehave.


API_VERSIONS = frames.encode_response(
    1, bytes.fromhex("0000 03 000a00000006 00 0055 00000001 00 00000000 00".replace(" ", "")), has_tags=False
)
OLD_SERVER = frames.encode_response(1, bytes.fromhex("0023 00000001 000a 0000 0002".replace(" ", "")), has_tags=False)


class Script(asyncio.Protocol):
    """Says the next of `answers` at each chunk it gets, and then nothing more."""

    def __init__(self, answers: Sequence[bytes], talks: list[Script]) -> None:
        self._answers = iter(answers)
        self.is_over = False
        talks.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(next(self._answers, b""))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True


@asynccontextmanager
async def scripted(*answers: bytes | Callable[[Address], bytes]) -> AsyncIterator[Address]:
    """Run a server that says `answers` to each client; some may depend on its address."""
    talks: list[Script] = []
    said: list[bytes] = []
    server = await asyncio.get_running_loop().create_server(lambda: Script(said, talks), "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    said += [answer if isinstance(answer, bytes) else answer(address) for answer in answers]
    try:
        yield address
    finally:
        server.close()
        for talk in talks:
            talk.transport.abort()
        await wait_until(lambda: all(talk.is_over for talk in talks))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (frames.encode_response(2, b"", has_tags=True), "It answers request 2 where 1 is next"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an answer of 1213486160 bytes; does it speak Kafka's protocol"),
        (frames.encode_response(1, b"\x00", has_tags=False), "breaks the protocol. The field ErrorCode"),
        (API_VERSIONS + API_VERSIONS, "answered a request that nobody sent"),
        ((3).to_bytes(4, "big") + b"abc", "an answer of 3 bytes"),
    ],
)
async def test_a_server_that_speaks_something_else(answer: bytes, text: str) -> None:
    async with scripted(answer) as address:
        with pytest.raises(Disconnected, match=text):
            await (await open_connection(address, ClientSettings())).request(18, 0, b"")


async def test_a_server_that_says_nothing() -> None:
    async with scripted() as address:
        with pytest.raises(Disconnected, match="did not open a connection in 20 ms"):
            await open_connection(address, ClientSettings(connect_timeout_ms=20))


async def test_a_server_that_is_too_old_for_share_keys() -> None:
    async with scripted(OLD_SERVER) as address, connect(str(address)) as client:
        with pytest.raises(Unsupported, match="serves FindCoordinator in versions 0 to 2, and 6 to 6 would do"):
            await client.read("g", TOPIC_ID, 1, -1)
        with pytest.raises(Unsupported, match="does not serve HoldfastAdmin; is it a Holdfast node"):
            await client.admin("echo")


@pytest.mark.parametrize("piece_size", [1, 3, 7, 1_000])
async def test_answers_in_pieces_and_all_at_once(piece_size: int) -> None:
    connection = NodeConnection(Address("node", 1), ClientSettings())
    transport = CountingTransport()
    connection.connection_made(transport)
    calls = [asyncio.create_task(connection.request(85, 1, b"ask %d" % number)) for number in range(3)]
    await wait_until(lambda: len(transport.written) == 3)
    assert transport.written == [frames.encode_request(85, 1, n + 1, b"holdfast", b"ask %d" % n) for n in range(3)]
    answers = b"".join(frames.encode_response(n, b"body %d" % n, has_tags=True) for n in (1, 2, 3))
    for position in range(0, len(answers), piece_size):
        connection.data_received(answers[position : position + piece_size])
    assert [frame[offset:] for frame, offset in await asyncio.gather(*calls)] == [b"body 1", b"body 2", b"body 3"]
    connection.close()
    assert transport.is_closed
    with pytest.raises(Disconnected, match="is closed"):
        await connection.request(85, 1, b"ask")


async def test_a_share_partition_that_the_answer_leaves_out_is_an_error() -> None:
    def look_up(address: Address) -> bytes:
        key, host = encode_string("g:AAECAwQFBgcICQoLDA0ODw:1"), encode_string(address.host)
        node = b"\x00\x00\x00\x01" + host + address.port.to_bytes(4, "big") + b"\x00\x00\x01\x00"
        return frames.encode_response(2, b"\x00\x00\x00\x00\x02" + key + node + b"\x00", has_tags=True)

    nothing = frames.encode_response(3, state_responses.encode_response(share_state.WRITE, 1, []), has_tags=True)
    async with scripted(API_VERSIONS, look_up, nothing) as address, connect(str(address)) as client:
        with pytest.raises(ShareStateError, match=r"UNKNOWN_SERVER_ERROR \(-1\): The server at .* left it out"):
            await client.write("g", TOPIC_ID, 1, 1, 1, -1, [])


def test_errors_tell_whether_to_try_again() -> None:
    assert [kind.is_retriable for kind in (ClientError, Unsupported, AdminRefused)] == [False] * 3
    assert Disconnected.is_retriable
    assert RequestTimedOut.is_retriable


async def test_requests_to_a_node_that_went_away_fail_without_a_word_of_asyncios(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A write that fails closes the transport, of which its protocol is told only in the next turn of the loop."""
    async with serve() as served:
        connection = await open_connection(Address("127.0.0.1", served.server.port), ClientSettings())
        assert connection._transport is not None
        connection._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        requests = (connection.request(18, 3, b"") for _ in range(32))
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Disconnected}
        assert not connection.is_open
        assert caplog.messages == []


async def test_ids_of_requests_begin_again_behind_the_largest() -> None:
    async with world() as w:
        await w.client.write("g", TOPIC_ID, 0, 1, 1, -1, [])
        (connection,) = w.client._nodes._connections.values()
        connection._correlation_id = 0x7FFF_FFFE
        for _ in range(3):
            assert await w.client.write("g", TOPIC_ID, 0, 1, 1, -1, []) == WriteResult()
        assert connection._correlation_id == 1


async def test_waits_between_tries_double_and_differ_by_a_fifth_at_most() -> None:
    """So that callers who failed at once do not come back at once."""
    not_yet = WriteResult(14, "it loads")
    async with world(lambda *_: not_yet, attempts_max=6, retry_backoff_ms=100, retry_backoff_max_ms=800) as w:
        with pytest.raises(ShareStateError):
            await w.client.write("g", TOPIC_ID, 0, 1, 1, -1, [])
    doubled_s = [0.1, 0.2, 0.4, 0.8, 0.8]
    assert [wait_s == pytest.approx(base_s, rel=0.2) for wait_s, base_s in zip(w.waits, doubled_s, strict=True)] == [
        True
    ] * 5
    assert not any(wait_s == pytest.approx(base_s) for wait_s, base_s in zip(w.waits, doubled_s, strict=True))
