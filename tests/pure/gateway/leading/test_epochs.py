"""The leader epochs of what was brought: each answer is right, and where it might not be there is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.leading.epochs import LeaderEpochs
from holdfast.kafka.records.batches import Batch

#: The epochs of a log by the offsets at which they begin; its batches have five offsets, and compaction removed some of them.
BEGINS = {0: 2, 20: 3, 25: 7, 60: 8}
HOLES = {10, 15, 30, 60, 65}
END = 100


def epoch_of(offset: int) -> int:
    return BEGINS[max(begin for begin in BEGINS if begin <= offset)]


def make_batches(first: int, end: int, epoch: int | None = None) -> list[Batch]:
    return [
        Batch(at, at + 4, epoch_of(at) if epoch is None else epoch, 0, -1, -1, 5, memoryview(b""))
        for at in range(first, end, 5)
        if at not in HOLES
    ]


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 19)), max_size=6))
def test_epoch_is_that_of_the_record_below_or_not_known(reads: list[tuple[int, int]]) -> None:
    epochs, seen = LeaderEpochs(), set[int]()
    for start, count in reads:
        batches = make_batches(5 * start, min(END, 5 * (start + count)))
        if batches:
            epochs.learn(batches)
            seen |= {each for batch in batches for each in range(batch.base_offset, batch.last_offset + 1)}
    for offset in range(END + 2):
        found = epochs.before(offset)
        assert found in (-1, epoch_of(max(0, offset - 1)))
        assert found >= 0 or offset - 1 not in seen


def test_hole_between_two_epochs_has_none() -> None:
    """The epoch of what compaction removed there may be either: a broker would say that the log was truncated."""
    epochs = LeaderEpochs()
    epochs.learn(make_batches(40, 80))
    assert [epochs.before(offset) for offset in (60, 61, 70, 71)] == [7, -1, -1, 8]


def test_records_that_the_log_lost_have_none() -> None:
    epochs = LeaderEpochs()
    epochs.learn(make_batches(0, 60))
    epochs.cut(22)
    assert [epochs.before(offset) for offset in (10, 21, 22, 23, 26, 60)] == [2, 3, 3, -1, -1, -1]
    epochs.learn(make_batches(25, 30, epoch=9))
    assert epochs.before(30) == 9


def test_records_without_an_epoch_have_none_and_old_epochs_are_forgotten() -> None:
    epochs = LeaderEpochs()
    epochs.learn(make_batches(0, 10, epoch=-1))
    assert epochs.before(10) == -1
    for number in range(100):
        first = 100 + 5 * number
        epochs.learn([Batch(first, first + 4, number, 0, -1, -1, 5, memoryview(b""))])
    assert len(epochs._ranges) <= 16
    assert (epochs.before(105), epochs.before(600)) == (-1, 99)
