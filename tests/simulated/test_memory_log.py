"""The log in memory does what a broker and a client may do, one move at a time."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.runtime.errors import AppendRefused
from holdfast.runtime.log_protocol import Log, LogListener
from tests.simulated.memory_log import MemoryLog, MemoryTopic


class Told:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.takes_own = False

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))

    def own_records_read(self, *args: Any) -> bool:
        self.calls.append(("own_records_read", *args))
        return self.takes_own

    def take(self) -> list[tuple[Any, ...]]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def topic() -> MemoryTopic:
    return MemoryTopic(message_bytes_max=100)


def open_log(topic: MemoryTopic, queue_records_max: int = 10) -> tuple[MemoryLog, Told]:
    log, reports = topic.open_log(queue_records_max), Told()
    listener: LogListener = reports
    log.start(listener)
    _: Log = log
    return log, reports


def kinds(topic: MemoryTopic) -> list[str]:
    return [move.kind for move in topic.moves()]


def make(topic: MemoryTopic, *wanted: str) -> None:
    for kind in wanted:
        next(move for move in topic.moves() if move.kind == kind).make()


def append(log: MemoryLog, *keys: bytes) -> None:
    for key in keys:
        log.append(0, key, b"value", b"header " + key)


#: What is told of a record of one's own that is not taken as such.
READ_ONE = ("own_records_read", "records_read", "position_reached")


def read_keys(call: tuple[Any, ...]) -> list[bytes]:
    assert call[0] == "records_read"
    return [record.key for record in call[3]]


def test_nothing_happens_by_itself(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a")
    log.start_reading(0, 1)
    log.query_latest_offsets(1, [0])
    assert reports.take() == []
    assert kinds(topic) == ["land", "look up", "begin"]
    make(topic, "begin", "catch up", "land")
    assert reports.take() == [("read_started", 0, 1, 0, 0), ("caught_up", 0, 1, 0)]
    assert "read" not in kinds(topic), "what is above the high watermark was offered to a reader"
    make(topic, "commit", "read")
    own, call, reached = reports.take()
    assert own == ("own_records_read", 0, 1, 0, 1, b"header a")
    assert read_keys(call) == [b"a"], "what was not taken as its own was not told record by record"
    assert reached == ("position_reached", 0, 1, 1)


def test_a_load_catches_up_once_with_the_end_that_it_saw_first(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a", b"b")
    topic.run_until_quiet()
    log.start_reading(0, 7)
    make(topic, "begin")
    append(log, b"c")
    make(topic, "land", "commit")
    log.read(0, 1)
    assert kinds(topic) == ["read"]
    log.read(0, 1)
    make(topic, "catch up", "read")
    assert [call[0] for call in reports.take()] == [
        "read_started",
        *READ_ONE,
        *READ_ONE,
        "caught_up",
        *READ_ONE,
    ]
    assert kinds(topic) == []


def test_runs_of_own_records_are_reported_as_such(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    other, _ = open_log(topic)
    log.start_reading(0, 1)
    topic.run_until_quiet()
    reports.take()
    append(log, b"a", b"b", b"c")
    append(other, b"x")
    log.land(0)
    log.land(0, is_kept=True)
    other.land(0)
    topic.write_hole(0)
    topic.commit(0)
    reports.takes_own = True
    make(topic, "read")
    first, second, third = reports.take()
    assert first == ("own_records_read", 0, 1, 0, 2, b"header a")
    assert read_keys(second) == [b"x"]
    assert third == ("position_reached", 0, 1, 4)
    reports.takes_own = False
    make(topic, "land", "land", "commit", "read")
    own, again, reached = reports.take()
    assert own == ("own_records_read", 0, 1, 4, 2, b"header b"), (
        "a second copy is offered too; the listener knows better"
    )
    assert read_keys(again) == [b"b", b"c"]
    assert reached == ("position_reached", 0, 1, 6)


def test_a_test_may_take_records_and_report_them_in_a_way_of_its_own(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a", b"b", b"c")
    make(topic, "land", "land", "land")
    topic.commit(0, 2)
    log.start_reading(0, 1)
    make(topic, "begin")
    log.start_reading(0, 2)
    make(topic, "begin")
    reports.take()
    assert [record.key for record in log.take(0, 2, 1)] == [b"a"]
    assert [record.key for record in log.take(0, 2, 9)] == [b"b"], "what is above the high watermark was read"
    assert [record.key for record in log.take(0, 1, 9)] == [b"a", b"b"], "an earlier instance reads for itself"
    assert reports.take() == []
    make(topic, "commit", "read")
    assert [call[0] for call in reports.take()] == list(READ_ONE)


def test_a_latest_offset_is_that_of_the_moment_it_was_looked_up(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    log.query_latest_offsets(1, [0])
    log.query_latest_offsets(2, [0])
    make(topic, "look up")
    append(log, b"a")
    make(topic, "land", "commit")
    log.look_up(is_known=False)
    make(topic, "tell", "tell")
    assert reports.take() == [("latest_offsets", 1, {0: 0}), ("latest_offsets", 2, {0: None})]


def test_appends_are_refused_by_size_and_by_number(topic: MemoryTopic) -> None:
    log, _ = open_log(topic, queue_records_max=1)
    with pytest.raises(AppendRefused) as refused:
        log.append(0, b"key", bytes(98), b"header")
    assert refused.value.is_too_large
    append(log, b"a")
    with pytest.raises(AppendRefused) as refused:
        append(log, b"b")
    assert not refused.value.is_too_large
    topic.run_until_quiet()
    assert [record.key for record in topic.partitions[0].records] == [b"a"]


def test_an_append_that_was_reported_as_failed_may_still_be_appended_or_not(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a", b"b", b"c")
    log.report_failed(0)
    log.report_failed(0)
    make(topic, "tell", "tell")
    assert reports.take() == [
        ("append_failed", 0, b"header a", "it timed out"),
        ("append_failed", 0, b"header b", "it timed out"),
    ]
    make(topic, "land")
    log.lose(0)
    topic.run_until_quiet()
    assert [record.key for record in topic.partitions[0].records] == [b"a", b"c"]


def test_records_may_be_appended_twice_and_again_later(topic: MemoryTopic) -> None:
    log, _ = open_log(topic)
    append(log, b"a", b"b")
    log.land(0, is_kept=True)
    topic.run_until_quiet()
    topic.repeat(0, 0)
    records = topic.partitions[0].records
    assert [(record.offset, record.key) for record in records] == [(0, b"a"), (1, b"a"), (2, b"b"), (3, b"a")]


def test_what_is_above_the_watermark_can_be_lost_and_what_is_below_cannot(topic: MemoryTopic) -> None:
    log, _ = open_log(topic)
    append(log, b"a", b"b")
    make(topic, "land", "land")
    topic.commit(0, 1)
    assert [lost.key for lost in topic.lose_uncommitted(0)] == [b"b"]
    assert [record.key for record in topic.partitions[0].records] == [b"a"]
    assert topic.lose_uncommitted(0) == []


def test_a_cut_is_reported_and_a_reader_below_it_fails_without_an_alarm(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a", b"b")
    topic.run_until_quiet()
    log.start_reading(0, 1)
    make(topic, "begin")
    log.delete_records(0, 2)
    log.delete_records(0, 2)
    make(topic, "delete", "tell")
    log.delete(is_refused=True)
    make(topic, "tell", "miss")
    assert [call[:3] for call in reports.take()] == [
        ("read_started", 0, 1),
        ("records_deleted", 0, 2),
        ("records_deleted", 0, None),
        ("read_failed", 0, 1),
    ]
    log.start_reading(0, 2)
    make(topic, "begin")
    assert reports.take() == [("read_started", 0, 2, 2, 2)]


def test_a_recreated_topic_has_another_id_and_fails_its_readers_with_an_alarm(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a", b"b")
    make(topic, "land", "commit")
    log.start_reading(0, 1)
    make(topic, "begin")
    before = topic.identity
    topic.make()
    assert topic.identity != before
    make(topic, "land", "lose")
    assert [record.key for record in topic.partitions[0].records] == [b"b"], "what was in flight lands by the name"
    assert reports.take()[-1][0] == "read_failed"
    assert kinds(topic) == ["commit"]


def test_one_thing_of_an_earlier_instance_may_still_be_reported(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a")
    topic.run_until_quiet()
    log.start_reading(0, 1)
    make(topic, "begin")
    log.start_reading(0, 2)
    assert kinds(topic) == ["begin", "late read"]
    make(topic, "late read")
    assert kinds(topic) == ["begin"]
    assert [call[:3] for call in reports.take()[-3:]] == [(kind, 0, 1) for kind in READ_ONE]


def test_nothing_is_reported_to_a_frozen_process_and_never_again_to_a_crashed_one(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    append(log, b"a", b"b")
    log.report_failed(0)
    log.start_reading(0, 1)
    log.is_frozen = True
    assert kinds(topic) == ["land"]
    log.is_frozen = False
    assert kinds(topic) == ["land", "tell", "begin"]
    log.crash()
    topic.run_until_quiet()
    assert [record.key for record in topic.partitions[0].records] == [b"a", b"b"]
    assert reports.take() == []


def test_other_programs_write_what_they_like(topic: MemoryTopic) -> None:
    topic.write_foreign(0, None, b"text", None)
    assert topic.partitions[0].records == [(0, None, b"text", None)]


def test_a_dying_producer_and_a_failing_reader_are_reported(topic: MemoryTopic) -> None:
    log, reports = open_log(topic)
    log.start_reading(0, 1)
    log.replace_producer()
    topic.run_until_quiet()
    log.fail_reading(0)
    assert [call[0] for call in reports.take()] == ["append_failed", "read_started", "caught_up", "read_failed"]
