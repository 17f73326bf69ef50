"""When what waits is sent to which broker: once no more come that could leave with it, or its broker is free for it.

The rules are in `runtime/kafka_log/linger.py`; here they meet the loop's clock, its turns, and what is known of each broker.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.leaders import Brokers
from holdfast.runtime.kafka_log.linger import FLUSH_WAIT_MAX_S, PATIENCE_MAX_S, FlushRule, Linger
from holdfast.runtime.kafka_log.sending.accumulator import RecordAccumulator
from holdfast.runtime.kafka_log.sending.broker_slot import BrokerSlot, leader_id


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceConfig:
    """How long records wait for others, and how many requests a broker has at a time."""

    #: How long a record waits for others; 0 or less: while each turn of the loop brings some, until that is enough.
    append_linger_ms: float
    #: The longest that a record waits for others while its broker has not answered: as long as that usually takes.
    append_linger_max_ms: float
    #: The shortest such wait.
    append_linger_min_ms: float = 1
    #: For each broker, each on a connection of its own.
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
        """Begin with nothing in flight.

        Args:
            config: bounds.
            brokers: who leads what.
            accumulator: what waits.
            throttle: for how long each broker is to be left alone.
            send: sends a broker what waits for some partitions, over a connection of a slot that has one free; calls `on_sent` before
                that, so that whatever ends the request comes behind it.
        """
        self._config = config
        self._brokers = brokers
        self._accumulator = accumulator
        self._throttle = throttle
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._now_s = self._loop.time
        self._rule = FlushRule(min(FLUSH_WAIT_MAX_S, config.append_linger_max_ms / 1_000))
        #: Of each broker for which something waited, and of records that no broker is known to lead.
        self.slots: dict[int | None, BrokerSlot] = {}
        #: How many of these brokers lead something.
        self._leading = 0
        #: Ends the turn in which a flush became due; None: none is.
        self._turn_end: asyncio.Handle | None = None
        #: Runs when records have waited long enough for the first of the brokers that have not answered.
        self._linger_timer: asyncio.Handle | None = None
        self._linger_end_s = 0.0
        self._is_closed = False
        brokers.on_change(self._on_leaders_changed)

    # ---- what happens ----------------------------------------------------------------------------------------------

    def flush_soon(self) -> None:
        """Flush when no more records come, or for `append_linger_ms`; again before that changes nothing."""
        if self._turn_end is not None:
            return
        if self._config.append_linger_ms > 0:
            self._turn_end = self._loop.call_later(self._config.append_linger_ms / 1_000, self._end_turn)
        else:
            self._turn_end = self._loop.call_soon(self._end_turn)

    def flush_ready_soon(self) -> None:
        """Flush when no more records come, if some wait that no batch in flight holds up."""
        if self._accumulator.ready:
            self.flush_soon()

    def flush_if_all_wait(self) -> None:
        """Flush now if no more is outstanding as a rule: a turn of the loop is a part of an answer's time."""
        end, is_adaptive = self._turn_end, self._config.append_linger_ms <= 0
        if end is not None and is_adaptive and self._rule.has_all(self._accumulator.records):
            end.cancel()
            self._turn_end = None
            self.flush()

    def flush_behind_answer(self) -> None:
        """Flush now, unless records have just come that others may follow; with a linger that is set, flush at its end."""
        if self._config.append_linger_ms > 0:
            self.flush_ready_soon()
        elif self._turn_end is None or self._rule.is_enough(self._accumulator.records):
            self.flush()

    def flush(self) -> None:
        """Send to each broker that may get a request now what waits for it, and come back for the others."""
        if self._is_closed or not self._accumulator.ready:
            return
        by_broker: dict[int | None, list[int]] = {}
        leaders = self._brokers.leaders
        for partition in self._accumulator.ready:
            by_broker.setdefault(leader_id(leaders, partition), []).append(partition)
        now_s, next_s = self._now_s(), None
        waiting = self._accumulator.records  # of the whole round, whoever gets their part first
        for broker_id, partitions in by_broker.items():
            slot = self.slots.get(broker_id) or self._add_slot(broker_id)
            ready_s = self._ready_s(broker_id, slot, partitions, waiting)
            if ready_s > now_s:
                if next_s is None or ready_s < next_s:
                    next_s = ready_s
            elif slot.free:  # else the answer that frees a connection sends it
                self._send(broker_id, slot, partitions)
        if next_s is not None and (self._linger_timer is None or next_s < self._linger_end_s):
            if self._linger_timer is not None:
                self._linger_timer.cancel()
            self._linger_timer = self._loop.call_at(next_s, self._end_linger)
            self._linger_end_s = next_s

    def on_sent(self, slot: BrokerSlot, records: int, now_s: float) -> None:
        """Take note that a request with these records is about to leave, by the loop's clock."""
        slot.linger.on_sent(now_s)
        self._rule.on_sent(records, self._accumulator.records)

    def on_ended(self, slot: BrokerSlot, records: int) -> None:
        """Take note that a request with these records is in flight no more, whatever became of it."""
        slot.linger.on_ended(self._now_s())
        self._rule.on_ended(records)

    def end_patience(self) -> None:
        """Let nothing wait behind a slow answer any more."""
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
        """Return from when on a broker may be sent the records of these partitions, of so many that wait for all brokers."""
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
