"""The requests for records: what is in each of them, and which wait at a broker; over sockets to a small Kafka on loopback."""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records import lanes
from holdfast.kafka.records.fetch import ReadAnswer, read_fetched
from tests.pure.kafka.records.fake_kafka import FakeKafka, fake_kafka
from tests.pure.kafka.records.readings import QUICK, make_logs, offsets_of, reader_of, take_to
from tests.pure.kafka.records.samples import make_batch
from tests.waiting import PATIENCE_S, wait_until

IDLE = QUICK._replace(wait_ms=60)


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


async def test_time_of_the_last_answer_is_of_each_that_tells_of_a_partition(parsed: list[int]) -> None:
    now_s = asyncio.get_running_loop().time
    async with fake_kafka() as kafka, reader_of(kafka, IDLE) as reader:
        make_logs(kafka, 2)
        logs = kafka.topics["topic"].partitions
        reading, other = (reader.open("topic", index, logs[index].end) for index in range(2))
        assert reading.answered_s == -inf
        await wait_until(lambda: reading.is_at_end and other.is_at_end)
        assert 0 <= now_s() - reading.answered_s < PATIENCE_S
        await wait_for_fetches(kafka, 4)
        parsed.clear()
        # An answer that is the one before tells of all of its partitions.
        before_s = now_s()
        await wait_until(lambda: min(reading.answered_s, other.answered_s) > before_s)
        assert not parsed
        # It stays with one that leaves the request.
        told_s = reading.answered_s
        reading.seek(logs[0].end)
        assert (reading.in_flight, reading.answered_s) == (None, told_s)
        # An error tells nothing.
        logs[0].errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1_000
        logs[0].wake()
        await wait_until(lambda: reading.problem)
        told_s, errors_left = reading.answered_s, len(logs[0].errors)
        await wait_until(lambda: len(logs[0].errors) < errors_left - 2)
        assert reading.answered_s == told_s < other.answered_s


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
