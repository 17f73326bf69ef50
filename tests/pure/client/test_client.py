"""The client against real servers on loopback whose answers the test decides."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from holdfast.api import share_state
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
    ClientError,
    Disconnected,
    RequestTimedOut,
    ShareStateError,
    Unsupported,
    connect,
)
from holdfast.daemon.server.admin import AdminError
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from tests.pure.client.client_world import OTHER_TOPIC_ID, world
from tests.waiting import wait_until
from tests.world.samples import TOPIC
from tests.world.serving import serve


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
        assert await client.initialize("g", TOPIC, 0, state_epoch=5, start_offset=-1) == answers[share_state.INITIALIZE]
        assert await client.read("g", TOPIC, 1, leader_epoch=6) == answers[share_state.READ]
        assert await client.write("g", TOPIC, 2, 5, 6, 7, [batch], 8) == answers[share_state.WRITE]
        assert await client.delete("g", TOPIC, 3) == answers[share_state.DELETE]
        assert await client.read_summary("g", TOPIC, 4) == answers[share_state.SUMMARY]
        assert w.served[0].service.requests == [
            (share_state.INITIALIZE, StateRequest("g", [(TOPIC, [InitializePartition(0, 5, -1)])])),
            (share_state.READ, StateRequest("g", [(TOPIC, [ReadPartition(1, 6)])])),
            (share_state.WRITE, StateRequest("g", [(TOPIC, [WritePartition(2, 5, 6, 7, 8, (batch,))])])),
            (share_state.DELETE, StateRequest("g", [(TOPIC, [DeletePartition(3)])])),
            (share_state.SUMMARY, StateRequest("g", [(TOPIC, [SummaryPartition(4, -1)])])),
        ]
        assert w.waits == []


async def test_the_forms_for_many_route_by_owner_and_keep_the_order() -> None:
    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        return ReadResult(0, None, key.partition, key.topic_id[1])

    async with world(answer, node_count=2, share_partitions_per_request_max=20) as w:
        asked = [(topic_id, ReadPartition(n, 0)) for n in range(30) for topic_id in (TOPIC, OTHER_TOPIC_ID)]
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
        assert await client.initialize_many("g", [(TOPIC, InitializePartition(1, 1, 0))]) == [InitializeResult()]
        assert await client.write_many("g", [(TOPIC, WritePartition(1, 1, 1, -1, -1, ()))]) == [WriteResult()]
        assert await client.delete_many("g", [(TOPIC, DeletePartition(1))]) == [DeleteResult()]
        assert await client.read_summary_many("g", [(TOPIC, SummaryPartition(1, 0))]) == [SummaryResult()]
        handled = len(w.served[0].service.requests)
        assert await client.read_many("g", []) == []
        assert len(w.served[0].service.requests) == handled


FINISHED = StateBatch(0, 9, 2, 1)


@pytest.mark.parametrize(
    "given",
    [(FINISHED,), [FINISHED], [tuple(FINISHED)], [[*FINISHED]], ([*FINISHED],), deque([FINISHED]), iter([FINISHED])],
    ids=["tuple", "list", "list of tuples", "list of lists", "tuple of lists", "deque", "iterator"],
)
async def test_state_batches_are_taken_in_any_form(given: Any) -> None:
    given, again = itertools.tee(given) if isinstance(given, Iterator) else (given, given)
    async with world() as w:
        assert await w.client.write_many("g", [(TOPIC, WritePartition(1, 1, 1, -1, -1, given))]) == [WriteResult()]
        assert await w.client.write("g", TOPIC, 1, 1, 1, -1, again) == WriteResult()
        written: list[Any] = [topics[0][1][0] for _, (_, topics, _) in w.served[0].service.requests]
        assert [tuple(asked.state_batches) for asked in written] == [(FINISHED,)] * 2


@pytest.mark.parametrize(
    "wrong", [(0, 9, 2), (0, 9, 2, 1, 1), (0, 9, 2, "1"), (0, 9.5, 2, 1), (0, None, 2, 1), 7, "0921"]
)
async def test_a_state_batch_that_is_none_is_refused_before_anything_is_sent(wrong: Any) -> None:
    async with world() as w:
        for call in (
            w.client.write_many("g", [(TOPIC, WritePartition(1, 1, 1, -1, -1, [wrong]))]),
            w.client.write("g", TOPIC, 1, 1, 1, -1, [FINISHED, wrong]),
        ):
            with pytest.raises(TypeError):
                await call
        assert w.served[0].service.requests == []


@pytest.mark.parametrize("code", [3, 14, 15, 16])
async def test_what_may_succeed_later_is_tried_again_and_only_that(code: int) -> None:
    tries: dict[int, int] = {}

    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        count = tries[key.partition] = tries.get(key.partition, 0) + 1
        return WriteResult(code, "wait") if key.partition == 1 and count < 4 else WriteResult()

    async with world(answer) as w:
        asked = [(TOPIC, WritePartition(n, 1, 1, -1, -1, ())) for n in range(3)]
        assert await w.client.write_many("g", asked) == [WriteResult()] * 3
        assert w.asked() == [[0, 1, 2], [1], [1], [1]]
        assert len(w.waits) == 3
        for wait_s, nominal_s in zip(w.waits, (0.1, 0.2, 0.4), strict=True):
            assert 0.8 * nominal_s <= wait_s <= 1.2 * nominal_s


@pytest.mark.parametrize("code", [-1, 31, 42, 69, 74, 124, 12_345])
async def test_every_other_code_is_final(code: int) -> None:
    async with world(lambda api_key, key, asked: WriteResult(code, "no")) as w:
        with pytest.raises(ShareStateError) as caught:
            await w.client.write("g", TOPIC, 1, 1, 1, -1, [])
        error = caught.value
        assert (error.code, error.message, error.is_retriable) == (code, "no", False)
        assert str(error) == f"{error.name} ({code}): no"
        assert w.asked() == [[1]]
        assert w.waits == []
    names = {42: "INVALID_REQUEST", 74: "FENCED_LEADER_EPOCH", 124: "FENCED_STATE_EPOCH", 12_345: "UNKNOWN_ERROR_CODE"}
    assert error.name == names.get(code, error.name)


async def test_tries_are_bounded_and_the_last_error_is_reported() -> None:
    async with world(
        lambda api_key, key, asked: ReadResult(14, "still loading"),
        attempts_max=4,
        retry_backoff_ms=1_000,
        retry_backoff_max_ms=1_500,
    ) as w:
        with pytest.raises(ShareStateError, match=r"COORDINATOR_LOAD_IN_PROGRESS \(14\): still loading") as caught:
            await w.client.read("g", TOPIC, 1, 0)
        assert caught.value.is_retriable
        assert w.asked() == [[1]] * 4
        assert all(
            0.8 * nominal_s <= wait_s <= 1.2 * nominal_s
            for wait_s, nominal_s in zip(w.waits, (1.0, 1.5, 1.5), strict=True)
        )
    async with world(lambda api_key, key, asked: ReadResult(14, "x"), attempts_max=1) as w:
        assert await w.client.read_many("g", [(TOPIC, ReadPartition(1, 0))]) == [ReadResult(14, "x")]
        assert w.waits == []


async def test_the_coordinator_is_looked_up_once_and_again_when_it_moved() -> None:
    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        return WriteResult()

    async with world(answer, node_count=2) as w:
        first, second = w.served
        await w.client.write("g", TOPIC, 1, 1, 1, -1, [])
        requests = first.server.connections.requests + second.server.connections.requests
        await w.client.write("g", TOPIC, 1, 1, 1, -1, [])
        assert first.server.connections.requests + second.server.connections.requests == requests + 1
        owner = w.asked(1) != []
        # Now the other node owns everything, and the former owner says so.
        new_owner = w.served[1 - owner]
        for each in w.served:
            each.cluster.nodes = [Node(7, "127.0.0.1", new_owner.server.port)]
        w.served[owner].service.answer = lambda api_key, key, asked: WriteResult(16, "not here")
        before = len(w.asked(1 - owner))
        assert await w.client.write("g", TOPIC, 1, 1, 1, -1, []) == WriteResult()
        assert len(w.asked(1 - owner)) == before + 1
        assert len(w.waits) == 1


async def test_a_topic_is_given_by_its_name_which_is_looked_up_once() -> None:
    looked_up: list[str] = []
    async with world(commands={"resolve-topic": resolving({"orders": TOPIC, "bills": OTHER_TOPIC_ID}, looked_up)}) as w:
        assert await w.client.topic_id("orders") == TOPIC
        await w.client.initialize("g", "orders", 0, state_epoch=1, start_offset=0)
        await asyncio.gather(*(w.client.write("g", "bills", 1, 1, 1, -1, []) for _ in range(5)))
        asked: list[tuple[str | bytes, ReadPartition]] = [
            ("bills", ReadPartition(1, 0)),
            (TOPIC, ReadPartition(2, 0)),
            ("orders", ReadPartition(3, 0)),
        ]
        assert await w.client.read_many("g", asked) == [ReadResult()] * 3
        await w.client.delete("g", "orders", 4)
        await w.client.read_summary("g", "orders", 5)
        assert looked_up == ["orders", "bills"]
        requests = [request for _, request in w.served[0].service.requests]
        assert [topic_id for request in requests for topic_id, _ in request.topics] == [
            *([TOPIC] + [OTHER_TOPIC_ID] * 5),
            *(OTHER_TOPIC_ID, TOPIC),
            *([TOPIC] * 2),
        ]


async def test_the_memory_of_topic_ids_is_bounded_and_grows_old() -> None:
    looked_up: list[str] = []
    resolve = resolving({"a": TOPIC, "b": TOPIC, "c": TOPIC}, looked_up)
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


async def test_a_topic_that_was_recreated_is_looked_up_again() -> None:
    ids = {"orders": TOPIC}

    def answer(api_key: int, key: SharePartitionKey, asked: Any) -> PartitionResult:
        if key.topic_id == TOPIC:
            ids["orders"] = OTHER_TOPIC_ID
            return WriteResult(3, "unknown")
        return WriteResult()

    async with world(answer, commands={"resolve-topic": resolving(ids, [])}) as w:
        assert await w.client.write("g", "orders", 1, 1, 1, -1, []) == WriteResult()
        assert len(w.waits) == 1


async def test_a_name_that_kafka_does_not_know_is_final_and_a_kafka_that_is_away_is_waited_for() -> None:
    looked_up: list[str] = []
    resolve = resolving({"orders": TOPIC}, looked_up)

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


async def test_an_answer_that_does_not_come_in_time() -> None:
    async with world(attempts_max=2, request_timeout_ms=500) as w:
        w.served[0].service.is_holding = True
        with pytest.raises(ShareStateError, match=r"REQUEST_TIMED_OUT \(7\): .* gave no answer in 500 ms") as caught:
            await w.client.write("g", TOPIC, 1, 1, 1, -1, [])
        assert caught.value.is_retriable
        assert w.asked() == [[1], [1]]


async def test_a_caller_that_gives_up_harms_no_other() -> None:
    async with world() as w:
        await w.client.write("g", TOPIC, 0, 1, 1, -1, [])
        w.served[0].service.is_holding = True
        calls = [asyncio.create_task(w.client.write("g", TOPIC, 0, 1, 1, -1, [])) for _ in range(3)]
        await wait_until(lambda: len(w.served[0].service.held) == 3)
        calls[1].cancel()
        for _ in range(3):
            w.served[0].service.release()
        assert await calls[0] == await calls[2] == WriteResult()
        with pytest.raises(asyncio.CancelledError):
            await calls[1]


async def test_requests_in_flight_are_bounded() -> None:
    async with world(requests_in_flight_max=2) as w:
        await w.client.write("g", TOPIC, 0, 1, 1, -1, [])
        w.served[0].service.is_holding = True
        calls = [asyncio.create_task(w.client.write("g", TOPIC, 0, 1, 1, -1, [])) for _ in range(5)]
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
            await w.client.read("g", TOPIC, 1, leader_epoch=1 << 40)


async def test_admin() -> None:
    async with serve(commands={"echo": lambda arguments: arguments}) as served, connect(served.address) as client:
        assert await client.admin("echo", partition=3, command="x") == {"partition": 3, "command": "x"}
        with pytest.raises(AdminRefused, match="The admin command 'ecko' is unknown to this node; did you mean echo"):
            await client.admin("ecko")


def test_errors_say_whether_to_try_again() -> None:
    assert [kind.is_retriable for kind in (ClientError, Unsupported, AdminRefused)] == [False] * 3
    assert Disconnected.is_retriable
    assert RequestTimedOut.is_retriable


async def test_waits_between_tries_double_and_differ_by_a_fifth_at_most() -> None:
    """So that callers who failed at once do not come back at once."""
    not_yet = WriteResult(14, "it loads")
    async with world(lambda *_: not_yet, attempts_max=6, retry_backoff_ms=100, retry_backoff_max_ms=800) as w:
        with pytest.raises(ShareStateError):
            await w.client.write("g", TOPIC, 0, 1, 1, -1, [])
    doubled_s = [0.1, 0.2, 0.4, 0.8, 0.8]
    assert [wait_s == pytest.approx(base_s, rel=0.2) for wait_s, base_s in zip(w.waits, doubled_s, strict=True)] == [
        True
    ] * 5
    assert not any(wait_s == pytest.approx(base_s) for wait_s, base_s in zip(w.waits, doubled_s, strict=True))
