"""The history that the Spark job writes, read back: changes in the order of the log, each of them once."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import dataset as ds
from pyarrow import fs

from holdfast.console.history_states import Change, Wanted
from holdfast.console.outcomes import Exit, Failure
from holdfast.daemon.compaction.history import TOMBSTONE
from holdfast.records.codec import decode_value
from holdfast.records.errors import RecordError
from holdfast.records.keys import SharePartitionKey, format_topic_id, parse_topic_id

_COLUMNS: Final = (
    "log_partition",
    "offset",
    "timestamp_ms",
    "kind",
    "group_id",
    "topic_id",
    "partition",
    "key",
    "value",
)
_ROWS_PER_BATCH: Final = 65_536
_ID_NAME: Final = "state_topic_id="

_parse_topic_id = lru_cache(maxsize=10_000)(parse_topic_id)


class HistoryFiles:
    """The history of one state topic, in a directory or under a URI that pyarrow can read."""

    def __init__(self, uri: str, state_topic_id: bytes | None) -> None:
        """Look for the history.

        Args:
            uri: where it lies.
            state_topic_id: 16 bytes; None: the only one that there is.

        Raises:
            Failure: there is none, or it cannot be read.
        """
        self._uri = uri
        try:
            self._files, path = fs.FileSystem.from_uri(uri) if ":" in uri else (fs.LocalFileSystem(), uri)
            found = self._files.get_file_info(fs.FileSelector(path))
        except FileNotFoundError:
            raise Failure(
                f"There is no history at {uri}; --history-dir must be the job's `snapshots.history.dir`.",
                Exit.NOT_FOUND,
            ) from None
        except (OSError, pa.ArrowException) as error:
            raise Failure(f"The history at {uri} cannot be read: {error}") from None
        topics = {info.base_name.removeprefix(_ID_NAME): info.path for info in found if _ID_NAME in info.base_name}
        name = format_topic_id(state_topic_id) if state_topic_id is not None else next(iter(topics), "")
        if name not in topics:
            raise Failure(
                f"The history at {uri} has nothing about this state topic, whose id is {name or 'unknown'}.",
                Exit.NOT_FOUND,
            )
        if state_topic_id is None and len(topics) > 1:
            raise Failure(
                f"The history at {uri} is of {len(topics)} state topics; say by --state-topic which: {', '.join(sorted(topics))}.",
                Exit.WRONG_USAGE,
            )
        self._path = topics[name]

    def begin_ms(self) -> int | None:
        """Return the time of the first change; None: there is none."""
        with self._reading():
            for day in sorted(self._days):
                found = pc.min(self._days[day].to_table(columns=["timestamp_ms"])["timestamp_ms"]).as_py()
                if found is not None:
                    return int(found)
        return None

    def changes(self, wanted: Wanted, until_ms: int | None = None) -> Iterator[Change]:
        """Yield what is wanted, the changes of one log partition in the order of their offsets and each of them once.

        Args:
            wanted: of which share partitions.
            until_ms: what is a day later may be left out; None: nothing may.

        Raises:
            Failure: something cannot be read.
        """
        last_day = "9" if until_ms is None else _day(until_ms, 1)
        with self._reading():
            days = [day for day in sorted(self._days) if day <= last_day]
            yield from _each_once(self._rows(day, wanted) for day in days)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, RecordError) as error:
            raise Failure(f"The history at {self._uri} cannot be read: {error}") from None

    @cached_property
    def _days(self) -> dict[str, Any]:
        """The files of each day, as a data set."""
        directories = pa.schema([("day", pa.string()), ("batch_id", pa.string())])
        whole = ds.dataset(
            self._path,
            filesystem=self._files,
            format="parquet",
            partitioning=ds.partitioning(directories, flavor="hive"),
            exclude_invalid_files=False,
        )
        days: dict[str, list[Any]] = {}
        for fragment in whole.get_fragments():
            days.setdefault(ds.get_partition_keys(fragment.partition_expression)["day"], []).append(fragment)
        return {
            day: ds.FileSystemDataset(fragments, whole.schema, whole.format, self._files)
            for day, fragments in days.items()
        }

    def _rows(self, day: str, wanted: Wanted) -> list[tuple[Any, ...]]:
        """Return the rows of a day in the order of the log."""
        condition = None
        topic = None if wanted.topic_id is None else format_topic_id(wanted.topic_id)
        for column, value in (("group_id", wanted.group_id), ("topic_id", topic), ("partition", wanted.partition)):
            if value is not None:
                equal = ds.field(column) == value
                condition = equal if condition is None else condition & equal
        table = self._days[day].to_table(columns=list(_COLUMNS), filter=condition)
        ordered = table.sort_by([("log_partition", "ascending"), ("offset", "ascending")])
        return [
            row
            for batch in ordered.to_batches(max_chunksize=_ROWS_PER_BATCH)
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]


def _each_once(days: Iterator[list[tuple[Any, ...]]]) -> Iterator[Change]:
    """Yield the changes of all days; where a clock was set back over midnight, some of a day belong between those of the next."""
    newest: dict[int, int] = {}
    waiting: list[tuple[Any, ...]] = []
    for rows in days:
        first: dict[int, int] = {}
        for row in rows:
            first.setdefault(row[0], row[1])
        yield from _changes((row for row in waiting if row[1] < first.get(row[0], row[1] + 1)), newest)
        late = [row for row in waiting if row[1] >= first.get(row[0], row[1] + 1)]
        waiting = sorted((*late, *rows), key=_place) if late else rows
    yield from _changes(iter(waiting), newest)


def _place(row: tuple[Any, ...]) -> tuple[int, int]:
    return row[0], row[1]


def _changes(rows: Iterator[tuple[Any, ...]], newest: dict[int, int]) -> Iterator[Change]:
    for log_partition, offset, timestamp_ms, kind, group_id, topic_id, partition, key, value in rows:
        if offset <= newest.get(log_partition, -1):
            continue
        newest[log_partition] = offset
        yield Change(
            log_partition,
            offset,
            timestamp_ms,
            SharePartitionKey(group_id, _parse_topic_id(topic_id), partition),
            None if kind == TOMBSTONE else decode_value(key, value)[0],
        )


def _day(time_ms: int, days_later: int) -> str:
    """Return the UTC date of a time, or of some days later."""
    return (datetime.fromtimestamp(time_ms / 1_000, UTC) + timedelta(days=days_later)).date().isoformat()
