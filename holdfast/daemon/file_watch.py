"""Files that a running node reads again: when they change, and at a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.daemon.internal_errors import InternalErrors

#: What a file looks like from outside, None where there is none.
Look = tuple[int, int, int] | None


class _Followed:
    """A file, and what reads it."""

    def __init__(self, path: Path, reload: Callable[[], None]) -> None:
        self.path = path
        self.reload = reload
        self.seen = look_at(path)


class FileWatch:
    """The files of one node that may change while it runs.

    A file is looked at from outside, so one that is replaced in one step is read whole.
    """

    def __init__(self, internal_errors: InternalErrors) -> None:
        """Follow none yet; bugs of what reads them go to `internal_errors`."""
        self._internal_errors = internal_errors
        self._followed: list[_Followed] = []

    def follow(self, path: Path, reload: Callable[[], None]) -> None:
        """Call `reload` when a file changed; it keeps what was read before where the file is wrong, and logs why."""
        self._followed.append(_Followed(path, reload))

    def look(self) -> None:
        """Have the files read again that changed since the last look."""
        for each in self._followed:
            seen = look_at(each.path)
            if seen != each.seen:
                each.seen = seen
                self._reload(each)

    def reload(self) -> None:
        """Have all files read again, changed or not."""
        for each in self._followed:
            each.seen = look_at(each.path)
            self._reload(each)

    @contextmanager
    def watched(self, interval_ms: int) -> Iterator[None]:
        """Look at such intervals while the context lasts."""
        loop = asyncio.get_running_loop()

        timer: asyncio.TimerHandle

        def look_soon() -> None:
            nonlocal timer
            timer = loop.call_later(interval_ms / 1_000, look_now)

        def look_now() -> None:
            self.look()
            look_soon()

        look_soon()
        try:
            yield
        finally:
            timer.cancel()

    def _reload(self, followed: _Followed) -> None:
        try:
            followed.reload()
        except Exception as bug:  # one file's reader must not end the watch of the others
            self._internal_errors.note_bug("file_reload_failed", bug, file=str(followed.path))


def look_at(path: Path) -> Look:
    """Return what a file looks like from outside; another file, or another content, looks different."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
