"""One log line for what happens to many log partitions within moments; each of them has its own line at level debug."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import structlog

from holdfast.daemon.brokers.silence import named

_log = structlog.get_logger(__name__)

#: A sum is written when nothing was added to it for so long, and after so long in any case.
_QUIET_MS: Final = 500
_LONGEST_MS: Final = 10_000
#: No line names more log partitions than that; it counts the others.
_NAMED_MAX: Final = 8
#: Of numbers with such a name a line has the largest; of others it has the sum.
_COMPARED: Final = ("longest_", "highest_")


class _Sum(NamedTuple):
    began_ms: int
    added_ms: int
    partitions: list[int]
    numbers: dict[str, int]


class PartitionSums:
    """The sums, by level, event and the fields that are the same for all."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Begin with none; the clock may start at any time."""
        self._now_ms = now_ms
        self._sums: dict[tuple[str, str, tuple[tuple[str, Any], ...]], _Sum] = {}

    def add(self, level: str, event: str, partition: int, numbers: dict[str, int] | None = None, **same: Any) -> None:  # noqa: ANN401
        """Add one log partition to a sum; its numbers are added up, those whose names begin with one of `_COMPARED` compared."""
        now_ms, key = self._now_ms(), (level, event, tuple(sorted(same.items())))
        began_ms, _, partitions, totals = self._sums.get(key) or _Sum(now_ms, now_ms, [], {})
        for name, number in (numbers or {}).items():
            before = totals.get(name, 0)
            totals[name] = max(before, number) if name.startswith(_COMPARED) else before + number
        partitions.append(partition)
        self._sums[key] = _Sum(began_ms, now_ms, partitions, totals)

    def tick(self) -> None:
        """Write the sums to which nothing more is added."""
        now_ms = self._now_ms()
        for key, each in list(self._sums.items()):
            if now_ms - each.added_ms >= _QUIET_MS or now_ms - each.began_ms >= _LONGEST_MS:
                self._write(key)

    def flush(self) -> None:
        """Write all of them now, in the order in which they began."""
        for key in list(self._sums):
            self._write(key)

    def _write(self, key: tuple[str, str, tuple[tuple[str, Any], ...]]) -> None:
        level, event, same = key
        _, _, partitions, numbers = self._sums.pop(key)
        which = named(sorted(set(partitions)), _NAMED_MAX)
        getattr(_log, level)(event, log_partitions=len(set(partitions)), which=which, **numbers, **dict(same))
