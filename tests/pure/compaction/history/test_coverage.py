"""What the history says it covers is true, whatever becomes of the job, its checkpoint and the log, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.compaction.errors import DamagedFile
from holdfast.compaction.history.coverage import (
    Coverage,
    CoverageGap,
    Interval,
    Stretch,
    find_stretches,
)
from holdfast.compaction.history.covered_files import CoveredFiles
from holdfast.history.covered import DamagedCovered, encode_covered, merge_covered


def test_offsets_fall_into_stretches_where_some_are_missing() -> None:
    assert find_stretches([], []) == []
    assert find_stretches([4, 5, 6], [40, 50, 60]) == [Stretch(4, 7, 40)]
    assert find_stretches([4, 5, 9, 12, 13], [40, 50, 90, 120, 130]) == [
        Stretch(4, 6, 40),
        Stretch(9, 10, 90),
        Stretch(12, 14, 120),
    ]


def test_what_is_covered_survives_its_text_and_the_highest_offset_holds() -> None:
    assert merge_covered({}) == {}
    texts = [encode_covered(each) for each in ({0: 5, 12: 3}, {0: 4, 12: 9}, {3: 1 << 40})]
    assert merge_covered(dict(zip("abc", texts, strict=True))) == {0: 5, 12: 9, 3: 1 << 40}


def test_a_history_that_begins_later_than_the_log_has_no_gap_in_front_of_it() -> None:
    assert Coverage({1: 7}).gaps({0: [Stretch(90, 95, 1)]}) == []


def test_every_hole_of_a_batch_is_a_gap_and_so_is_the_one_in_front_of_it() -> None:
    read = {0: [Stretch(12, 14, 120), Stretch(20, 21, 200), Stretch(21, 22, 210)], 1: [Stretch(3, 9, 30)]}
    assert Coverage({0: 10, 1: 3}).gaps(read) == [CoverageGap(0, 12, 120), CoverageGap(0, 20, 200)]
    assert Coverage({0: 12, 1: 4}).gaps(read) == [CoverageGap(0, 20, 200)]


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
        self.files = Files()
        #: Batches that were not finished: the rows of theirs that are there.
        self.left: list[list[Row]] = []


class Files:
    """Small files, in memory."""

    path = "history"

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.removes = True

    def files(self, name: str = "", /) -> list[str]:
        return [path.removeprefix(f"{name}/") for path in self.texts if path.startswith(f"{name}/")]

    def read_text(self, name: str, /) -> str | None:
        return self.texts.get(name)

    def write_text(self, name: str, text: str, /) -> None:
        assert name not in self.texts
        self.texts[name] = text

    def remove(self, name: str, /) -> None:
        if self.removes:
            self.texts.pop(name, None)


class Batch(NamedTuple):
    """What a job has read and not yet written."""

    stretches: dict[int, list[Stretch]]
    rows: list[Row]


class Job:
    """One that folds the log, and may be running."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: What it has read; None: it has no checkpoint.
        self.folded: int | None = None
        self.is_running = False
        self.keeps_history = True
        self.covered_files = CoveredFiles(Files())
        self.coverage = Coverage({})
        self.batch: Batch | None = None


class World:
    """A log partition of which some records are void, jobs that may lose their place in it, and the history that they keep."""

    def __init__(self, random: Random, job_count: int) -> None:
        self.random = random
        self.end = self.start = 0
        self.voids: set[int] = set()
        self.history = History()
        self.jobs = [Job(f"job{number}") for number in range(job_count)]
        self.keeps_history = True
        #: Where the log began for the job that found nothing in the history.
        self.first: int | None = None
        #: Offsets that may be there once per job: two had them at the same time.
        self.shared: set[int] = set()
        self._files_written = 0

    def covered(self) -> int:
        return (CoveredFiles(self.history.files).read() or {}).get(0, 0)

    def grow(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            if self.random.random() < 0.3:
                self.voids.add(self.end)
            self.end += 1

    def cut(self) -> None:
        self.start = self.random.randint(self.start, self.end)

    def switch(self) -> None:
        self.keeps_history = not self.keeps_history

    def recreate(self) -> None:
        """Another topic of the same name has an id, and so a history, of its own."""
        self.__init__(self.random, len(self.jobs))  # type: ignore[misc] # all of it is new

    def lose(self) -> None:
        """Take the checkpoint of a job that does not run."""
        job = self.random.choice(self.jobs)
        if not job.is_running:
            job.folded = None

    def run(self) -> None:
        """Let a job read a batch, or write the one it has read."""
        job = self.random.choice(self.jobs)
        if not job.is_running:
            self._begin(job)
        if job.batch is None:
            self._read(job)
        elif self.random.random() < 0.8:
            self._write(job, job.batch)

    def stop(self) -> None:
        job = self.random.choice(self.jobs)
        if job.batch is not None:
            self._write(job, job.batch)
        job.is_running = False

    def die(self) -> None:
        """Kill a job: amid its batch, or when that is covered and Spark does not know it yet."""
        job = self.random.choice(self.jobs)
        job.is_running = False
        if job.batch is None:
            return
        batch, folded = job.batch, job.folded
        if self.random.random() < 0.5:
            # Days are put in their place one after the other, and clocks go back over midnight.
            rows = [row for row in batch.rows if self.random.random() < 0.5]
            self.history.rows += rows
            self.history.left.append(rows)
            if any(other.is_running for other in self.jobs):
                self.shared |= {row.offset for row in rows}
        else:
            # It died before what its file replaces was removed.
            self.history.files.removes = False
            self._write(job, batch)
            self.history.files.removes = True
            job.folded = folded
        job.batch = None

    def _begin(self, job: Job) -> None:
        job.is_running, job.keeps_history = True, self.keeps_history
        job.covered_files = CoveredFiles(self.history.files)
        found = [Interval(0, row.offset, row.offset) for rows in self.history.left for row in rows if not row.is_gap]
        job.coverage = Coverage(job.covered_files.read() or {}, found)
        if any(other.batch is not None for other in self.jobs):
            # What the other one puts in its place from now on is not among these.
            self.shared |= {row.offset for other in self.jobs if other.batch is not None for row in other.batch.rows}
        folded = {} if job.folded is None else {0: job.folded}
        if job.keeps_history and job.coverage.lags(folded, {0: self.start}):
            job.folded = None
        if job.keeps_history and (begins := job.coverage.begin_at({0: self.start})):
            self.first = begins[0]
            self._say_covered(job)

    def _read(self, job: Job) -> None:
        position = max(self.start, job.folded or 0)
        offsets = list(range(position, self.random.randint(position, max(position, self.end))))
        if offsets and self.random.random() < 0.3:
            # The log was cut while it was read: what is read later begins behind the cut.
            missing = self.random.randrange(len(offsets))
            self.start = max(self.start, offsets[self.random.randint(missing, len(offsets) - 1)])
            offsets = offsets[:missing] + [offset for offset in offsets[missing:] if offset >= self.start]
        if not offsets:
            return
        if not job.keeps_history:
            job.folded = offsets[-1] + 1
            return
        job.coverage.raise_to(job.covered_files.read() or {})
        stretches = {0: find_stretches(offsets, offsets)}
        known = job.coverage.known(stretches)
        rows = [
            Row(offset, is_gap=False)
            for offset in offsets
            if offset not in self.voids and not any(each.first_offset <= offset <= each.last_offset for each in known)
        ]
        rows += [Row(gap.end, is_gap=True) for gap in job.coverage.gaps(stretches)]
        job.batch = Batch(stretches, rows)
        for other in self.jobs:
            if other is not job and other.batch is not None:
                self.shared |= {row.offset for row in rows} & {row.offset for row in other.batch.rows}

    def _write(self, job: Job, batch: Batch) -> None:
        self.history.rows += batch.rows
        job.coverage.add(batch.stretches)
        self._say_covered(job)
        job.folded = batch.stretches[0][-1].end
        job.batch = None

    def _say_covered(self, job: Job) -> None:
        self._files_written += 1
        job.covered_files.write(f"{job.name}-{self._files_written}", job.coverage.covered)


MOVES = (
    *(World.grow, World.cut, World.lose, World.switch, World.recreate),
    *(World.run, World.run, World.run, World.run, World.stop, World.die),
)


def missing(world: World) -> Iterable[int]:
    """Yield the changes that the history says to tell, and neither tells nor puts into a gap."""
    rows = sorted(world.history.rows)
    found = {row.offset for row in rows if not row.is_gap}
    gaps = [row.offset for row in rows if row.is_gap]
    for offset in range(world.first or 0, world.covered()):
        if offset in world.voids or offset in found:
            continue
        end = min((gap for gap in gaps if gap > offset), default=None)
        # Lost is what lies behind the row before the gap.
        if end is None or any(offset < row < end for row in found):
            yield offset


@given(st.integers(1, 2), st.lists(st.sampled_from(MOVES), max_size=60), st.randoms(use_true_random=False))
def test_each_change_is_reported_once_by_each_job_that_had_it_at_a_time_or_lies_in_a_gap_that_is_reported(
    job_count: int, moves: list[object], random: Random
) -> None:
    world = World(random, job_count)
    for move in moves:
        covered = world.covered()
        assert callable(move)
        move(world)
        assert list(missing(world)) == []
        changes = Counter(row.offset for row in world.history.rows if not row.is_gap)
        assert {offset for offset, count in changes.items() if count > 1} <= world.shared
        assert max(changes.values(), default=1) <= 1 or job_count > 1
        assert move is World.recreate or world.covered() >= covered


def test_two_jobs_that_begin_a_history_while_the_log_is_cut_leave_a_gap_that_is_reported() -> None:
    world = World(Random(1), 2)
    early, late = world.jobs
    world.first, world.end = 0, 10
    world._begin(early)
    early.batch = Batch({0: [Stretch(0, 3, 0)]}, [Row(offset, is_gap=False) for offset in range(3)])
    world.start = 6
    world._begin(late)
    late.coverage.raise_to(late.covered_files.read() or {})
    stretches = {0: [Stretch(6, 10, 6)]}
    gaps = [Row(gap.end, is_gap=True) for gap in late.coverage.gaps(stretches)]
    world._write(late, Batch(stretches, [*(Row(offset, is_gap=False) for offset in range(6, 10)), *gaps]))
    world._write(early, early.batch)
    assert list(missing(world)) == []
    assert gaps == [Row(6, is_gap=True)]


@given(st.lists(st.sampled_from(MOVES), max_size=60), st.randoms(use_true_random=False))
def test_there_are_no_more_files_about_what_is_covered_than_jobs_that_run(moves: list[object], random: Random) -> None:
    """Also where each start of a job has another name, because its checkpoint is lost."""
    world = World(random, 2)
    for move in moves:
        assert callable(move)
        move(world)
    for job in world.jobs:
        world._begin(job)
    # The second one has not read what the first one writes now.
    for job in world.jobs:
        world._write(job, Batch({0: [Stretch(world.end, world.end + 1, 0)]}, []))
    assert len(world.history.files.texts) <= len(world.jobs)
    world._begin(world.jobs[0])
    world._write(world.jobs[0], Batch({0: [Stretch(world.end, world.end + 1, 0)]}, []))
    assert len(world.history.files.texts) == 1


def test_a_file_that_is_cut_short_is_named_with_what_to_do() -> None:
    whole = encode_covered({0: 5, 12: 3})
    for text in ("", whole[:-1], "[]", "3", '{"0": null}', '{"x": 3}', "\ufffd"):
        with pytest.raises(
            DamagedCovered, match=r"^h/_covered/a\.json is damaged \(.*\); remove it, and the job .*\.$"
        ):
            merge_covered({"h/_covered/b.json": whole, "h/_covered/a.json": text})
        files = Files()
        files.texts = {"_covered/a.json": text}
        with pytest.raises(DamagedFile, match=r"^history/_covered/a\.json is damaged"):
            CoveredFiles(files).read()


def test_a_file_that_is_being_written_or_was_left_half_written_is_no_file_yet() -> None:
    files = Files()
    files.texts = {"_covered/_a-1.json.partial": "", "_covered/.a-1.json.crc": "", "_covered/_a-2.json": ""}
    assert CoveredFiles(files).read() is None
    files.texts["_covered/a-1.json"] = encode_covered({0: 5})
    assert CoveredFiles(files).read() == {0: 5}


def test_a_log_cut_past_a_job_that_has_also_lost_its_checkpoint_leaves_a_gap() -> None:
    coverage = Coverage(merge_covered({"a.json": encode_covered({0: 525, 1: 480})}))
    read = {0: [Stretch(793, 900, 7)], 1: [Stretch(480, 500, 8)]}
    assert coverage.gaps(read) == [CoverageGap(0, 793, 7)]
