"""The times at which waiting records are sent: when no more come that could join them, or when their broker is free for them.

The rules are in `runtime/kafka_log/linger.py`; this module applies them to the loop's clock, its turns and the state of each broker.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.cluster import Brokers
from holdfast.runtime.kafka_log.linger import FLUSH_WAIT_MAX_S, PATIENCE_MAX_S, FlushRule, Linger
from holdfast.runtime.kafka_log.sending.accumulator import RecordAccumulator
from holdfast.runtime.kafka_log.sending.broker_slot import BrokerSlot, leader_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceConfig:
    """Bounds on the wait of records for others, and on the requests of a broker."""

    #: Time for which a record waits for others; 0 or less: while each turn of the loop brings some, until there are enough.
    append_linger_ms: float
    #: Longest wait of a record while its broker has not answered; the wait is as long as an answer usually takes.
    append_linger_max_ms: float
    #: Shortest such wait.
    append_linger_min_ms: float = 1
    #: Requests in flight to each broker, each on its own connection.
    produce_requests_in_flight_max: int


@final
class Pace:
    """The pace of one sender's requests to all brokers."""

    def __init__(
        self,
        config: PaceConfig,
        brokers: Brokers,
        accumulator: RecordAccumulator,
        throttle: Throttle[int],
        send: Callable[[int | None, BrokerSlot, list[int]], None],
    ) -> None:
        """Follow changes of the leaders from now on.

        Args:
            config: bounds.
            brokers: the leaders of partitions.
            accumulator: the waiting records.
            throttle: the time for which each broker must be sent nothing.
            send: sends the waiting records of some partitions to a broker, over a free connection of the slot; calls `on_sent` before
                that, so that the end of the request comes after it in every case.
        """
        self._config = config
        self._brokers = brokers
        self._accumulator = accumulator
        self._throttle = throttle
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self._rule = FlushRule(min(FLUSH_WAIT_MAX_S, config.append_linger_max_ms / 1_000))
        #: The slot of each broker that had records to get; None is the key for records without a known leader.
        self.slots: dict[int | None, BrokerSlot] = {}
        #: Number of these brokers that lead a partition.
        self._leading = 0
        #: The end of the turn in which a flush became due; None: no flush is due.
        self._turn_end: asyncio.Handle | None = None
        #: The timer for the first broker without an answer whose records have waited long enough.
        self._linger_timer: asyncio.Handle | None = None
        self._linger_end_s = 0.0
        self._is_closed = False
        brokers.on_change(self._on_leaders_changed)

    # ---- events ----------------------------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Flush when no more records come, or after `append_linger_ms`; another call before the flush has no effect."""
        if self._turn_end is not None:
            return
        if self._config.append_linger_ms > 0:
            self._turn_end = self._loop.call_later(self._config.append_linger_ms / 1_000, self._end_turn)
        else:
            self._turn_end = self._loop.call_soon(self._end_turn)

    def flush_ready_soon(self) -> None:
        """Flush when no more records come, if some records need not wait for a batch in flight."""
        if self._accumulator.ready:
            self.flush_soon()

    def flush_if_all_wait(self) -> None:
        """Flush now if as many records wait as are usually outstanding; to wait for the turn's end would add to each answer's time."""
        end, is_adaptive = self._turn_end, self._config.append_linger_ms <= 0
        if end is not None and is_adaptive and self._rule.has_all(self._accumulator.records):
            end.cancel()
            self._turn_end = None
            self.flush()

    def flush_after_answer(self) -> None:
        """Flush now, unless records have just come and more may follow; with a fixed linger, flush at its end."""
        if self._config.append_linger_ms > 0:
            self.flush_ready_soon()
        elif self._turn_end is None or self._rule.is_enough(self._accumulator.records):
            self.flush()

    def flush(self) -> None:
        """Send the waiting records to each broker that may get a request now, and set a timer for the others."""
        if self._is_closed or not self._accumulator.ready:
            return
        by_broker: dict[int | None, list[int]] = {}
        leaders = self._brokers.leaders
        for partition in self._accumulator.ready:
            by_broker.setdefault(leader_id(leaders, partition), []).append(partition)
        now_s, next_s = self._now_s(), None
        waiting = self._accumulator.records  # of the whole round: sending reduces the count of the accumulator
        for broker_id, partitions in by_broker.items():
            slot = self.slots.get(broker_id) or self._add_slot(broker_id)
            ready_s = self._ready_s(broker_id, slot, partitions, waiting)
            if ready_s > now_s:
                if next_s is None or ready_s < next_s:
                    next_s = ready_s
            elif slot.free:  # otherwise they are sent when an answer frees a connection
                self._send(broker_id, slot, partitions)
        if next_s is not None and (self._linger_timer is None or next_s < self._linger_end_s):
            if self._linger_timer is not None:
                self._linger_timer.cancel()
            self._linger_timer = self._loop.call_at(next_s, self._end_linger)
            self._linger_end_s = next_s

    def on_sent(self, slot: BrokerSlot, records: int, now_s: float) -> None:
        """Handle a request with this number of records that is about to be sent, by the loop's clock."""
        slot.linger.on_sent(now_s)
        self._rule.on_sent(records, self._accumulator.records)

    def on_ended(self, slot: BrokerSlot, records: int) -> None:
        """Handle the end of a request with this number of records, for any reason."""
        slot.linger.on_ended(self._now_s())
        self._rule.on_ended(records)

    def end_patience(self) -> None:
        """End all waits after slow answers, now and in the future."""
        for slot in self.slots.values():
            slot.linger.end_patience()

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        if self._linger_timer is not None:
            self._linger_timer.cancel()

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        """Flush, or wait for another turn if that may bring more."""
        if self._config.append_linger_ms > 0 or self._rule.is_complete(self._accumulator.records, self._now_s()):
            self._turn_end = None
            self.flush()
        else:
            self._turn_end = self._loop.call_soon(self._end_turn)

    def _end_linger(self) -> None:
        self._linger_timer = None
        self.flush()

    def _ready_s(self, broker_id: int | None, slot: BrokerSlot, partitions: list[int], waiting: int) -> float:
        """Return when a broker may be sent the records of these partitions; `waiting` records wait for all brokers."""
        throttled_s = 0.0 if broker_id is None else self._throttle.until_s(broker_id)
        if slot.is_patient:
            records = self._accumulator.count_records(partitions)
            if self._rule.completes_round(waiting, records, self._leading):
                return throttled_s
        return max(throttled_s, slot.ready_s)

    def _add_slot(self, broker_id: int | None) -> BrokerSlot:
        config = self._config
        linger_max_s = config.append_linger_max_ms / 1_000
        patience_max_s = min(PATIENCE_MAX_S, linger_max_s) if config.append_linger_ms < 0 else 0.0
        linger = Linger(config.append_linger_min_ms / 1_000, linger_max_s, patience_max_s)
        slot = self.slots[broker_id] = BrokerSlot(config.produce_requests_in_flight_max, linger)
        self._count_leading()
        return slot

    def _on_leaders_changed(self) -> None:
        self._count_leading()
        self.flush_ready_soon()

    def _count_leading(self) -> None:
        self._leading = len(self.slots.keys() & {leader for leader, _ in self._brokers.leaders.values()})
