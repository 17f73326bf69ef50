"""Virtual time, and the messages between parties that may be cut off from each other."""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from random import Random

#: Of most messages, and of those that dawdle.
LATENCIES_MS = (1, 1, 2, 3, 5, 10, 20)
DAWDLING_MS = (200, 500, 1_000, 3_000)


class Pause:
    """Something that a coroutine waits for, in ms; whoever steps it looks at that."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class Network:
    """Who reaches whom, and what is on its way."""

    def __init__(self, random: Random, now_ms: Callable[[], int]) -> None:
        self._random = random
        self._now_ms = now_ms
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        #: Pairs of parties of which neither reaches the other.
        self.cuts: set[frozenset[str]] = set()
        #: The share of messages that dawdle.
        self.dawdling = 0.0
        self.lost = 0

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Have a call made after a time."""
        self._number += 1
        heappush(self._due, (self._now_ms() + delay_ms, self._number, call))

    def next_ms(self) -> int | None:
        """Return when the next call is due."""
        return self._due[0][0] if self._due else None

    def pop(self) -> Callable[[], None]:
        """Take the call that is due next."""
        return heappop(self._due)[2]

    def reaches(self, one: str, other: str) -> bool:
        """Tell whether two parties reach each other."""
        return frozenset((one, other)) not in self.cuts

    def send(self, sender: str, receiver: str, deliver: Callable[[], None]) -> None:
        """Send a message; it is lost where the two do not reach each other when it leaves, or when it comes."""
        dawdles = self.dawdling > 0 and self._random.random() < self.dawdling
        latency_ms = self._random.choice(DAWDLING_MS if dawdles else LATENCIES_MS)

        def arrive() -> None:
            if self.reaches(sender, receiver):
                deliver()
            else:
                self.lost += 1

        if self.reaches(sender, receiver):
            self.after(latency_ms, arrive)
        else:
            self.lost += 1
