"""The history is read back from its files: each change once and in order, gaps, and from wherever the job writes it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs  # type: ignore[import-untyped]

from holdfast.cli import main
from holdfast.console.outcomes import Failure
from holdfast.console.sources.history_files import HistoryFiles
from holdfast.console.sources.history_states import DAY_MS, HistoryGap, KeyFilter
from holdfast.history import place as history_place
from holdfast.history.covered import encode_covered
from holdfast.history.days import HistoryDays
from holdfast.history.place import SCHEMES, HistoryPlace, Missing, Unusable
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.keys import SharePartitionKey
from tests.pure.console.history_writer import (
    BEGIN_MS,
    SNAPSHOT,
    Stamped,
    changes_of,
    gap_row,
    record,
    rows_of,
    stamp,
    write_batch,
    write_covered,
)
from tests.pure.records.logs import KEYS, LOG_PARTITION, STATE_TOPIC_ID, UNCUT, LogWriter, logs, write_log


def write_history(directory: Path, rows: list[dict[str, Any]], random: Random) -> None:
    """Write rows as two jobs might: in batches of any size, some of them by both."""
    for job in ("a", "b"):
        left = rows if job == "a" else rows[random.randint(0, len(rows)) :]
        number = 0
        while left:
            size = random.randint(1, 8)
            batch, left = left[:size], left[size:]
            write_batch(directory, STATE_TOPIC_ID, f"{job}-{number}", random.sample(batch, len(batch)))
            number += 1


@given(logs(UNCUT), st.sampled_from((None, *KEYS)), st.randoms(use_true_random=False))
def test_each_change_is_reported_once_and_in_order_however_the_files_were_written(
    log: LogWriter, key: SharePartitionKey | None, random: Random
) -> None:
    rows = rows_of(LOG_PARTITION, stamp(log, random))
    with TemporaryDirectory() as directory:
        write_history(Path(directory), rows, random)
        if rows:
            wanted = KeyFilter() if key is None else KeyFilter(*key)
            found = list(HistoryFiles(HistoryPlace(directory), STATE_TOPIC_ID).changes(wanted))
            assert found == [change for change in changes_of(rows) if wanted.includes(change.key)]


def test_a_repeated_batch_replaces_itself_and_what_is_being_written_is_not_seen(tmp_path: Path) -> None:
    log = write_log(1, ["write"] * 9)
    rows = rows_of(LOG_PARTITION, stamp(log, Random(1)))
    for batch_id in ("a-0", "a-0"):
        write_batch(tmp_path, STATE_TOPIC_ID, batch_id, rows)
    root = tmp_path / f"state_topic_id={format_topic_id(STATE_TOPIC_ID)}"
    (root / "_a-1" / "day=2026-02-01").mkdir(parents=True)
    (root / "_a-1" / "day=2026-02-01" / "part-0.parquet").write_bytes(b"half a file")
    files = HistoryFiles(HistoryPlace(str(tmp_path)), None)
    assert list(files.changes(KeyFilter())) == changes_of(rows)
    assert files.begin_ms() == min(row["timestamp_ms"] for row in rows)


def test_days_that_are_much_later_are_not_read(tmp_path: Path) -> None:
    log = write_log(1, ["write"] * 9)
    rows = rows_of(LOG_PARTITION, stamp(log, Random(1)))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows)
    # With it, there is no gap in front of the later ones.
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", [rows[-1] | {"timestamp_ms": rows[-1]["timestamp_ms"] + DAY_MS}])
    later = tmp_path / f"state_topic_id={format_topic_id(STATE_TOPIC_ID)}" / "day=2026-02-03"
    later.mkdir(parents=True)
    (later / "a-2-0.parquet").write_bytes(b"no file that can be read")
    files = HistoryFiles(HistoryPlace(str(tmp_path)), STATE_TOPIC_ID)
    assert list(files.changes(KeyFilter(), rows[-1]["timestamp_ms"])) == changes_of(rows)
    with pytest.raises(Failure, match="cannot be read"):
        list(files.changes(KeyFilter()))


DAY_BEGIN_MS = BEGIN_MS + 60_000


def day_rows(day: int, *offsets: int, key: SharePartitionKey = KEYS[0]) -> list[dict[str, Any]]:
    """Return rows of one share partition on a day, an hour between each two."""
    template = rows_of(0, [Stamped(each, 0) for each in (*LogWriter(Random(1)).records, record(1, SNAPSHOT, key))])[0]
    return [
        template | {"offset": offset, "timestamp_ms": DAY_BEGIN_MS + day * DAY_MS + hour * 3_600_000}
        for hour, offset in enumerate(offsets)
    ]


def told_of(directory: Path, wanted: KeyFilter, until_ms: int | None = None) -> list[int | HistoryGap]:
    """Return the offsets of changes, and gaps."""
    changes = HistoryFiles(HistoryPlace(str(directory)), STATE_TOPIC_ID).changes(wanted, until_ms)
    return [each if isinstance(each, HistoryGap) else each.offset for each in changes]


@pytest.mark.parametrize("wanted", [KeyFilter(), KeyFilter(*KEYS[0])])
def test_a_gap_is_reported_once_and_before_what_follows_it(tmp_path: Path, wanted: KeyFilter) -> None:
    """Two jobs noted it, and a third one had read the record there as one that counts."""
    gap = gap_row(0, 20, DAY_BEGIN_MS + 3 * DAY_MS)
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", [*day_rows(0, 1, 2), *day_rows(3, 20, 21), gap])
    write_batch(tmp_path, STATE_TOPIC_ID, "b-0", [gap, *day_rows(3, 20, 22)])
    found = HistoryGap(0, 20, DAY_BEGIN_MS + 3_600_000)
    assert told_of(tmp_path, wanted) == [1, 2, found, 20, 21, 22]


def test_the_time_of_a_gap_is_that_of_the_newest_change_of_its_log_partition(tmp_path: Path) -> None:
    """Of whatever share partition."""
    rows = [*day_rows(0, 1), *day_rows(1, 2, 3, key=KEYS[1]), gap_row(0, 9, DAY_BEGIN_MS + 2 * DAY_MS)]
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", [*rows, gap_row(1, 9, DAY_BEGIN_MS)])
    found = told_of(tmp_path, KeyFilter(*KEYS[0]))
    assert found == [1, HistoryGap(1, 9, DAY_BEGIN_MS), HistoryGap(0, 9, DAY_BEGIN_MS + DAY_MS + 3_600_000)]


def test_a_gap_is_reported_however_long_it_is(tmp_path: Path) -> None:
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", [*day_rows(0, 1), gap_row(0, 9, DAY_BEGIN_MS + 30 * DAY_MS)])
    gap = HistoryGap(0, 9, DAY_BEGIN_MS)
    assert told_of(tmp_path, KeyFilter(), DAY_BEGIN_MS + 7 * DAY_MS) == [1, gap]
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", day_rows(9, 2, key=KEYS[1]))
    assert told_of(tmp_path, KeyFilter(*KEYS[0]), DAY_BEGIN_MS + 7 * DAY_MS) == [1]


def test_a_history_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    must_be = "; it must be the job's `compaction.history.dir` itself."
    for place, why in (
        (tmp_path / "nowhere", "nothing is there"),
        (tmp_path / "file", "it is a file"),
        (tmp_path, "it holds no directory state_topic_id=…"),
    ):
        with pytest.raises(Missing) as refused:
            HistoryPlace(str(place))
        assert str(refused.value) == f"There is no history at --history-dir {place}, for {why}{must_be}"
    (tmp_path / f"state_topic_id={format_topic_id(bytes(16))}").mkdir()
    with pytest.raises(Failure, match=r"has nothing about this state topic, whose id is \S+, but about AAAA\S+; name"):
        HistoryFiles(HistoryPlace(str(tmp_path)), STATE_TOPIC_ID)
    (tmp_path / f"state_topic_id={format_topic_id(STATE_TOPIC_ID)}").mkdir()
    assert HistoryFiles(HistoryPlace(tmp_path.as_uri()), STATE_TOPIC_ID).begin_ms() is None
    with pytest.raises(Failure, match="is of 2 state topics"):
        HistoryFiles(HistoryPlace(str(tmp_path)), None)


@pytest.mark.parametrize(
    ("uri", "asked"),
    [
        ("s3a://bucket/holdfast/history", "s3://bucket/holdfast/history"),
        ("s3n://bucket/history", "s3://bucket/history"),
        ("S3A://bucket/history", "s3://bucket/history"),
        ("s3://bucket/history?region=eu-central-1", "s3://bucket/history?region=eu-central-1"),
        ("abfss://box@account.dfs.core.windows.net/history", "abfss://box@account.dfs.core.windows.net/history"),
        ("gs://bucket/history", "gs://bucket/history"),
        ("hdfs://namenode:8020/history", "hdfs://namenode:8020/history"),
        ("wasbs://box@account/history", "wasbs://box@account/history"),
    ],
)
def test_the_history_is_read_from_where_the_job_is_told_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, asked: str
) -> None:
    """A URI as Hadoop has it is one of pyarrow's; a stand-in for the store is a local directory."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", day_rows(0, 1, 2))

    def from_uri(given_uri: str) -> tuple[Any, str]:
        assert given_uri == asked
        return fs.LocalFileSystem(), str(tmp_path)

    monkeypatch.setattr(
        history_place,
        "fs",
        SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri), FileSelector=fs.FileSelector),
    )
    files = HistoryFiles(HistoryPlace(uri), STATE_TOPIC_ID)
    assert len(list(files.changes(KeyFilter()))) == 2
    assert files.covered() == {}


@pytest.mark.parametrize("name", ["plain", "with:colon", "a:/colon"])
def test_a_local_history_is_named_by_a_path_or_a_uri(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / name
    write_batch(directory, STATE_TOPIC_ID, "a-0", day_rows(0, 1, 2))
    monkeypatch.chdir(tmp_path)
    for place in (str(directory), f"file://{directory}", f"file:{directory}", f"./{name}"):
        assert len(list(HistoryFiles(HistoryPlace(place), STATE_TOPIC_ID).changes(KeyFilter()))) == 2


def test_what_says_how_far_the_history_goes_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", day_rows(0, 1, 2))
    write_covered(tmp_path, STATE_TOPIC_ID, "a-0", {0: 3})
    files = HistoryFiles(HistoryPlace(str(tmp_path)), STATE_TOPIC_ID)
    assert files.covered() == {0: 3}
    place = next(tmp_path.glob("state_topic_id=*/_covered"))
    for damaged in (b"", b"half a fi", encode_covered({0: 4}).encode()[:-1], b"\xff"):
        (place / "b-0.json").write_bytes(damaged)
        with pytest.raises(Failure, match=r"_covered/b-0\.json is damaged \(.*\); remove it, and the job [^\n]*\.$"):
            files.covered()
    (place / "b-0.json").rename(place / "_b-0.json.partial")
    assert files.covered() == {0: 3}, "a file that is being written is no file yet"
    whole = files._days._read_text
    gone = iter([True, False])

    def read_text(path: str) -> str:
        if next(gone, False):
            raise FileNotFoundError(path)
        return whole(path)

    files._days._read_text = read_text  # type: ignore[method-assign] # the job puts a newer file in the place of the one listed
    assert files.covered() == {0: 3}
    gone = iter([True] * 100)
    with pytest.raises(Failure, match="what is listed in _covered is not there"):
        files.covered()


def test_a_scheme_that_cannot_be_read_is_named_with_those_that_can() -> None:
    with pytest.raises(Unusable, match="schemes file, s3a, s3n, s3, abfs, abfss, gs, hdfs"):
        HistoryPlace("viewfs-x://cluster/history")
    help_text = CliRunner().invoke(main, ["history", "--help"]).stdout
    for scheme in SCHEMES:
        assert scheme in help_text


def test_the_time_of_a_gap_is_that_of_the_newest_offset_where_the_clock_was_set_back_over_midnight(
    tmp_path: Path,
) -> None:
    rows = [*day_rows(1, 3, 4), *day_rows(0, 5, 6), gap_row(0, 9, DAY_BEGIN_MS + 3 * DAY_MS)]
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows)
    assert told_of(tmp_path, KeyFilter())[-1] == HistoryGap(0, 9, DAY_BEGIN_MS + 3_600_000)


# ---- while files are joined ------------------------------------------------------------------------------------------


def join_by_hand(directory: Path, rows: list[dict[str, Any]]) -> None:
    """Put one file in the place of all files of each day."""
    root = directory / f"state_topic_id={format_topic_id(STATE_TOPIC_ID)}"
    former = sorted(root.glob("day=*/*.parquet"))
    write_batch(directory, STATE_TOPIC_ID, "joined-0", rows)
    for path in former:
        path.unlink()


def test_files_that_are_joined_after_they_were_listed_are_found_again(tmp_path: Path) -> None:
    rows = [*day_rows(0, 1, 2), *day_rows(1, 3, 4)]
    for number, row in enumerate(rows):
        write_batch(tmp_path, STATE_TOPIC_ID, f"a-{number}", [row])
    files = HistoryFiles(HistoryPlace(str(tmp_path)), STATE_TOPIC_ID)
    assert files.begin_ms() == rows[0]["timestamp_ms"]
    changes = files.changes(KeyFilter())
    first = next(changes)
    join_by_hand(tmp_path, rows)
    assert [first, *changes] == changes_of(rows)
    assert files.newest(0, 4) == (3, rows[2]["timestamp_ms"])


def test_a_file_that_is_gone_and_in_no_other_is_an_error(tmp_path: Path) -> None:
    """Also a file that is damaged, which another list does not mend."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", day_rows(0, 1))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", day_rows(0, 2))
    damaged = next(tmp_path.glob("*/day=*/a-1-0.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(Failure, match="cannot be read"):
        list(HistoryFiles(HistoryPlace(str(tmp_path)), STATE_TOPIC_ID).changes(KeyFilter()))


def test_a_list_that_was_made_while_files_were_joined_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacked the joined file, which came where the list was past, and one of the files that this one replaced."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", day_rows(0, 1))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", day_rows(0, 2))
    list_once = HistoryDays._list_once
    lists: list[tuple[str, ...]] = []

    def list_at_a_join(days: HistoryDays, day: str) -> tuple[str, ...]:
        if not lists:
            write_batch(tmp_path, STATE_TOPIC_ID, "joined-0", day_rows(0, 1, 2))
            next(tmp_path.glob("*/day=*/a-1-0.parquet")).unlink()
            lists.append(tuple(path for path in list_once(days, day) if "joined" not in path))
        else:
            lists.append(list_once(days, day))
        return lists[-1]

    monkeypatch.setattr(HistoryDays, "_list_once", list_at_a_join)
    assert told_of(tmp_path, KeyFilter()) == [1, 2]
    assert len(lists[0]) == 1


def test_batches_with_a_directory_of_their_own_in_a_day_are_read_as_well(tmp_path: Path) -> None:
    """A job moves their files into the day when it starts."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", day_rows(0, 1))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", day_rows(0, 2))
    moved = next(tmp_path.glob("*/day=*/a-1-0.parquet"))
    (moved.parent / "batch_id=a-1").mkdir()
    moved.rename(moved.parent / "batch_id=a-1" / "part-0.parquet")
    assert told_of(tmp_path, KeyFilter()) == [1, 2]
