"""The reader of any topics, over sockets to a small Kafka on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any

import pytest

from holdfast.kafka.cluster import Cluster
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records import lanes
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.fetch import ReadAnswer, read_fetched
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    ReadDenied,
    ReadFailed,
    RecordsUnreadable,
    TopicGone,
    TopicRecreated,
)
from holdfast.kafka.records.reader import TopicReader
from holdfast.kafka.records.room import BATCH_BYTES, RecordRoom
from holdfast.kafka.records.transactions import mark_aborted
from tests.pure.kafka.records.fake_kafka import FakeKafka, fake_kafka
from tests.pure.kafka.records.samples import ABORT, make_batch, make_marker, with_head
from tests.waiting import PATIENCE_S, wait_until

#: Pauses are short; a broker that is silent is given up after a test's patience.
QUICK = ReaderConfig(wait_ms=200, timeout_ms=60_000, retry_backoff_ms=5)
IDLE = QUICK._replace(wait_ms=60)


@asynccontextmanager
async def reader_of(
    kafka: FakeKafka, config: ReaderConfig = QUICK, room: RecordRoom | None = None
) -> AsyncIterator[TopicReader]:
    reader = TopicReader(kafka.options, Cluster(kafka.options, 60_000), config, room=room)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader
    finally:
        await reader.close()


async def take_to(reading: PartitionReader, offset: int) -> list[Batch]:
    """Return all batches up to an offset."""
    batches: list[Batch] = []
    while not batches or batches[-1].last_offset + 1 < offset:
        batches += (await reading.take()).batches
    return batches


def offsets_of(batches: list[Batch]) -> list[int]:
    return [batch.base_offset for batch in batches]


async def test_batches_come_as_they_lie_in_the_log_by_id_and_by_name() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        log = topic.partitions[0]
        for compression in range(5):
            log.append(data=make_batch(log.end, [b"x" * 100] * 3, compression=compression))
        for ref in (topic.topic_id.bytes, "topic"):
            reading = reader.open(ref, 0, 0)
            batches = await take_to(reading, 15)
            assert [bytes(batch.data) for batch in batches] == log.log
            assert (reading.position, reading.high_watermark, reading.log_start_offset) == (15, 15, 0)
            reading.close()
    assert {version for _, version, _ in kafka.fetches} == {17}


async def test_callback_comes_once_for_what_is_new_or_failed() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        log = topic.partitions[0]
        log.append()
        reading, calls = reader.open(topic.topic_id.bytes, 0, 0), list[str]()
        assert reading.take_nowait() is None
        reading.call_when_more(lambda: calls.append("replaced"))
        reading.call_when_more(lambda: calls.append("more"))
        assert reading.is_awaited
        await wait_until(lambda: calls, "something came")
        assert not reading.is_awaited
        assert reading.take_nowait() is not None
        log.append()
        assert offsets_of(await take_to(reading, 2)) == [1]
        assert calls == ["more"]
        reading.call_when_more(lambda: calls.append("failed"))
        reading.fail(ReadFailed("damaged"))
        assert calls == ["more", "failed"]
        reading.call_when_more(lambda: calls.append("closed"))
        reading.close()
        assert calls == ["more", "failed"]


@pytest.mark.parametrize("highest", [12, 13, 14, 15, 16, 17, 18])
async def test_version_is_what_the_broker_offers(highest: int) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.brokers[1].versions[1] = (4, highest)
        topic = kafka.make_topic()
        topic.partitions[0].append(b"a", b"b")
        assert offsets_of(await take_to(reader.open(topic.topic_id.bytes, 0, 1), 2)) == [0]
    assert {version for _, version, _ in kafka.fetches} == {min(highest, 17)}


async def test_cluster_without_topic_ids_is_read_by_name() -> None:
    async with fake_kafka(has_ids=False) as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        log.append()
        reading = reader.open("topic", 0, 0)
        assert offsets_of(await take_to(reading, 1)) == [0]
        log.append()
        assert offsets_of(await take_to(reading, 2)) == [1]
    assert {version for _, version, _ in kafka.fetches} == {12}


@pytest.mark.parametrize("versions", [(4, 11), (0, 3)])
async def test_broker_that_is_too_old_is_named(versions: tuple[int, int]) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.brokers[1].versions[1] = versions
        kafka.make_topic()
        reading = reader.open("topic", 0, 0)
        said = (
            "the broker speaks versions {} to {} of Fetch, one of 12 to 17 is needed; upgrade it to Kafka 2.7 or newer"
        )
        await wait_until(lambda: said.format(*versions) in reading.problem)
        assert reading.take_nowait() is None


async def test_many_partitions_share_requests_and_none_starves() -> None:
    config = QUICK._replace(answer_bytes_max=3_000, partition_bytes_max=1_000)
    async with fake_kafka() as kafka, reader_of(kafka, config) as reader:
        topics = [kafka.make_topic(name, [1] * 5) for name in ("a", "b")]
        for topic in topics:
            for log in topic.partitions:
                for _ in range(10):
                    log.append(b"x" * 500)
        readings = [reader.open(topic.topic_id.bytes, index, 0) for topic in topics for index in range(5)]
        found = await asyncio.gather(*(take_to(reading, 10) for reading in readings))
        assert [offsets_of(batches) for batches in found] == [list(range(10))] * 10
    sizes = [len(topic.partitions) for _, _, request in kafka.fetches for topic in request.topics]
    assert max(sizes) == 5
    for _, _, request in kafka.fetches:
        offsets = [part.fetch_offset for topic in request.topics for part in topic.partitions]
        # An answer has room for three or four batches: those that got none are the first in the next request.
        assert len(offsets) < 10 or max(offsets) - min(offsets) <= 4


async def asked_for(sizes: Sequence[int], bytes_max: int) -> tuple[list[int], list[int]]:
    """Return the sizes of the batches with values of these sizes, and how much of them each request asked for."""
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(partition_bytes_max=bytes_max)) as reader:
        log = kafka.make_topic().partitions[0]
        for size in sizes:
            log.append(b"x" * size)
        assert offsets_of(await take_to(reader.open("topic", 0, 0), len(sizes))) == list(range(len(sizes)))
        parts = [part for _, _, each in kafka.fetches for topic in each.topics for part in topic.partitions]
    return [len(data) for data in log.log], [
        part.partition_max_bytes for part in parts if part.fetch_offset < len(sizes)
    ]


@pytest.mark.parametrize("value_bytes", [500, 1_000])
async def test_whole_batches_are_asked_for_once_their_size_is_known(value_bytes: int) -> None:
    (size, *_), asked = await asked_for([value_bytes] * 20, 1_500)
    count = 1_500 // size
    assert count * size + 200 < 1_500
    known = [each for each in asked if each != 1_500]
    assert len(known) >= len(asked) - 2
    assert {count * size <= each < count * size + 50 for each in known} == {True}


async def test_all_is_asked_for_where_batches_differ_or_are_too_large() -> None:
    for sizes in ([500, 600] * 10, [5_000] * 5):
        _, asked = await asked_for(sizes, 1_500)
        assert set(asked) == {1_500}


async def test_larger_batch_after_even_ones_is_read_next() -> None:
    sizes, asked = await asked_for([500, 500, 500, 500, 1_200, 1_200], 1_300)
    assert asked[-1] == 1_300 > max(sizes)


async def test_one_who_waits_has_the_records_before_more_are_asked_for() -> None:
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(wait_ms=120_000)) as reader:
        log, loop, asked = kafka.make_topic().partitions[0], asyncio.get_running_loop(), list[bool]()
        reading = reader.open("topic", 0, 0)

        def look_soon() -> None:
            loop.call_soon(lambda: asked.append(reading.in_flight is not None))

        await wait_until(lambda: any(request.max_wait.total_seconds() == 120 for _, _, request in kafka.fetches))
        reading.call_when_more(look_soon)
        log.append()
        await wait_until(lambda: asked)
        assert asked == [False]
        await wait_until(lambda: reading.in_flight is not None)


async def test_tail_waits_at_the_broker_and_delays_nobody_else() -> None:
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(wait_ms=120_000)) as reader:
        topic = kafka.make_topic(leaders=[1, 1, 1])
        idle = reader.open("topic", 0, 0)
        await wait_until(lambda: any(request.max_wait.total_seconds() == 120 for _, _, request in kafka.fetches))
        # The waiting request is held; one that catches up, and one that comes to its end after that, are answered all the same.
        topic.partitions[1].append()
        busy = reader.open("topic", 1, 0)
        for number in range(5):
            assert offsets_of(await take_to(busy, number + 1)) == [number]
            topic.partitions[1].append()
        assert idle.take_nowait() is None
        topic.partitions[0].append()
        assert offsets_of(await take_to(idle, 1)) == [0]
    assert len(kafka.brokers[1].fetching) == 2


async def test_idle_tail_makes_one_request_for_all_its_partitions_at_a_time() -> None:
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(wait_ms=50)) as reader:
        kafka.make_topic(leaders=[1] * 50)
        readings = [reader.open("topic", index, 0) for index in range(50)]
        await wait_until(lambda: len(kafka.fetches) > 20)
        assert all(reading.is_at_end for reading in readings)
        count = [sum(len(topic.partitions) for topic in request.topics) for _, _, request in kafka.fetches]
    assert count[-3:] == [50, 50, 50]


async def test_leader_that_moves_is_followed() -> None:
    async with fake_kafka(3) as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic(leaders=[1]).partitions[0]
        reading = reader.open("topic", 0, 0)
        for leader in (2, 3, 1, 2):
            log.append()
            await take_to(reading, log.end)
            kafka.move(log, leader)
        log.append()
        (batch,) = await take_to(reading, log.end)
        assert (batch.base_offset, batch.leader_epoch, reading.leader_epoch) == (4, 4, 4)
    assert {broker for broker, _, _ in kafka.fetches} == {1, 2, 3}


async def test_broker_that_was_cut_off_is_not_believed() -> None:
    async with fake_kafka(2) as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic(leaders=[1]).partitions[0]
        log.append()
        reading = reader.open("topic", 0, 0)
        await take_to(reading, 1)
        kafka.brokers[1].cut_off()
        kafka.move(log, 2)
        log.append()
        assert offsets_of(await take_to(reading, 2)) == [1]
        for _ in range(4):  # whichever broker is asked first
            await reader.cluster.look_up(["topic"])
            assert reader.cluster.topics["topic"].leaders == {0: (2, 1)}


async def test_frozen_broker_delays_no_partition_that_has_moved() -> None:
    async with fake_kafka(3) as kafka, reader_of(kafka, QUICK._replace(timeout_ms=600_000)) as reader:
        log = kafka.make_topic(leaders=[1]).partitions[0]
        log.append()
        reading = reader.open("topic", 0, 0)
        await take_to(reading, 1)
        kafka.brokers[1].goes_on.clear()
        kafka.move(log, 2)
        log.append()
        assert offsets_of(await take_to(reading, 2)) == [1]


async def test_connection_that_breaks_is_opened_again() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        reading = reader.open("topic", 0, 0)
        for number in range(3):
            log.append()
            assert offsets_of(await take_to(reading, number + 1)) == [number]
            for writer in list(kafka.brokers[1].writers):
                writer.transport.abort()


async def test_answer_that_cannot_be_read_is_fetched_again() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.brokers[1].garbage = b"\xff" * 50
        kafka.make_topic().partitions[0].append()
        assert offsets_of(await take_to(reader.open("topic", 0, 0), 1)) == [0]
    assert len(kafka.fetches) >= 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
async def test_trouble_that_passes_ends_no_reading(code: ErrorCode) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic(leaders=[1, 1])
        topic.partitions[0].errors = [int(code)]
        for log in topic.partitions:
            log.append()
        readings = [reader.open("topic", index, 0) for index in range(2)]
        assert [offsets_of(await take_to(each, 1)) for each in readings] == [[0], [0]]
        assert [each.problem for each in readings] == ["", ""]


async def test_leader_that_lacks_is_waited_for() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic(leaders=[-1]).partitions[0]
        reading = reader.open("topic", 0, 0)
        beyond = reader.open("topic", 7, 0)
        await wait_until(lambda: reading.problem == "the partition has no leader")
        await wait_until(lambda: beyond.problem == "the topic has no partition 7")
        kafka.move(log, 1)
        log.append()
        assert offsets_of(await take_to(reading, 1)) == [0]


@pytest.mark.parametrize("by_id", [True, False])
async def test_topic_that_is_deleted_is_told_once_all_brokers_say_so(by_id: bool) -> None:
    async with fake_kafka(2) as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        reading = reader.open(topic.topic_id.bytes if by_id else "topic", 0, 0)
        await wait_until(lambda: reading.is_at_end)
        kafka.brokers[2].cut_off()
        del kafka.topics["topic"]
        topic.partitions[0].wake()
        await wait_until(lambda: reading.problem)
        accepted = kafka.brokers[2].accepted
        await wait_until(lambda: kafka.brokers[2].accepted >= accepted + 3)
        assert reading.failure is None
        kafka.brokers[2].view = None
        with pytest.raises(TopicGone):
            await reading.take()


async def test_topic_that_never_was_is_told() -> None:
    async with fake_kafka(2) as kafka, reader_of(kafka) as reader:
        for ref in ("nothing", bytes(15) + b"\x09", bytes(16), bytes(15) + b"\x01"):
            with pytest.raises(TopicGone):
                await reader.open(ref, 0, 0).take()
    assert not kafka.fetches


async def test_topic_that_is_made_again_is_another_one() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        topic.partitions[0].append()
        readings = [reader.open("topic", 0, 0), reader.open(topic.topic_id.bytes, 0, 0)]
        for reading in readings:
            await take_to(reading, 1)
        again = kafka.make_topic()
        again.partitions[0].append(b"of the other topic")
        topic.partitions[0].wake()
        with pytest.raises(TopicRecreated):
            await readings[0].take()
        with pytest.raises(TopicGone):
            await readings[1].take()


async def test_topic_without_id_is_another_one_after_all_brokers_missed_it() -> None:
    async with fake_kafka(has_ids=False) as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        topic.partitions[0].append()
        kafka.move(topic.partitions[0], 1)
        reading = reader.open("topic", 0, 0)
        await take_to(reading, 1)
        del kafka.topics["topic"]
        topic.partitions[0].wake()
        with pytest.raises(TopicGone):
            await reading.take()
        kafka.make_topic().partitions[0].append(b"of the other topic")
        reading.seek(1)
        with pytest.raises(TopicRecreated):
            await reading.take()


async def test_name_that_had_no_topic_is_looked_up_again_for_a_new_reading() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        with pytest.raises(TopicGone):
            await reader.open("topic", 0, 0).take()
        kafka.make_topic().partitions[0].append()
        await take_to(reader.open("topic", 0, 0), 1)


@pytest.mark.parametrize(("offset", "start"), [(0, 3), (9, 0)])
async def test_offset_that_the_log_has_not_is_told_with_its_bounds(offset: int, start: int) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        for _ in range(5):
            log.append()
        log.start = start
        reading = reader.open("topic", 0, offset)
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} ") as caught:
            await reading.take()
        assert (caught.value.first_offset, caught.value.end_offset) == (start, 5)
        with pytest.raises(OffsetOutOfRange):
            reading.take_nowait()
        reading.seek(4)
        assert offsets_of(await take_to(reading, 5)) == [4]


async def test_log_that_was_truncated_is_told() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        log.append()
        log.diverges_at = 0
        with pytest.raises(LogTruncated, match="truncated at offset 0, below 1") as caught:
            await reader.open("topic", 0, 1, last_epoch=3).take()
        assert caught.value.diverges_at == 0
    (part,) = kafka.fetches[0][2].topics[0].partitions
    assert part.last_fetched_epoch == 3


@pytest.mark.parametrize("base_offset", [0, 1])
async def test_batch_that_overlaps_what_was_read_is_a_truncation(base_offset: int) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        log.append()
        log.append()
        reading = reader.open("topic", 0, 0)
        assert offsets_of(await take_to(reading, 2)) == [0, 1]
        other = make_batch(base_offset, [b"another"] * 9)
        log.read = lambda offset, bytes_max, is_first: other  # type: ignore[method-assign]
        log.wake()
        with pytest.raises(LogTruncated, match=f"truncated at offset {base_offset}, below 2"):
            await reading.take()
        # One that begins there has read nothing that the batch is at odds with.
        reading.seek(2)
        assert offsets_of([*(await reading.take()).batches]) == [base_offset]


async def test_right_that_lacks_is_told() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.make_topic().partitions[0].errors = [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        with pytest.raises(ReadDenied, match=r"TOPIC_AUTHORIZATION_FAILED .*; allow Read on topic topic to "):
            await reader.open("topic", 0, 0).take()


@pytest.mark.parametrize(
    ("damage", "fetches"), [((8, 0, 4), 2), ((23, -1, 4), 2), ((16, 1, 1), 1)], ids=["length", "offsets", "old format"]
)
async def test_damaged_batch_ends_its_partition_alone_after_a_second_look(
    damage: tuple[int, int, int], fetches: int
) -> None:
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(wait_ms=60_000)) as reader:
        topic = kafka.make_topic(leaders=[1, 1])
        damaged, sound = topic.partitions
        damaged.append()
        damaged.append()
        sound.append()
        damaged.log[1] = with_head(damaged.log[1], *damage)
        damaged.read = lambda offset, bytes_max, is_first: b"".join(damaged.log[offset:])  # type: ignore[method-assign]
        reading, other = (reader.open("topic", index, 0) for index in range(2))
        assert offsets_of(await take_to(reading, 1)) == [0]  # what comes before it is handed out
        with pytest.raises(RecordsUnreadable):
            await reading.take()
        assert offsets_of(await take_to(other, 1)) == [0]
        sound.append()
        assert offsets_of(await take_to(other, 2)) == [1]
    asked = [
        part.fetch_offset
        for _, _, request in kafka.fetches
        for each in request.topics
        for part in each.partitions
        if part.partition == 0
    ]
    assert len(asked) == fetches


async def test_batch_that_is_cut_short_comes_with_the_next_fetch() -> None:
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(partition_bytes_max=400)) as reader:
        log = kafka.make_topic().partitions[0]
        for size in (100, 200, 1_000, 10):
            log.append(b"x" * size)
        assert [bytes(batch.data) for batch in await take_to(reader.open("topic", 0, 0), 4)] == log.log


async def test_committed_reading_ends_at_the_last_stable_offset_and_lists_what_was_aborted() -> None:
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(is_committed=True)) as reader:
        log = kafka.make_topic().partitions[0]
        log.append(data=make_batch(0, producer=(7, 0), is_transactional=True))
        log.stable = 0
        reading = reader.open("topic", 0, 0)
        await wait_until(lambda: reading.is_at_end)
        assert (reading.take_nowait(), reading.high_watermark, reading.last_stable_offset) == (None, 1, 0)
        log.append(data=make_marker(1, (7, 0), ABORT))
        log.append(data=make_batch(2))
        log.aborted, log.stable = [(7, 0)], None
        log.wake()
        chunk = await reading.take()
        assert chunk.last_stable_offset == 3
        marks = [(batch.base_offset, is_aborted) for batch, is_aborted in mark_aborted(chunk.batches, chunk.aborted)]
        assert marks == [(0, True), (1, False), (2, False)]
    assert all(request.isolation_level == 1 for _, _, request in kafka.fetches)


async def test_uncommitted_reading_has_what_is_not_decided() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        log.append(data=make_batch(0, producer=(7, 0), is_transactional=True))
        log.stable = 0
        chunk = await reader.open("topic", 0, 0).take()
        assert (offsets_of(list(chunk.batches)), chunk.aborted, chunk.last_stable_offset) == ([0], (), 0)


async def test_broker_that_is_over_a_quota_is_left_alone() -> None:
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(throttle_max_ms=300)) as reader:
        log = kafka.make_topic().partitions[0]
        log.append()
        kafka.brokers[1].throttle_ms = 60_000
        reading = reader.open("topic", 0, 0)
        await take_to(reading, 1)
        count = len(kafka.fetches)
        log.append()
        loop = asyncio.get_running_loop()
        until_s = reader.throttle.until_s(1)
        assert until_s > 0
        await wait_until(
            lambda: reading.problem == "broker 1 asks for a pause, because this client has used up its quota"
        )
        await take_to(reading, 2)
        assert loop.time() >= until_s
    assert len(kafka.fetches) >= count + 1


async def test_no_more_is_read_ahead_of_a_partition_than_its_bound() -> None:
    config = QUICK._replace(ahead_bytes_max=2_000, partition_bytes_max=1_000)
    async with fake_kafka() as kafka, reader_of(kafka, config) as reader:
        log = kafka.make_topic().partitions[0]
        for _ in range(50):
            log.append(b"x" * 500)
        reading = reader.open("topic", 0, 0)
        await wait_until(lambda: reading.ahead_bytes >= 2_000 and reading.in_flight is None)
        assert reading.place is None
        assert 2_000 <= reading.ahead_bytes < 3_000
        assert offsets_of(await take_to(reading, 50)) == list(range(50))


#: Holds ten of the logs below.
ROOM_BYTES = 64_000
BATCHES = 5


def make_logs(kafka: FakeKafka, count: int, value_bytes: int = 800) -> None:
    for log in kafka.make_topic(leaders=[1] * count).partitions:
        for _ in range(BATCHES):
            log.append(b"x" * value_bytes)


async def fill(room: RecordRoom, reader: TopicReader, count: int = 20) -> list[PartitionReader]:
    """Read ahead until there is no room."""
    readings = [reader.open("topic", index, 0) for index in range(count)]
    await wait_until(lambda: room.is_full and all(each.in_flight is None for each in readings))
    return readings


async def test_other_threads_alone_wake_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    room, loop, calls = RecordRoom(ROOM_BYTES), asyncio.get_running_loop(), list[str]()
    wake = loop.call_soon_threadsafe

    def wake_from_thread(told: Callable[[], object]) -> None:
        calls.append("from a thread")
        wake(told)

    def on_room(_: int) -> bool:
        calls.append("told")
        return False

    monkeypatch.setattr(loop, "call_soon_threadsafe", wake_from_thread)
    room.watch(on_room)
    room.make_buffer(100)
    await wait_until(lambda: "told" in calls)
    assert calls == ["told"]
    freed = Thread(target=room.make_buffer, args=(100,))
    freed.start()
    freed.join()
    await wait_until(lambda: calls.count("told") == 2)
    assert calls == ["told", "from a thread", "told"]


async def test_bound_of_what_is_alive_holds_also_for_those_who_wait() -> None:
    room, most = RecordRoom(ROOM_BYTES), 0
    async with fake_kafka() as kafka, reader_of(kafka, QUICK, room) as reader:
        make_logs(kafka, 20)
        readings = await fill(room, reader)
        for _ in range(300):  # turns in which one that ignored the bound would read on
            await asyncio.sleep(0)
        assert room.held_bytes <= ROOM_BYTES
        # Those who wait are served all the same: others give up what nobody waits for, and read it again.
        for reading in sorted(readings, key=lambda each: each.ahead_bytes):
            taken = await take_to(reading, BATCHES)
            assert offsets_of(taken) == list(range(BATCHES))
            most = max(most, room.held_bytes)
            taken.clear()
    assert ROOM_BYTES / 2 < most <= ROOM_BYTES
    assert (room.held_bytes, room.reader_count, room._promised_bytes) == (0, 0, 0)


async def test_answers_that_clients_have_still_are_waited_for() -> None:
    room = RecordRoom(ROOM_BYTES)
    async with fake_kafka() as kafka, reader_of(kafka, QUICK, room) as reader:
        make_logs(kafka, 20)
        readings = await fill(room, reader)
        kept: list[list[Batch]] = []
        for reading in readings:
            waiting = asyncio.create_task(take_to(reading, BATCHES))
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            if not done:
                break
            kept.append(waiting.result())
        assert not waiting.done()
        assert room.held_bytes <= ROOM_BYTES
        del done
        kept.clear()
        assert offsets_of(await waiting) == list(range(BATCHES))


async def test_batch_that_is_larger_than_the_room_comes_whole() -> None:
    room = RecordRoom(ROOM_BYTES)
    async with fake_kafka() as kafka, reader_of(kafka, QUICK, room) as reader:
        make_logs(kafka, 3, value_bytes=2 * ROOM_BYTES)
        for index in range(3):
            reading = reader.open("topic", index, 0)
            for offset in range(BATCHES):
                assert offsets_of(list((await reading.take()).batches)) == [offset]


async def test_readers_of_one_room_share_its_bound() -> None:
    room = RecordRoom(ROOM_BYTES)
    async with (
        fake_kafka() as kafka,
        reader_of(kafka, QUICK, room) as reader,
        reader_of(kafka, QUICK._replace(is_committed=True), room) as committed,
    ):
        make_logs(kafka, 20)
        await fill(room, reader)
        reading = committed.open("topic", 7, 0)
        for _ in range(300):
            await asyncio.sleep(0)
        assert not reading.ahead_bytes
        assert room.held_bytes <= ROOM_BYTES
        assert offsets_of(await take_to(reading, BATCHES)) == list(range(BATCHES))
        assert room.held_bytes <= ROOM_BYTES


async def test_heads_of_small_batches_count() -> None:
    room = RecordRoom(200_000)
    async with fake_kafka() as kafka, reader_of(kafka, QUICK, room) as reader:
        log = kafka.make_topic().partitions[0]
        for _ in range(100):
            log.append(b"x")
        taken = await take_to(reader.open("topic", 0, 0), 100)
        assert room.held_bytes > 100 * BATCH_BYTES + sum(len(batch.data) for batch in taken)


async def test_one_that_rests_reads_nothing_before_somebody_asks() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        make_logs(kafka, 1)
        reading = reader.open("topic", 0, 0)
        first = await reading.take()
        reading.rest()
        count = len(kafka.fetches)
        for _ in range(300):
            await asyncio.sleep(0)
        assert (len(kafka.fetches), reading.ahead_bytes, reading.in_flight) == (count, 0, None)
        end = first.batches[-1].last_offset + 1
        kafka.topics["topic"].partitions[0].append()
        assert offsets_of(await take_to(reading, BATCHES + 1)) == list(range(end, BATCHES + 1))


async def test_lane_that_sleeps_for_room_sees_that_somebody_begins_to_wait() -> None:
    room, calls = RecordRoom(ROOM_BYTES), list[str]()
    async with fake_kafka() as kafka, reader_of(kafka, QUICK, room) as reader:
        # Many more than a request asks for, so that some are left when there is no room for the next one.
        make_logs(kafka, 200)
        readings = await fill(room, reader, 200)
        for _ in range(300):  # turns in which the lane finds that there is no room
            await asyncio.sleep(0)
        reading = next(each for each in readings if not each.position)
        reading.call_when_more(lambda: calls.append("read"))
        async with asyncio.timeout(10):
            await wait_until(lambda: calls)
        assert reading.take_nowait() is not None


# ---- partitions that wait ------------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the partitions of each answer that is parsed."""
    counts = list[int]()

    def counted(version: int, data: memoryview) -> ReadAnswer:
        answer = read_fetched(version, data)
        counts.append(len(answer.partitions))
        return answer

    monkeypatch.setattr(lanes, "read_fetched", counted)
    return counts


async def wait_for_fetches(kafka: FakeKafka, count: int) -> None:
    """Wait until there were some more."""
    count += len(kafka.fetches)
    await wait_until(lambda: len(kafka.fetches) >= count)


def partitions_of(fetch: tuple[int, int, Any]) -> list[int]:
    """Return the partitions that a request asks for."""
    _, _, request = fetch
    return sorted(each.partition for topic in request.topics for each in topic.partitions)


async def test_partitions_that_wait_are_looked_at_once(parsed: list[int]) -> None:
    async with fake_kafka() as kafka, reader_of(kafka, IDLE) as reader:
        make_logs(kafka, 30)
        logs = kafka.topics["topic"].partitions
        readings = [reader.open("topic", index, logs[index].end) for index in range(30) for _ in range(2)]
        await wait_until(lambda: all(each.is_at_end for each in readings))
        await wait_for_fetches(kafka, 4)
        parsed.clear()
        await wait_for_fetches(kafka, 5)
        assert not parsed
        # Records come still, and what follows them, to all who read a partition.
        for _ in range(2):
            for index in (7, 29):
                logs[index].append()
                for reading in readings[2 * index : 2 * index + 2]:
                    assert (await take_to(reading, logs[index].end))[0].base_offset == logs[index].end - 1
        await wait_for_fetches(kafka, 4)
        parsed.clear()
        await wait_for_fetches(kafka, 5)
        assert not parsed


async def test_request_that_is_repeated_hears_of_newcomers_and_of_leavers(parsed: list[int]) -> None:
    async with fake_kafka() as kafka, reader_of(kafka, IDLE) as reader:
        make_logs(kafka, 10)
        logs = kafka.topics["topic"].partitions
        first = [reader.open("topic", index, logs[index].end) for index in range(9)]
        await wait_until(lambda: all(each.is_at_end for each in first))
        await wait_for_fetches(kafka, 4)
        newcomer = reader.open("topic", 9, 0)
        assert (await take_to(newcomer, logs[9].end))[0].base_offset == 0
        await wait_for_fetches(kafka, 4)
        first[3].seek(0)
        assert (await take_to(first[3], logs[3].end))[0].base_offset == 0
        await wait_for_fetches(kafka, 4)
        first[5].close()
        # All of them are soon in one request.
        await wait_until(lambda: partitions_of(kafka.fetches[-1]) == [0, 1, 2, 3, 4, 6, 7, 8, 9])
        begun = len(kafka.fetches)
        await wait_for_fetches(kafka, 5)
        assert [partitions_of(each) for each in kafka.fetches[begun:]] == [[0, 1, 2, 3, 4, 6, 7, 8, 9]] * 5
        # An error of one is looked at, and costs no other one its records.
        logs[1].errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        logs[1].wake()
        await wait_for_fetches(kafka, 4)
        for index in (1, 8):
            logs[index].append()
            await take_to(first[index], logs[index].end)


async def test_newcomer_is_taken_into_the_request_that_waits() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        make_logs(kafka, 10)
        logs = kafka.topics["topic"].partitions
        readings = [reader.open("topic", index, logs[index].end) for index in range(9)]
        await wait_until(lambda: all(each.is_at_end for each in readings))
        await wait_for_fetches(kafka, 3)
        reader.open("topic", 9, logs[9].end)
        begun = len(kafka.fetches)
        async with asyncio.timeout(5):
            await wait_until(lambda: partitions_of(kafka.fetches[-1]) == list(range(10)))
        assert len(kafka.fetches) - begun < 20
        begun = len(kafka.fetches)
        await wait_for_fetches(kafka, 3)
        assert [partitions_of(each) for each in kafka.fetches[begun:]] == [list(range(10))] * 3


async def test_many_readers_of_few_partitions_wait_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_WAITING_MAX", 5)
    async with fake_kafka() as kafka, reader_of(kafka, IDLE) as reader:
        make_logs(kafka, 5)
        logs = kafka.topics["topic"].partitions
        readings = [reader.open("topic", index, logs[index].end) for _ in range(20) for index in range(5)]
        await wait_until(lambda: all(each.is_at_end for each in readings))
        await wait_for_fetches(kafka, 4)
        begun = len(kafka.fetches)
        await wait_for_fetches(kafka, 5)
        assert [partitions_of(each) for each in kafka.fetches[begun:]] == [[0, 1, 2, 3, 4]] * 5


async def test_two_readers_of_one_partition_both_get_all() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        topic = kafka.make_topic()
        log = topic.partitions[0]
        for _ in range(10):
            log.append()
        readings = [reader.open("topic", 0, 0), reader.open(topic.topic_id.bytes, 0, 5), reader.open("topic", 0, 9)]
        found = await asyncio.gather(*(take_to(each, 10) for each in readings))
        assert [offsets_of(each) for each in found] == [list(range(10)), list(range(5, 10)), [9]]
        log.append()
        found = await asyncio.gather(*(take_to(each, 11) for each in readings))
        assert [offsets_of(each) for each in found] == [[10]] * 3


async def test_readers_at_one_position_share_a_request() -> None:
    """As many groups stand at the end of a log: the answer that wakes one of them has the records of all."""
    async with fake_kafka() as kafka, reader_of(kafka, QUICK._replace(wait_ms=120_000)) as reader:
        topic = kafka.make_topic()
        readings = [reader.open("topic", 0, 0) for _ in range(20)]
        await wait_until(lambda: kafka.fetches)
        topic.partitions[0].append()
        found = await asyncio.gather(*(take_to(reading, 1) for reading in readings))
        assert [offsets_of(batches) for batches in found] == [[0]] * 20
        assert len({id(batches[0].data.obj) for batches in found}) == 1, "they are views of one answer"
        requests = len(kafka.fetches)
        topic.partitions[0].append()
        found = await asyncio.gather(*(take_to(reading, 2) for reading in readings))
        assert [offsets_of(batches) for batches in found] == [[1]] * 20
        assert len(kafka.fetches) <= requests + 4


async def test_taking_may_be_cancelled_and_loses_nothing() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        reading = reader.open("topic", 0, 0)
        for number in range(5):
            taking = asyncio.ensure_future(reading.take())
            await asyncio.sleep(0)
            taking.cancel()
            log.append()
            assert offsets_of(await take_to(reading, number + 1)) == [number]


async def test_position_that_is_set_while_an_answer_is_on_its_way_counts() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        for _ in range(10):
            log.append()
        reading = reader.open("topic", 0, 0)
        for offset in (7, 2, 9, 0, 5):
            reading.seek(offset)
            await wait_until(lambda: reading.in_flight is not None or reading.ahead_bytes)
            reading.seek(offset + 1 if offset < 9 else 9)
            first = (await reading.take()).batches[0]
            assert first.base_offset == min(offset + 1, 9)


async def test_reading_that_is_closed_wakes_who_waits() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        kafka.make_topic()
        reading = reader.open("topic", 0, 0)
        taking = asyncio.ensure_future(reading.take())
        await wait_until(lambda: reading.is_at_end)
        reading.close()
        reading.close()
        with pytest.raises(ReadFailed, match="the reading was ended"):
            await taking
        assert "topic" not in reader.cluster.topics


async def test_large_answer_leaves_others_their_turn() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        log = kafka.make_topic().partitions[0]
        for _ in range(5_000):
            log.log.append(make_batch(log.end))
            log.end += 1
        turns: list[int] = []

        async def count() -> None:
            while True:
                turns.append(reading.position)
                await asyncio.sleep(0)

        reading = reader.open("topic", 0, 0)
        log.read = lambda offset, bytes_max, is_first: b"".join(log.log[offset:])  # type: ignore[method-assign]
        counting: Any = asyncio.ensure_future(count())
        await take_to(reading, 5_000)
        counting.cancel()
        assert len(turns) > 4
