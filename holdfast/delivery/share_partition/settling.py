"""Writes: how they are closed, and what their answers lead to."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.delivery.share_partition.batches import DeliveryRun
from holdfast.delivery.share_partition.values import ACQUIRED, StateWrite
from holdfast.delivery.share_partition.window import Window
from holdfast.records.share.batches import ARCHIVED, AVAILABLE, StateBatch


def begin(window: Window, run: DeliveryRun, state: int, write: StateWrite) -> None:
    """Give a run that a member holds its next state, for as long as the write is under way."""
    run.state = state
    run.member_id = ""
    run.write = write
    if state != AVAILABLE:
        window.complete_count += window.count_of_interest(run.first, run.last)
    write.add(run.first, run.last, state, run.count)


def close_write(window: Window, write: StateWrite) -> StateWrite:
    """Put the start offset into a write, and how many offsets from there on are done with."""
    before = window.start_offset
    write.start_offset_before, write.complete_count_before = before, window.complete_count
    write.start_offset, write.delivery_complete_count = progress_after(window, (write,))
    return write


def progress_after(window: Window, writes: Sequence[StateWrite]) -> tuple[int, int]:
    """Return the start offset that holds once some writes have succeeded, and how many offsets from there on are done with."""
    # The gap may go back to what was acquired again; the log has a higher start offset then, which holds as well.
    start_offset = max(window.start_offset_after(writes), window.written_start)
    complete_count = window.complete_count
    if start_offset > window.start_offset:
        complete_count -= window.count_complete(window.start_offset, start_offset)
    return start_offset, complete_count


def commit(window: Window, write: StateWrite) -> bool:
    """Keep what a write changed, and tell whether something became available."""
    is_available = False
    batches = window.batches
    for first, last, _, _ in write.batches:
        for index in range(window.ceiling(first), len(batches)):
            batch = batches[index]
            if batch.first > last:
                break
            runs = batch.runs
            start = stop = batch.index_at(first) if first > batch.first else 0
            while stop < len(runs) and runs[stop].first <= last:
                run = runs[stop]
                if run.write is write:
                    run.write = None
                    run.unlock()
                    if run.state == AVAILABLE:
                        is_available = True
                stop += 1
            if batch.is_split:
                batch.join(start, stop)
    if is_available:
        window.has_available = True
    return is_available


def roll_back(window: Window, write: StateWrite) -> bool:
    """Undo what a write changed, and tell whether something became available.

    Its member holds the offsets again, or nobody where their lock has ended since. A split batch stays split.
    """
    is_available = False
    batches = window.batches
    for first, last, _, _ in write.batches:
        for index in range(window.ceiling(first), len(batches)):
            batch = batches[index]
            if batch.first > last:
                break
            runs = batch.runs
            start = stop = batch.index_at(first) if first > batch.first else 0
            while stop < len(runs) and runs[stop].first <= last:
                run = runs[stop]
                if run.write is write:
                    run.write = None
                    if run.lock_until_ms < 0:
                        # It was archived meanwhile, for it is not in the log any longer.
                        stop += 1
                        continue
                    if run.is_lock_over and run.first < window.start_offset <= run.last:
                        batch.is_split = True
                        rest = run.cut(window.start_offset)
                        rest.write = write
                        runs.insert(stop + 1, rest)
                    if run.is_terminal():
                        window.complete_count -= window.count_of_interest(run.first, run.last)
                    if run.is_lock_over:
                        run.unlock()
                        window.make_available(run, write.delivery_count_limit)
                        is_available = is_available or run.state == AVAILABLE
                        if run.state == ARCHIVED:
                            window.given_up.append(StateBatch(run.first, run.last, ARCHIVED, run.count))
                    else:
                        run.state = ACQUIRED
                        run.member_id = write.member_id
                stop += 1
            if batch.is_split:
                batch.join(start, stop)
    return is_available
