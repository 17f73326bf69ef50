"""Adaptive linger: the time for which records wait for others, to be sent with them.

A request costs a broker, its followers and us as much as several records, so under load there should be fewer and larger requests.
As a rule one request is in flight. The next one is sent after its answer, or when that takes longer than answers usually do.

Slow answers mean that the cost of requests for the brokers bounds the log. Therefore, after a slow answer, the next request also waits for
the callers of the other brokers, because they write to this one, too. It waits until most of the outstanding records wait, or this
broker's own part of them does.

Callers that were answered together write again together, so a flush does not go with the first of their records. It waits for half of
the outstanding records; then we decide one half while the log takes the other.
"""

from typing import Final

#: Weight of each answer in the usual time of answers, and of each flush in the usual number of outstanding records.
_WEIGHT: Final = 1 / 8
#: Part of the usually outstanding records that is worth a flush.
_ENOUGH: Final = 1 / 2
#: Part of the usually outstanding records that is worth a round of requests to all brokers; and part of a broker's equal share of them
#: that is worth a request to that broker alone.
_MOST: Final = 9 / 10
_EQUAL_PART: Final = 19 / 20
#: Usual time of answers, in seconds, from which on the next request waits for others after an answer, at most for that same time.
_SLOW_ANSWER_S: Final = 0.002
#: Longest such wait, in seconds.
PATIENCE_MAX_S: Final = 0.015
#: Longest wait of a record or a query for others, in seconds from the first look on, in any state of its broker.
FLUSH_WAIT_MAX_S: Final = 0.005


class Linger:
    """The pace of requests to one broker; all times are in seconds of one clock that never goes back."""

    def __init__(self, min_s: float, max_s: float, patience_max_s: float) -> None:
        """Set the bounds.

        While a request has no answer, the next one waits from `min_s` to `max_s`, both inclusive; if `max_s` is less, it wins.
        After a slow answer the next one waits for others, for at most `patience_max_s`.
        """
        self._min_s = min_s
        self._max_s = max_s
        self._patience_max_s = patience_max_s
        self._usual_s = 0.0
        self._sent_s = 0.0
        #: Time until which the next request waits unless there are enough records.
        self.patient_until_s = 0.0

    def on_sent(self, now_s: float) -> None:
        """Handle a request that is sent."""
        self._sent_s = now_s

    def on_answered(self, took_s: float) -> None:
        """Handle an answer, with the time that it took."""
        self._usual_s += (took_s - self._usual_s) * _WEIGHT

    def on_ended(self, now_s: float) -> None:
        """Handle the end of a request, for any reason."""
        is_slow = self._usual_s >= _SLOW_ANSWER_S and self._patience_max_s > 0
        self.patient_until_s = now_s + min(self._usual_s, self._patience_max_s) if is_slow else 0.0

    def end_patience(self) -> None:
        """End all waits after answers, now and in the future."""
        self._patience_max_s = self.patient_until_s = 0.0

    @property
    def end_s(self) -> float:
        """Return when the next request may be sent although the last one has no answer."""
        return self._sent_s + min(max(self._usual_s, self._min_s), self._max_s)


class FlushRule:
    """The rule for when to flush: enough records wait, or no more come.

    The outstanding records are those that wait and those in flight, to all brokers, without batches that are sent again.
    Records that cannot be sent now, because their broker is silent, count as waiting. So while a broker is silent, the records of others
    are flushed at once. Queries for the ends of log partitions use the same rule, one for each broker; their records are partitions.
    """

    def __init__(self, max_s: float, enough: float = _ENOUGH) -> None:
        """Set the bounds.

        Args:
            max_s: longest wait of a record for others; 0 or less: it does not wait.
            enough: part of the usually outstanding records that is worth a flush.
        """
        self._max_s = max_s
        self._enough = enough
        self._in_flight = 0
        #: The most records that were outstanding at once recently.
        self._usual = 0.0
        #: Number of records that waited at the last look; 0: there was a flush after it.
        self._seen = 0
        self._since_s = 0.0

    def on_sent(self, records: int, waiting: int) -> None:
        """Handle a request with this number of records that is sent, and the number that still waits."""
        self._in_flight += records
        self._usual = max(self._in_flight + waiting, self._usual * (1 - _WEIGHT))

    def on_ended(self, records: int) -> None:
        """Handle the end of a request with this number of records, for any reason."""
        self._in_flight -= records

    def is_enough(self, waiting: int) -> bool:
        """Tell whether this number of records is worth a flush."""
        return waiting >= self._usual * self._enough

    def completes_round(self, waiting: int, records: int, brokers: int) -> bool:
        """Tell whether a request after a slow answer need not wait for others.

        No caller is left to wait for if most of the outstanding records wait, for any broker.
        A broker whose callers write only to it has its part of them sooner; for a single broker that part is half, as for a flush.

        Args:
            waiting: the number of records that wait.
            records: the number of them in the request.
            brokers: the number of brokers that get records.
        """
        if waiting >= self._usual * _MOST:
            return True
        # Rounded down, because callers may not divide evenly.
        return records >= self._usual * _EQUAL_PART // max(2, brokers)

    def has_all(self, waiting: int) -> bool:
        """Tell within a turn of the loop whether to flush at once, because as many records wait as are usually outstanding.

        If not, `is_complete` tells at its end: after an earlier flush, the records that come later in this turn would wait for its answer.
        """
        if not waiting or waiting < self._usual:
            return False
        self._seen = 0
        return True

    def is_complete(self, waiting: int, now_s: float) -> bool:
        """Tell at the end of a turn of the loop whether to flush; if not, ask again after the next one.

        A single record waits for one turn; the last one that was expected is flushed at once.
        """
        if not self._seen:
            self._since_s = now_s
        if self.is_enough(waiting) or waiting == self._seen or now_s >= self._since_s + self._max_s:
            self._seen = 0
            return True
        self._seen = waiting
        return False
