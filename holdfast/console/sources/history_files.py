"""The history that the Spark job writes, read back: changes in the order of the log, each of them once, and gaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import dataset as ds

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.history_states import DAY_MS, HistoryGap, KeyFilter, LogChange
from holdfast.history.covered import DamagedCovered
from holdfast.history.place import HistoryPlace, Missing
from holdfast.history.schema import GAP, TOMBSTONE
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.page.source import HISTORY
from holdfast.records.errors import RecordError
from holdfast.records.share.codecs.codec import decode_value
from holdfast.records.share.keys import SharePartitionKey

_COLUMNS: Final = (
    "log_partition",
    "offset",
    "timestamp_ms",
    "kind",  # sorted as text, a gap comes before a change of the same offset
    "group_id",
    "topic_id",
    "partition",
    "key",
    "value",
    "owner_epoch",
)
_ROWS_PER_BATCH: Final = 8_192
_LAST_DAY: Final = "9"

#: Indexes of `_COLUMNS`.
_Row = tuple[Any, ...]

_parse_topic_id = lru_cache(maxsize=10_000)(parse_topic_id)


class HistoryFiles:
    """The history of one state topic."""

    def __init__(self, place: HistoryPlace, state_topic_id: bytes | None) -> None:
        """Find the history.

        Args:
            place: where it lies.
            state_topic_id: 16 bytes; None: the only one that there is.

        Raises:
            Failure: it is not there, or there are several.
        """
        self._uri, topics = place.uri, sorted(place.topics)
        if state_topic_id is None and len(topics) > 1:
            raise Failure(
                f"The history at {place.uri} is of {len(topics)} state topics; say by --state-topic which: {', '.join(topics)}.",
                Exit.WRONG_USAGE,
            )
        try:
            self._days = place.days(parse_topic_id(topics[0]) if state_topic_id is None else state_topic_id)
        except Missing as missing:
            raise Failure(
                f"{missing}; name the history of this one with --history-dir, or another topic with --state-topic.",
                Exit.NOT_FOUND,
            ) from None

    def begin_ms(self) -> int | None:
        """Return the time of the first change; None: there is none."""
        with self._reading():
            for day in self._days.names():
                found = pc.min(self._days.read(day, ["timestamp_ms"])["timestamp_ms"]).as_py()
                if found is not None:
                    return int(found)
        return None

    def changes(self, wanted: KeyFilter, until_ms: int | None = None) -> Iterator[LogChange | HistoryGap]:
        """Yield what is wanted, the changes of one log partition in the order of their offsets and each of them once.

        Gaps of all log partitions are among them, for what was lost in them may be about any share partition.

        Args:
            wanted: of which share partitions.
            until_ms: what is a day later may be left out; None: nothing may.

        Raises:
            Failure: something cannot be read.
        """
        last_day = _LAST_DAY if until_ms is None else _day(until_ms + DAY_MS)
        open_ends: set[int] = set()
        with self._reading():
            days = [day for day in self._days.names() if day <= last_day]
            for row in _each_once(self._table(day, wanted) for day in days):
                open_ends.add(row[0])
                yield self._change(row)
            if until_ms is not None:
                yield from self._next_gaps(open_ends, _day(until_ms), last_day)

    def covered(self) -> dict[int, int]:
        """Return the offset by log partition, exclusive, below which every change is in the history; no entry: not known.

        Raises:
            Failure: something cannot be read.
        """
        with self._reading():
            return self._days.covered()

    def newest(self, log_partition: int, end: int, last_day: str = _LAST_DAY) -> tuple[int, int] | None:
        """Return offset and time of the newest change of a log partition below an offset; None: there is none.

        Args:
            log_partition: which one.
            end: the offset.
            last_day: what is later need not be looked at.

        Raises:
            Failure: something cannot be read.
        """
        newest: tuple[int, int] | None = None
        below = (ds.field("log_partition") == log_partition) & (ds.field("offset") < end) & (ds.field("kind") != GAP)
        with self._reading():
            for day in sorted((day for day in self._days.names() if day <= last_day), reverse=True):
                table = self._days.read(day, ["offset", "timestamp_ms"], below)
                is_last_look = newest is not None
                if len(table):
                    place = pc.index(table["offset"], pc.max(table["offset"])).as_py()
                    found = table["offset"][place].as_py(), table["timestamp_ms"][place].as_py()
                    newest = found if newest is None else max(found, newest)
                if is_last_look:
                    # A clock that was set back over midnight puts the newest change into the day before, and no other.
                    break
        return newest

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except DamagedCovered as error:
            raise Failure(str(error)) from None
        except (OSError, ValueError, pa.ArrowException, RecordError) as error:
            raise Failure(f"The history at {self._uri} cannot be read: {error}") from None

    def _table(self, day: str, wanted: KeyFilter) -> pa.Table:
        """Return the rows of a day in the order of the log."""
        condition = None
        topic = None if wanted.topic_id is None else format_topic_id(wanted.topic_id)
        for column, value in (("group_id", wanted.group_id), ("topic_id", topic), ("partition", wanted.partition)):
            if value is not None:
                equal = ds.field(column) == value
                condition = equal if condition is None else condition & equal
        if condition is not None:
            condition = condition | (ds.field("kind") == GAP)
        return _in_order(self._days.read(day, _COLUMNS, condition))

    def _change(self, row: _Row) -> LogChange | HistoryGap:
        log_partition, offset, timestamp_ms, kind, group_id, topic_id, partition, key, value, owner_epoch = row
        if kind == GAP:
            return self._gap(log_partition, offset, timestamp_ms)
        return LogChange(
            log_partition,
            offset,
            timestamp_ms,
            SharePartitionKey(group_id, _parse_topic_id(topic_id), partition),
            None if kind == TOMBSTONE else decode_value(key, value)[0],
            owner_epoch,
            HISTORY,
        )

    def _gap(self, log_partition: int, end: int, end_ms: int) -> HistoryGap:
        newest = self.newest(log_partition, end, _day(end_ms + DAY_MS))
        return HistoryGap(log_partition, end, end_ms if newest is None else newest[1])

    def _next_gaps(self, log_partitions: set[int], after_day: str, read_day: str) -> Iterator[HistoryGap]:
        """Yield the first row after a day of each of some log partitions that is a gap, and not a change.

        Args:
            log_partitions: which ones.
            after_day: the day.
            read_day: the last one whose gaps were yielded already.
        """
        left = set(log_partitions)
        for day in (day for day in self._days.names() if day > after_day):
            if not left:
                return
            columns = ["log_partition", "offset", "timestamp_ms", "kind"]
            table = self._days.read(day, columns, ds.field("log_partition").isin(sorted(left)))
            begins = _first_offsets(table)
            gaps = table.filter(pc.field("kind") == GAP).to_pylist() if day > read_day else []
            for gap in gaps:
                if gap["log_partition"] in left and gap["offset"] == begins[gap["log_partition"]]:
                    left.remove(gap["log_partition"])
                    yield self._gap(gap["log_partition"], gap["offset"], gap["timestamp_ms"])
            left -= begins.keys()


def _each_once(days: Iterator[pa.Table]) -> Iterator[_Row]:
    """Yield the rows of all days; where a clock was set back over midnight, some of a day belong between those of the next.

    No more is kept than the tables of two days: as rows they would take some ten times the memory.
    """
    newest: dict[int, tuple[int, str]] = {}
    waiting: pa.Table | None = None
    for table in days:
        if waiting is not None:
            is_late: list[bool] = []
            yield from _new(_early_rows(waiting, _first_offsets(table), is_late), newest)
            if any(is_late):
                table = _in_order(pa.concat_tables([waiting.filter(pa.array(is_late)), table]))
        waiting = table
    if waiting is not None:
        yield from _new(_rows(waiting), newest)


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("log_partition", "ascending"), ("offset", "ascending"), ("kind", "ascending")])


def _rows(table: pa.Table) -> Iterator[_Row]:
    for batch in table.to_batches(max_chunksize=_ROWS_PER_BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _first_offsets(table: pa.Table) -> dict[int, int]:
    """Return the smallest offset of each log partition."""
    first = table.group_by("log_partition").aggregate([("offset", "min")])
    return dict(zip(first["log_partition"].to_pylist(), first["offset_min"].to_pylist(), strict=True))


def _early_rows(table: pa.Table, next_offsets: dict[int, int], is_late: list[bool]) -> Iterator[_Row]:
    """Yield the rows below what comes next in their log partition, and append for every row whether it is none of them."""
    for row in _rows(table):
        is_late.append(row[1] >= next_offsets.get(row[0], row[1] + 1))
        if not is_late[-1]:
            yield row


def _new(rows: Iterator[_Row], newest: dict[int, tuple[int, str]]) -> Iterator[_Row]:
    for row in rows:
        log_partition, offset, kind = row[0], row[1], row[3]
        if (offset, kind) > newest.get(log_partition, (-1, "")):
            newest[log_partition] = offset, kind
            yield row


def _day(time_ms: int) -> str:
    """Return the UTC date of a time."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).date().isoformat()
