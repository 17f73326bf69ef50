"""How fast groups finish records, by the differences of moments: it is counted while somebody looks, and unknown before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.page.book import Described, Pace, finished_between
from holdfast.page.source import SPARK_MINUTES
from holdfast.records.share.keys import SharePartitionKey

_MINUTE_MS: Final = 60_000
#: Moments further apart than this say too little of when records were finished.
_GAP_MAX_MS: Final = 60_000


class Paces:
    """Records that each group and topic finished, minute by minute."""

    def __init__(self) -> None:
        self._paces: dict[tuple[str, bytes], Pace] = {}
        self._since_ms: int | None = None
        self._last_ms = 0

    def take(
        self,
        now_ms: int,
        before: Mapping[SharePartitionKey, Described],
        after: Mapping[SharePartitionKey, Described],
    ) -> None:
        """Count what was finished between two moments."""
        if self._since_ms is None or now_ms - self._last_ms > _GAP_MAX_MS:
            self._paces.clear()
            self._since_ms = now_ms
        else:
            self._count(now_ms, before, after)
        self._last_ms = now_ms

    def of_last_minutes(self, group: str, topic_id: bytes, now_ms: int) -> tuple[int | None, ...]:
        """Return the counts of `SPARK_MINUTES` minutes, the last one that of now; None: nobody looked all the time."""
        pace = self._paces.get((group, topic_id))
        counts = (0,) * SPARK_MINUTES if pace is None else pace.of_last_minutes(now_ms)
        first = now_ms // _MINUTE_MS - SPARK_MINUTES + 1
        since_ms = now_ms if self._since_ms is None else self._since_ms
        return tuple(count if (first + place) * _MINUTE_MS >= since_ms else None for place, count in enumerate(counts))

    def _count(
        self,
        now_ms: int,
        before: Mapping[SharePartitionKey, Described],
        after: Mapping[SharePartitionKey, Described],
    ) -> None:
        for key, described in after.items():
            former = before.get(key)
            if former is None or former is described:
                continue
            finished = finished_between(former.state, described.state)
            if finished > 0:
                self._paces.setdefault((key.group_id, key.topic_id), Pace()).add(now_ms, finished)
