"""Adaptive linger: how long records wait for company while a broker has not answered yet.

A request costs a broker, its followers and us as much as several records, so under load fewer of them carry more.
As a rule one is in flight: the next one leaves with its answer, or when that takes longer than answers usually do.
"""

from typing import Final

#: Of each answer's time in the usual one.
_WEIGHT: Final = 1 / 8


class Linger:
    """The pace of requests to one broker; all times are in seconds of one clock that never goes back."""

    def __init__(self, min_s: float, max_s: float) -> None:
        """Begin without an answer; from the first request on, the next one waits from `min_s` to `max_s`, both inclusive.

        Where `max_s` is less than `min_s`, it wins.
        """
        self._min_s = min_s
        self._max_s = max_s
        self._usual_s = 0.0
        self._sent_s = 0.0

    def on_sent(self, now_s: float) -> None:
        """Take note that a request left."""
        self._sent_s = now_s

    def on_answered(self, took_s: float) -> None:
        """Take note of how long an answer took."""
        self._usual_s += (took_s - self._usual_s) * _WEIGHT

    @property
    def end_s(self) -> float:
        """When the next request may leave although the last one has no answer."""
        return self._sent_s + min(max(self._usual_s, self._min_s), self._max_s)
