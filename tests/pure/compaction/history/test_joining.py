"""Small files are joined, and no row is missing at any moment, whatever dies, comes late or joins the same files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.compaction.history import joining
from holdfast.compaction.history.joining import (
    BYTES_FULL,
    BYTES_MAX,
    FILES_MAX,
    JoinedDay,
    Joiner,
    JoinFailed,
    plan,
    unfinished_batches,
)
from holdfast.history import schema

TODAY = "2026-02-01"
YESTERDAY = "day=2026-01-31"
OPEN_DAY = f"day={TODAY}"


class Killed(BaseException):
    """The end of a process."""


class Rows(frozenset[int]):
    """What a Parquet file holds."""


class Tree:
    """A directory in memory, of a process that may be killed before it changes anything, or overtaken by another one."""

    path = "history"

    def __init__(self, files: dict[str, Rows | str]) -> None:
        self.files = files
        #: Called before each change.
        self.before_change: Callable[[], None] = lambda: None

    def exists(self, name: str = "", /) -> bool:
        return any(path == name or path.startswith(f"{name}/") for path in self.files)

    def directories(self, name: str = "", /) -> list[str]:
        begin = f"{name}/" if name else ""
        below = [path.removeprefix(begin) for path in self.files if path.startswith(begin)]
        return sorted({path.partition("/")[0] for path in below if "/" in path})

    def sizes(self, name: str = "", /) -> dict[str, int]:
        below = {path.removeprefix(f"{name}/"): path for path in self.files if path.startswith(f"{name}/")}
        return {file: len(self.files[path]) for file, path in below.items() if "/" not in file}

    def move(self, source: str, target: str, /) -> None:
        self.before_change()
        if target in self.files:
            raise OSError(f"{target} is there already.")
        if source not in self.files:
            raise FileNotFoundError(source)
        self.files[target] = self.files.pop(source)

    def sync(self, name: str, /) -> None:
        if name not in self.files:
            raise FileNotFoundError(name)

    def remove(self, name: str = "", /) -> None:
        for path in [path for path in self.files if path == name or path.startswith(f"{name}/")]:
            self.before_change()
            self.files.pop(path, None)

    def read_text(self, name: str, /) -> str | None:
        found = self.files.get(name)
        return None if found is None else str(found)

    def write_text(self, name: str, text: str, /) -> None:
        self.before_change()
        self.files[name] = text

    def write_joined(self, paths: Sequence[str], target: str) -> None:
        names = [path.removeprefix("history/") for path in paths]
        rows: set[int] = set()
        for name in names:
            self.before_change()
            if name not in self.files:
                raise FileNotFoundError(name)
            found = self.files[name]
            assert isinstance(found, Rows)
            rows |= found
        self.before_change()
        self.files[f"{target.removeprefix('history/')}/part-0.parquet"] = Rows(rows)

    def rows(self, day: str) -> Counter[int]:
        """Return what a reader sees of a day, and how often."""
        seen: Counter[int] = Counter()
        for path, rows in self.files.items():
            if path.startswith(f"{day}/") and isinstance(rows, Rows):
                seen.update(rows)
        return seen


def joiner_of(tree: Tree, job: str, run: str = "r", today: Callable[[], str] = lambda: TODAY) -> Joiner:
    return Joiner(tree, tree.write_joined, job, run, today)


def join_all(joiner: Joiner) -> list[JoinedDay]:
    days = []
    while found := joiner.step():
        if isinstance(found, JoinedDay):
            days.append(found)
    return days


def add(tree: Tree, day: str, *batches: str, first_row: int = 0) -> None:
    for number, batch in enumerate(batches):
        tree.files[f"{day}/{schema.batch_file(batch, 0)}"] = Rows({first_row + number})


def test_a_day_that_is_over_becomes_one_file_and_an_open_one_is_left() -> None:
    tree = Tree({})
    add(tree, YESTERDAY, *(f"a-{number}-r" for number in range(5)))
    add(tree, OPEN_DAY, "a-5-r", "a-6-r")
    assert join_all(joiner_of(tree, "a")) == [JoinedDay(YESTERDAY, 5, 1)]
    assert tree.rows(YESTERDAY) == Counter(range(5))
    assert len(tree.sizes(OPEN_DAY)) == 2
    assert all(path.startswith("day=") for path in tree.files), "nothing is left next to the days"


def test_a_day_is_joined_when_it_is_over_and_an_open_one_when_it_has_many_files() -> None:
    today = [TODAY]
    tree = Tree({})
    joiner = joiner_of(tree, "a", today=lambda: today[0])
    assert joiner.step() is False
    for number in range(FILES_MAX + 1):
        add(tree, OPEN_DAY, f"a-{number}-r", first_row=number)
        joiner.add(OPEN_DAY, 1)
        if number < FILES_MAX - 1:
            assert joiner.step() is False
    assert join_all(joiner) == [JoinedDay(OPEN_DAY, FILES_MAX + 1, 2)]
    assert joiner.step() is False
    today[0] = "2026-02-02"
    assert join_all(joiner) == [JoinedDay(OPEN_DAY, 2, 1)]
    assert tree.rows(OPEN_DAY) == Counter(range(FILES_MAX + 1))


def test_rows_that_come_late_are_joined_when_the_next_day_is_over() -> None:
    today = [TODAY]
    tree = Tree({})
    add(tree, YESTERDAY, "a-0-r", "a-1-r")
    joiner = joiner_of(tree, "a", today=lambda: today[0])
    join_all(joiner)
    add(tree, YESTERDAY, "a-2-r", first_row=2)
    joiner.add(YESTERDAY, 1)
    assert join_all(joiner) == []
    today[0] = "2026-02-02"
    assert join_all(joiner) == [JoinedDay(YESTERDAY, 2, 1)]
    add(tree, YESTERDAY, "a-3-r", first_row=3)
    joiner.look_again()
    assert join_all(joiner) == [JoinedDay(YESTERDAY, 2, 1)]
    assert tree.rows(YESTERDAY) == Counter(range(4))


def test_files_of_a_batch_that_is_not_finished_are_left_alone() -> None:
    """By their names a repeated batch finds what it need not write again."""
    tree = Tree({"_a-2-r/day=2026-02-01/part.parquet": Rows({9})})
    add(tree, YESTERDAY, "a-0-r", "a-1-r", "a-2-r")
    join_all(joiner_of(tree, "a"))
    assert f"{YESTERDAY}/{schema.batch_file('a-2-r', 0)}" in tree.files
    assert len(tree.sizes(YESTERDAY)) == 2
    assert unfinished_batches(tree.directories()) == {"a-2-r"}
    assert unfinished_batches(["_covered", "_join-a-r-1", "day=2026-01-31"]) == set()


def test_what_cannot_be_joined_is_named_and_left_and_the_other_days_are_joined() -> None:
    tree = Tree({})
    for day in (YESTERDAY, "day=2026-01-30"):
        add(tree, day, "a-0-r", "a-1-r")
    whole = tree.write_joined

    def refuse(paths: Sequence[str], target: str) -> None:
        if YESTERDAY in paths[0]:
            raise OSError("damaged")
        whole(paths, target)

    joiner = Joiner(tree, refuse, "a", "r", lambda: TODAY)
    with pytest.raises(JoinFailed, match=YESTERDAY):
        join_all(joiner)
    assert [found.day for found in join_all(joiner)] == ["day=2026-01-30"]
    assert joiner.step() is False
    assert len(tree.sizes(YESTERDAY)) == 2
    assert tree.directories() == ["day=2026-01-30", YESTERDAY]


def test_a_file_system_that_fails_is_not_asked_again_before_the_next_day() -> None:
    tree = Tree({})
    add(tree, YESTERDAY, "a-0-r", "a-1-r")
    today, lists = [TODAY], [0]

    def fail(_: str = "", /) -> dict[str, int]:
        lists[0] += 1
        raise OSError("no answer")

    joiner = joiner_of(tree, "a", today=lambda: today[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "sizes", fail)
        with pytest.raises(OSError, match="no answer"):
            joiner.step()
        joiner.give_up()
        assert joiner.step() is False
        assert lists == [1]
    today[0] = "2026-02-02"
    assert join_all(joiner) == [JoinedDay(YESTERDAY, 2, 1)]


def test_a_damaged_note_of_another_job_keeps_nothing_from_being_joined() -> None:
    for text in ("", "[]", '{"day": 3}'):
        tree = Tree({"_join-b-r-1/replaces.json": text})
        add(tree, YESTERDAY, "a-0-r", "a-1-r")
        assert join_all(joiner_of(tree, "a")) == [JoinedDay(YESTERDAY, 2, 1)]


@given(st.dictionaries(st.integers(0, 2_000), st.integers(1, BYTES_FULL * 2), max_size=600), st.booleans())
def test_a_plan_has_each_file_once_and_keeps_to_its_bounds(files: dict[int, int], is_closed: bool) -> None:
    sizes = {f"{name}.parquet": size for name, size in files.items()}
    groups = plan(sizes, is_closed=is_closed)
    names = [name for group in groups for name in group]
    assert len(names) == len(set(names))
    for group in groups:
        assert (2 if is_closed else FILES_MAX) <= len(group) <= FILES_MAX
        assert sum(sizes[name] for name in group) <= BYTES_MAX
        assert all(sizes[name] < BYTES_FULL for name in group)
    small = sum(size < BYTES_FULL for size in sizes.values())
    assert groups or small < (2 if is_closed else FILES_MAX) or not is_closed


# ---- deaths, late rows and two jobs ----------------------------------------------------------------------------------


class World:
    """One day, jobs that add to it and join it, and all rows that it must have."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.files: dict[str, Rows | str] = {}
        self.expected: set[int] = set()
        self.runs = 0
        self.depth = 0

    def add(self) -> None:
        """Finish a batch of one file or more, or let one die halfway."""
        self.runs += 1
        batch = f"a-{self.runs}-r"
        if self.random.random() < 0.2:
            self.files[f"_{batch}/day=2026-02-01/part.parquet"] = Rows()
        for number in range(self.random.randint(1, 3)):
            row = len(self.expected)
            self.expected.add(row)
            self.files[f"{YESTERDAY}/{schema.batch_file(batch, number)}"] = Rows({row})
        self.check()

    def join(self) -> None:
        """Let a job start and join, which may be killed at any change, or overtaken there by all of another one."""
        self.runs += 1
        tree = Tree(self.files)
        death = self.random.choice((None, self.random.randrange(40)))
        changes = 0

        def before_change() -> None:
            nonlocal changes
            self.check()
            if changes == death:
                raise Killed
            changes += 1
            if self.depth < 2 and self.random.random() < 0.1:
                self.random.choice((self.add, self.join))()

        tree.before_change = before_change
        self.depth += 1
        try:
            join_all(joiner_of(tree, self.random.choice("ab"), f"r{self.runs}"))
        except (Killed, OSError, JoinFailed):
            pass
        finally:
            self.depth -= 1
        self.check()

    def check(self) -> None:
        assert Tree(self.files).rows(YESTERDAY).keys() == self.expected


@given(st.lists(st.sampled_from((World.add, World.add, World.join)), max_size=14), st.randoms(use_true_random=False))
def test_no_row_is_ever_missing_and_at_the_end_each_is_there_once(
    moves: Iterable[Callable[[World], None]], random: Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "FILES_MAX", 3)
        world = World(random)
        for move in moves:
            move(world)
        tree = Tree(world.files)
        for _ in "ab":  # the second look finds what the first one brought back
            for job in "ab":
                join_all(joiner_of(tree, job, "last"))
        assert tree.rows(YESTERDAY) == Counter(world.expected)
        unfinished = unfinished_batches(tree.directories())
        finished = [name for name in tree.sizes(YESTERDAY) if schema.batch_of(name) not in unfinished]
        assert len(finished) <= 1
        assert not [name for name in tree.directories() if name.startswith(schema.JOINING)]


def test_files_that_another_job_has_joined_meanwhile_are_not_joined_once_more() -> None:
    files: dict[str, Rows | str] = {}
    tree, other = Tree(files), Tree(files)
    add(tree, YESTERDAY, "a-0-r", "a-1-r")
    joiner = joiner_of(tree, "a")
    assert joiner.step() is True

    def overtake() -> None:
        if any(schema.JOINING in path for path in files):
            tree.before_change = lambda: None
            add(other, YESTERDAY, "b-0-r", first_row=2)
            join_all(joiner_of(other, "b"))

    tree.before_change = overtake
    assert joiner.step() is True
    assert tree.rows(YESTERDAY) == Counter(range(3))
    assert len(tree.sizes(YESTERDAY)) == 1


def test_a_join_that_died_while_it_removed_files_is_finished_from_its_note_by_another_job() -> None:
    """Also where the file is too large to be joined once more, which alone would remove the rows that are there twice."""
    tree = Tree({})
    add(tree, YESTERDAY, "a-0-r", "a-1-r", "a-2-r")
    names = sorted(tree.sizes(YESTERDAY))
    target = schema.joined_file(names)
    tree.files[f"{YESTERDAY}/{target}"] = Rows({0, 1, 2})
    del tree.files[f"{YESTERDAY}/{names[0]}"]
    note = {"day": YESTERDAY, "target": target, "sources": names}
    tree.files["_join-b-r-1/replaces.json"] = json.dumps(note)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "BYTES_FULL", 2)
        join_all(joiner_of(tree, "a"))
    assert list(tree.files) == [f"{YESTERDAY}/{target}"]
