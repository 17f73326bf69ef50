"""Duties: work beside the log partitions that one node of all does, such as the compaction job."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Protocol

from holdfast.daemon.internal_errors import InternalErrors


class Duty(Protocol):
    """One of them; it may be started again when it was stopped."""

    def start(self) -> None:
        """Begin it."""

    async def stop(self) -> None:
        """End it, in bounded time."""


class Duties:
    """The duties that this node can do, and those that it does."""

    def __init__(self, duties: Mapping[str, Duty], internal_errors: InternalErrors) -> None:
        """Do none of these, which are given by name."""
        self._internal_errors = internal_errors
        self.offered = tuple(sorted(duties))
        self._duties = duties
        self._wanted: frozenset[str] = frozenset()
        self._running: set[str] = set()
        self._changing: asyncio.Task[None] | None = None

    def set(self, names: Collection[str]) -> None:
        """Do these from now on, and no others; what must end first may take a while."""
        self._wanted = frozenset(names)
        if self._changing is None or self._changing.done():
            self._changing = asyncio.create_task(self._change(), name="holdfast-duties")

    async def stop(self) -> None:
        """End all of them."""
        self.set(())
        if self._changing is not None:
            await self._changing

    async def _change(self) -> None:
        while self._running != self._wanted:
            for name in sorted(self._running - self._wanted):
                self._running.discard(name)
                try:
                    await self._duties[name].stop()
                except Exception as bug:  # the others are ended all the same
                    self._internal_errors.note_bug("duty_end_failed", bug, duty=name)
            for name in sorted(self._wanted - self._running):
                self._running.add(name)
                self._duties[name].start()
