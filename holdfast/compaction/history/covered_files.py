"""The files in which the jobs of one history write what it covers: one of each job, and none that another one includes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.compaction.errors import DamagedFile
from holdfast.history import covered as form


class SmallFiles(Protocol):
    """The calls of a directory that are needed; `spark.files.Directory` has them."""

    path: str

    def files(self, name: str = "", /) -> list[str]:
        """Return the names of the files in a directory below this one."""
        ...

    def read_text(self, name: str, /) -> str | None:
        """Return what a file holds, None if there is none.

        Raises:
            ValueError: it does not agree with its checksum.
        """
        ...

    def write_text(self, name: str, text: str, /) -> None:
        """Write a file that is not there yet; it appears whole or not at all."""
        ...

    def remove(self, name: str, /) -> None:
        """Remove a file, if there is one."""
        ...


class CoveredFiles:
    """These files of one history.

    A job removes the files that it has read when it has written one that covers as much or more. So what the files cover together
    never falls, however many jobs write, and there are no more of them than running jobs, but for those that a dying job leaves.

    Args:
        root: directory of the history of one state topic.
    """

    def __init__(self, root: SmallFiles) -> None:
        self._root = root
        #: Names of the files that were read last.
        self._read: list[str] = []

    def read(self) -> dict[int, int] | None:
        """Return the offset by log partition, exclusive, below which every change is in the history; None: there is no file.

        Raises:
            DamagedFile: one cannot be parsed.
            OSError: they cannot be read.
        """
        for _ in range(form.LISTS_MAX):
            names = [name for name in self._root.files(form.DIRECTORY) if form.is_covered_file(name)]
            found = {f"{self._root.path}/{_path(name)}": self._read_one(name) for name in names}
            texts = {path: text for path, text in found.items() if text is not None}
            if len(texts) == len(names):
                self._read = names
                try:
                    return form.merge_covered(texts) if texts else None
                except form.DamagedCovered as damage:
                    raise DamagedFile(damage.path, damage.reason, form.CURE) from None
        raise OSError(f"{self._root.path}/{form.DIRECTORY} cannot be read: what is listed there is not there.")

    def _read_one(self, name: str) -> str | None:
        try:
            return self._root.read_text(_path(name))
        except ValueError as error:
            raise DamagedFile(f"{self._root.path}/{_path(name)}", error, form.CURE) from None

    def write(self, name: str, covered: Mapping[int, int]) -> None:
        """Write what is covered, and remove the files that were read.

        Args:
            name: of the file, without its ending; none has had it before.
            covered: offset by log partition, none lower than the one that was read.

        Raises:
            OSError: the file system refuses.
        """
        self._root.write_text(_path(f"{name}{form.ENDING}"), form.encode_covered(covered))
        for former in self._read:
            self._root.remove(_path(former))
        self._read = [f"{name}{form.ENDING}"]


def _path(name: str) -> str:
    return f"{form.DIRECTORY}/{name}"
