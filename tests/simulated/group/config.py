"""The config topic, as far as the membership knows it: an offset that grows, and how far each process has read."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulated.group.world import GroupWorld


class Pause:
    """Something that a callback waits for, in ms; whoever steps it looks at that."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class ConfigReader:
    """The config topic as one process reads it (`ConfigSource`)."""

    def __init__(self, world: GroupWorld, name: str, now_ms: Callable[[], int]) -> None:
        self._world = world
        self._name = name
        self._now_ms = now_ms
        self.offset = -1
        #: Nothing is read.
        self.is_stalled = False

    def follow(self) -> bool:
        """Read to the end, if that is possible; returns whether it was."""
        is_read = not self.is_stalled and self._world.network.reaches(self._name, "log")
        if is_read:
            self.offset = max(self.offset, self._world.config_end)
        return is_read

    async def refresh(self, offset: int, timeout_ms: int) -> int:
        """See `ConfigSource.refresh`."""
        until_ms = self._now_ms() + timeout_ms
        while True:
            await Pause(self._world.random.choice((1, 5, 30)))
            if (self.follow() and self.offset >= offset) or self._now_ms() >= until_ms:
                return self.offset
            await Pause(50)
