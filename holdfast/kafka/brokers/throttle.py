"""Until when brokers read nothing from us, because a quota was exceeded.

A broker answers at once, says how long it will read nothing on that connection, and does so whatever is sent.
A client that sent all the same would wait in vain, close the connection, and send the same batch on another one.
That would be a copy, which uses up more of the quota.

Source: KIP-219.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from holdfast.metrics.instruments import Counter

#: The longest pause before a broker is asked again for what it holds: a pause that was no broker's to name would keep a node from
#: reading for minutes. One question too early costs little of a quota, and the answer to it says again how long to wait.
READ_PAUSE_MAX_MS: Final = 10_000

#: What names a broker: its id or its address.
B = TypeVar("B", bound=Hashable)


class Throttle(Generic[B]):
    """The brokers that are to be left alone, for one kind of request."""

    def __init__(self, max_ms: int, total_ms: Counter, now_s: Callable[[], float]) -> None:
        """Begin with none.

        Args:
            max_ms: the longest that a broker is left alone at a time, whatever it says.
            total_ms: counts the pauses that brokers requested.
            now_s: a clock that never goes back.
        """
        self._max_ms = max_ms
        self._total_ms = total_ms
        self._now_s = now_s
        self._until_s: dict[B, float] = {}

    def on_answer(self, broker: B, throttle_ms: int) -> int:
        """Take note of the pause that an answer asks for; returns for how many ms it is left alone from now on."""
        wait_ms = min(throttle_ms, self._max_ms)
        if wait_ms <= 0:
            return 0
        self._total_ms.value += wait_ms
        self._until_s[broker] = max(self._until_s.get(broker, 0.0), self._now_s() + wait_ms / 1_000)
        return wait_ms

    def until_s(self, broker: B) -> float:
        """Return from when on a broker may be sent something; that may be past."""
        return self._until_s.get(broker, 0.0)

    def wait_s(self, broker: B) -> float:
        """Return how long a broker is to be left alone, in seconds from now; 0: it is not."""
        return max(0.0, self.until_s(broker) - self._now_s())
