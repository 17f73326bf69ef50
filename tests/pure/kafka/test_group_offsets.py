"""What groups committed: coordinators that move, load, end connections, throttle, refuse and fall silent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.offset_commit.v8.request import OffsetCommitRequest
from kio.schema.offset_commit.v8.response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest
from kio.schema.offset_fetch.v7.response import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.group_offset_calls import Committer
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.group_offsets import BlockingGroupOffsets, GroupOffsets, GroupRefused
from tests.waiting import wait_until

REQUESTS: dict[int, Any] = {8: OffsetCommitRequest, 9: OffsetFetchRequest, 10: FindCoordinatorRequest}
GENEROUS_MS = 60_000

NONE = ErrorCode.none


def coordinator(host: str, error: ErrorCode = NONE) -> Any:
    return FindCoordinatorResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=error,
        error_message=None,
        node_id=BrokerId(1),
        host=host,
        port=i32(9092),
    )


def fetched(
    offsets: dict[int, int],
    error: ErrorCode = NONE,
    throttle_ms: int = 0,
    errors: dict[int, ErrorCode] | None = None,
    note: str | None = "",
) -> Any:
    """Return an answer about the offsets of a group; -1: it has committed none."""
    partitions = tuple(
        OffsetFetchResponsePartition(
            partition_index=i32(partition),
            committed_offset=i64(offset),
            metadata=note,
            error_code=(errors or {}).get(partition, NONE),
        )
        for partition, offset in offsets.items()
    )
    return OffsetFetchResponse(
        throttle_time=i32Timedelta.parse(timedelta(milliseconds=throttle_ms)),
        topics=(OffsetFetchResponseTopic(name=TopicName("log"), partitions=partitions),),
        error_code=error,
    )


def taken(errors: dict[int, ErrorCode]) -> Any:
    """Return an answer to a commit."""
    partitions = tuple(
        OffsetCommitResponsePartition(partition_index=i32(partition), error_code=error)
        for partition, error in errors.items()
    )
    return OffsetCommitResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        topics=(OffsetCommitResponseTopic(name=TopicName("log"), partitions=partitions),),
    )


class Silence:
    """In place of an answer: none comes."""


class Ended:
    """In place of an answer: the connection ends."""


Step = Any


class Cluster:
    """Brokers by host, each of which gives its answers one after the other, the last one again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bootstrap: str = "a", **answers: list[Step]) -> None:
        self.asked: list[tuple[str, str]] = []  #: (host, request)
        self.requests: list[Any] = []
        self.connections: list[Connection] = []
        self.options = ConnectionOptions(bootstrap=tuple((host, 9092) for host in bootstrap.split(",")))
        self._answers = {host: deque(steps) for host, steps in answers.items()}
        monkeypatch.setattr(BrokerConnection, "open", self._open)

    def offsets(self, timeout_ms: int = GENEROUS_MS, known: Callable[[], Any] = tuple) -> GroupOffsets:
        return GroupOffsets(self.options, timeout_ms, known)

    async def _open(self, address: tuple[str, int], options: ConnectionOptions, timeout_ms: int) -> Connection:
        if address[0] not in self._answers:
            raise ConnectionFailed(f"{address[0]} cannot be reached")
        self.connections.append(Connection(self, address[0]))
        return self.connections[-1]

    def next_answer(self, host: str) -> Step:
        steps = self._answers[host]
        return steps.popleft() if len(steps) > 1 else steps[0]


class Connection:
    """Stands in for `BrokerConnection`."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self.is_open = True
        self.versions = {8: (8, 8), 9: (7, 7), 10: (3, 3)}
        self._cluster = cluster
        self._host = host

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
        request, _ = entity_reader(REQUESTS[api_key])(body, 0)
        assert request.__version__ == version
        self._cluster.requests.append(request)
        self._cluster.asked.append((self._host, type(request).__name__.removesuffix("Request")))
        answer = self._cluster.next_answer(self._host)
        if isinstance(answer, Silence):
            await asyncio.Event().wait()
        if isinstance(answer, Ended):
            self.is_open = False
            raise ConnectionFailed(f"{self._host} did not answer: the connection ended")
        buffer = BytesIO()
        entity_writer(type(answer))(buffer, answer)
        return buffer.getvalue()

    def close(self) -> None:
        self.is_open = False


FIND, FETCH, COMMIT = "FindCoordinator", "OffsetFetch", "OffsetCommit"


def let_time_pass(monkeypatch: pytest.MonkeyPatch, time_ms: int) -> None:
    """Put the loop's clock forward by so much, at once."""
    loop = asyncio.get_running_loop()
    time_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: time_s() + time_ms / 1_000)


async def test_a_coordinator_is_looked_up_once_and_its_connection_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[fetched({0: 7, 1: -1, 2: 0})])
    offsets = cluster.offsets()
    for _ in range(3):
        assert await offsets.fetch_offsets("group", "log", range(3)) == {0: 7, 2: 0}
    assert cluster.asked == [("a", FIND), ("b", FETCH), ("b", FETCH), ("b", FETCH)]
    asked = cluster.requests[-1]
    assert (asked.group_id, asked.topics[0].name, asked.topics[0].partition_indexes) == ("group", "log", (0, 1, 2))
    assert asked.require_stable, "an offset of a transaction that may be aborted is none"
    assert sum(connection.is_open for connection in cluster.connections) == 1
    offsets.close()
    assert not any(connection.is_open for connection in cluster.connections)


@pytest.mark.parametrize(
    "step",
    [
        fetched({}, ErrorCode.not_coordinator),
        fetched({}, ErrorCode.coordinator_not_available),
        fetched({0: -1}, errors={0: ErrorCode.not_coordinator}),
        Ended(),
    ],
    ids=["moved", "gone", "moved, as its partitions say", "disconnected"],
)
async def test_the_coordinator_is_looked_up_again_when_it_is_another_or_gone(
    monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    cluster = Cluster(
        monkeypatch, a=[coordinator("b"), coordinator("c")], b=[fetched({0: 1}), step], c=[fetched({0: 5})]
    )
    offsets = cluster.offsets()
    assert await offsets.fetch_offsets("group", "log", [0]) == {0: 1}
    assert await offsets.fetch_offsets("group", "log", [0]) == {0: 5}
    assert cluster.asked == [("a", FIND), ("b", FETCH), ("b", FETCH), ("a", FIND), ("c", FETCH)]
    assert sum(connection.is_open for connection in cluster.connections) == 1


async def test_a_coordinator_that_loads_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = fetched({}, ErrorCode.coordinator_load_in_progress)
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[loading, loading, fetched({0: 5})])
    assert await cluster.offsets().fetch_offsets("group", "log", [0]) == {0: 5}
    assert cluster.asked == [("a", FIND)] + [("b", FETCH)] * 3


async def test_a_connection_that_ended_between_two_queries_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[fetched({0: 1})])
    offsets = cluster.offsets()
    await offsets.fetch_offsets("group", "log", [0])
    cluster.connections[-1].close()
    assert await offsets.fetch_offsets("group", "log", [0]) == {0: 1}
    assert cluster.asked == [("a", FIND), ("b", FETCH), ("b", FETCH)]


async def test_a_group_that_has_no_coordinator_yet_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    none_yet = coordinator("", ErrorCode.coordinator_not_available)
    cluster = Cluster(monkeypatch, a=[none_yet, none_yet, coordinator("b")], b=[fetched({0: 1})])
    assert await cluster.offsets().fetch_offsets("group", "log", [0]) == {0: 1}
    assert cluster.asked == [("a", FIND)] * 3 + [("b", FETCH)]


async def test_brokers_beside_the_first_ones_are_queried_for_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, bootstrap="gone", c=[coordinator("c"), fetched({0: 1})])
    offsets = cluster.offsets(known=lambda: [("c", 9092)])
    assert await offsets.fetch_offsets("group", "log", [0]) == {0: 1}


async def test_a_silent_broker_does_not_keep_others_from_telling_the_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, bootstrap="a,b", a=[Silence()], b=[coordinator("b"), fetched({0: 1})])
    assert await cluster.offsets().fetch_offsets("group", "log", [0]) == {0: 1}


async def test_a_silent_coordinator_is_given_up_in_time_and_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b"), coordinator("c")], b=[Silence()], c=[fetched({0: 1})])
    fetching = asyncio.create_task(cluster.offsets().fetch_offsets("g", "log", [0]))
    await wait_until(lambda: ("b", FETCH) in cluster.asked)
    let_time_pass(monkeypatch, GENEROUS_MS)
    with pytest.raises(
        ConnectionFailed,
        match=r"coordinator of group g did not return the committed offsets within 60000 ms: no answer came",
    ):
        await fetching
    patient = cluster.offsets()
    assert await patient.fetch_offsets("g", "log", [0]) == {0: 1}
    assert [connection.is_open for connection in cluster.connections] == [False, False, False, True]


@pytest.mark.virtual_time
async def test_when_no_broker_answers_the_reason_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, bootstrap="gone")
    with pytest.raises(ConnectionFailed, match=r"within 50 ms: gone cannot be reached"):
        await cluster.offsets(timeout_ms=50).fetch_offsets("g", "log", [0])


async def test_offsets_of_a_transaction_that_has_not_ended_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    unstable = fetched({0: 3, 1: -1}, errors={1: ErrorCode.unstable_offset_commit})
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[unstable, unstable, fetched({0: 3, 1: 4})])
    assert await cluster.offsets().fetch_offsets("g", "log", [0, 1]) == {0: 3, 1: 4}
    assert cluster.asked == [("a", FIND)] + [("b", FETCH)] * 3


@pytest.mark.virtual_time
async def test_offsets_that_stay_unstable_are_reported_with_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    unstable = fetched(
        {0: 3, 1: -1, 2: -1}, errors={2: ErrorCode.unstable_offset_commit, 1: ErrorCode.unstable_offset_commit}
    )
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[unstable])
    with pytest.raises(ConnectionFailed, match=r"within 200 ms: UNSTABLE_OFFSET_COMMIT for partitions 1, 2$"):
        await cluster.offsets(timeout_ms=200).fetch_offsets("g", "log", range(3))


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (
            {"a": [coordinator("", ErrorCode.group_authorization_failed)]},
            "Kafka refuses the offsets of group g: no coordinator is named: GROUP_AUTHORIZATION_FAILED; allow Describe on group g",
        ),
        (
            {"a": [coordinator("b")], "b": [fetched({}, ErrorCode.group_authorization_failed)]},
            "Kafka refuses the offsets of group g: GROUP_AUTHORIZATION_FAILED; allow Describe on group g",
        ),
        (
            {"a": [coordinator("b")], "b": [fetched({0: 1, 1: -1}, errors={1: ErrorCode.topic_authorization_failed})]},
            "Kafka refuses the offsets of group g: TOPIC_AUTHORIZATION_FAILED for partitions 1; allow Describe on topic log",
        ),
    ],
)
async def test_what_kafka_refuses_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], text: str
) -> None:
    cluster = Cluster(monkeypatch, **answers)
    with pytest.raises(GroupRefused) as refused:
        await cluster.offsets().fetch_offsets("g", "log", [0, 1])
    assert str(refused.value) == f"{text} to User:ANONYMOUS."
    assert len(cluster.asked) == len(answers)


@pytest.mark.virtual_time
async def test_a_throttled_coordinator_is_left_alone_for_as_long_as_it_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[fetched({0: 1}, throttle_ms=200)])
    offsets = cluster.offsets()
    loop = asyncio.get_running_loop()
    await offsets.fetch_offsets("g", "log", [0])
    began_s = loop.time()
    await offsets.fetch_offsets("g", "log", [0])
    assert loop.time() - began_s >= 0.2


@pytest.mark.virtual_time
async def test_a_throttle_beyond_the_bound_ends_the_query_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[fetched({0: 1}, throttle_ms=3_600_000)])
    offsets = cluster.offsets(timeout_ms=100)
    assert await offsets.fetch_offsets("g", "log", [0]) == {0: 1}
    for _ in range(2):
        with pytest.raises(ConnectionFailed, match="within 100 ms"):
            await offsets.fetch_offsets("g", "log", [0])
    assert cluster.asked.count(("b", FETCH)) == 1


async def test_offsets_are_committed_for_a_group_without_members(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[taken({0: NONE, 3: NONE})])
    await cluster.offsets().commit_offsets("g", "log", {0: 10, 3: 2**40})
    request = cluster.requests[-1]
    assert (request.group_id, request.member_id, request.generation_id_or_member_epoch) == ("g", "", -1)
    assert {each.partition_index: each.committed_offset for each in request.topics[0].partitions} == {0: 10, 3: 2**40}


async def test_a_commit_is_tried_again_where_the_coordinator_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(
        monkeypatch,
        a=[coordinator("b"), coordinator("c")],
        b=[taken({0: ErrorCode.not_coordinator})],
        c=[taken({0: NONE})],
    )
    await cluster.offsets().commit_offsets("g", "log", {0: 10})
    assert cluster.asked == [("a", FIND), ("b", COMMIT), ("a", FIND), ("c", COMMIT)]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            taken({0: NONE, 1: ErrorCode.unknown_member_id, 2: ErrorCode.offset_metadata_too_large}),
            "Kafka refuses the offsets of group g: UNKNOWN_MEMBER_ID for partitions 1; "
            "OFFSET_METADATA_TOO_LARGE for partitions 2.",
        ),
        (taken({0: NONE, 2: NONE}), "The answer for group g leaves out partitions 1."),
    ],
)
async def test_a_commit_that_is_refused_names_its_partitions(
    monkeypatch: pytest.MonkeyPatch, answer: Step, text: str
) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[answer])
    with pytest.raises(GroupRefused) as refused:
        await cluster.offsets().commit_offsets("g", "log", {0: 1, 1: 1, 2: 1})
    assert str(refused.value) == text


async def test_a_member_commits_a_note_which_is_fetched_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(
        monkeypatch,
        a=[coordinator("b")],
        b=[taken({0: NONE}), fetched({0: 1}, note="said"), fetched({0: 1}, note=None), fetched({0: -1})],
    )
    offsets = cluster.offsets()
    await offsets.commit_note("g", ("log", 0), 2**63 - 1, "said", Committer("m-1", 7, "static-1"))
    request = cluster.requests[-1]
    [place] = request.topics[0].partitions
    assert (place.committed_offset, place.committed_metadata) == (2**63 - 1, "said")
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (
        7,
        "m-1",
        "static-1",
    )
    assert [await offsets.fetch_note("g", ("log", 0)) for _ in range(3)] == ["said", "", ""]


@pytest.mark.parametrize(
    "error", [ErrorCode.unknown_topic_or_partition, ErrorCode.topic_authorization_failed, ErrorCode.illegal_generation]
)
async def test_a_note_that_is_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, error: ErrorCode) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[taken({0: error})])
    with pytest.raises(GroupRefused) as refused:
        await cluster.offsets().commit_note("g", ("log", 0), 1, "said", Committer("m-1", 7))
    assert refused.value.error_code == error.value
    assert len(cluster.requests) == 2
    answer = Cluster(monkeypatch, a=[coordinator("b")], b=[taken({1: NONE})])
    with pytest.raises(GroupRefused, match="leaves out topic log"):
        await answer.offsets().commit_note("g", ("log", 0), 1, "said", Committer("m-1", 7))


async def test_one_query_at_a_time_leaves_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[fetched({0: 1})])
    offsets = cluster.offsets()
    await asyncio.gather(*(offsets.fetch_offsets(f"g{number}", "log", [0]) for number in range(5)))
    assert sum(connection.is_open for connection in cluster.connections) == 1


def test_a_thread_without_a_loop_queries_and_closes_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=[coordinator("b")], b=[fetched({0: 1}), taken({0: NONE})])
    blocking = BlockingGroupOffsets(cluster.options, GENEROUS_MS)
    assert blocking.fetch_offsets("g", "log", [0]) == {0: 1}
    blocking.commit_offsets("g", "log", {0: 2})
    assert not any(connection.is_open for connection in cluster.connections)
