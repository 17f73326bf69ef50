"""First and end offsets of users' topics: leaders that moved, partitions that are not there, brokers that say nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v5 import response as offsets
from kio.schema.list_offsets.v5.request import ListOffsetsRequest
from kio.schema.metadata.v12 import response as metadata
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i64

from holdfast.kafka import cluster as cluster_view
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.topics.topic_ends import Ends, TooManyQueries, TopicEnds, TopicEndSource
from tests.pure.kafka.brokers.metadata_brokers import NO_TIME
from tests.waiting import wait_until

ORDERS, PAYMENTS, NO_TOPIC = (bytes([number] * 16) for number in (1, 2, 3))
NONE = ErrorCode.none


class Cluster:
    """Two brokers, `a` and `b`; each topic is (first, end) by partition, and `leaders` says who leads what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics = {ORDERS: ("orders", {0: (5, 100), 1: (0, 0)}), PAYMENTS: ("payments", {0: (0, 7)})}
        self.leaders: dict[tuple[str, int], str | None] = {("orders", 1): "b"}
        self.errors: dict[tuple[str, int], list[ErrorCode]] = {}  #: what is told first, before the truth
        self.is_silent = False
        self.silent: set[str] = set()  #: of ListOffsets
        self.answers_left = 1_000  #: then every connection fails
        self.down: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.open: list[Connection] = []
        monkeypatch.setattr(BrokerConnection, "open", self._open)

    def source(self, timeout_ms: int = 10_000, waiting_max: int = 100) -> TopicEndSource:
        options = ConnectionOptions(bootstrap=(("a", 9092),))
        view = cluster_view.Cluster(options, timeout_ms)
        return TopicEndSource(view, timeout_ms=timeout_ms, waiting_max=waiting_max)

    async def _open(self, address: tuple[str, int], options: ConnectionOptions, timeout_ms: int) -> Connection:
        if address[0] in self.down:
            raise ConnectionFailed(f"{address[0]} cannot be reached")
        self.open.append(Connection(self, address[0]))
        return self.open[-1]

    def metadata(self, request: MetadataRequest) -> Any:
        topics = []
        for asked in request.topics or ():
            assert asked.topic_id is not None, "Kafka refuses the whole question for a reserved id"
            name, partitions = self.topics.get(asked.topic_id.bytes, (None, {}))
            topics.append(
                metadata.MetadataResponseTopic(
                    error_code=NONE if name else ErrorCode.unknown_topic_id,
                    name=TopicName(name) if name else None,
                    topic_id=UUID(bytes=asked.topic_id.bytes),
                    partitions=tuple(
                        metadata.MetadataResponsePartition(
                            error_code=NONE, partition_index=i32(index), leader_id=self._leader(name, index)
                        )
                        for index in partitions
                    ),
                )
            )
        brokers = tuple(
            metadata.MetadataResponseBroker(node_id=BrokerId(number), host=host, port=i32(9092))
            for number, host in enumerate("ab")
        )
        return metadata.MetadataResponse(throttle_time=NO_TIME, brokers=brokers, topics=tuple(topics))

    def list_offsets(self, host: str, request: ListOffsetsRequest) -> Any:
        by_name = dict(self.topics.values())

        def told(name: str, index: int, which: int) -> offsets.ListOffsetsPartitionResponse:
            errors = self.errors.get((name, index), [])
            error = errors[0] if errors else NONE
            if errors and which == -1:
                errors.pop(0)
            assert error is not NONE or self.leaders.get((name, index), "a") == host
            first, end = by_name[name][index]
            if which >= 0:  # the record at an offset was written at ten times that
                first = -1 if which > 10 * (end - 1) else max(first, -(-which // 10))
            return offsets.ListOffsetsPartitionResponse(
                partition_index=i32(index),
                error_code=error,
                offset=i64(-1 if error is not NONE else end if which == -1 else first),
            )

        return offsets.ListOffsetsResponse(
            throttle_time=NO_TIME,
            topics=tuple(
                offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        told(topic.name, int(each.partition_index), each.timestamp) for each in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _leader(self, name: str | None, index: int) -> BrokerId:
        host = self.leaders.get((name or "", index), "a")
        return BrokerId(-1 if host is None else "ab".index(host))


class Connection:
    """Stands in for `BrokerConnection`."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
        self._cluster.asked[f"{self._host} {api_key}"] += 1
        if self._cluster.is_silent or (api_key == 2 and self._host in self._cluster.silent):
            await asyncio.Event().wait()
        if api_key == 3:
            answer = self._cluster.metadata(entity_reader(MetadataRequest)(body, 0)[0])
        else:
            self._cluster.answers_left -= 1
            if self._cluster.answers_left < 0:
                raise ConnectionFailed(f"{self._host} is gone")
            answer = self._cluster.list_offsets(self._host, entity_reader(ListOffsetsRequest)(body, 0)[0])
        buffer = BytesIO()
        entity_writer(type(answer))(buffer, answer)
        return buffer.getvalue()

    def close(self) -> None:
        self._cluster.open.remove(self)


async def test_each_leader_is_queried_once_for_all_that_it_leads_and_no_connection_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    found = await cluster.source().look_up({ORDERS: [0, 1, 0], PAYMENTS: [0]})
    assert found == {
        ORDERS: TopicEnds("orders", {0: Ends(5, 100), 1: Ends(0, 0)}),
        PAYMENTS: TopicEnds("payments", {0: Ends(0, 7)}),
    }
    assert cluster.asked == {"a 3": 1, "a 2": 2, "b 2": 2}
    assert cluster.open == []


async def test_many_partitions_are_asked_about_in_parts_and_what_was_answered_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    cluster.topics[ORDERS] = ("orders", {index: (0, index) for index in range(1_200)})
    cluster.leaders = {}
    found = await cluster.source().look_up({ORDERS: range(1_200)})
    assert found[ORDERS].partitions == {index: Ends(0, index) for index in range(1_200)}
    assert cluster.asked == {"a 3": 1, "a 2": 6}
    cluster.answers_left = 2
    found = await cluster.source().look_up({ORDERS: range(1_200)})
    ends = found[ORDERS].partitions
    assert (ends[0], ends[499]) == (Ends(0, 0), Ends(0, 499))
    assert ends[500] == Ends(-1, -1, "its leader cannot be reached: a is gone")
    assert len(cluster.open) == 0


async def test_what_is_not_there_says_so_beside_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    found = await cluster.source().look_up({NO_TOPIC: [0], bytes(16): [0], PAYMENTS: [0, 9]})
    assert found[NO_TOPIC] == TopicEnds(None, {0: Ends(-1, -1, "the cluster knows no topic of this id")})
    assert found[bytes(16)].partitions == found[NO_TOPIC].partitions
    assert found[PAYMENTS].partitions == {0: Ends(0, 7), 9: Ends(-1, -1, "the topic has no partition 9")}
    assert cluster.asked["a 3"] == 1, "another try would tell nothing else"


async def test_a_leader_that_moved_is_looked_up_again_and_a_partition_without_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch)
    cluster.errors["orders", 0] = [ErrorCode.not_leader_or_follower]
    cluster.leaders["orders", 1] = None
    found = await cluster.source().look_up({ORDERS: [0, 1]})
    assert found[ORDERS].partitions == {0: Ends(5, 100), 1: Ends(-1, -1, "the partition has no leader")}
    assert cluster.asked["a 3"] == 3, "so often, and no more"


async def test_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.errors["payments", 0] = [ErrorCode.topic_authorization_failed] * 9
    found = await cluster.source().look_up({PAYMENTS: [0]})
    problem = "its leader does not return its offsets: TOPIC_AUTHORIZATION_FAILED; allow Describe on topic payments to User:ANONYMOUS"
    assert found[PAYMENTS].partitions == {0: Ends(-1, -1, problem)}
    assert cluster.asked["a 3"] == 1


async def test_brokers_that_cannot_be_reached_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.down = {"b"}
    found = await cluster.source().look_up({ORDERS: [0, 1]})
    problem = "its leader cannot be reached: b cannot be reached"
    assert found[ORDERS].partitions == {0: Ends(5, 100), 1: Ends(-1, -1, problem)}
    cluster.down = {"a"}
    found = await cluster.source().look_up({ORDERS: [0]})
    assert found[ORDERS] == TopicEnds(None, {0: Ends(-1, -1, "Kafka cannot be reached: a cannot be reached")})


@pytest.mark.virtual_time
async def test_a_broker_that_is_silent_is_waited_for_so_long_and_by_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.is_silent = True
    source = cluster.source(timeout_ms=50, waiting_max=2)
    silence = {ORDERS: TopicEnds(None, {0: Ends(-1, -1, "no broker answered within 50 ms")})}
    waiting = [asyncio.create_task(source.look_up({ORDERS: [0]})) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyQueries):
        await source.look_up({ORDERS: [0]})
    assert await asyncio.gather(*waiting) == [silence, silence]
    cluster.is_silent = False
    assert (await source.look_up({ORDERS: [0]}))[ORDERS].partitions == {0: Ends(5, 100)}
    assert cluster.open == []


async def test_a_query_that_waits_for_a_silent_broker_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.silent = {"b"}
    source = cluster.source()
    waiting = asyncio.create_task(source.look_up({ORDERS: [1]}))
    await wait_until(lambda: cluster.asked["b 2"] == 2)
    assert (await source.look_up({ORDERS: [0]}))[ORDERS].partitions == {0: Ends(5, 100)}
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert cluster.open == []


async def test_first_offset_since_a_time_is_the_end_where_no_record_is_so_new(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Cluster(monkeypatch).source()
    found = await source.look_up({ORDERS: [0]}, since_ms=215)
    assert found[ORDERS].partitions == {0: Ends(22, 100)}
    found = await source.look_up({ORDERS: [0]}, since_ms=10)
    assert found[ORDERS].partitions == {0: Ends(5, 100)}
    found = await source.look_up({ORDERS: [0]}, since_ms=991)
    assert found[ORDERS].partitions == {0: Ends(100, 100)}
