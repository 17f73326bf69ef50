"""States as they are now, and how fast records are finished."""

from __future__ import annotations

from holdfast.page.book import Book, Pace
from holdfast.page.source import SPARK_MINUTES
from holdfast.records.share.batches import ARCHIVED, StateBatch
from tests.pure.page.samples import KEY, NOW_MS, TOPIC_ID, Log, acknowledged, available, book_of, snapshot, update

MINUTE_MS = 60_000
#: The log partition, which was read up to now.
READ = {0: NOW_MS}


def known(minutes: tuple[int | None, ...]) -> list[int]:
    """Return all minutes, of which each is known."""
    found = [finished for finished in minutes if finished is not None]
    assert len(found) == len(minutes)
    return found


def finishing(log: Log, *minutes: int) -> None:
    """Write that ten records were finished in each of some minutes before now."""
    for number, minute in enumerate(minutes, start=1):
        log.at_ms = NOW_MS - minute * MINUTE_MS
        log.put(KEY, update(10 * number))


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
    minutes = known(book_of(log).finished_by_minute("workers", TOPIC_ID, READ, NOW_MS))
    assert len(minutes) == SPARK_MINUTES
    assert (minutes[-3], minutes[-2], minutes[-1], sum(minutes)) == (3, 0, 7, 10)


def test_a_first_write_finishes_the_records_that_it_names() -> None:
    log = Log()
    log.put(KEY, snapshot(-1, complete=-1))
    log.put(KEY, update(55, available(55, 1), acknowledged(56, 59), complete=4))
    assert sum(known(book_of(log).finished_by_minute("workers", TOPIC_ID, READ, NOW_MS))) == 4


def test_a_start_offset_that_is_set_by_hand_finishes_nothing() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, snapshot(1_000)._replace(state_epoch=2))
    assert sum(known(book_of(log).finished_by_minute("workers", TOPIC_ID, READ, NOW_MS))) == 0


def test_a_log_that_is_read_again_is_counted_once() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, update(10))
    book = book_of(log)
    book.begin(0, 0)
    for record in log.records:
        book.take(0, record)
    assert sum(known(book.finished_by_minute("workers", TOPIC_ID, READ, NOW_MS))) == 10


def test_an_hour_is_kept_and_no_more() -> None:
    pace = Pace()
    for minute in range(3 * SPARK_MINUTES):
        pace.add(NOW_MS + minute * MINUTE_MS, 1)
    assert pace.of_last_minutes(NOW_MS + (3 * SPARK_MINUTES - 1) * MINUTE_MS) == (1,) * SPARK_MINUTES
    assert sum(known(pace.of_last_minutes(NOW_MS))) == 0


def test_a_group_that_is_deleted_is_forgotten() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, update(10))
    log.put(KEY, None)
    book = book_of(log)
    assert book.describe({}) == {}
    assert sum(known(book.finished_by_minute("workers", TOPIC_ID, READ, NOW_MS))) == 0


def test_an_empty_book_has_nothing() -> None:
    assert Book().describe({}) == {}


# ---- minutes of which nothing is known -------------------------------------------------------------------------------


def test_minutes_before_a_pruned_log_begins_are_unknown_and_no_zeros() -> None:
    log = Log(start=40)
    log.at_ms = NOW_MS - 5 * MINUTE_MS
    log.put(KEY, snapshot(0, epoch=9))
    finishing(log, 3, 0)
    minutes = book_of(log).finished_by_minute("workers", TOPIC_ID, READ, NOW_MS)
    # A part of the minute in which it begins was pruned.
    assert minutes[:-5] == (None,) * (SPARK_MINUTES - 5)
    assert minutes[-5:] == (0, 10, 0, 0, 10)


def test_a_log_that_begins_at_its_first_offset_lacks_no_minute() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    assert known(book_of(log).finished_by_minute("workers", TOPIC_ID, READ, NOW_MS)) == [0] * SPARK_MINUTES


def test_minutes_after_the_reading_ended_are_unknown_and_no_zeros() -> None:
    log = Log()
    log.at_ms = NOW_MS - 9 * MINUTE_MS
    log.put(KEY, snapshot(0))
    finishing(log, 8, 7)
    book = book_of(log)
    minutes = book.finished_by_minute("workers", TOPIC_ID, {0: NOW_MS - 7 * MINUTE_MS}, NOW_MS)
    assert minutes[-10:] == (0, 10, *(None,) * 8)
    # One log partition that is old is enough.
    assert book.finished_by_minute("workers", TOPIC_ID, {0: NOW_MS, 1: 0}, NOW_MS) == (None,) * SPARK_MINUTES


def test_a_minute_with_a_snapshot_of_something_pruned_is_unknown() -> None:
    log = Log(start=40)
    log.at_ms = NOW_MS - 90 * MINUTE_MS
    log.put(KEY._replace(group_id="others"), snapshot(0))
    log.at_ms = NOW_MS - 3 * MINUTE_MS
    log.put(KEY, snapshot(700, epoch=9))
    finishing(log, 2)
    minutes = book_of(log).finished_by_minute("workers", TOPIC_ID, READ, NOW_MS)
    assert minutes[-5:] == (0, None, 0, 0, 0)


def test_records_that_were_pruned_before_they_were_read_leave_a_gap() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    finishing(log, 9, 8)
    book = book_of(log)
    later = Log(start=500)
    later.at_ms = NOW_MS - 4 * MINUTE_MS
    book.begin(0, later.start)
    assert book.finished_by_minute("workers", TOPIC_ID, READ, NOW_MS) == (None,) * SPARK_MINUTES
    later.put(KEY, snapshot(700, epoch=9))
    for record in later.records:
        book.take(0, record)
    minutes = book.finished_by_minute("workers", TOPIC_ID, READ, NOW_MS)
    assert minutes == (*(None,) * (SPARK_MINUTES - 4), 0, 0, 0, 0)


def test_a_log_that_was_truncated_counts_what_it_has_instead() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    finishing(log, 9, 8)
    book = book_of(log)
    book.begin(0, 0, diverges_at=1)
    other = Log()
    other.put(KEY, snapshot(0))
    finishing(other, 3)
    for record in other.records:
        book.take(0, record)
    minutes = book.finished_by_minute("workers", TOPIC_ID, READ, NOW_MS)
    assert minutes == (*(None,) * (SPARK_MINUTES - 8), 0, 0, 0, 0, 10, 0, 0, 0)


# ---- a log that is read once more ------------------------------------------------------------------------------------


def test_states_stay_while_their_log_is_read_once_more() -> None:
    log = Log()
    log.put(KEY, snapshot(5))
    log.put(KEY._replace(group_id="others"), snapshot(3))
    book = book_of(log)
    book.note_whole(0)
    before = book.describe({})
    assert len(before) == 2
    book.begin(0, 0)
    assert book.describe({}) == before
    book.take(0, log.records[0])
    book.begin(0, 0)  # and once more, before it was whole
    assert book.describe({}) == before
    book.take(0, log.put(KEY, snapshot(9)))
    book.note_whole(0)
    assert [each.row["start_offset"] for each in book.describe({}).values()] == [9]
