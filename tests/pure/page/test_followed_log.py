"""A log partition that is followed: of when its states are, at each turn that its reading may take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.kafka.records.batches import iter_batches
from holdfast.kafka.records.partition_reader import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionReader,
    ReadDenied,
    ReadFailed,
    RecordsUnreadable,
)
from holdfast.page import followed_log
from holdfast.page.book import Book
from holdfast.page.decoding import TopicRecord
from holdfast.page.followed_log import FollowedLog
from holdfast.page.moment import Truth
from tests.pure.page.samples import KEY, NOW_MS, Log, batch_of, snapshot
from tests.waiting import wait_until

pytestmark = pytest.mark.virtual_time


class Owner:
    """Fetches nothing; the test puts what comes."""

    def settle(self, reader: PartitionReader) -> None:
        """Do nothing."""

    def drop(self, reader: PartitionReader) -> None:
        """Do nothing."""


class Followed:
    """A log partition, whose answers the test makes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun_s = self._loop.time()
        self.answered_ms = 0
        self.book = Book()
        self.reader = PartitionReader(Owner(), "states", 0, 0)
        self.log = FollowedLog(0, self.reader, self.book, self.now_ms)

    def now_ms(self) -> int:
        return NOW_MS + round(1_000 * (self._loop.time() - self._begun_s))

    async def answer(self, end: int, *records: TopicRecord) -> None:
        """Have an answer come, and what it has folded."""
        await asyncio.sleep(0.1)
        reader = self.reader
        reader.high_watermark = reader.end_offset = end
        reader.problem, reader.answered_s = "", self._loop.time()
        self.answered_ms = self.now_ms()
        if records:
            data = b"".join(map(batch_of, records))
            reader.put(tuple(iter_batches(memoryview(data), records[0].offset)), ())
            await wait_until(lambda: self.book.logs[0].next_offset > records[-1].offset)

    def groups(self) -> list[str]:
        return sorted(key.group_id for key in self.book.describe({}))


@asynccontextmanager
async def following() -> AsyncIterator[Followed]:
    followed = Followed()
    task = asyncio.create_task(followed.log.follow())
    try:
        yield followed
    finally:
        task.cancel()
        await asyncio.wait([task])


def records(*groups: str, start: int = 0) -> list[TopicRecord]:
    log = Log(start)
    for group in groups:
        log.put(KEY._replace(group_id=group), snapshot(5))
    return log.records


async def test_it_is_true_at_the_last_answer_in_which_nothing_was_left() -> None:
    async with following() as followed:
        assert followed.log.truth() == Truth(None, "being read, up to offset 0")
        await followed.answer(2, *records("first"))
        assert followed.log.truth().why_old == "being read, up to offset 1 of 2"
        assert not followed.log.was_whole
        await followed.answer(2, *records("second", start=1))
        assert followed.log.truth() == Truth(followed.answered_ms)
        await followed.answer(2)
        at_ms = followed.answered_ms
        await asyncio.sleep(2)
        assert followed.log.truth() == Truth(at_ms)
        await asyncio.sleep(2)
        assert followed.log.truth() == Truth(
            at_ms, "not read to its end: its leader is silent, or the log grows faster than it is read"
        )


@pytest.mark.parametrize(
    "cut",
    [OffsetOutOfRange(2, 6, 9), OffsetOutOfRange(2, 0, 0), OffsetOutOfRange(2, 0, 1), LogTruncated(2, 1)],
    ids=["pruned", "emptied", "shortened", "truncated"],
)
async def test_groups_stay_while_a_log_is_read_once_more_and_are_of_before(cut: ReadFailed) -> None:
    async with following() as followed:
        await followed.answer(2, *records("first", "second"))
        at_ms = followed.answered_ms
        assert followed.log.truth() == Truth(at_ms)
        await asyncio.sleep(1)
        followed.reader.fail(cut)
        await wait_until(lambda: followed.reader.failure is None)
        start = followed.book.logs[0].start
        again = "being read once more, for its start was pruned or it was truncated, up to offset"
        assert followed.log.truth() == Truth(at_ms, f"{again} {start}")
        assert followed.groups() == ["first", "second"]
        await followed.answer(start + 2, *records("third", start=start))
        assert followed.log.truth() == Truth(at_ms, f"{again} {start + 1} of {start + 2}")
        assert followed.groups() == ["first", "second"]
        await followed.answer(start + 2, *records("first", start=start + 1))
        assert followed.log.truth() == Truth(followed.answered_ms)
        assert followed.groups() == ["first", "third"]


async def test_a_log_that_became_empty_has_no_groups_once_that_is_known() -> None:
    async with following() as followed:
        await followed.answer(2, *records("first", "second"))
        followed.reader.fail(OffsetOutOfRange(2, 6, 6))
        await wait_until(lambda: followed.reader.failure is None)
        assert followed.groups() == ["first", "second"]
        await followed.answer(6)
        assert followed.log.truth() == Truth(followed.answered_ms)
        assert followed.groups() == []


@pytest.mark.parametrize("failure", [ReadDenied("denied"), RecordsUnreadable("at offset 1: damaged")])
async def test_a_failure_is_told_of_until_an_answer_shows_that_it_is_over(failure: ReadFailed) -> None:
    async with following() as followed:
        await followed.answer(2, *records("first", "second"))
        at_ms = followed.answered_ms
        followed.reader.fail(failure)
        for _ in range(4):
            await asyncio.sleep(followed_log._PAUSE_S / 2)
            assert followed.log.truth() == Truth(at_ms, f"not read on: {failure}")
        # Nothing new is in it, so that only the answer tells.
        await followed.answer(2)
        assert followed.log.truth() == Truth(followed.answered_ms)


async def test_a_batch_that_cannot_be_read_leaves_what_came_before_it() -> None:
    async with following() as followed:
        await followed.answer(3, *records("first"))
        followed.reader.fail(RecordsUnreadable("at offset 1: damaged"))
        await wait_until(lambda: bool(followed.log.problem))
        # The states are those of the log when its last record was written.
        assert followed.log.truth() == Truth(NOW_MS, "not read on: at offset 1: damaged")
        assert followed.groups() == ["first"]


async def test_a_start_that_was_pruned_is_no_problem_before_it_is_read_from() -> None:
    async with following() as followed:
        await asyncio.sleep(0)
        followed.reader.fail(OffsetOutOfRange(0, 6, 9))
        for _ in range(3):
            assert (followed.log.problem, followed.log.was_whole) == ("", False)
            await asyncio.sleep(0)
