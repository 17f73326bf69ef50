"""The rows of one share partition in a history, read backward from an offset of the log until there is no room or time for more.

Files are taken or left by the statistics of their row groups, those with the newest offsets first. So what was read is all that the
history has from some offset on. A clock that is set back over midnight puts new rows into the day before, and no older one: a day is
read when the day before it is listed, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import parquet as pq

from holdfast.history import covered, schema
from holdfast.history.days import HistoryDays
from holdfast.history.place import HistoryProblem
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.keys import SharePartitionKey

#: Bytes of rows that are kept: their order takes as much again, and the part of a file that is being decoded comes on top.
ROWS_BYTES_MAX: Final = 20 << 20
#: The columns of `PastRow`.
_SHOWN: Final = ("offset", "kind", "timestamp_ms", "owner_epoch", "key", "value")
#: Those by which rows are chosen.
_CHOSEN_BY: Final = ("log_partition", "group_id", "topic_id", "partition")
#: Rows that are decoded at once, and rows that are made values of Python's at once.
_ROWS_DECODED: Final = 4_096
_ROWS_PER_SLICE: Final = 200


class PastRow(NamedTuple):
    """A record of one share partition, or a gap of its log partition."""

    offset: int
    kind: str
    timestamp_ms: int
    owner_epoch: int
    key: bytes | None
    value: bytes | None


class Past(NamedTuple):
    """The rows of one share partition that were read."""

    table: Any  #: of the columns of `PastRow`, ascending by offset and kind; a row may be there twice
    is_whole: bool  #: they are all that the history has
    is_full: bool  #: there was no room for more, rather than no time
    covered_to: (
        int | None
    )  #: the offset of the log partition, exclusive, below which the history has all; None: it does not say

    def rows(self) -> Iterator[PastRow]:
        """Yield the rows, each once."""
        last: PastRow | None = None
        for batch in self.table.to_batches(max_chunksize=_ROWS_PER_SLICE):
            for row in map(PastRow._make, zip(*(column.to_pylist() for column in batch.columns), strict=True)):
                if last is None or row[:2] != last[:2]:
                    yield row
                last = row


class _Group(NamedTuple):
    """A part of a file that may have such rows; the one with the newest offsets sorts first."""

    minus_last: int  #: its last offset, negative
    day: str
    path: str
    number: int


class PastReader:
    """The reader of one share partition's rows below an offset of its log partition."""

    def __init__(self, days: HistoryDays, key: SharePartitionKey, log_partition: int, end: int) -> None:
        self._days = days
        self._end = end
        names = (log_partition, key.group_id, format_topic_id(key.topic_id), key.partition)
        self._wanted: dict[str, Any] = dict(zip(_CHOSEN_BY, names, strict=True))
        #: Those that were not read to their ends, as a heap.
        self._groups: list[_Group] = []
        self._tables: list[Any] = []
        self._bytes = 0

    def read(self, is_over: Callable[[], bool]) -> Past:
        """Return as many of the newest rows as there are room and time for.

        Args:
            is_over: tells whether there is no time left.

        Raises:
            HistoryProblem: a file is damaged, or none of a history.
            OSError: something cannot be read.
            pa.ArrowException: the same.
        """
        try:
            # Looked up before the files are listed, so what is covered is in them.
            covered_to = self._days.covered().get(self._wanted["log_partition"])
        except covered.DamagedCovered as damage:
            raise HistoryProblem(str(damage)) from None
        is_whole = self._read_days(is_over)
        is_full = self._bytes > ROWS_BYTES_MAX
        table = pa.concat_tables(self._tables) if self._tables else pa.table({name: [] for name in _SHOWN})
        self._tables.clear()
        if self._groups:
            # Between the rows up to there, others were not read.
            table = table.filter(pc.greater(table["offset"], -self._groups[0].minus_last))
        table = table.sort_by([("offset", "ascending"), ("kind", "ascending")])
        return Past(table, is_whole, is_full, covered_to)

    def _read_days(self, is_over: Callable[[], bool]) -> bool:
        """Read the days, the newest first; returns whether that was all."""
        for day in (*self._days.newest_first, ""):
            if is_over():
                return False
            if day:
                self._list(day)
            while any(group.day > day for group in self._groups):
                if not self._read_group(self._groups[0], is_over):
                    return False
        return True

    def _list(self, day: str) -> None:
        """Add the parts of a day's files that may have such rows."""
        for _ in range(covered.LISTS_MAX):
            try:
                self._groups += [group for path in self._days.paths(day) for group in self._groups_of(day, path)]
            except FileNotFoundError:
                if not self._days.list_again(day):
                    raise
            else:
                heapify(self._groups)
                return
        raise FileNotFoundError(f"what is listed in {schema.DAY}{day} is not there")

    def _groups_of(self, day: str, path: str) -> list[_Group]:
        found = []
        with self._reading(path) as parquet:
            metadata = parquet.metadata
            places = {metadata.schema.column(place).name: place for place in range(metadata.num_columns)}
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                bounds = {name: group.column(places[name]).statistics for name in (*_CHOSEN_BY, "offset")}
                if self._may_have(bounds):
                    offsets = bounds["offset"]
                    last = offsets.max if offsets is not None and offsets.has_min_max else self._end
                    found.append(_Group(-last, day, path, number))
        return found

    def _may_have(self, bounds: dict[str, Any]) -> bool:
        offsets, group_ids = bounds["offset"], bounds["group_id"]
        if offsets is not None and offsets.has_min_max and offsets.min >= self._end:
            return False
        # A gap has neither group nor topic.
        names = (
            _CHOSEN_BY
            if group_ids is not None and group_ids.has_null_count and not group_ids.null_count
            else _CHOSEN_BY[:1]
        )
        return all(_may_be(bounds[name], self._wanted[name]) for name in names)

    def _read_group(self, group: _Group, is_over: Callable[[], bool]) -> bool:
        """Read a part of a file, and take it from the heap; returns False where there is no room or time for all of it."""
        try:
            with self._reading(group.path) as parquet:
                columns = [*_CHOSEN_BY, *_SHOWN]
                for batch in parquet.iter_batches(_ROWS_DECODED, [group.number], columns, use_threads=False):
                    if self._bytes > ROWS_BYTES_MAX or is_over():
                        return False
                    self._keep(batch)
        except FileNotFoundError:
            # It was joined with others: their rows are in a new file, and those that were read already are there twice.
            if not self._days.list_again(group.day):
                raise
            self._groups = [each for each in self._groups if each.day != group.day]
            self._list(group.day)
        else:
            heappop(self._groups)
        return True

    def _keep(self, batch: Any) -> None:  # noqa: ANN401  # of Arrow
        is_wanted = pc.equal(batch["kind"], schema.GAP)
        of_key = [pc.equal(batch[name], value) for name, value in self._wanted.items()]
        log_partition, group_id, topic_id, partition = of_key
        for_key = pc.and_kleene(pc.and_kleene(group_id, topic_id), partition)
        is_wanted = pc.and_kleene(pc.or_kleene(is_wanted, for_key), log_partition)
        found = batch.filter(pc.and_kleene(is_wanted, pc.less(batch["offset"], self._end)))
        if len(found):
            self._tables.append(pa.table({name: found[name] for name in _SHOWN}))
            self._bytes += self._tables[-1].nbytes

    @contextmanager
    def _reading(self, path: str) -> Iterator[Any]:
        """Open a file of the history; one that is gone is no problem of the history."""
        try:
            with self._days.open(path) as file:
                yield pq.ParquetFile(file)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException, KeyError) as error:
            raise HistoryProblem(f"{path} cannot be read: {str(error).rstrip('.')}") from None


def _may_be(bounds: Any, value: Any) -> bool:  # noqa: ANN401  # statistics of Arrow
    """Tell by statistics whether a column may have a value."""
    if bounds is None or not bounds.has_min_max or type(bounds.min) is not type(value):
        return True
    return bool(bounds.min <= value <= bounds.max)
