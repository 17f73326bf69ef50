"""The rows of one share partition, read backward from the files of a history."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from holdfast.history import past
from holdfast.history.past import Past, PastReader
from holdfast.history.place import HistoryPlace, HistoryProblem, Missing
from holdfast.records.share.keys import SharePartitionKey
from tests.pure.console.history_writer import BEGIN_MS, gap_row, rows_of, stamp, write_batch, write_covered
from tests.pure.records.logs import KEYS, LOG_PARTITION, STATE_TOPIC_ID, UNCUT, LogWriter, logs, write_log

DAY_MS = 86_400_000


def reader_of(directory: Path, end: int, key: SharePartitionKey = KEYS[0]) -> PastReader:
    return PastReader(HistoryPlace(str(directory)).days(STATE_TOPIC_ID), key, LOG_PARTITION, end)


def read(directory: Path, end: int, key: SharePartitionKey = KEYS[0], is_over: Callable[[], bool] = bool) -> Past:
    return reader_of(directory, end, key).read(is_over)


def offsets(found: Past) -> list[int]:
    return [row.offset for row in found.rows()]


def offsets_of(rows: list[dict[str, Any]], end: int, key: SharePartitionKey = KEYS[0]) -> list[int]:
    return [row["offset"] for row in rows if row["group_id"] == key.group_id and row["offset"] < end]


def write_in_batches(directory: Path, rows: list[dict[str, Any]], random: Random) -> None:
    """Write rows as a job does, some of them twice."""
    place, number = 0, 0
    while place < len(rows):
        count = random.randint(1, 12)
        write_batch(
            directory, STATE_TOPIC_ID, f"a-{number}", rows[max(0, place - random.choice((0, 0, 3))) : place + count]
        )
        place, number = place + count, number + 1


@settings(max_examples=30)
@given(logs(UNCUT), st.randoms(use_true_random=False), st.sampled_from(KEYS), st.integers(0, 2_000))
def test_all_rows_are_found_or_the_newest_ones(
    log: LogWriter, random: Random, key: SharePartitionKey, bytes_max: int
) -> None:
    """Also where a clock was set back over midnight."""
    rows = rows_of(LOG_PARTITION, stamp(log, random, (0, 20_000, -30_000)))
    end = random.randint(0, len(log.records))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        directory = Path(name)
        write_covered(directory, STATE_TOPIC_ID, "a", {LOG_PARTITION: end})
        write_in_batches(directory, rows, random)
        expected = offsets_of(rows, end, key)
        found = read(directory, end, key)
        assert offsets(found) == expected
        assert (found.is_whole, found.covered_to) == (True, end)
        patch.setattr(past, "ROWS_BYTES_MAX", bytes_max)
        some = offsets(found := read(directory, end, key))
        assert some == expected[len(expected) - len(some) :]
        assert some == expected or not found.is_whole
        assert found.is_full or found.is_whole


def test_a_row_has_all_that_the_fold_needs(tmp_path: Path) -> None:
    rows = rows_of(LOG_PARTITION, stamp(write_log(1, ["write"] * 30), Random(1)))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows)
    found = list(read(tmp_path, 1_000).rows())
    of_key = [row for row in rows if row["group_id"] == KEYS[0].group_id]
    assert [each._asdict() for each in found] == [{name: row[name] for name in past.PastRow._fields} for row in of_key]


def test_a_gap_of_the_log_partition_is_a_row_and_that_of_another_is_none(tmp_path: Path) -> None:
    rows = rows_of(LOG_PARTITION, stamp(write_log(1, ["write"] * 30), Random(1)))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", [*rows, gap_row(LOG_PARTITION, 500, BEGIN_MS)])
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", [gap_row(LOG_PARTITION + 1, 500, BEGIN_MS)])
    assert offsets(read(tmp_path, 1_000)) == [*offsets_of(rows, 1_000), 500]


def test_parts_of_files_without_the_share_partition_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(LOG_PARTITION, stamp(write_log(1, ["write"] * 60), Random(1)))
    by_key = sorted(rows, key=lambda row: row["group_id"])
    for number, key in enumerate(KEYS):
        write_batch(tmp_path, STATE_TOPIC_ID, f"a-{number}", [row for row in by_key if row["group_id"] == key.group_id])
    read_groups = list[str]()
    read_group = PastReader._read_group

    def noting(reader: PastReader, group: Any, is_over: Callable[[], bool]) -> bool:
        read_groups.append(group.path)
        return read_group(reader, group, is_over)

    monkeypatch.setattr(PastReader, "_read_group", noting)
    assert offsets(read(tmp_path, 1_000, KEYS[2])) == offsets_of(rows, 1_000, KEYS[2])
    assert {Path(path).name for path in read_groups} == {"a-2-0.parquet"}


def test_time_that_is_over_leaves_the_older_days_out(tmp_path: Path) -> None:
    rows = rows_of(LOG_PARTITION, stamp(write_log(1, ["write"] * 60), Random(1), (0,)))
    later = [row | {"timestamp_ms": BEGIN_MS + DAY_MS * (row["offset"] // 10)} for row in rows]
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", later)
    everything, asked = offsets_of(rows, 1_000), iter([False] * 6)
    found = read(tmp_path, 1_000, is_over=lambda: next(asked, True))
    assert not found.is_whole
    assert not found.is_full
    assert 0 < len(offsets(found)) < len(everything)
    assert offsets(found) == everything[-len(offsets(found)) :]


@pytest.mark.parametrize("days_between", [0, 1])
def test_rows_are_left_out_where_others_between_them_were_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days_between: int
) -> None:
    """Two jobs had every other row, or a clock went to and fro over midnight."""
    monkeypatch.setattr(past, "ROWS_BYTES_MAX", 0)
    rows = [
        row for row in rows_of(LOG_PARTITION, stamp(write_log(1, ["write"] * 60), Random(1), (0,))) if is_of_key(row)
    ]
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows[-1::-2])
    earlier = [row | {"timestamp_ms": row["timestamp_ms"] - days_between * DAY_MS} for row in rows[-2::-2]]
    write_batch(tmp_path, STATE_TOPIC_ID, "b-0", earlier)
    found = read(tmp_path, 1_000)
    assert offsets(found) == [rows[-1]["offset"]]
    assert not found.is_whole
    monkeypatch.undo()
    expected = offsets_of(rows, 1_000)
    for count in range(10):
        asked = iter([False] * count)
        some = offsets(read(tmp_path, 1_000, is_over=lambda asked=asked: next(asked, True)))  # type: ignore[misc]
        assert some == expected[len(expected) - len(some) :]


def is_of_key(row: dict[str, Any]) -> bool:
    return bool(row["group_id"] == KEYS[0].group_id)


def test_files_that_are_joined_while_they_are_read_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(LOG_PARTITION, stamp(write_log(1, ["write"] * 60), Random(1), (0,)))
    for number in range(3):
        write_batch(tmp_path, STATE_TOPIC_ID, f"a-{number}", rows[number::3])
    files = sorted(tmp_path.glob("state_topic_id=*/day=*/*.parquet"))
    joined = pq.ParquetDataset(files).read()
    read_group, read_groups = PastReader._read_group, 0

    def joining(reader: PastReader, group: Any, is_over: Callable[[], bool]) -> bool:
        nonlocal read_groups
        read_groups += 1
        if read_groups == 2:
            pq.write_table(joined, files[0].with_name("joined-1.parquet"))
            for file in files:
                file.unlink()
        return read_group(reader, group, is_over)

    monkeypatch.setattr(PastReader, "_read_group", joining)
    assert offsets(read(tmp_path, 1_000)) == offsets_of(rows, 1_000)
    assert read_groups > 2


def test_a_damaged_file_and_one_of_something_else_are_named(tmp_path: Path) -> None:
    rows = rows_of(LOG_PARTITION, stamp(write_log(1, ["write"] * 9), Random(1)))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows)
    [file, *_] = tmp_path.glob("state_topic_id=*/day=*/*.parquet")
    whole = file.read_bytes()
    for damaged in (
        b"",
        b"PAR1",
        whole[: len(whole) // 2],
        whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :],
    ):
        file.write_bytes(damaged)
        with pytest.raises(HistoryProblem, match=r"a-0-0\.parquet cannot be read: "):
            read(tmp_path, 1_000)
    pq.write_table(pa.table({"orders": [1, 2, 3]}), file)
    with pytest.raises(HistoryProblem, match=r"a-0-0\.parquet cannot be read: "):
        read(tmp_path, 1_000)


def test_a_damaged_file_that_says_how_far_it_reaches_is_named(tmp_path: Path) -> None:
    write_covered(tmp_path, STATE_TOPIC_ID, "a", {LOG_PARTITION: 3})
    next(tmp_path.glob("*/_covered/a.json")).write_text("{")
    with pytest.raises(HistoryProblem, match=r"_covered/a\.json is damaged"):
        read(tmp_path, 1_000)


def test_a_history_of_another_topic_is_none_of_this_one(tmp_path: Path) -> None:
    write_covered(tmp_path, bytes(16), "a", {LOG_PARTITION: 3})
    with pytest.raises(Missing, match="has nothing about this state topic"):
        read(tmp_path, 1_000)
