"""The changes of an offset, told record by record."""

from __future__ import annotations

from holdfast.page.log_fold import LogFold
from holdfast.page.source import CHANGES_MAX
from holdfast.page.timeline import OffsetTimeline, tell
from holdfast.records.share.batches import ARCHIVED, StateBatch
from tests.pure.page.samples import KEY, Log, acknowledged, available, snapshot, update


def timeline_of(log: Log, offset: int) -> OffsetTimeline:
    timeline, fold = OffsetTimeline(KEY, offset, 4), LogFold(log.start, KEY)
    for record in log.records:
        if (folded := fold.take(record)) is not None:
            timeline.take(folded)
    return timeline


def states_of(log: Log, offset: int) -> list[tuple[str, int | None]]:
    return [(change.state, change.delivery_count) for change in tell(timeline_of(log, offset)).changes]


def test_each_delivery_that_ends_is_a_change() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    for count in (1, 2, 3):
        log.put(KEY, update(0, available(7, count)))
    log.put(KEY._replace(partition=1), snapshot(0, available(7, 9)))
    log.put(KEY, update(0, acknowledged(8, 8)))
    log.put(KEY, update(0, StateBatch(7, 7, ARCHIVED, 4)))
    changes = tell(timeline_of(log, 7)).changes
    assert [(each.log_offset, each.state, each.delivery_count) for each in changes] == [
        (1, "available", 1),
        (2, "available", 2),
        (3, "available", 3),
        (6, "archived", 4),
    ]
    first, last = changes[0], changes[-1]
    assert (first.at_ms, first.owner_epoch, first.state_epoch, first.log_partition) == (log.at_ms, None, 1, 4)
    assert first.text == "not finished by 1 delivery; to be given out again"
    assert last.text == "given up after 4 deliveries"


def test_a_start_offset_above_it_finishes_it() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, update(0, available(7, 2)))
    log.put(KEY, update(8))
    assert states_of(log, 7) == [("available", 2), ("finished", None)]
    assert (
        tell(timeline_of(log, 7)).changes[-1].text == "finished: the start offset went on to 8; it was available before"
    )


def test_an_offset_below_where_the_group_begins_is_not_for_it() -> None:
    log = Log()
    log.put(KEY, snapshot(100))
    [change] = tell(timeline_of(log, 7)).changes
    assert change.text == "not for this group, which begins at offset 100"


def test_a_log_that_was_pruned_says_that_it_was_finished_before() -> None:
    log = Log(start=50)
    log.put(KEY, snapshot(100, epoch=9))
    timeline = timeline_of(log, 7)
    assert timeline.began_before
    assert tell(timeline).changes[0].text == "finished before the log begins, where the start offset is 100 already"


def test_a_deleted_share_partition_ends_it() -> None:
    log = Log()
    log.put(KEY, snapshot(0, available(7, 1)))
    log.put(KEY, None)
    assert states_of(log, 7) == [("available", 1), ("deleted", None)]


def test_nothing_is_told_of_an_offset_that_was_never_written_about() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    log.put(KEY, update(0, available(7, 1)))
    assert states_of(log, 9) == []


def test_the_newest_changes_are_kept() -> None:
    log = Log()
    log.put(KEY, snapshot(0))
    for number in range(CHANGES_MAX):
        log.put(KEY, snapshot(0, available(7, 1 + number), epoch=1))
        log.put(KEY, snapshot(0, epoch=2))
    told = tell(timeline_of(log, 7))
    assert (len(told.changes), told.total) == (CHANGES_MAX, 2 * CHANGES_MAX)
    assert told.changes[-1].state == "untold"
