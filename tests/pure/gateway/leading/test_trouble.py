"""Troubles of the logs that are read: each is one line, lost records are an alarm, and what can go on goes on."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from holdfast.api.share_consumer import ACCEPT, AcknowledgedRange
from holdfast.gateway.leading.led_partition import Ended, LedPartition
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.partition_reader import LogTruncated, OffsetOutOfRange, ReadFailed
from holdfast.records.share.keys import SharePartitionKey, format_key
from tests.pure.gateway.test_serving import KEY, WANTED, World, make_batch
from tests.world.samples import TOPIC

NAME = format_key(KEY)


def give(led: LedPartition, count: int = 10) -> list[tuple[int, int]]:
    """Return the offsets that a member gets now."""
    given = led.give(WANTED, count, 1 << 20)
    return [] if given is None else [(each.first_offset, each.last_offset) for each in given.ranges]


async def test_truncation_of_what_was_only_read_ahead_costs_no_lock() -> None:
    world = World()
    led = world.lead()
    [reader] = world.readers.opened
    reader.put((make_batch(0, 9), make_batch(10, 99)), ())
    assert give(led) == [(0, 9)]
    reader.fail(LogTruncated(100, 10))
    with capture_logs() as lines:
        assert give(led) == [], "offsets from 10 on have other records now"
    assert [line["event"] for line in lines] == ["records_not_read"]
    again = world.readers.opened[-1]
    assert (led.ended, again.position, world.leader.metrics.held.value) == (None, 10, 0)
    again.put((make_batch(10, 14, data=b"others"),), ())
    given = led.give(WANTED, 10, 1 << 20)
    assert given is not None
    assert [bytes(batch.data) for batch in given.batches] == [b"others"]


@pytest.mark.parametrize(
    ("failure", "offset", "end_offset"),
    [
        (LogTruncated(100, 4), 10, 4),
        (LogTruncated(10, 9), 10, 9),
        (OffsetOutOfRange(10, 0, 4), 10, 4),
        (OffsetOutOfRange(10, 0, 9), 10, 9),
        (OffsetOutOfRange(10, 9, 9), 10, 9),
    ],
    ids=["grown again", "its last record", "shorter", "shorter by one", "nothing is left"],
)
async def test_log_that_lost_what_was_given_out_is_one_alarm(failure: ReadFailed, offset: int, end_offset: int) -> None:
    world = World()
    led = world.lead()
    [reader] = world.readers.opened
    reader.put((make_batch(0, 9),), ())
    assert give(led) == [(0, 9)]
    reader.fail(failure)
    with capture_logs() as lines:
        assert give(led) == []
    assert lines == [
        {
            "event": "share_partition_held",
            "log_level": "error",
            "share_partition": NAME,
            "offset": offset,
            "end_offset": end_offset,
        }
    ]
    assert led.ended == Ended(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    assert world.leader.metrics.held.value == 1


async def test_released_records_are_not_given_from_a_log_that_was_truncated() -> None:
    """The reader of what was released knows no leader epoch; the one ahead of it does."""
    world = World()
    led = world.lead()
    [ahead] = world.readers.opened
    ahead.put((make_batch(0, 9), make_batch(10, 19), make_batch(20, 99)), ())
    assert [give(led), give(led)] == [[(0, 9)], [(10, 19)]]
    led.release(WANTED.member_id)
    world.state.answer()
    assert give(led) == [], "they are read again"
    ahead.fail(LogTruncated(100, 5))
    world.readers.opened[-1].put((make_batch(0, 9, data=b"others"),), ())
    with capture_logs() as lines:
        assert give(led) == []
    assert [(line["event"], line["offset"], line["end_offset"]) for line in lines] == [("share_partition_held", 20, 5)]
    assert led.ended is not None


async def test_log_that_lost_its_end_is_an_alarm_while_released_records_are_next() -> None:
    """The next offset lies below the new end, and what was given out above it is lost all the same."""
    world = World()
    led = world.lead()
    [ahead] = world.readers.opened
    ahead.put((make_batch(0, 9), make_batch(10, 99)), ())
    assert [give(led), give(led)] == [[(0, 9)], [(10, 99)]]
    led.release(WANTED.member_id)
    world.state.answer()
    assert give(led) == [], "they are read again"
    world.readers.opened[-1].fail(OffsetOutOfRange(20, 0, 15))
    with capture_logs() as lines:
        assert give(led) == []
    assert [(line["event"], line["offset"], line["end_offset"]) for line in lines] == [
        ("share_partition_held", 100, 15)
    ]
    assert led.ended is not None


async def test_lost_end_that_the_reader_ahead_meets_holds_what_was_released() -> None:
    world = World()
    led = world.lead()
    [ahead] = world.readers.opened
    ahead.put((make_batch(0, 9), make_batch(10, 19)), ())
    assert [give(led), give(led)] == [[(0, 9)], [(10, 19)]]
    led.release(WANTED.member_id)
    world.state.answer()
    assert give(led) == [], "they are read again"
    ahead.fail(OffsetOutOfRange(20, 0, 15))
    world.readers.opened[-1].put((make_batch(0, 9, data=b"others"),), ())
    with capture_logs() as lines:
        assert give(led) == []
    assert [(line["event"], line["offset"], line["end_offset"]) for line in lines] == [("share_partition_held", 20, 15)]


async def test_reader_that_begins_again_knows_the_epoch_of_the_record_before() -> None:
    """So its broker compares it: a log that was truncated and has grown again since is not taken for the same."""
    world = World()
    led = world.lead()
    [ahead] = world.readers.opened
    ahead.put((make_batch(0, 9, epoch=4), make_batch(10, 19, epoch=4), make_batch(20, 29, epoch=6)), ())
    assert [give(led), give(led)] == [[(0, 9)], [(10, 19)]]
    ahead.rest()
    assert (ahead.position, ahead.last_epoch) == (10, 4), "it keeps what it gave last, which may come again at once"
    led.acknowledge(WANTED.member_id, [AcknowledgedRange(0, 9, bytes([ACCEPT]))], lambda _: None)
    led.release(WANTED.member_id)
    world.state.answer()
    world.state.answer()
    ahead.put((make_batch(10, 19, epoch=4), make_batch(20, 29, epoch=6)), ())
    assert give(led) == [(10, 19)]
    assert give(led) == [(20, 29)]
    led.release(WANTED.member_id)
    world.state.answer()
    assert give(led) == []
    again = world.readers.opened[-1]
    assert (again.position, again.last_epoch) == (10, 4)


@pytest.mark.parametrize("start", [10, 50, 100])
async def test_log_that_begins_later_is_no_alarm_and_read_where_it_begins(start: int) -> None:
    """Also where retention has taken all of it, so that it ends where it begins."""
    world = World()
    led = world.lead()
    [reader] = world.readers.opened
    reader.put((make_batch(0, 9),), ())
    assert give(led) == [(0, 9)]
    reader.fail(OffsetOutOfRange(9, start, start))
    with capture_logs() as lines:
        assert give(led) == []
    assert not lines
    again = world.readers.opened[-1]
    assert (led.ended, again.failure, again.position) == (None, None, start)
    again.put((make_batch(start, start + 4),), ())
    assert give(led) == [(start, start + 4)]


async def test_alarm_ends_with_the_first_records_or_with_the_topic() -> None:
    world = World()
    led, other = world.lead(), world.leader.lead(SharePartitionKey("group", TOPIC, 1))
    assert isinstance(other, LedPartition)
    for each, reader in zip((led, other), world.readers.opened, strict=True):
        reader.fail(OffsetOutOfRange(0, 0, -1))
        assert give(each) == []
    metrics = world.leader.metrics
    assert metrics.held.value == 2
    await asyncio.sleep(0.6)
    led = world.lead()
    world.readers.opened[-1].put((make_batch(0, 9),), ())
    assert give(led) == [(0, 9)]
    assert metrics.held.value == 1
    world.leader.forget_topics(lambda topic_id: topic_id == TOPIC)
    assert metrics.held.value == 1
    world.leader.forget_topics(lambda _: False)
    assert metrics.held.value == 0


async def test_share_partitions_without_records_for_one_reason_share_a_line() -> None:
    world = World()
    led = [world.leader.lead(SharePartitionKey("group", TOPIC, number)) for number in range(4)]
    with capture_logs() as lines:
        for each, reader in zip(led, world.readers.opened, strict=True):
            assert isinstance(each, LedPartition)
            assert give(each) == []
            reader.problem = "Kafka cannot be reached"
            assert give(each) == []
            assert each.ended is None
        assert [(line["event"], line["why"]) for line in lines] == [("records_not_read", "Kafka cannot be reached")]
        world.readers.opened[2].problem = "the partition has no leader"
        assert isinstance(led[2], LedPartition)
        assert give(led[2]) == []
    assert [line["why"] for line in lines] == ["Kafka cannot be reached", "the partition has no leader"]
