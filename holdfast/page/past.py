"""The part of a timeline that the log does not have any more, read in the history that the compaction job keeps.

One thread reads files, for one timeline at a time; a store that hangs holds up nothing else. The rows are folded on the loop, in slices.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.distribution import how_to_install
from holdfast.hidden_texts import hide
from holdfast.history.lost import cut_before, ends_before_log
from holdfast.history.schema import GAP
from holdfast.page.log_fold import Folded, Gap, fold, one_more
from holdfast.page.source import HISTORY, HistoryView, utc
from holdfast.page.timeline import OffsetTimeline
from holdfast.records.errors import RecordError
from holdfast.records.share.codecs.codec import decode_value
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Update

if TYPE_CHECKING:
    from holdfast.history.past import Past, PastRow

#: How long files are read for one timeline.
READ_S: Final = 8.0
#: How much longer a store may hang, or one waits for the timeline of another reader.
_PATIENCE_S: Final = 4.0
#: How long rows are folded before others have their turn.
_SLICE_S: Final = 0.005
#: Gaps of a history that are named.
_GAPS_MAX: Final = 3


class Asked(NamedTuple):
    """An offset, and the part of a log partition that a history is asked for."""

    state_topic_id: bytes
    key: SharePartitionKey
    offset: int  #: of the user's topic
    log_partition: int
    end: int  #: of the log partition, exclusive


class PastTimeline(NamedTuple):
    """The answer of a history."""

    timeline: OffsetTimeline  #: of nothing, where it was not read
    view: HistoryView
    unknown: tuple[str, ...]  #: what it does not tell, in sentences
    worked_s: float = 0.0  #: how long the thread has worked for it


class PastFold:
    """The fold of one share partition from the rows of a history; after a gap it is known again from a snapshot on."""

    def __init__(self, key: SharePartitionKey) -> None:
        self._key = key
        self._state: ShareState | None = None
        #: The ends of gaps.
        self.gaps: list[int] = []
        self.undecodable: Gap | None = None

    def take(self, row: PastRow) -> Folded | None:
        """Take the next row; returns what it did."""
        if row.kind == GAP:
            self.gaps.append(row.offset)
            self._state = None
            return None
        try:
            value = None if row.value is None else decode_value(row.key or b"", row.value)[0]
        except RecordError:
            self.undecodable = one_more(self.undecodable, row.offset)
            return None
        before = self._state
        if isinstance(value, Update) and before is None:
            return None
        self._state = after = fold(before, value)
        return Folded(row.offset, row.timestamp_ms, row.owner_epoch, self._key, before, after)


class History:
    """The history at one place."""

    def __init__(self, place: str, named_by: str) -> None:
        """Name it; nothing is read yet.

        Args:
            place: a directory or a URI.
            named_by: the option or the setting that names it.
        """
        self._uri = place
        self._named_by = named_by
        self._turn = asyncio.Semaphore(1)

    async def timeline(self, asked: Asked, rest: Callable[[], Awaitable[None]]) -> PastTimeline:
        """Return what the history tells of an offset.

        Args:
            asked: the offset.
            rest: lets others have their turn.
        """
        timeline = OffsetTimeline(asked.key, asked.offset, asked.log_partition, HISTORY)
        try:
            past, worked_s = await self._read(asked)
        except _NotRead as error:
            problem = f"{error}".rstrip(".") + "."
            return PastTimeline(timeline, self._view(asked, problem=problem), (problem,))
        folded, first, rested_s = PastFold(asked.key), None, time.perf_counter()
        for row in past.rows():
            if (change := folded.take(row)) is not None:
                first = first or change
                timeline.take(change)
            if time.perf_counter() - rested_s > _SLICE_S:
                await rest()
                rested_s = time.perf_counter()
        view = self._view(asked) if first is None else self._view(asked, first.timestamp_ms, first.offset)
        return PastTimeline(timeline, view, tuple(_unknown(past, folded, timeline, view)), worked_s)

    def _view(
        self, asked: Asked, from_ms: int | None = None, from_offset: int | None = None, problem: str = ""
    ) -> HistoryView:
        return HistoryView(hide(self._uri, ()), from_ms, from_offset, asked.end, problem)

    async def _read(self, asked: Asked) -> tuple[Past, float]:
        """Read in a thread; returns how long it worked, too.

        Raises:
            _NotRead: it could not be.
        """
        loop = asyncio.get_running_loop()
        found: asyncio.Future[tuple[Past, float]] = loop.create_future()
        try:
            async with asyncio.timeout(READ_S + _PATIENCE_S):
                await self._turn.acquire()
        except TimeoutError:
            raise _NotRead("The history is being read for other timelines; look again in some seconds") from None

        def end(result: tuple[Past, float] | Exception) -> None:
            self._turn.release()
            if found.done():
                return
            if isinstance(result, Exception):
                found.set_exception(result)
            else:
                found.set_result(result)

        def work() -> None:
            result: tuple[Past, float] | Exception
            try:
                result = self._read_files(asked), time.thread_time()
            except Exception as failure:
                result = failure
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(end, result)

        # No pool: a process would wait at its end for a thread that hangs.
        threading.Thread(target=work, name="holdfast-page-history", daemon=True).start()
        try:
            async with asyncio.timeout(READ_S + _PATIENCE_S):
                return await found
        except TimeoutError:
            raise _NotRead(f"The history at {hide(self._uri, ())} does not answer") from None

    def _read_files(self, asked: Asked) -> Past:
        try:
            import pyarrow as pa  # type: ignore[import-untyped]

            from holdfast.history.past import PastReader
            from holdfast.history.place import HistoryPlace, HistoryProblem
        except ImportError as missing:
            text = f"The history is read with pyarrow, which is not installed ({missing.name}); {how_to_install('history')}"
            raise _NotRead(text) from None
        end_s = time.monotonic() + READ_S
        try:
            days = HistoryPlace(self._uri, self._named_by).days(asked.state_topic_id)
            reader = PastReader(days, asked.key, asked.log_partition, asked.end)
            return reader.read(lambda: time.monotonic() > end_s)
        except HistoryProblem as problem:
            raise _NotRead(hide(str(problem), ())) from None
        except (OSError, pa.ArrowException) as error:
            text = f"The history at {self._named_by} {self._uri} cannot be read: {error}"
            raise _NotRead(hide(text, ())) from None


class _NotRead(Exception):
    """The history was not read; the text says why."""


def _unknown(past: Past, folded: PastFold, timeline: OffsetTimeline, view: HistoryView) -> list[str]:
    """Return what a history that was read does not tell, in sentences."""
    found = []
    since = "" if view.from_ms is None else f" from {utc(view.from_ms)} on"
    if not past.is_whole:
        why = (
            "it has too much about this share partition"
            if past.is_full
            else f"reading it takes longer than {READ_S:.0f} s"
        )
        found.append(f"The history is told{since or ' not at all'} only, for {why}.")
    elif view.from_ms is None:
        found.append("The history has nothing about this share partition.")
    elif timeline.began_before:
        found.append(f"The history has this share partition{since} only; what happened before is not known.")
    if len(folded.gaps) > _GAPS_MAX:
        found.append(f"The history has {len(folded.gaps)} gaps, of which the last {_GAPS_MAX} are named.")
    found += [cut_before(timeline.log_partition, end) for end in folded.gaps[-_GAPS_MAX:]]
    if folded.undecodable is not None:
        count, first = folded.undecodable
        found.append(f"{count} of its records in the history cannot be decoded, the first at offset {first}.")
    if past.covered_to is None:
        found.append("The history does not say how far it reaches, so changes may be missing between it and the log.")
    elif past.covered_to < view.to_offset:
        found.append(ends_before_log(timeline.log_partition, past.covered_to, view.to_offset))
    return found
