"""Files that a running node reads again: when they change, and at a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.daemon.context import NodeContext

#: What a file looks like from outside, None where there is none.
Look = tuple[int, int, int] | None


class _Followed:
    """Files that are read together, and what reads them again."""

    def __init__(self, setting: str, paths: Callable[[], Sequence[Path]], reload: Callable[[], bool]) -> None:
        self.setting = setting
        self.paths = paths
        self.reload = reload
        self.seen = self.look()
        #: When they were first refused since they were last taken over; None: they were taken over.
        self.refused_ms: int | None = None

    def look(self) -> list[tuple[Path, Look]]:
        """Return which files they are by now, and what they look like."""
        return [(path, look_at(path)) for path in self.paths()]


class FileWatch:
    """The files of one node that may change while it runs.

    A file is looked at from outside, so one that is replaced in one step is read whole.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._followed: list[_Followed] = []

    def follow(self, setting: str, paths: Callable[[], Sequence[Path]], reload: Callable[[], bool]) -> None:
        """Have files read again when one of them changes; to be called before they are read for the first time.

        Args:
            setting: that names the first of them.
            paths: returns those of the files that are read together, by now: a reload may name others.
            reload: reads them, and returns whether it took them over; if not, it keeps what was read before, and logs why.
        """
        # A change between the look and the first read is read twice; the other way round it would be missed.
        followed = _Followed(setting, paths, reload)
        self._followed.append(followed)
        self._context.registry.gauge(
            "file_refusal_age_ms",
            "Time since a changed file is refused; its content from before holds. 0: it was taken over, which is healthy.",
            lambda: 0 if followed.refused_ms is None else self._context.now_ms() - followed.refused_ms,
            setting=setting,
        )

    def look(self) -> None:
        """Have the files read again that changed since the last look."""
        for each in self._followed:
            if each.look() != each.seen:
                self._reload(each)

    def reload(self, but: Collection[str] = ()) -> None:
        """Have all files read again, changed or not, but for those of the settings `but`, which were read just now."""
        for each in self._followed:
            if each.setting not in but:
                self._reload(each)

    def note(self, setting: str, *, is_taken: bool) -> None:
        """Take note that the files of a setting were read as they are now, and whether they were taken over."""
        for each in self._followed:
            if each.setting == setting:
                each.seen = each.look()
                self._judge(each, is_taken=is_taken)

    @contextmanager
    def watched(self, interval_ms: int) -> Iterator[None]:
        """Look at such intervals while the context lasts."""
        loop = asyncio.get_running_loop()

        timer: asyncio.TimerHandle

        def look_soon() -> None:
            nonlocal timer
            timer = loop.call_later(interval_ms / 1_000, look_now)

        def look_now() -> None:
            try:
                self.look()
            finally:  # a bug must not end the watch
                look_soon()

        look_soon()
        try:
            yield
        finally:
            timer.cancel()

    def _reload(self, followed: _Followed) -> None:
        followed.seen = followed.look()
        try:
            is_taken = followed.reload()
        except Exception as bug:  # one file's reader must not end the watch of the others
            self._context.internal_errors.note_bug("file_reload_failed", bug, setting=followed.setting)
            is_taken = False
        self._judge(followed, is_taken=is_taken)

    def _judge(self, followed: _Followed, *, is_taken: bool) -> None:
        if is_taken:
            followed.refused_ms = None
        elif followed.refused_ms is None:
            followed.refused_ms = self._context.now_ms()


def look_at(path: Path) -> Look:
    """Return what a file looks like from outside; another file, or another content, looks different."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # ValueError: no path can be that text
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
