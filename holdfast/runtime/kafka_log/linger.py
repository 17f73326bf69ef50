"""Adaptive linger: how long records wait for others to leave with them.

A request costs a broker, its followers and us as much as several records, so under load fewer of them carry more.
As a rule one is in flight: the next one leaves behind its answer, or when that takes longer than answers usually do.
Where answers take long, what a request costs the brokers is what bounds the log, so behind an answer the next one waits for the callers of
the other brokers, who write to this one, too: until most of what is outstanding waits, or its own part of that does.
Callers that were answered together write again together, so a flush does not leave with the first of their records:
it waits for half of what is outstanding, and so one half is decided while the log takes the other.
"""

from typing import Final

#: Of each answer's time in the usual one, and of each flush in what is usually outstanding.
_WEIGHT: Final = 1 / 8
#: The part of what is usually outstanding that is worth a flush.
_ENOUGH: Final = 1 / 2
#: The part of what is usually outstanding that is worth a round of requests to all brokers, and of an equal part of it that is worth one
#: to a broker by itself.
_MOST: Final = 9 / 10
_EQUAL_PART: Final = 19 / 20
#: From what time of answers on, in seconds, the next request waits for others behind one. The time of an answer is its longest wait.
_SLOW_ANSWER_S: Final = 0.002
#: The longest that it waits, in seconds.
PATIENCE_MAX_S: Final = 0.015
#: The longest that a record, or a query, waits for others from the first look on, whatever its broker does; in seconds.
FLUSH_WAIT_MAX_S: Final = 0.005


class Linger:
    """The pace of requests to one broker; all times are in seconds of one clock that never goes back."""

    def __init__(self, min_s: float, max_s: float, patience_max_s: float) -> None:
        """Begin without an answer; from the first request on, the next one waits from `min_s` to `max_s`, both inclusive.

        Where `max_s` is less than `min_s`, it wins.
        Behind a slow answer the next one waits for others for `patience_max_s` at most.
        """
        self._min_s = min_s
        self._max_s = max_s
        self._patience_max_s = patience_max_s
        self._usual_s = 0.0
        self._sent_s = 0.0
        #: Until when the next request waits unless enough records do.
        self.patient_until_s = 0.0

    def on_sent(self, now_s: float) -> None:
        """Take note that a request left."""
        self._sent_s = now_s

    def on_answered(self, took_s: float) -> None:
        """Take note of how long an answer took."""
        self._usual_s += (took_s - self._usual_s) * _WEIGHT

    def on_ended(self, now_s: float) -> None:
        """Take note that a request is in flight no more, whatever became of it."""
        is_slow = self._usual_s >= _SLOW_ANSWER_S and self._patience_max_s > 0
        self.patient_until_s = now_s + min(self._usual_s, self._patience_max_s) if is_slow else 0.0

    def end_patience(self) -> None:
        """Let no request wait behind an answer any more."""
        self._patience_max_s = self.patient_until_s = 0.0

    @property
    def end_s(self) -> float:
        """When the next request may leave although the last one has no answer."""
        return self._sent_s + min(max(self._usual_s, self._min_s), self._max_s)


class FlushRule:
    """The rule by which a flush is worth it: enough records wait, or no more come.

    Outstanding are the records that wait and those that are in flight, to all brokers; batches that are sent again are not among them.
    Records that cannot leave now, because their broker is silent, count as waiting: so while one is, others are flushed at once.
    Log partitions whose ends are wanted wait by the same rule, those of each broker by themselves; a query is what is flushed then.
    """

    def __init__(self, max_s: float, enough: float = _ENOUGH) -> None:
        """Begin with nothing outstanding.

        Args:
            max_s: a record waits for others for so long at most; 0 or less: never.
            enough: the part of what is usually outstanding that is worth a flush.
        """
        self._max_s = max_s
        self._enough = enough
        self._in_flight = 0
        #: The most records that were outstanding at once of late.
        self._usual = 0.0
        #: How many records waited at the last look; 0: a flush has followed it.
        self._seen = 0
        self._since_s = 0.0

    def on_sent(self, records: int, waiting: int) -> None:
        """Take note that a request with these records left, and how many still wait."""
        self._in_flight += records
        self._usual = max(self._in_flight + waiting, self._usual * (1 - _WEIGHT))

    def on_ended(self, records: int) -> None:
        """Take note that a request with these records is in flight no more, whatever became of it."""
        self._in_flight -= records

    def is_enough(self, waiting: int) -> bool:
        """Tell whether so many records are worth a flush."""
        return waiting >= self._usual * self._enough

    def completes_round(self, waiting: int, records: int, brokers: int) -> bool:
        """Tell whether a request behind a slow answer need not wait for others.

        Nobody is left to be waited for where most of what is outstanding waits, for whatever broker.
        A broker whose callers write to it alone has its part of that sooner; one broker alone has half, as a flush does.

        Args:
            waiting: how many records wait.
            records: how many of them it would carry.
            brokers: how many brokers records are sent to.
        """
        if waiting >= self._usual * _MOST:
            return True
        # Rounded down, for callers that cannot be divided evenly.
        return records >= self._usual * _EQUAL_PART // max(2, brokers)

    def has_all(self, waiting: int) -> bool:
        """Tell within a turn of the loop whether to flush at once, because all that is usually outstanding waits.

        If not, `is_complete` tells at its end: with less, what comes later in this turn would wait for the answer to what came before.
        """
        if not waiting or waiting < self._usual:
            return False
        self._seen = 0
        return True

    def is_complete(self, waiting: int, now_s: float) -> bool:
        """Tell at the end of a turn of the loop whether to flush; if not, ask again after the next one.

        A record that comes alone waits for one turn; the last of those that were expected leaves at once.
        """
        if not self._seen:
            self._since_s = now_s
        if self.is_enough(waiting) or waiting == self._seen or now_s >= self._since_s + self._max_s:
            self._seen = 0
            return True
        self._seen = waiting
        return False
