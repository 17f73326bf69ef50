"""Says when the state that a node holds comes close to its bounds, before callers are refused."""

from typing import Final

import structlog

from holdfast.share.metrics import ShareMetrics
from holdfast.share.state_bounds import StateTotals

_log = structlog.get_logger(__name__)

#: Shares of a bound at which the warning is written, and below which the next one may be.
_CLOSE: Final = 0.8
_FAR: Final = 0.7


class StateWatch:
    """The gauges of the states held, and one line each time a bound comes close."""

    def __init__(self, totals: StateTotals, metrics: ShareMetrics) -> None:
        self._totals = totals
        self._metrics = metrics
        #: Bounds that were warned of.
        self._close: set[str] = set()

    def tick(self) -> None:
        """Look at the totals."""
        totals, metrics, used = self._totals, self._metrics, self._totals.used()
        metrics.state_bytes.value = totals.state_bytes
        metrics.state_bounds_used.value = round(max(used.values()), 4)
        metrics.state_refusals.value = totals.refusals
        for name, share in used.items():
            if share >= _CLOSE and name not in self._close:
                self._close.add(name)
                _log.warning(
                    "state_bound_approached",
                    setting=name,
                    used=round(share, 3),
                    share_partitions=totals.share_partitions,
                    state_bytes=totals.state_bytes,
                )
            elif share < _FAR:
                self._close.discard(name)
