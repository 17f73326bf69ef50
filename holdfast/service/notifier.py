"""The looks at a program while it runs, and the messages to its service manager."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Protocol, final

import structlog

from holdfast.clock import now_ms
from holdfast.service.condition import Condition
from holdfast.service.notices import Bounds, Notices
from holdfast.service.notify_socket import NotifySocket, ServiceManager

_log = structlog.get_logger(__name__)


class Watcher(Protocol):
    """The link from a program to its service manager."""

    def look(self) -> None:
        """Look at the program now, because something has changed."""

    def reload(self, reload: Callable[[], object]) -> None:
        """Let the program read its settings again by calling `reload`, and notify of it."""


@final
class Unwatched:
    """The watcher of a program without a service manager."""

    def look(self) -> None:
        """Do nothing."""

    def reload(self, reload: Callable[[], object]) -> None:
        """Call `reload`."""
        reload()


@final
class Notifier:
    """The notifier of one program, on the loop that does its work, so that a loop that hangs sends nothing."""

    def __init__(self, bounds: Bounds, read: Callable[[], Condition], send: Callable[[str], bool]) -> None:
        """Keep `read`, which returns the condition of the program, and `send`, which is `NotifySocket.send`."""
        self._notices = Notices(bounds)
        self._read = read
        self._send = send
        #: Messages that the service manager has not accepted yet; no new ones are made before it has.
        self._unsent: list[str] = []
        self._is_unreachable = False

    def look(self) -> None:
        """Look at the program, and notify of what has changed."""
        if self._flush():
            self._unsent = self._notices.look(self._read(), now_ms())
            self._flush()

    def reload(self, reload: Callable[[], object]) -> None:
        """Notify of a reload, and begin it; the condition of the program shows its end."""
        self._unsent += self._notices.reload_begins(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000)
        self._flush()
        reload()
        self.look()

    def _flush(self) -> bool:
        """Send the unsent messages, and return whether all were accepted."""
        try:
            while self._unsent and self._send(self._unsent[0]):
                del self._unsent[0]
        except OSError as error:
            if not self._is_unreachable:
                _log.warning("service_manager_unreachable", error=str(error))
            self._is_unreachable = True
            return False
        self._is_unreachable = False
        return not self._unsent


@asynccontextmanager
async def looking(watcher: Watcher, interval_ms: int) -> AsyncIterator[None]:
    """Look at a program, from its own loop, until the context ends, and once more then."""

    async def look_for_ever() -> None:
        while True:
            watcher.look()
            await asyncio.sleep(interval_ms / 1_000)

    task = asyncio.create_task(look_for_ever(), name="holdfast-condition")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        watcher.look()


@asynccontextmanager
async def notified(
    manager: ServiceManager | None, bounds: Bounds, read: Callable[[], Condition]
) -> AsyncIterator[Watcher]:
    """Notify the service manager, if there is one, of the program that `read` looks at, until the context ends."""
    if manager is None:
        yield Unwatched()
        return
    with closing(NotifySocket(manager.address)) as link:
        notifier = Notifier(bounds, read, link.send)
        async with looking(notifier, bounds.look_interval_ms):
            yield notifier
