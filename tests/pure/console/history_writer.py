"""A history as the Spark job writes it, written with pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from holdfast.console.sources.history_states import LogChange
from holdfast.history import covered as covered_files
from holdfast.history import schema
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.page.source import HISTORY
from holdfast.records.errors import ForeignHeader
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.log.fencing import START, step
from holdfast.records.log.header import decode_header, encode_header
from holdfast.records.share.batches import AVAILABLE, StateBatch
from holdfast.records.share.codecs.codec import Codec, Kind, decode_key, decode_value, peek_kind
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.snapshot_store.folding import RawRecord
from holdfast.records.share.values import Snapshot, Value
from tests.pure.records.logs import KEYS, LogWriter
from tests.world.records import encode_record

#: 2026-01-31T23:59:00Z, so that logs go over midnight.
BEGIN_MS: Final = 1_769_903_940_000
SNAPSHOT: Final = Snapshot(0, 1, 0, 100, -1, 5, 5, (StateBatch(100, 109, AVAILABLE, 1),), 0, 1)

_TYPES: Final = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_SCHEMA: Final = pa.schema([(name, _TYPES[kind]) for name, kind in schema.COLUMNS.items()])
_KINDS: Final = {Kind.SNAPSHOT: schema.SNAPSHOT, Kind.UPDATE: schema.UPDATE, Kind.TOMBSTONE: schema.TOMBSTONE}


class Stamped(NamedTuple):
    """A record of the log and when the broker says that it came."""

    record: RawRecord
    timestamp_ms: int


def rows_of(log_partition: int, records: Iterable[Stamped]) -> list[dict[str, Any]]:
    """Return the rows of a log that begins with these records."""
    rows = []
    position = START
    for (offset, key, value, header), timestamp_ms in records:
        if header is None or key is None:
            continue
        try:
            owner_epoch, sequence = decode_header(header)
        except ForeignHeader:
            continue
        checkpoint = decode_checkpoint(value or b"") if key == CHECKPOINT_KEY else None
        position, counts = step(position, owner_epoch, sequence, checkpoint)
        kind = _KINDS.get(peek_kind(key, value))
        if not counts or kind is None:
            continue
        share_partition = decode_key(key)
        place = (log_partition, offset, timestamp_ms, owner_epoch, sequence, kind)
        group_id, topic_id, partition = share_partition
        cells = (*place, group_id, format_topic_id(topic_id), partition, key, value)
        rows.append(dict(zip(schema.COLUMNS, cells, strict=True)))
    return rows


def gap_row(log_partition: int, end: int, timestamp_ms: int) -> dict[str, Any]:
    """Return the row that a job writes when it begins a log partition afresh that was cut past it."""
    cells = (log_partition, end, timestamp_ms, -1, -1, schema.GAP, None, None, -1, None, None)
    return dict(zip(schema.COLUMNS, cells, strict=True))


def write_batch(directory: Path, state_topic_id: bytes, batch_id: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as one batch of a job."""
    root = directory / f"state_topic_id={format_topic_id(state_topic_id)}"
    for day, of_day in groupby(sorted(rows, key=day_of), key=day_of):
        target = root / f"day={day}"
        target.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(of_day), schema=_SCHEMA), target / schema.batch_file(batch_id, 0))


def day_of(row: dict[str, Any]) -> str:
    return datetime.fromtimestamp(row["timestamp_ms"] / 1_000, UTC).date().isoformat()


def write_covered(directory: Path, state_topic_id: bytes, name: str, covered: dict[int, int]) -> None:
    """Say, as a job does, up to where the history tells of each log partition."""
    target = directory / f"state_topic_id={format_topic_id(state_topic_id)}" / covered_files.DIRECTORY
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{name}.json").write_text(covered_files.encode_covered(covered))


def stamp(
    log: LogWriter, random: Random, steps_ms: Sequence[int] = (0, 1_000, 20_000, 20_000, -30_000)
) -> list[Stamped]:
    """Give each record a time; the clock goes on by one of the steps, or is set back by it."""
    stamped, now_ms = [], BEGIN_MS
    for record in log.records:
        now_ms += random.choice(steps_ms)
        stamped.append(Stamped(record, now_ms))
    return stamped


def changes_of(rows: Iterable[dict[str, Any]]) -> list[LogChange]:
    """Return the changes that rows tell of."""
    return [
        LogChange(
            row["log_partition"],
            row["offset"],
            row["timestamp_ms"],
            SharePartitionKey(row["group_id"], parse_topic_id(row["topic_id"]), row["partition"]),
            None if row["value"] is None else decode_value(row["key"], row["value"])[0],
            row["owner_epoch"],
            HISTORY,
        )
        for row in rows
    ]


def record(offset: int, value: Value, key: SharePartitionKey = KEYS[0]) -> RawRecord:
    """Return a record that counts in a log whose sequences are its offsets."""
    return RawRecord(offset, *encode_record(Codec.AVRO, key, value), encode_header(1, offset))
