"""Rows of the history say what each record says, and reach the file of their day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pandas")

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

from holdfast.compaction.history import rows
from holdfast.compaction.history.coverage import Interval
from holdfast.compaction.spark.fold_processor import INPUT_COLUMNS, history_rows
from holdfast.history import schema
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.header import decode_header
from holdfast.records.share.codecs.codec import decode_key, peek_kind
from holdfast.records.share.snapshot_store.folding import NEW, RawRecord, fold
from tests.pure.records.logs import UNCUT, DictStore, LogWriter


@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_columns_say_what_each_record_says(random: Random, moves: int) -> None:
    log = LogWriter(Random(random.random()))
    for move in random.choices(UNCUT, k=moves):
        log.do(move)
    records = list(log.records)
    changes = fold(bytes(16), 7, 8, NEW, DictStore(), records).changes
    if not changes:
        return
    frame = pd.DataFrame(
        [(7, record.offset, 10 * record.offset, *record[1:]) for record in records], columns=INPUT_COLUMNS
    )
    (packed,) = rows.pack(history_rows(7, frame.take(changes)))
    found = rows.unpack(packed)
    assert found.column_names == list(schema.COLUMNS)
    assert list(map(tuple, map(dict.values, found.to_pylist()))) == [row_of(records[index]) for index in changes]


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(-(10**9), 10**11)), min_size=1, max_size=50),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 40)), max_size=3),
    st.integers(1, 5_000),
)
def test_each_row_is_in_the_file_of_its_day_once_but_for_those_that_are_known(
    written: list[tuple[int, int]], known: list[tuple[int, int]], group_bytes: int
) -> None:
    opened: dict[str, BytesIO] = {}
    intervals = [Interval(0, first, first + more) for first, more in known]
    with (
        mock.patch.object(rows, "_GROUP_BYTES", group_bytes),
        rows.DayFiles(lambda day: open_file(opened, day)) as files,
    ):
        for offset, timestamp_ms in written:
            files.add(rows.without(made([(offset, timestamp_ms)]), intervals))
    expected: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for offset, timestamp_ms in written:
        if not any(interval.first_offset <= offset <= interval.last_offset for interval in intervals):
            day = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)).date()
            expected[f"day={day.isoformat()}"].append((offset, timestamp_ms))
    found = {day: parquet.read_table(BytesIO(file.getvalue())) for day, file in opened.items()}
    assert all(table.schema.equals(rows.ARROW) for table in found.values())
    places = {
        day: list(zip(*(column.to_pylist() for column in places_of(table)), strict=True))
        for day, table in found.items()
    }
    assert places == expected
    assert files.days == sorted(expected)


def test_a_time_beyond_all_dates_is_in_the_last_day() -> None:
    opened: dict[str, BytesIO] = {}
    with rows.DayFiles(lambda day: open_file(opened, day)) as files:
        files.add(made([(0, 2**63 - 1), (1, -(2**63))]))
    assert sorted(opened) == ["day=0001-01-01", "day=9999-12-31"]


def test_many_rows_are_packed_in_parts() -> None:
    many = made([(number, number) for number in range(1_000)])
    with mock.patch.object(rows, "_PACKED_ROWS", 300):
        packed = [rows.unpack(part) for part in rows.pack(many)]
    assert list(map(len, packed)) == [300, 300, 300, 100]
    assert pa.concat_tables(packed).equals(many)


def test_files_of_a_batch_that_fails_are_closed() -> None:
    opened: dict[str, BytesIO] = {}
    with pytest.raises(OSError, match="No space"), rows.DayFiles(lambda day: open_file(opened, day)) as files:  # noqa: PT012
        files.add(made([(0, 0)]))
        with mock.patch.object(rows, "_GROUP_BYTES", 1):
            files.add(made([(1, 1)]))
        raise OSError("No space left on device")
    (file,) = opened.values()
    assert file.getvalue() is not None


def open_file(opened: dict[str, BytesIO], day: str) -> BytesIO:
    assert day not in opened
    opened[day] = KeptFile()
    return opened[day]


class KeptFile(BytesIO):
    """A file whose bytes can be read when it is closed, too."""

    kept = b""

    def close(self) -> None:
        if not self.closed:
            self.kept = super().getvalue()
        super().close()

    def getvalue(self) -> bytes:
        assert self.closed
        return self.kept


def made(places: Sequence[tuple[int, int]]) -> pa.Table:
    """Return rows with these offsets and times, and what a gap has beside them."""
    return rows.make_rows(
        dict(
            zip(
                schema.COLUMNS,
                zip(*((0, *place, -1, -1, schema.GAP, None, None, -1, None, None) for place in places), strict=True),
                strict=True,
            )
        )
    )


def places_of(table: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    return table["offset"], table["timestamp_ms"]


def row_of(record: RawRecord) -> tuple[object, ...]:
    offset, key, value, header = record
    assert key is not None
    assert header is not None
    group_id, topic_id, partition = decode_key(key)
    name = group_id, format_topic_id(topic_id), partition
    return (7, offset, 10 * offset, *decode_header(header), peek_kind(key, value).name.lower(), *name, key, value)
