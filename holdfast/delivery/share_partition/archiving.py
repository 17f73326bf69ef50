"""The end of records without a word of a member: below the log's start, removed by compaction, or of aborted transactions.

None of it is written at once: it reaches the log with the start offset of a later write.
"""

from __future__ import annotations

from holdfast.delivery.share_partition.values import ACQUIRED
from holdfast.delivery.share_partition.window import Window
from holdfast.records.share.batches import ARCHIVED


def archive(window: Window, first: int, end: int, state: int) -> bool:
    """Archive all known offsets of a range that have a state, and tell whether there were any.

    A record under way keeps its write, but not its lock: a failure of the write does not bring it back.

    Args:
        window: what is known.
        first: the first offset of the range.
        end: the offset after its last.
        state: those in another one stay as they are.
    """
    is_changed = False
    batches = window.batches
    for index in range(max(window.floor(first), 0), len(batches)):
        batch = batches[index]
        if batch.first >= end:
            break
        if not batch.is_split and batch.runs[0].state != state:
            continue
        if batch.last < first:
            # As in Kafka, the batch before aborted records is split, though nothing of it ends.
            batch.is_split = batch.is_split or state == ACQUIRED
            continue
        if batch.is_split or batch.first < first or batch.last >= end:
            start, stop = batch.take(first, end - 1)
        else:
            start, stop = 0, 1
        for run in batch.runs[start:stop]:
            if run.state == state:
                run.state = ARCHIVED
                run.member_id = ""
                run.unlock()
                window.complete_count += window.count_of_interest(run.first, run.last)
                is_changed = True
        if batch.is_split:
            batch.join(start, stop)
    return is_changed


def move_log_start(window: Window, log_start: int, state: int) -> bool:
    """Move the start offset to the log's start; available records below are archived, and held ones when their lock ends."""
    before = window.start_offset
    if log_start <= before:
        return False
    if archive(window, before, log_start, state):
        window.has_available = True
    window.complete_count -= window.count_complete(before, log_start)
    window.start_offset = log_start
    window.end_offset = max(window.end_offset, log_start)
    if 0 <= window.gap_start() < log_start:
        window.move_gap(log_start)
    return True
