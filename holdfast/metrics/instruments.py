"""The instruments that a node counts and measures by; `registry` names them.

They are plain objects, so that the hot path pays an attribute and no look-up: keep the object and add to it, as in `counter.value += 1`.
They hold totals and values of now alone; rates, averages and quantiles over a time are for who reads them, such as Prometheus.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Protocol

#: Upper ends of the buckets of each histogram, inclusive, in ms; what is longer is in one more.
BUCKETS_MS: Final[tuple[float, ...]] = (
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0),
    *(1_000.0, 2_500.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0, 300_000.0),
)


class Counter:
    """A total since the start of the process, which never goes down: counted by hand, or taken from `source` at each reading."""

    __slots__ = ("source", "value")

    def __init__(self, source: Callable[[], int] | None = None) -> None:
        self.value = 0
        self.source = source

    def read(self) -> int | float:
        """Return the total."""
        return self.value if self.source is None else self.source()


class Gauge:
    """A value of now: set by hand, or taken from `source` at each reading."""

    __slots__ = ("source", "value")

    def __init__(self, source: Callable[[], int | float] | None = None) -> None:
        self.value: int | float = 0
        self.source = source

    def read(self) -> int | float:
        """Return the value of now."""
        return self.value if self.source is None else self.source()


class Histogram:
    """How many times were how long, since the start of the process."""

    __slots__ = ("_above_ms", "_bucket", "_up_to_ms", "counts", "sum_ms")

    def __init__(self) -> None:
        #: by bucket of `BUCKETS_MS`, each without those before it; one more for what is longer
        self.counts = [0] * (len(BUCKETS_MS) + 1)
        self.sum_ms = 0.0
        #: The bucket of the last time, and its ends: the next one often belongs there, too.
        self._bucket = 0
        self._above_ms, self._up_to_ms = -math.inf, BUCKETS_MS[0]

    def record(self, value_ms: float) -> None:
        """Record one time; a negative one, as after a step of a clock, counts as 0."""
        if value_ms < 0:
            value_ms = 0.0
        if not self._above_ms < value_ms <= self._up_to_ms:
            bucket = self._bucket = bisect_left(BUCKETS_MS, value_ms)
            self._above_ms = BUCKETS_MS[bucket - 1] if bucket else -math.inf
            self._up_to_ms = BUCKETS_MS[bucket] if bucket < len(BUCKETS_MS) else math.inf
        self.counts[self._bucket] += 1
        self.sum_ms += value_ms

    @property
    def count(self) -> int:
        """Return the number of recorded times."""
        return sum(self.counts)

    def quantile_ms(self, share: float) -> float:
        """Return the time that this share of all times did not exceed, as far as buckets tell; 0 while there are none.

        Within a bucket times count as evenly spread; beyond the last one, it is the last end. So does Prometheus.
        """
        rank, seen, lower_ms = share * self.count, 0, 0.0
        for upper_ms, count in zip(BUCKETS_MS, self.counts, strict=False):
            if count and seen + count >= rank:
                return lower_ms + (upper_ms - lower_ms) * (rank - seen) / count
            seen, lower_ms = seen + count, upper_ms
        return lower_ms if seen < self.count else 0.0


class Instrument(Protocol):
    """Any of the three."""
