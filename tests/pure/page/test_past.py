"""The part of a timeline that a history tells, and how it goes on in the log."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from holdfast.history import past as history_files
from holdfast.history import schema
from holdfast.history.past import PastRow
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.page import past, reading
from holdfast.page.decoding import TopicRecord
from holdfast.page.kafka_page import KafkaPage
from holdfast.page.log_fold import LogFold
from holdfast.page.past import Asked, History, PastFold, PastTimeline
from holdfast.page.source import HISTORY, LOG, Change, TimelineView
from holdfast.page.timeline import OffsetTimeline, tell
from holdfast.records.log.header import HEADER_NAME
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update, Value
from tests.pure.console.history_writer import BEGIN_MS, Stamped, gap_row, rows_of, stamp, write_batch, write_covered
from tests.pure.kafka.records.fake_kafka import FakeKafka, fake_kafka
from tests.pure.page.samples import KEY, NOW_MS, available, snapshot, update
from tests.pure.page.test_follower import STATE_TOPIC, Cluster, groups_of
from tests.pure.records.logs import KEYS, LOG_PARTITION, STATE_TOPIC_ID, LogWriter, logs
from tests.waiting import PATIENCE_S, in_patience
from tests.world.records import encode_record


def folded_log(
    stamped: Iterable[Stamped], start: int, key: SharePartitionKey, offset: int
) -> tuple[OffsetTimeline, int]:
    """Return what a log tells that begins at an offset, and from where its records count."""
    timeline, fold = OffsetTimeline(key, offset, LOG_PARTITION), LogFold(start, key)
    records = [
        TopicRecord(
            each.offset, at_ms, each.key, each.value, () if each.header is None else ((HEADER_NAME, each.header),)
        )
        for each, at_ms in stamped
        if each.offset >= start
    ]
    while True:
        for record in records:
            if (folded := fold.take(record)) is not None:
                timeline.take(folded)
        if not fold.read_again(is_at_end=True):
            return timeline, fold.counts_from


def without_source(changes: Iterable[Change]) -> list[Change]:
    return [change._replace(source="") for change in changes]


@given(logs(), st.randoms(use_true_random=False), st.sampled_from(KEYS), st.integers(0, 30))
def test_history_and_log_together_tell_what_the_whole_log_tells(
    log: LogWriter, random: Random, key: SharePartitionKey, offset: int
) -> None:
    """No change is there twice and none is missing, wherever it was cut."""
    stamped = stamp(log, random)
    whole, _ = folded_log(stamped, 0, key, offset)
    rest, counts_from = folded_log(stamped, log.log_start, key, offset)
    before, fold = OffsetTimeline(key, offset, LOG_PARTITION, HISTORY), PastFold(key)
    for row in rows_of(LOG_PARTITION, stamped):
        if row["offset"] < counts_from and row["group_id"] == key.group_id:
            folded = fold.take(PastRow(*(row[name] for name in PastRow._fields)))
            assert folded is not None
            before.take(folded)
    told, expected = tell(before, rest), tell(whole)
    assert without_source(told.changes) == without_source(expected.changes)
    assert told.total == expected.total
    assert [each.source for each in told.changes] == [
        HISTORY if each.log_offset < counts_from else LOG for each in told.changes
    ]


# ---- a history in files ------------------------------------------------------------------------------------------------


def row(offset: int, value: Value, at_ms: int = BEGIN_MS, key: SharePartitionKey = KEY) -> dict[str, Any]:
    """Return a row of log partition 0."""
    kind = schema.TOMBSTONE if value is None else schema.SNAPSHOT if isinstance(value, Snapshot) else schema.UPDATE
    of_key = (key.group_id, format_topic_id(key.topic_id), key.partition)
    cells = (0, offset, at_ms + offset, 1, offset, kind, *of_key, *encode_record(Codec.AVRO, key, value))
    return dict(zip(schema.COLUMNS, cells, strict=True))


ROWS = [row(1, snapshot(0)), row(2, update(0, available(7, 1))), row(5, update(0, available(7, 2)))]
ASKED = Asked(STATE_TOPIC_ID, KEY, 7, 0, 9)


async def told_by(directory: Path, asked: Asked = ASKED) -> PastTimeline:
    async def rest() -> None:
        await asyncio.sleep(0)

    return await in_patience(History(str(directory), "--history-dir").timeline(asked, rest))


async def test_a_history_tells_the_changes_and_from_when_on(tmp_path: Path) -> None:
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", ROWS)
    write_covered(tmp_path, STATE_TOPIC_ID, "a", {0: 9})
    found = await told_by(tmp_path)
    assert [(each.log_offset, each.delivery_count, each.source) for each in tell(found.timeline).changes] == [
        (2, 1, "history"),
        (5, 2, "history"),
    ]
    assert found.view == (str(tmp_path), BEGIN_MS + 1, 1, 9, "")
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("rows", "covered", "said"),
    [
        (
            ROWS,
            {0: 6},
            "Log partition 0: the history ends before offset 6, and the log starts at 9; what was between is lost",
        ),
        (ROWS, {}, "The history does not say how far it reaches"),
        ([], {0: 9}, "The history has nothing about this share partition."),
        ([row(1, snapshot(0, epoch=3))], {0: 9}, "has this share partition from 2026-01-31 23:59:00 UTC on only"),
        (
            [*ROWS, gap_row(0, 4, BEGIN_MS)],
            {0: 9},
            "Log partition 0: the log was cut before the job had read what lay below 4; what was between is lost",
        ),
        (
            [*ROWS, ROWS[0] | {"offset": 6, "value": b"?"}],
            {0: 9},
            "1 of its records in the history cannot be decoded, the first at offset 6",
        ),
    ],
)
async def test_a_history_says_what_it_does_not_tell(
    tmp_path: Path, rows: list[dict[str, Any]], covered: dict[int, int], said: str
) -> None:
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows)
    write_covered(tmp_path, STATE_TOPIC_ID, "a", covered)
    [sentence] = (await told_by(tmp_path)).unknown
    assert said in sentence


async def test_a_snapshot_after_a_gap_makes_it_certain_again(tmp_path: Path) -> None:
    rows = [*ROWS, gap_row(0, 6, BEGIN_MS), row(6, update(0, available(7, 8))), row(7, snapshot(0, available(7, 3)))]
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows)
    found = tell((await told_by(tmp_path)).timeline).changes
    assert [(each.log_offset, each.delivery_count) for each in found] == [(2, 1), (5, 2), (7, 3)]


async def test_rows_are_folded_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "_SLICE_S", -1)
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", ROWS)
    rests = 0

    async def rest() -> None:
        nonlocal rests
        rests += 1

    await in_patience(History(str(tmp_path), "--history-dir").timeline(ASKED, rest))
    assert rests == len(ROWS)


async def test_a_history_that_is_too_large_is_told_from_some_time_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_files, "ROWS_BYTES_MAX", 0)
    for number, each in enumerate([*ROWS, row(7, snapshot(0, available(7, 3)))]):
        write_batch(tmp_path, STATE_TOPIC_ID, f"a-{number}", [each])
    write_covered(tmp_path, STATE_TOPIC_ID, "a", {0: 9})
    found = await told_by(tmp_path)
    assert [each.log_offset for each in tell(found.timeline).changes] == [7]
    [sentence] = found.unknown
    assert sentence == (
        "The history is told from 2026-01-31 23:59:00 UTC on only, for it has too much about this share partition."
    )


def damage(directory: Path) -> None:
    for file in directory.glob("*/*/*.parquet"):
        file.write_bytes(b"PAR1")


async def test_a_history_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem(found: PastTimeline) -> str:
        assert found.unknown == (found.view.problem,)
        assert tell(found.timeline).changes == ()
        return found.view.problem

    assert "There is no history at --history-dir" in problem(await told_by(tmp_path / "nowhere"))
    write_batch(tmp_path, bytes(16), "a-0", ROWS)
    assert "has nothing about this state topic, whose id is" in problem(await told_by(tmp_path))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", ROWS)
    damage(tmp_path)
    assert "a-0-0.parquet cannot be read: " in problem(await told_by(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pyarrow, which is not installed (pyarrow); install the extra [history]" in problem(await told_by(tmp_path))


async def test_a_store_that_hangs_is_given_up_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", ROWS)
    history, goes_on = History("s3://user:secret@bucket/h", "--history-dir"), Event()

    async def rest() -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(history, "_read_files", lambda asked: goes_on.wait(PATIENCE_S) and None)
    monkeypatch.setattr(past, "READ_S", 0.05)
    monkeypatch.setattr(past, "_PATIENCE_S", 0.0)
    hung = (await in_patience(history.timeline(ASKED, rest))).view
    assert hung.problem == "The history at s3://(hidden)@bucket/h does not answer."
    assert hung.place == "s3://(hidden)@bucket/h"
    waiting = (await in_patience(history.timeline(ASKED, rest))).view.problem
    assert waiting == "The history is being read for other timelines; look again in some seconds."
    goes_on.set()


@settings(max_examples=10)
@given(logs(), st.randoms(use_true_random=False))
def test_files_tell_what_the_rows_tell(log: LogWriter, random: Random) -> None:
    stamped, key = stamp(log, random), KEYS[1]
    rest, counts_from = folded_log(stamped, log.log_start, key, 5)
    whole, _ = folded_log(stamped, 0, key, 5)
    rows = rows_of(LOG_PARTITION, stamped)
    with tempfile.TemporaryDirectory() as name:
        write_covered(Path(name), STATE_TOPIC_ID, "a", {LOG_PARTITION: len(log.records)})
        write_batch(Path(name), STATE_TOPIC_ID, "a-0", rows[::2])
        write_batch(Path(name), STATE_TOPIC_ID, "a-1", rows[1::2])
        asked = Asked(STATE_TOPIC_ID, key, 5, LOG_PARTITION, counts_from)
        found = asyncio.run(told_by(Path(name), asked))
    assert without_source(tell(found.timeline, rest).changes) == without_source(tell(whole).changes)


# ---- the page ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def page_of(kafka: FakeKafka, directory: Path | None) -> AsyncIterator[KafkaPage]:
    history = None if directory is None else History(str(directory), "--history-dir")
    page = KafkaPage(
        kafka.options, (STATE_TOPIC,), bootstrap="here", now_ms=lambda: NOW_MS, run_id="run", history=history
    )
    task = asyncio.create_task(page.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await groups_of(page)
            yield page
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def pruned(kafka: FakeKafka) -> tuple[Cluster, bytes, list[dict[str, Any]]]:
    """Return a cluster whose state topic begins at offset 3, its id, and the rows of what was pruned."""
    cluster = Cluster(kafka)
    values: tuple[Snapshot | Update, ...] = (snapshot(0), update(0, available(7, 1)), update(0, available(7, 2)))
    for value in values:
        cluster.put(value)
    cluster.put(snapshot(0, available(7, 2), epoch=1))
    cluster.put(update(0, available(7, 3)))
    cluster.prune(3)
    rows = [row(offset, value, key=cluster.key) for offset, value in enumerate(values)]
    return cluster, kafka.topics[STATE_TOPIC].topic_id.bytes, rows


async def timeline_of(page: KafkaPage) -> TimelineView:
    return await page.timeline("workers", "orders", 0, 7)


async def test_a_page_goes_on_in_the_history_where_the_log_begins(tmp_path: Path) -> None:
    async with fake_kafka() as kafka:
        cluster, topic_id, rows = pruned(kafka)
        write_batch(tmp_path, topic_id, "a-0", rows)
        write_covered(tmp_path, topic_id, "a", {0: 3})
        async with page_of(kafka, tmp_path) as page:
            view = await timeline_of(page)
            assert [(each.source, each.log_offset, each.delivery_count) for each in view.changes] == [
                ("history", 1, 1),
                ("history", 2, 2),
                ("log", 4, 3),
            ]
            assert view.history == (str(tmp_path), BEGIN_MS, 0, 3, "")
            assert not any("was pruned" in sentence for sentence in view.unknown)
            cluster.put(update(0, available(7, 4)))
            async for _ in page.changed():
                if len((view := await timeline_of(page)).changes) == 4:
                    break
            assert [each.source for each in view.changes] == ["history", "history", "log", "log"]
        async with page_of(kafka, None) as page:
            view = await timeline_of(page)
            assert view.history is None
            assert [each.source for each in view.changes] == ["log", "log", "log"]


async def test_a_page_without_its_history_shows_the_log_and_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_kafka() as kafka:
        _, topic_id, rows = pruned(kafka)
        async with page_of(kafka, tmp_path) as page:
            view = await timeline_of(page)
            assert view.history is not None
            assert view.history.problem in view.unknown
            assert [each.log_offset for each in view.changes] == [3, 4]
            assert "was pruned" in view.unknown[0]
            write_batch(tmp_path, topic_id, "a-0", rows)
            assert (await timeline_of(page)).history == view.history, "it is left alone for a while"
            monkeypatch.setattr(reading, "_PAUSE_S", -1)
            view = await timeline_of(page)
            assert [each.log_offset for each in view.changes] == [1, 2, 4]
