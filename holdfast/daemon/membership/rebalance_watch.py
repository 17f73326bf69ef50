"""The alarm of a group that rebalances too often, with the reasons counted."""

from collections import Counter, deque
from typing import Final

from holdfast.metrics.instruments import Counter as Instrument

#: Rebalances are counted over so long.
WINDOW_MS: Final = 600_000


#: Rebalances in that time that are no alarm: a rolling restart of ten nodes.
REBALANCES_MAX: Final = 20


class RebalanceWatch:
    """The rebalances of the last ten minutes."""

    def __init__(self, alarms: Instrument, rebalances_max: int = REBALANCES_MAX) -> None:
        """Count an alarm in `alarms` for more than `rebalances_max` in ten minutes."""
        self._alarms = alarms
        self._rebalances_max = rebalances_max
        #: (time in ms, reason), the oldest first; bounded by what an alarm needs.
        self._rebalances: deque[tuple[int, str]] = deque(maxlen=rebalances_max + 1)
        self._alarmed_at_ms: int | None = None

    def count(self, reason: str, now_ms: int) -> dict[str, int] | None:
        """Count a rebalance; returns the newest ones by reason where there are too many, once in ten minutes, else None."""
        self._rebalances.append((now_ms, reason))
        if len(self._rebalances) <= self._rebalances_max or self._rebalances[0][0] <= now_ms - WINDOW_MS:
            return None
        if self._alarmed_at_ms is not None and self._alarmed_at_ms > now_ms - WINDOW_MS:
            return None
        self._alarmed_at_ms = now_ms
        self._alarms.value += 1
        return dict(Counter(each for _, each in self._rebalances))
