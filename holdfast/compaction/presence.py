"""The marks by which jobs that write to one directory find each other.

A job has one file there, `_running-<id>.<number>`, and replaces it by one with the next number again and again. Another job sees the
number grow between two looks, so no clock is compared. A job that was killed leaves its file, whose number stays; it is removed then.
Readers of a history ignore names that begin with an underscore.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from holdfast.compaction.history.covered_files import SmallFiles

#: Between two beats; a job is found after one to two of them.
BEAT_INTERVAL_S: Final = 10.0
_PREFIX: Final = "_running-"
#: Looks at a mark that stays as it is, after which its job is taken for dead. One that only stalled makes another mark.
_SAME_LOOKS_MAX: Final = 12


class OtherJob(NamedTuple):
    """A job that was seen to run."""

    directory: str
    host: str
    pid: int


class Presence:
    """The marks of this job and of others in some directories.

    Args:
        directories: which other jobs may write to as well.
    """

    def __init__(self, directories: Sequence[SmallFiles]) -> None:
        self._directories = directories
        self._id = uuid4().hex[:16]
        self._number = 0
        #: Number of each mark of others as it was seen last, and how often it was the same, by directory and id.
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}
        self._told: set[tuple[str, str]] = set()

    def beat(self) -> list[OtherJob]:
        """Replace the mark of this job; returns the jobs that run beside it and were not returned before.

        Raises:
            OSError: a directory cannot be used.
            Py4JJavaError: the same, as Hadoop reports it.
        """
        self._number += 1
        own = json.dumps({"host": socket.gethostname(), "pid": os.getpid()})
        found = []
        for directory in self._directories:
            directory.write_text(_name(self._id, self._number), own)
            directory.remove(_name(self._id, self._number - 1))
            found += self._look(directory)
        return found

    def end(self) -> None:
        """Remove the mark of this job."""
        for directory in self._directories:
            directory.remove(_name(self._id, self._number))

    def _look(self, directory: SmallFiles) -> list[OtherJob]:
        found = []
        for name in directory.files():
            job_id, _, number_text = name.removeprefix(_PREFIX).partition(".")
            if not name.startswith(_PREFIX) or job_id == self._id or not number_text.isdecimal():
                continue
            place, number = (directory.path, job_id), int(number_text)
            before, same_looks = self._seen.get(place, (number, 0))
            is_same = number <= before
            self._seen[place] = max(number, before), same_looks + 1 if is_same else 0
            if not is_same and place not in self._told:
                self._told.add(place)
                found.append(_read(directory, name))
            elif is_same and same_looks >= _SAME_LOOKS_MAX:
                directory.remove(name)
        return found


def _name(job_id: str, number: int) -> str:
    return f"{_PREFIX}{job_id}.{number}"


def _read(directory: SmallFiles, name: str) -> OtherJob:
    try:
        fields = json.loads(directory.read_text(name) or "{}")
        return OtherJob(directory.path, str(fields.get("host", "unknown")), int(fields.get("pid", 0)))
    except (ValueError, TypeError, AttributeError):
        return OtherJob(directory.path, "unknown", 0)
