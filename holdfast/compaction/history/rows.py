"""Rows of the history as Arrow tables: packed by the process that folds them, and written as Parquet by the one that drives the job.

Spark carries packed rows as a few large values. It would take more of the processor than the fold to make rows of its own of them,
keep these for the batch, and write them as Parquet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date, timedelta
from types import TracebackType
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import ipc
from pyarrow import parquet as pq

from holdfast.compaction.history.coverage import Interval
from holdfast.history import schema

_TYPES: Final = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
ARROW: Final = pa.schema([(name, _TYPES[kind]) for name, kind in schema.COLUMNS.items()])

#: Rows that are packed together: enough to pay for their frame, and few enough that a value of Spark's stays small.
_PACKED_ROWS: Final = 50_000
#: Bytes of rows, before Parquet, that a file collects until it writes them: what a reader takes or leaves as a whole.
_GROUP_BYTES: Final = 16 << 20
#: Columns with few values. The others would fill a dictionary for nothing before Parquet gives it up.
_REPEATING: Final = ("log_partition", "owner_epoch", "kind", "group_id", "topic_id", "partition", "key")
_EPOCH: Final = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000
#: Days that have a date. A clock that is further out is no reason to end.
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days


def make_rows(columns: Mapping[str, object]) -> pa.Table:
    """Return rows whose columns, by the names of `schema.COLUMNS`, are anything that Arrow takes."""
    return pa.table({name: pa.array(columns[name], ARROW.field(name).type) for name in ARROW.names}, ARROW)


def pack(rows: pa.Table) -> Iterator[bytes]:
    """Yield the rows in packed form."""
    options = ipc.IpcWriteOptions(compression="lz4")
    for batch in rows.combine_chunks().to_batches(max_chunksize=_PACKED_ROWS):
        packed = pa.BufferOutputStream()
        with ipc.new_stream(packed, ARROW, options=options) as writer:
            writer.write_batch(batch)
        yield packed.getvalue().to_pybytes()


def unpack(packed: bytes) -> pa.Table:
    """Return the rows that `pack` was given."""
    return ipc.open_stream(packed).read_all()


def without(rows: pa.Table, known: Sequence[Interval]) -> pa.Table:
    """Return the rows of one log partition without those whose offsets are known."""
    if not known:
        return rows
    offsets = rows["offset"].to_numpy()
    kept = np.ones(len(offsets), bool)
    for interval in known:
        kept &= (offsets < interval.first_offset) | (offsets > interval.last_offset)
    return rows.filter(pa.array(kept))


class File(Protocol):
    """The calls of a file that is being written; `spark.files.JavaFile` has them."""

    @property
    def closed(self) -> bool:
        """Whether it was ended."""
        ...

    def write(self, data: bytes, /) -> int:
        """Write all of it."""
        ...

    def flush(self) -> None:
        """Make sure that it is written."""
        ...

    def close(self) -> None:
        """End the file."""
        ...


class DayFiles:
    """The files of a batch, one for each day that it has rows of.

    Args:
        create: opens the file of a day, by the name of its directory.
    """

    def __init__(self, create: Callable[[str], File]) -> None:
        self._create = create
        self._files = ExitStack()
        self._writers: dict[str, pq.ParquetWriter] = {}
        #: Rows that are not written yet, and their bytes.
        self._waiting: defaultdict[str, list[pa.Table]] = defaultdict(list)
        self._waiting_bytes: defaultdict[str, int] = defaultdict(int)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._files:
            if error is None:
                for day in list(self._waiting):
                    self._write(day)

    @property
    def days(self) -> list[str]:
        """Names of the directories of the days, in their order."""
        return sorted(self._writers)

    def add(self, rows: pa.Table) -> None:
        """Add rows to the files of their days."""
        numbers = np.clip(rows["timestamp_ms"].to_numpy() // _DAY_MS, _FIRST_DAY, _LAST_DAY)
        for number in np.unique(numbers).tolist():
            day = f"{schema.DAY}{(_EPOCH + timedelta(days=number)).isoformat()}"
            of_day = rows.filter(pa.array(numbers == number))
            self._waiting[day].append(of_day)
            self._waiting_bytes[day] += of_day.nbytes
            if self._waiting_bytes[day] >= _GROUP_BYTES:
                self._write(day)

    def _write(self, day: str) -> None:
        rows = pa.concat_tables(self._waiting.pop(day))
        del self._waiting_bytes[day]
        if day not in self._writers:
            file = self._create(day)
            self._files.callback(file.close)
            # Parquet is written in many small parts, and each one that goes to Java is a call.
            stream = self._files.enter_context(pa.output_stream(file, buffer_size=1 << 20))
            writer = pq.ParquetWriter(
                stream, ARROW, compression="snappy", use_dictionary=list(_REPEATING), store_schema=False
            )
            self._writers[day] = self._files.enter_context(writer)
        self._writers[day].write_table(rows, row_group_size=max(1, len(rows)))
