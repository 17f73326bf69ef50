"""The fold of `records.share.snapshot_store.folding` as Spark runs it: once per log partition and batch, over state in RocksDB.

This runs in Spark's Python workers, so it imports little: PySpark and `records`, and pandas only where there are rows. Each start
of a query lets a new Python read what state there is, for which Spark waits ten seconds, and pandas would be half of it.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from holdfast.compaction.history.coverage import Stretch, find_stretches
from holdfast.compaction.spark.buckets import BucketStore
from holdfast.history import schema
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.fencing import Position
from holdfast.records.share.codecs.codec import Kind, decode_key, peek_kind
from holdfast.records.share.snapshot_store.folding import NEW, Folded, FoldStopped, Mark, RawRecord, fold
from holdfast.records.share.snapshot_store.last_read import LastRead

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa  # type: ignore[import-untyped]

#: What the processor takes in; `header` is the value of `hf`.
INPUT_COLUMNS: Final = ("log_partition", "offset", "timestamp_ms", "key", "value", "header")

#: What the processor gives out.
OUTPUT: Final = StructType(
    [
        StructField("log_partition", IntegerType()),
        StructField("kind", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)

#: Kinds of what it gives out: rows of the history, as `rows.pack` makes them.
HISTORY: Final = "history"
#: Key and value to be written to the snapshot topic.
ENTRY: Final = "entry"
MANIFEST: Final = "manifest"
#: One per log partition and batch; the value is the JSON of a `PartitionReport`, of `TOTALS`, `STRETCHES` and `LAST_READ`.
REPORT: Final = "report"
#: What a batch adds up over all log partitions.
TOTALS: Final = ("entries", "history_rows", "bytes_in", "bytes_out")

#: The offsets folded, as `coverage.Stretch`.
STRETCHES: Final = "stretches"
#: What the log must still hold, as `encode_last_read` makes it; None: nothing was read before, or the fold began again.
LAST_READ: Final = "last_read"

#: A header as `records.log.header` lays it out, for NumPy.
_HEADER_FIELDS: Final = [("version", ">i1"), ("owner_epoch", ">i4"), ("sequence", ">i8")]

_HISTORY_KINDS: Final = {
    Kind.SNAPSHOT: schema.SNAPSHOT,
    Kind.UPDATE: schema.UPDATE,
    Kind.TOMBSTONE: schema.TOMBSTONE,
}

#: `RawRecord` without the function of Python's that a named tuple is made by.
_raw_record: Final = partial(tuple.__new__, RawRecord)


class Memory(NamedTuple):
    """The state of the fold of a log partition, beside that of the share partitions."""

    mark: Mark
    bucket_count: int
    #: Why the fold is stopped in front of its mark, and the offset of the record that stopped it; None: it is not.
    stopped_reason: str | None
    stopped_offset: int | None


_NEW_MEMORY: Final = Memory(NEW, 1, None, None)


def encode_memory(memory: Memory) -> str:
    """Return the state as JSON."""
    owner_epoch, attempt_id, next_sequence = memory.mark.position
    mark = memory.mark._asdict() | {
        "position": (owner_epoch, attempt_id and attempt_id.hex(), next_sequence),
        "checkpoint": memory.mark.checkpoint.hex(),
        "last_digest": memory.mark.last_digest.hex(),
    }
    return json.dumps(memory._asdict() | {"mark": mark})


def decode_memory(text: str) -> Memory:
    """Return the state that `encode_memory` was given."""
    fields: dict[str, Any] = json.loads(text)
    mark = fields["mark"]
    owner_epoch, attempt_id, next_sequence = mark["position"]
    position = Position(owner_epoch, attempt_id and bytes.fromhex(attempt_id), next_sequence)
    mark |= {
        "position": position,
        "checkpoint": bytes.fromhex(mark["checkpoint"]),
        # State of an earlier version has none.
        "last_digest": bytes.fromhex(mark.get("last_digest", "")),
    }
    return Memory(**fields | {"mark": Mark(**mark)})


def encode_last_read(last_read: LastRead) -> list[int | str]:
    """Return it as JSON takes it."""
    return [field.hex() if isinstance(field, bytes) else field for field in last_read]


def decode_last_read(fields: list[Any]) -> LastRead:
    """Return what `encode_last_read` was given."""
    offset, digest, checkpoint_offset, checkpoint = fields
    return LastRead(offset, bytes.fromhex(digest), checkpoint_offset, bytes.fromhex(checkpoint))


class FoldingProcessor(StatefulProcessor):
    """The fold of one log partition after the other.

    A log partition whose fold has stopped stays so: its records are skipped and its mark stays in front of them, until the job is
    started again and reads the log from its start.
    """

    def __init__(self, state_topic_id: bytes, partition_count: int, is_history_kept: bool) -> None:
        self._state_topic_id = state_topic_id
        self._partition_count = partition_count
        self._is_history_kept = is_history_kept

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._memory: ValueState = handle.getValueState("memory", StructType([StructField("memory", StringType())]))
        self._buckets = _Buckets(
            handle.getMapState(
                "buckets",
                StructType([StructField("number", IntegerType())]),
                StructType([StructField("bucket", BinaryType())]),
            )
        )

    def handleInputRows(  # noqa: N802  # the names are PySpark's
        self,
        key: Any,  # noqa: ANN401
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Fold one batch of a log partition's records, which arrive in any order, and yield the rows of `OUTPUT`."""
        import pandas as pd

        log_partition = int(key[0])
        frame = pd.concat(list(rows), ignore_index=True)
        if not frame["offset"].is_monotonic_increasing:
            frame = frame.sort_values("offset", ignore_index=True)
        offsets, timestamps = frame["offset"].tolist(), frame["timestamp_ms"].tolist()
        keys, values, headers = (frame[name].tolist() for name in ("key", "value", "header"))
        records = list(map(_raw_record, zip(offsets, keys, values, headers, strict=True)))
        found = self._memory.get()
        memory = decode_memory(found[0]) if found else _NEW_MEMORY
        output = _Output(log_partition)
        folded, stretches, last_read = None, list[Stretch](), None
        if memory.stopped_reason is None:
            store = BucketStore(self._buckets, memory.bucket_count)
            try:
                folded = fold(self._state_topic_id, log_partition, self._partition_count, memory.mark, store, records)
            except FoldStopped as stop:
                memory = memory._replace(stopped_reason=str(stop), stopped_offset=stop.offset)
            else:
                first = bisect_left(offsets, memory.mark.next_offset or 0)
                stretches = find_stretches(offsets[first:], timestamps[first:])
                last_read = memory.mark.last_read() if folded.cut_at is None else None
                mark = folded.mark
                memory = memory._replace(mark=mark, bucket_count=store.flush(mark.live_count + mark.waiting_count))
                output.add_snapshots(folded)
                if self._is_history_kept:
                    output.add_history(folded, frame)
            self._memory.update((encode_memory(memory),))
        bytes_in = sum(map(len, filter(None, (*keys, *values))))
        output.add_report(memory, folded, offsets, bytes_in, stretches, last_read, is_new=found is None)
        yield output.frame()


class _Buckets:
    """`BucketState` over Spark's."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, number: int) -> bytes | None:
        found = self._state.getValue((number,))
        return bytes(found[0]) if found else None

    def write(self, number: int, data: bytes) -> None:
        self._state.updateValue((number,), (data,))

    def clear(self) -> None:
        self._state.clear()


class _Output:
    """Rows of `OUTPUT`."""

    def __init__(self, log_partition: int) -> None:
        self._log_partition = log_partition
        self._rows: list[tuple[object, ...]] = []
        self._bytes_out = 0

    def add_snapshots(self, folded: Folded) -> None:
        for key, value in folded.entries:
            self._add(ENTRY, key, value)
        if folded.manifest is not None:
            self._add(MANIFEST, *folded.manifest)

    def add_history(self, folded: Folded, frame: pd.DataFrame) -> None:
        from holdfast.compaction.history.rows import pack

        if folded.changes:
            for packed in pack(history_rows(self._log_partition, frame.take(folded.changes))):
                self._rows.append((self._log_partition, HISTORY, None, packed))

    def add_report(
        self,
        memory: Memory,
        folded: Folded | None,
        offsets: list[int],
        bytes_in: int,
        stretches: list[Stretch],
        last_read: LastRead | None,
        *,
        is_new: bool,
    ) -> None:
        mark = memory.mark
        report = {
            "log_partition": self._log_partition,
            "next_offset": offsets[0] if mark.next_offset is None else mark.next_offset,
            "covered_offset": mark.covered_offset,
            "live_count": mark.live_count,
            "waiting_count": mark.waiting_count,
            "records": len(offsets),
            "void_records": folded.void_records if folded else 0,
            "skipped_records": folded.skipped_records if folded else 0,
            "is_new": is_new,
            "cut_at": folded.cut_at if folded else None,
            "stopped_reason": memory.stopped_reason,
            "stopped_offset": memory.stopped_offset,
            "entries": len(folded.entries) if folded else 0,
            "history_rows": len(folded.changes) if folded else 0,
            STRETCHES: stretches,
            LAST_READ: last_read and encode_last_read(last_read),
            "bytes_in": bytes_in,
            "bytes_out": self._bytes_out,
        }
        self._add(REPORT, None, json.dumps(report).encode())

    def frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame.from_records(self._rows, columns=OUTPUT.names)

    def _add(self, kind: str, key: bytes | None, value: bytes) -> None:
        self._bytes_out += len(key or b"") + len(value)
        self._rows.append((self._log_partition, kind, key, value))


def history_rows(log_partition: int, changes: pd.DataFrame) -> pa.Table:
    """Return the rows of the history for records that count and are about a share partition.

    What lies in a key is decoded once for each key, and the headers all together.

    Args:
        log_partition: whose records they are.
        changes: rows of `INPUT_COLUMNS`, whose keys and headers the fold has read.
    """
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from holdfast.compaction.history.rows import make_rows

    headers = np.frombuffer(b"".join(changes["header"]), _HEADER_FIELDS)
    numbers, keys = pd.factorize(changes["key"])
    codes = pa.array(numbers)
    share_keys = [decode_key(key) for key in keys]
    kinds = [_HISTORY_KINDS[kind] for kind in map(peek_kind, changes["key"], changes["value"])]
    columns = {
        "log_partition": np.full(len(changes), log_partition, np.int32),
        "offset": changes["offset"].to_numpy(),
        "timestamp_ms": changes["timestamp_ms"].to_numpy(),
        "owner_epoch": headers["owner_epoch"].astype(np.int32),
        "sequence": headers["sequence"].astype(np.int64),
        "kind": kinds,
        "group_id": pa.array([key.group_id for key in share_keys], pa.string()).take(codes),
        "topic_id": pa.array([format_topic_id(key.topic_id) for key in share_keys], pa.string()).take(codes),
        "partition": pa.array([key.partition for key in share_keys], pa.int32()).take(codes),
        "key": pa.array(keys, pa.binary()).take(codes),
        "value": changes["value"].to_numpy(),
    }
    return make_rows(columns)
