"""The joining of files: many small files of a day become one, and a question about the day opens one file in place of thousands.

A job adds one file or a few to a day with each batch, 8,640 batches a day by default. So some files of a day are joined:

1. their rows are written to one file, each row once, in a directory that readers ignore;
2. next to it a note is written: the name that the file gets, and the files whose rows it has;
3. the file is renamed into the day;
4. the files whose rows it has are removed;
5. and then the directory with the note.

In between the rows are there twice, as they are where two jobs ran at once, and readers take one of each. They are never missing.
A job that dies before step 3 has changed nothing. After it, the note tells whichever job comes next what is left to remove.
Files of a batch that is not finished are left alone, because a repeated batch finds by their names what it need not write again.
A file that others add while a day is joined is no part of it, so rows may come late for any day.

Two jobs that join the same files give the result the same name, so one takes the place of the other. Where a file is gone that a
job was about to join, another job has joined it, and the former one gives up its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.history import covered, schema

#: Files that are joined at once, at most; an open day is joined as soon as it has so many small ones. Reading them is work for
#: some seconds, after which the job looks again whether it is to stop.
FILES_MAX: Final = 256
#: Bytes that are joined at once, at most: about a million rows, as many as a batch has by default.
BYTES_MAX: Final = 32 << 20
#: A file of this size is joined no more. Two smaller ones always fit into one, so at most one of these is left in a closed day.
BYTES_FULL: Final = BYTES_MAX // 2

_NOTE: Final = "replaces.json"


class Tree(Protocol):
    """The calls of a history's directory that are needed; `spark.files.Directory` has them."""

    path: str

    def exists(self, name: str = "", /) -> bool:
        """Tell whether there is a file or directory of that name."""
        ...

    def directories(self, name: str = "", /) -> list[str]:
        """Return the names of the directories in one below this one."""
        ...

    def sizes(self, name: str = "", /) -> dict[str, int]:
        """Return the files in a directory below this one, by name with their bytes."""
        ...

    def move(self, source: str, target: str, /) -> None:
        """Give a file another name, which nothing has yet; it appears there whole or not at all."""
        ...

    def sync(self, name: str, /) -> None:
        """Let a file survive a power cut."""
        ...

    def remove(self, name: str = "", /) -> None:
        """Remove a file or a directory with all in it, if there is one."""
        ...

    def read_text(self, name: str, /) -> str | None:
        """Return what a file holds, None if there is none; raises ValueError where it does not agree with its checksum."""
        ...

    def write_text(self, name: str, text: str, /) -> None:
        """Write a file that is not there yet; it appears whole or not at all."""
        ...


class Replacement(NamedTuple):
    """What a join puts in the place of which files."""

    day: str
    target: str
    sources: Sequence[str]


class JoinedDay(NamedTuple):
    """A day that has nothing left to join."""

    day: str
    files_before: int
    files_after: int


class JoinFailed(Exception):
    """Files of a day that cannot be joined, although they are there."""

    def __init__(self, day: str, why: Exception) -> None:
        super().__init__(day)
        self.day = day
        self.why = why


class Joiner:
    """The joiner of one history's files, in steps that each join some files at most.

    It looks at every day when it begins, whenever a day has ended and when it is told to, and at a day to which its job has added many
    files.

    Args:
        root: directory of the history of one state topic.
        write: writes the rows of some files, by their paths, each once, as the only Parquet file of a new directory.
        job: name of the job.
        run: part of the names of directories that no other run of the job uses.
        today: returns the UTC date.
    """

    def __init__(
        self, root: Tree, write: Callable[[Sequence[str], str], None], job: str, run: str, today: Callable[[], str]
    ) -> None:
        self._root = root
        self._write = write
        self._own = f"{schema.JOINING}{job}-"
        self._run = run
        self._today = today
        #: The UTC date when all days were looked at last; empty at first.
        self._looked_at = ""
        #: Days to be looked at, the next one last.
        self._days: list[str] = []
        #: Files that the job has added to each day since it was looked at.
        self._added: Counter[str] = Counter()
        #: Groups of files to be joined of the day that was looked at last.
        self._groups: list[list[str]] = []
        self._files_before = 0
        self._joins = 0

    def add(self, day: str, count: int) -> None:
        """Note that the job has added files to a day; another thread may join at the same time."""
        self._added[day] += count

    def step(self) -> JoinedDay | bool:
        """Join some files; returns a day that has become whole, or whether there may be more to do.

        Raises:
            JoinFailed: the files of a day cannot be joined; it is left out until all days are looked at again.
            OSError: the file system refuses.
        """
        if self._looked_at != (today := self._today()):
            is_start, self._looked_at = not self._looked_at, today
            self._begin(is_start=is_start)
        if not self._days:
            self._days = [day for day, count in list(self._added.items()) if count >= FILES_MAX]
        if not self._days:
            return False
        day = self._days[-1]
        if self._groups:
            self._join(day, self._groups.pop())
            return True
        self._groups, count = self._look(day, is_closed=day < f"{schema.DAY}{today}")
        if self._groups:
            self._files_before = self._files_before or count
            return True
        self._days.pop()
        files_before, self._files_before = self._files_before, 0
        return JoinedDay(day, files_before, count) if files_before else bool(self._days)

    def look_again(self) -> None:
        """Look at every day again."""
        self._looked_at = ""

    def give_up(self) -> None:
        """Leave everything as it is, after an error, until all days are looked at again."""
        self._days, self._groups, self._files_before = [], [], 0

    def _begin(self, *, is_start: bool) -> None:
        self._finish_former(is_start=is_start)
        self._days = sorted(day for day in self._root.directories() if day.startswith(schema.DAY))
        self._groups, self._files_before = [], 0

    def _look(self, day: str, *, is_closed: bool) -> tuple[list[list[str]], int]:
        """Return the groups of files of a day to be joined, and how many files it has."""
        self._added.pop(day, None)
        sizes = self._root.sizes(day)
        if not plan(sizes, is_closed=is_closed):
            return [], len(sizes)
        self._finish_former(is_start=False)
        sizes = self._root.sizes(day)
        # Looked up after the files: a batch without a directory of its own is finished, and so were its files then.
        unfinished = unfinished_batches(self._root.directories())
        finished = {name: size for name, size in sizes.items() if schema.batch_of(name) not in unfinished}
        return plan(finished, is_closed=is_closed), len(sizes)

    def _join(self, day: str, sources: Sequence[str]) -> None:
        self._joins += 1
        beside = f"{self._own}{self._run}-{self._joins}"
        target = schema.joined_file(sources)
        root = self._root
        try:
            self._write([f"{root.path}/{day}/{name}" for name in sources], f"{root.path}/{beside}")
            (written,) = (name for name in root.sizes(beside) if name.endswith(schema.ENDING))
        except Exception as error:
            root.remove(beside)
            if self._are_there(day, sources):
                self._days.pop()
                self._groups, self._files_before = [], 0
                raise JoinFailed(day, error) from error
            self._groups = []
            return
        root.sync(f"{beside}/{written}")
        root.write_text(f"{beside}/{_NOTE}", json.dumps(Replacement(day, target, sources)._asdict()))
        if self._are_there(day, sources):
            if not root.exists(f"{day}/{target}"):
                root.move(f"{beside}/{written}", f"{day}/{target}")
            self._finish(day, target, sources)
        else:
            self._groups = []
        root.remove(beside)

    def _are_there(self, day: str, names: Iterable[str]) -> bool:
        return self._root.sizes(day).keys() >= set(names)

    def _finish(self, day: str, target: str, sources: Iterable[str]) -> None:
        """Remove the files that a file in its place has made superfluous."""
        self._root.sync(f"{day}/{target}")
        for name in sources:
            self._root.remove(f"{day}/{name}")

    def _finish_former(self, *, is_start: bool) -> None:
        """Finish what jobs that died have left of their joins, and at the start remove what this one had begun.

        A job that lives and is removing the same files is not disturbed.
        """
        for beside in self._root.directories():
            if not beside.startswith(schema.JOINING):
                continue
            note = self._read_note(beside)
            is_placed = note is not None and self._root.exists(f"{note.day}/{note.target}")
            if note is not None and is_placed:
                self._finish(*note)
            if is_placed or (is_start and beside.startswith(self._own)):
                self._root.remove(beside)

    def _read_note(self, beside: str) -> Replacement | None:
        try:
            text = self._root.read_text(f"{beside}/{_NOTE}")
            return None if text is None else Replacement(**json.loads(text))
        except (ValueError, TypeError):
            return None


def plan(sizes: Mapping[str, int], *, is_closed: bool) -> list[list[str]]:
    """Return the groups of files of a day that are to be joined, the smallest files first.

    Args:
        sizes: bytes of each file, by name.
        is_closed: whether the day is over; as long as it is not, only groups of `FILES_MAX` files are joined, so that no row is
            written again more often than a few times.
    """
    groups: list[list[str]] = [[]]
    total = 0
    for size, name in sorted((size, name) for name, size in sizes.items()):
        if not name.endswith(schema.ENDING) or size >= BYTES_FULL:
            continue
        if len(groups[-1]) == FILES_MAX or total + size > BYTES_MAX:
            groups.append([])
            total = 0
        groups[-1].append(name)
        total += size
    files_min = 2 if is_closed else FILES_MAX
    return [group for group in groups if len(group) >= files_min]


def unfinished_batches(directories: Iterable[str]) -> set[str]:
    """Return the batches that are being written, or that were when a job died, by the directories of a history."""
    return {
        name.removeprefix("_")
        for name in directories
        if name.startswith("_") and name != covered.DIRECTORY and not name.startswith(schema.JOINING)
    }
