"""History and log, queried one after the other while both go on: nothing is reported twice, nothing is left out silently."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from signal import SIGINT
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Message

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.console.sources import log_reader
from holdfast.console.sources.kafka_reader import Stopped
from holdfast.console.sources.log_reader import LogEntry, PartitionReading
from holdfast.kafka.topic_ids import parse_topic_id
from holdfast.records.log.header import HEADER_NAME
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.records.share.snapshot_store.folding import RawRecord
from tests.pure.console.history_writer import Stamped, gap_row, rows_of, write_batch, write_covered
from tests.pure.records.logs import STATE_TOPIC_ID, LogWriter, write_log
from tests.waiting import PATIENCE_S

BEGIN_MS = 1_769_904_000_000
GROUP = "job"


class FakeLog:
    """A log of one partition in place of a `LogReader` and of its `kafka`; a callback runs before its start is returned."""

    topic = "t"

    def __init__(self, records: list[RawRecord], start: int, folded: int) -> None:
        self.records = records
        self.start = start
        self.folded = folded
        self.on_begin: Callable[[], None] = lambda: None
        self._told = 0

    @property
    def kafka(self) -> FakeLog:
        return self

    def close(self) -> None:
        pass

    def topic_id(self, topic: str) -> bytes:
        assert topic == self.topic
        return STATE_TOPIC_ID

    def partitions(self, topic: str) -> list[int]:
        assert topic == self.topic
        return [0]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        assert (group, topic) == (GROUP, self.topic)
        return {0: self.folded}

    def begin(self, partitions: list[int]) -> dict[int, int]:
        self.on_begin()
        self._told = self.start
        return dict.fromkeys(partitions, self._told)

    def read(self, wanted: log_reader.LogSelection) -> Iterator[LogEntry]:
        assert list(wanted.partitions) == [0]
        reading = PartitionReading()
        for offset, key, value, header in self.records[self._told :]:
            message = Message(
                self.topic, 0, offset, key, value, [(HEADER_NAME, header)], timestamp=(1, BEGIN_MS + offset)
            )
            entry = reading.take(message, is_wanted=True)
            assert entry is not None
            yield entry


@pytest.fixture
def log() -> LogWriter:
    """Give a log of which the beginning may be cut off."""
    return write_log(3, [*["write"] * 20, "cut", *["write"] * 5])


def rows(log: LogWriter, begin: int, end: int) -> list[dict[str, Any]]:
    rows_found = rows_of(0, [Stamped(record, BEGIN_MS + record.offset) for record in log.records])
    return [row for row in rows_found if begin <= row["offset"] < end]


def diff(monkeypatch: pytest.MonkeyPatch, directory: Path, fake: FakeLog) -> tuple[dict[str, dict[str, Any]], str]:
    """Return what has changed since ever, by share partition, and what was said beside."""

    def reader(properties: Mapping[str, str], topic: str, _: Event) -> FakeLog:
        assert (properties["bootstrap.servers"], topic) == ("b:1", fake.topic)
        return fake

    monkeypatch.setattr("holdfast.console.open_history.LogReader", reader)
    named = ["--history-dir", str(directory), "--job-group", GROUP, "--state-topic", fake.topic]
    result = CliRunner().invoke(main, ["diff", "--from", "0", *named, "--bootstrap-server", "b:1", "--json"])
    assert result.exit_code == Exit.DONE, result.stderr
    return {row["share_partition"]: row for row in json.loads(result.stdout)}, result.stderr


def test_what_is_folded_and_cut_off_while_history_and_log_are_queried_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter
) -> None:
    """The job writes a batch and commits it, and the node cuts the log to there, right before its start is told."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, 10))
    fake = FakeLog(log.records, 0, 10)

    def goes_on() -> None:
        write_batch(tmp_path, STATE_TOPIC_ID, "a-1", rows(log, 10, log.log_start))
        fake.folded = fake.start = log.log_start

    fake.on_begin = goes_on
    rows_found, said = diff(monkeypatch, tmp_path, fake)
    expected: dict[str, int] = {}
    for row in rows(log, 0, len(log.records)):
        key = format_key(SharePartitionKey(row["group_id"], parse_topic_id(row["topic_id"]), row["partition"]))
        expected[key] = expected.get(key, 0) + 1
    assert {key: row["changes"] for key, row in rows_found.items()} == expected
    assert set(expected) >= {format_key(key) for key in log.states}
    assert "lost" not in said


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_gap_that_ends_where_the_log_starts_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter, is_committed: bool
) -> None:
    """The job has begun afresh at the log's start and noted the gap; whether it has committed that makes no difference."""
    start = log.log_start
    gap = gap_row(0, start, BEGIN_MS + start)
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, 10))
    write_batch(tmp_path, STATE_TOPIC_ID, "a-1", [gap, *rows(log, start, start + 3)])
    rows_found, said = diff(monkeypatch, tmp_path, FakeLog(log.records, start, start + 3 if is_committed else 10))
    assert said.count("lost") == 1
    assert f"Log partition 0: the log was cut before the job had read what lay below {start}" in said
    assert {row["to"]["status"] for key, row in rows_found.items() if key in map(format_key, log.states)} == {"live"}


def test_a_gap_that_the_job_notes_between_the_queries_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter
) -> None:
    """The job comes back after the log's start is told, notes the gap and commits; the history tells of it in either case."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, 10))
    fake = FakeLog(log.records, log.log_start, 10)

    def comes_back() -> None:
        write_batch(tmp_path, STATE_TOPIC_ID, "a-1", [gap_row(0, log.log_start, BEGIN_MS)])
        fake.folded = len(log.records)

    fake.on_begin = comes_back
    assert diff(monkeypatch, tmp_path, fake)[1].count("lost") == 1


def test_what_the_job_did_not_come_back_for_is_lost_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter
) -> None:
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, 10))
    _, said = diff(monkeypatch, tmp_path, FakeLog(log.records, log.log_start, 10))
    assert f"the history ends before offset 10, and the log starts at {log.log_start}; what was between is lost" in said


def test_what_a_job_folded_without_a_history_is_lost_though_it_committed_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter
) -> None:
    """The history was switched off, the job went on, and the log was cut."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, 10))
    write_covered(tmp_path, STATE_TOPIC_ID, "a-0", {0: 10})
    _, said = diff(monkeypatch, tmp_path, FakeLog(log.records, log.log_start, len(log.records)))
    assert f"the history ends before offset 10, and the log starts at {log.log_start}; what was between is lost" in said


def test_what_the_history_covers_is_not_lost_though_nothing_was_committed_or_changed_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter
) -> None:
    """The group's offsets have expired, and the newest records below the log's start are no changes."""
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, 10))
    for name, covered in (("a-0", 4), ("b-7", log.log_start), ("c-1", 9)):
        write_covered(tmp_path, STATE_TOPIC_ID, name, {0: covered})
    assert "lost" not in diff(monkeypatch, tmp_path, FakeLog(log.records, log.log_start, 0))[1]


def follow(monkeypatch: pytest.MonkeyPatch, directory: Path, make_log: Callable[[Event], FakeLog]) -> Result:
    """Follow the history of all groups' share partitions that the log has."""
    monkeypatch.setattr("holdfast.console.open_history.LogReader", lambda _, __, is_stopped: make_log(is_stopped))
    named = ["--history-dir", str(directory), "--job-group", GROUP, "--state-topic", FakeLog.topic]
    return CliRunner().invoke(main, ["history", "group:0", *named, "--bootstrap-server", "b:1", "--json", "--follow"])


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_following_also_while_kafka_is_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter
) -> None:
    class AwayLog(FakeLog):
        """Is read once, and then no broker answers until whoever reads wants no more."""

        def __init__(self, is_stopped: Event) -> None:
            super().__init__(log.records, log.log_start, log.log_start)
            self.is_stopped = is_stopped
            self.reads = 0

        def read(self, wanted: log_reader.LogSelection) -> Iterator[LogEntry]:
            self.reads += 1
            if self.reads == 1:
                yield from super().read(wanted)
                return
            os.kill(os.getpid(), SIGINT)
            assert self.is_stopped.wait(PATIENCE_S / 10), "the interrupt reaches whoever waits for brokers"
            raise Stopped("interrupted")

    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, log.log_start))
    followed = follow(monkeypatch, tmp_path, AwayLog)
    assert (followed.exit_code, followed.exception, followed.stderr) == (Exit.DONE, None, "")
    assert followed.stdout != ""


def test_an_interrupt_ends_it_also_before_it_has_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: LogWriter
) -> None:
    """While brokers are waited for that are to say where the log begins."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    fake = FakeLog(log.records, log.log_start, log.log_start)
    fake.on_begin = interrupt
    write_batch(tmp_path, STATE_TOPIC_ID, "a-0", rows(log, 0, log.log_start))
    assert follow(monkeypatch, tmp_path, lambda _: fake).exit_code == Exit.DONE
