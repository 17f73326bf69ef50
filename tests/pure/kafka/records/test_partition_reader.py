"""One partition for its caller: position, what was read ahead, and why it is read no more; over sockets to a small Kafka."""

import asyncio

import pytest

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    ReadDenied,
    ReadFailed,
    RecordsUnreadable,
)
from holdfast.kafka.records.transactions import mark_aborted
from tests.pure.kafka.records.fake_kafka import fake_kafka
from tests.pure.kafka.records.readings import BATCHES, QUICK, make_logs, offsets_of, reader_of, take_to
from tests.pure.kafka.records.samples import ABORT, make_batch, make_marker, with_head
from tests.waiting import wait_until


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


async def test_callback_comes_for_another_problem_once() -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        reading, calls = reader.open(kafka.make_topic().topic_id.bytes, 0, 0), list[str]()
        for problem in ("slow", "slow", "", "", "slow", "gone"):
            reading.call_when_more(lambda: calls.append(reading.problem))
            reading.problem = problem
        assert calls == ["slow", "slow", "gone"]


async def test_problem_that_lasts_is_told_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        reading, calls = reader.open(kafka.make_topic().topic_id.bytes, 0, 0), list[float]()
        began_s = asyncio.get_running_loop().time()
        with monkeypatch.context() as patched:
            for after_s in (0.0, 59.0, 60.0, 119.0, 120.0):
                patched.setattr(asyncio.get_running_loop(), "time", lambda: began_s + after_s)  # noqa: B023 - called before it changes
                reading.call_when_more(lambda: calls.append(after_s))  # noqa: B023 - as above
                reading.problem = "Kafka cannot be reached"
        assert calls == [0, 60, 120]


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


async def test_committed_reading_ends_at_last_stable_offset_and_lists_aborted() -> None:
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
