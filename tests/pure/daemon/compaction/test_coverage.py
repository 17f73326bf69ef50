"""What the history says it covers is true, whatever becomes of the job, its checkpoint and the log, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.compaction.coverage import (
    Coverage,
    Gap,
    Interval,
    Stretch,
    encode_covered,
    find_stretches,
    merge_covered,
)


def test_offsets_fall_into_stretches_where_some_are_missing() -> None:
    assert find_stretches([], []) == []
    assert find_stretches([4, 5, 6], [40, 50, 60]) == [Stretch(4, 7, 40)]
    assert find_stretches([4, 5, 9, 12, 13], [40, 50, 90, 120, 130]) == [
        Stretch(4, 6, 40),
        Stretch(9, 10, 90),
        Stretch(12, 14, 120),
    ]


def test_what_is_covered_survives_its_text_and_the_highest_offset_holds() -> None:
    assert merge_covered([]) == {}
    texts = [encode_covered(each) for each in ({0: 5, 12: 3}, {0: 4, 12: 9}, {3: 1 << 40})]
    assert merge_covered(texts) == {0: 5, 12: 9, 3: 1 << 40}


def test_a_history_that_begins_later_than_the_log_has_no_gap_in_front_of_it() -> None:
    assert Coverage({1: 7}).gaps({0: [Stretch(90, 95, 1)]}) == []


def test_every_hole_of_a_batch_is_a_gap_and_so_is_the_one_in_front_of_it() -> None:
    read = {0: [Stretch(12, 14, 120), Stretch(20, 21, 200), Stretch(21, 22, 210)], 1: [Stretch(3, 9, 30)]}
    assert Coverage({0: 10, 1: 3}).gaps(read) == [Gap(0, 12, 120), Gap(0, 20, 200)]
    assert Coverage({0: 12, 1: 4}).gaps(read) == [Gap(0, 20, 200)]


def test_only_what_the_history_has_is_left_out() -> None:
    coverage = Coverage({0: 10, 1: 3}, [Interval(0, 12, 13), Interval(1, 0, 1), Interval(2, 5, 5)])
    assert coverage.known({0: [Stretch(10, 20, 0)], 1: [Stretch(3, 9, 0)]}) == [Interval(0, 12, 13)]
    assert coverage.known({0: [Stretch(4, 8, 0), Stretch(14, 16, 0)]}) == [Interval(0, 0, 9), Interval(0, 12, 13)]
    assert coverage.known({1: [Stretch(3, 9, 0)], 3: [Stretch(0, 9, 0)]}) == []
    coverage.add({0: [Stretch(10, 20, 0)], 3: [Stretch(0, 9, 0)]})
    assert coverage.covered == {0: 20, 1: 3, 3: 9}
    coverage.add({0: [Stretch(0, 5, 0)]})
    assert coverage.covered[0] == 20, "a job that reads the log again takes nothing back"


def test_a_history_lags_only_where_the_log_still_holds_what_it_lacks() -> None:
    assert Coverage({}).lags({0: 5}, {0: 0})
    assert Coverage({0: 4}).lags({0: 5}, {0: 0})
    assert not Coverage({0: 5}).lags({0: 5}, {0: 0})
    assert not Coverage({0: 4}).lags({0: 5}, {0: 5}), "what it lacks was cut off"
    assert not Coverage({}).lags({0: 0, 1: 7}, {0: 0, 1: 7}), "nothing was folded"
    assert not Coverage({0: 9}).lags({}, {0: 0})


# ---- a job, its log and its history ----------------------------------------------------------------------------------


class Row(NamedTuple):
    """A change, or with `is_gap` a gap that ends there."""

    offset: int
    is_gap: bool


class History:
    """What lies in a history directory about one log partition."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.covered: list[str] = []
        #: Batches that were not finished: the rows of theirs that are there.
        self.left: list[list[Row]] = []


class World:
    """A log partition of which some records are void, a job that may lose its place in it, and the history that it keeps."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.end = self.start = 0
        self.voids: set[int] = set()
        self.history = History()
        #: What a job has read; None: it has no checkpoint.
        self.folded: int | None = None
        self.keeps_history = True
        #: The first offset that a job read for the history.
        self.first: int | None = None
        #: Of every change that was read for the history, and of every one that was in the log then.
        self.read: set[int] = set()

    def grow(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            if self.random.random() < 0.3:
                self.voids.add(self.end)
            self.end += 1

    def cut(self) -> None:
        self.start = self.random.randint(self.start, self.end)

    def lose(self) -> None:
        self.folded = None

    def switch(self) -> None:
        self.keeps_history = not self.keeps_history

    def recreate(self) -> None:
        """Another topic of the same name has an id, and so a history, of its own."""
        self.__init__(self.random)  # type: ignore[misc] # all of it is new

    def run(self) -> None:
        self._run(dies=False)

    def die(self) -> None:
        self._run(dies=True)

    def _run(self, *, dies: bool) -> None:
        told = [Interval(0, row.offset, row.offset) for rows in self.history.left for row in rows if not row.is_gap]
        coverage = Coverage(merge_covered(self.history.covered), told)
        starts = {0: self.start}
        if self.keeps_history and coverage.lags({} if self.folded is None else {0: self.folded}, starts):
            self.folded = None
        position = max(self.start, self.folded or 0)
        offsets = list(range(position, self.random.randint(position, self.end)))
        if offsets and self.random.random() < 0.3:
            # The log was cut while it was read: what is read later begins behind the cut.
            missing = self.random.randrange(len(offsets))
            self.start = max(self.start, offsets[self.random.randint(missing, len(offsets) - 1)])
            offsets = offsets[:missing] + [offset for offset in offsets[missing:] if offset >= self.start]
        if offsets and self.keeps_history:
            self._write(coverage, offsets, dies=dies)
        if offsets and not dies:
            self.folded = offsets[-1] + 1

    def _write(self, coverage: Coverage, offsets: list[int], *, dies: bool) -> None:
        stretches = {0: find_stretches(offsets, offsets)}
        known = coverage.known(stretches)
        rows = [
            Row(offset, is_gap=False)
            for offset in offsets
            if offset not in self.voids and not any(each.first_offset <= offset <= each.last_offset for each in known)
        ]
        rows += [Row(gap.end, is_gap=True) for gap in coverage.gaps(stretches)]
        if dies:
            # Days are put in their place one after the other, and clocks go back over midnight.
            rows = [row for row in rows if self.random.random() < 0.5]
            self.history.rows += rows
            self.history.left.append(rows)
            return
        self.first = offsets[0] if self.first is None else self.first
        self.history.rows += rows
        coverage.add(stretches)
        self.history.covered.append(encode_covered(coverage.covered))


MOVES = (World.grow, World.cut, World.lose, World.switch, World.run, World.run, World.die, World.recreate)


def missing(world: World) -> Iterable[int]:
    """Yield the changes that the history says to tell, and neither tells nor puts into a gap."""
    rows = sorted(world.history.rows)
    told = {row.offset for row in rows if not row.is_gap}
    gaps = [row.offset for row in rows if row.is_gap]
    covered = merge_covered(world.history.covered).get(0, 0)
    for offset in range(world.first or 0, covered):
        if offset in world.voids or offset in told:
            continue
        end = min((gap for gap in gaps if gap > offset), default=None)
        # Lost is what lies behind the row before the gap.
        if end is None or any(offset < row < end for row in told):
            yield offset


@given(st.lists(st.sampled_from(MOVES), max_size=40), st.randoms(use_true_random=False))
def test_each_change_is_told_once_or_lies_in_a_gap_that_is_told(moves: list[object], random: Random) -> None:
    world = World(random)
    for move in moves:
        assert callable(move)
        move(world)
        assert list(missing(world)) == []
        changes = [row for row in world.history.rows if not row.is_gap]
        assert len(changes) == len(set(changes)), "a change is there twice"


def test_a_log_cut_past_a_job_that_has_also_lost_its_checkpoint_leaves_a_gap() -> None:
    coverage = Coverage(merge_covered([encode_covered({0: 525, 1: 480})]))
    read = {0: [Stretch(793, 900, 7)], 1: [Stretch(480, 500, 8)]}
    assert coverage.gaps(read) == [Gap(0, 793, 7)]
