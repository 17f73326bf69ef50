"""States as they are now, and how fast records are finished."""

from __future__ import annotations

from holdfast.page.book import Book, Pace
from holdfast.page.source import SPARK_MINUTES
from holdfast.records.share.batches import ARCHIVED, StateBatch
from tests.pure.page.samples import KEY, NOW_MS, TOPIC_ID, Log, acknowledged, available, book_of, snapshot, update

MINUTE_MS = 60_000


def test_a_share_partition_is_described_as_the_command_line_does() -> None:
    log = Log()
    log.put(KEY, snapshot(5, acknowledged(7, 8), StateBatch(9, 10, ARCHIVED, 5), available(12, 4)))
    [(key, described)] = book_of(log).describe({0: 3}).items()
    assert key == KEY
    row = described.row
    assert (row["start_offset"], row["finished"], row["in_flight"], row["delivery_count_max"]) == (5, 4, 4, 4)
    assert (row["log_partition"], row["owner"], described.given_up) == (0, "3", 2)


def test_a_state_that_did_not_change_is_described_once() -> None:
    log = Log()
    log.put(KEY, snapshot(5))
    book = book_of(log)
    before = book.describe({0: 3})[KEY]
    assert book.describe({0: 3})[KEY] is before
    assert book.describe({0: 4})[KEY].row["owner"] == "4"
    book.take(0, log.put(KEY, update(6)))
    assert book.describe({0: 4})[KEY].row["start_offset"] == 6


def test_records_are_finished_when_the_log_says_so() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.at_ms = NOW_MS - 2 * MINUTE_MS
    log.put(KEY, update(0, acknowledged(3, 5), complete=3))
    log.at_ms = NOW_MS
    log.put(KEY, update(10, complete=0))
    minutes = book_of(log).finished_by_minute("workers", TOPIC_ID, NOW_MS)
    assert len(minutes) == SPARK_MINUTES
    assert (minutes[-3], minutes[-2], minutes[-1], sum(minutes)) == (3, 0, 7, 10)


def test_a_first_write_finishes_the_records_that_it_names() -> None:
    log = Log()
    log.put(KEY, snapshot(-1, complete=-1))
    log.put(KEY, update(55, available(55, 1), acknowledged(56, 59), complete=4))
    assert sum(book_of(log).finished_by_minute("workers", TOPIC_ID, NOW_MS)) == 4


def test_a_start_offset_that_is_set_by_hand_finishes_nothing() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, snapshot(1_000)._replace(state_epoch=2))
    assert sum(book_of(log).finished_by_minute("workers", TOPIC_ID, NOW_MS)) == 0


def test_a_log_that_is_read_again_is_counted_once() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, update(10))
    book = book_of(log)
    book.begin(0, 0)
    for record in log.records:
        book.take(0, record)
    assert sum(book.finished_by_minute("workers", TOPIC_ID, NOW_MS)) == 10


def test_an_hour_is_kept_and_no_more() -> None:
    pace = Pace()
    for minute in range(3 * SPARK_MINUTES):
        pace.add(NOW_MS + minute * MINUTE_MS, 1)
    assert pace.of_last_minutes(NOW_MS + (3 * SPARK_MINUTES - 1) * MINUTE_MS) == (1,) * SPARK_MINUTES
    assert sum(pace.of_last_minutes(NOW_MS)) == 0


def test_a_group_that_is_deleted_is_forgotten() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, update(10))
    log.put(KEY, None)
    book = book_of(log)
    assert book.describe({}) == {}
    assert sum(book.finished_by_minute("workers", TOPIC_ID, NOW_MS)) == 0


def test_an_empty_book_has_nothing() -> None:
    assert Book().describe({}) == {}
