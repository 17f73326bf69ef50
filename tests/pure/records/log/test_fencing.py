"""The rule that decides which records count, compared with the same rule written a second time over whole logs."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.log.fencing import START, Position, is_next, step
from holdfast.runtime.partition.ownership import Ownership


class Entry(NamedTuple):
    """One record as far as the rule looks at it; `attempt` 0: not a checkpoint."""

    epoch: int
    sequence: int
    attempt: int = 0


def checkpoint(epoch: int, attempt: int) -> Checkpoint | None:
    if not attempt:
        return None
    return Checkpoint(epoch, attempt.to_bytes(16, "big"), "node-1", 1, "cluster", bytes(16), 50, None)


def read(log: list[Entry]) -> tuple[Position, list[bool]]:
    position, counts = START, []
    for epoch, sequence, attempt in log:
        position, does_count = step(position, epoch, sequence, checkpoint(epoch, attempt))
        counts.append(does_count)
    return position, counts


def position(epoch: int, attempt: int, next_sequence: int) -> Position:
    return Position(epoch, attempt.to_bytes(16, "big"), next_sequence)


@pytest.mark.parametrize(
    ("log", "counts", "end"),
    [
        pytest.param([], [], START, id="an empty log"),
        pytest.param([Entry(0, 0), Entry(1, 0)], [False, False], START, id="nothing counts before a checkpoint"),
        pytest.param([Entry(0, -1)], [False], START, id="not even a forged beginning"),
        pytest.param(
            [Entry(1, 0, 7), Entry(1, 1), Entry(1, 2)], [True, True, True], position(1, 7, 3), id="an owner's records"
        ),
        pytest.param(
            [Entry(1, 0, 7), Entry(1, 1), Entry(1, 3), Entry(1, 2), Entry(1, 3)],
            [True, True, False, True, True],
            position(1, 7, 4),
            id="only the next sequence counts",
        ),
        pytest.param(
            [Entry(1, 0, 7), Entry(1, 2), Entry(1, 3)],
            [True, False, False],
            position(1, 7, 1),
            id="nothing counts after a gap",
        ),
        pytest.param(
            [Entry(1, 0, 7), Entry(2, 0, 8), Entry(1, 1), Entry(2, 1)],
            [True, True, False, True],
            position(2, 8, 2),
            id="a superseded owner's records are void",
        ),
        pytest.param(
            [Entry(2, 0, 8), Entry(2, 0, 9), Entry(2, 1)],
            [True, False, True],
            position(2, 8, 2),
            id="of two checkpoints with one epoch the first wins",
        ),
        pytest.param(
            [Entry(2, 0, 8), Entry(2, 1, 9), Entry(2, 1)],
            [True, False, True],
            position(2, 8, 2),
            id="a rival's checkpoint with the next sequence is void",
        ),
        pytest.param([Entry(2, 0, 8), Entry(1, 0, 7)], [True, False], position(2, 8, 1), id="a lower epoch is void"),
        pytest.param(
            [Entry(1, 0, 7), Entry(1, 1), Entry(1, 2, 7), Entry(1, 3)],
            [True, True, True, True],
            position(1, 7, 4),
            id="the owner's refresh",
        ),
        pytest.param(
            [Entry(1, 0, 7), Entry(1, 2, 7), Entry(1, 1)],
            [True, False, True],
            position(1, 7, 2),
            id="a refresh after a gap is void",
        ),
        pytest.param(
            [Entry(3, 41, 7), Entry(3, 42)], [True, True], position(3, 7, 43), id="a pruned log begins with a refresh"
        ),
    ],
)
def test_who_counts(log: list[Entry], counts: list[bool], end: Position) -> None:
    assert read(log) == (end, counts)


logs = st.lists(st.builds(Entry, st.integers(1, 3), st.integers(0, 4), st.sampled_from((0, 0, 1, 2, 3))), max_size=14)


@given(logs)
def test_the_fold_agrees_with_the_rule_over_whole_logs(log: list[Entry]) -> None:
    expected: list[bool] = []
    for index, entry in enumerate(log):
        before = [earlier for earlier, counted in zip(log[:index], expected, strict=True) if counted]
        owner = max((earlier.epoch for earlier in before), default=0)
        of_owner = [earlier for earlier in before if earlier.epoch == owner]
        is_next = bool(of_owner) and entry.epoch == owner and entry.sequence == of_owner[-1].sequence + 1
        if entry.attempt:
            expected.append(entry.epoch > owner or (is_next and entry.attempt == of_owner[0].attempt))
        else:
            expected.append(is_next)
    assert read(log)[1] == expected


@given(logs)
def test_void_records_shift_nothing(log: list[Entry]) -> None:
    end, counts = read(log)
    assert read([entry for entry, counted in zip(log, counts, strict=True) if counted]) == (end, [True] * sum(counts))


@given(st.integers(1, 5), st.integers(0, 9), st.integers(1, 9))
def test_an_owner_behind_its_own_records_is_where_the_rule_puts_it(
    epoch: int, sequence: int, record_count: int
) -> None:
    """The tail compares its own records with what was sent, all of a batch at once, and does not put each to the rule."""
    claimed = b"a" * 16
    before = after = Position(epoch, claimed, sequence)
    for number in range(record_count):
        after, counts = step(after, epoch, sequence + number, None)
        assert counts
    ownership = Ownership()
    ownership.position, ownership.epoch, ownership.attempt_id = before, epoch, claimed
    ownership.own_committed(sequence + record_count - 1)
    assert ownership.position == after


@given(st.builds(Entry, st.integers(0, 3), st.integers(-1, 4)), st.integers(0, 3), st.integers(-1, 4))
def test_a_record_counts_for_the_fold_as_for_every_reader(entry: Entry, epoch: int, next_sequence: int) -> None:
    before = Position(epoch, b"a" * 16, next_sequence)
    counts = is_next(epoch, next_sequence, entry.epoch, entry.sequence)
    assert step(before, entry.epoch, entry.sequence, None)[1] is counts
