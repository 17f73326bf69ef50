"""The bound on answers that are alive, with readers over sockets to a small Kafka on loopback."""

import asyncio
from collections.abc import Callable
from threading import Thread

import pytest

from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.partition_reader import (
    PartitionReader,
)
from holdfast.kafka.records.reader import TopicReader
from holdfast.kafka.records.room import BATCH_BYTES, RecordRoom
from tests.pure.kafka.records.fake_kafka import fake_kafka
from tests.pure.kafka.records.readings import BATCHES, QUICK, make_logs, offsets_of, reader_of, take_to
from tests.waiting import wait_until

#: Holds ten of the logs below.
ROOM_BYTES = 64_000


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


async def test_who_waited_once_is_told_that_nothing_is_read_before_it_asks_again() -> None:
    """Else it would wait for what nobody fetches, as one that asks only where something has changed."""
    waiting = [True]
    async with fake_kafka() as kafka, reader_of(kafka) as reader:
        make_logs(kafka, 1)
        reading, calls = reader.open("topic", 0, 0), list[str]()
        await take_to(reading, BATCHES)
        reading.call_when_more(lambda: calls.append("rests"), lambda: waiting[0])
        waiting[0] = False
        reading.rest()
        assert calls == ["rests"]
        waiting[0] = True
        reading.call_when_more(lambda: calls.append("more"), lambda: waiting[0])
        kafka.topics["topic"].partitions[0].append()
        await wait_until(lambda: len(calls) > 1)
        assert calls == ["rests", "more"]


async def test_who_waited_once_is_told_that_there_is_no_room() -> None:
    room, waiting, calls = RecordRoom(ROOM_BYTES), [True], list[PartitionReader]()
    async with fake_kafka() as kafka, reader_of(kafka, QUICK, room) as reader:
        make_logs(kafka, 20)
        readings = await fill(room, reader)
        reading = next(each for each in readings if not each.position)
        reading.call_when_more(lambda: calls.append(reading), lambda: waiting[0])
        waiting[0] = False
        reader.settle(reading)
        assert (calls, reading.waits_for_room) == ([reading], True)


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
