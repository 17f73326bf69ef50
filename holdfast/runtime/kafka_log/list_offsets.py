"""Where logs begin and end, queried from the brokers (ListOffsets).

One query for latest offsets is in flight to each broker, and what is wanted meanwhile goes with its next one.
A broker that was frozen answers late and with offsets of the past, so an answer is used only while the broker still leads.
Frozen for longer than its session with the controllers, it may have lost its leadership and not know it yet.
So the answer of a broker that was silent for too long is used only when another one, queried after it came, names it leader as well.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Final

from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.leaders import Brokers
from holdfast.kafka.protocol import requests
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.metrics import RuntimeMetrics

#: In place of (broker id, leader epoch) of a partition of which no leader is known.
_NO_LEADER: Final = (-1, -1)


class OffsetQueries:
    """The queries of one node."""

    def __init__(
        self,
        brokers: Brokers,
        on_latest: Callable[[int, dict[int, int | None]], None],
        metrics: RuntimeMetrics,
        *,
        leader_silence_max_ms: int,
        throttle_max_ms: int,
        request_timeout_ms: int,
    ) -> None:
        """Prepare.

        Args:
            brokers: who leads what.
            on_latest: gets (round, latest offset by partition, None where it is not known); the round is the newest
                that was wanted before the query left, so it answers that one and all before.
            metrics: what is timed.
            leader_silence_max_ms: the longest time in which a broker may have done nothing before its leaderships must be
                confirmed.
            throttle_max_ms: the longest that a broker is left alone because it says so.
            request_timeout_ms: the longest that an answer waits for another broker that confirms its leader.
        """
        self._brokers = brokers
        self._on_latest = on_latest
        self._metrics = metrics
        self._bugs = BugReports(metrics.internal_errors)
        self._loop = asyncio.get_running_loop()
        #: The newest that was wanted.
        self._round = 0
        #: Partitions by broker, of the next queries.
        self._wanted: defaultdict[int, set[int]] = defaultdict(set)
        #: By broker, of the query in flight: (broker id, leader epoch) by partition.
        self._in_flight: dict[int, dict[int, tuple[int, int]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._silence_max_s = leader_silence_max_ms / 1_000
        self._confirm_timeout_s = request_timeout_ms / 1_000
        #: Since when each broker can have been silent.
        self._alive_s: dict[int, float] = {}
        #: When a broker was heard again after it had been silent for too long.
        self._doubted_s: dict[int, float] = {}
        self._throttle: Throttle[int] = Throttle(throttle_max_ms, metrics.throttle_time_ms, self._loop.time)
        brokers.on_change(self._on_leaders_changed)

    async def query(self, partition: int, which: int) -> int | None:
        """Return where a log starts (`EARLIEST`) or ends (`LATEST`); None: its leader did not say, and was looked up again."""
        wanted_as = {partition: self._led_as(partition)}
        found = await self._query_broker(wanted_as[partition][0], wanted_as, which)
        if not found:
            await self._refresh()
        return found.get(partition)

    def want_latest(self, round_number: int, partitions: list[int]) -> None:
        """Query the latest offsets of some partitions, each of which is reported once."""
        self._round = round_number
        for partition in partitions:
            self._want(partition)

    def on_heard(self, broker_id: int, sent_s: float) -> None:
        """Learn that a broker answered a request that left at a time of the loop's clock.

        It was alive at some moment behind that, and no more is known, so from there on the next silence is measured.
        """
        now_s = self._loop.time()
        alive_s = self._alive_s.get(broker_id)
        if alive_s is None or now_s - alive_s > self._silence_max_s:
            self._doubted_s[broker_id] = now_s
            self._run(self._confirm(broker_id))
        self._alive_s[broker_id] = sent_s if alive_s is None else max(alive_s, sent_s)

    def close(self) -> None:
        """Give up all queries; nothing more is reported."""
        for task in self._tasks:
            task.cancel()

    def _want(self, partition: int) -> None:
        broker_id = self._led_as(partition)[0]
        self._wanted[broker_id].add(partition)
        if broker_id not in self._in_flight:
            self._in_flight[broker_id] = {}
            self._run(self._query_while_wanted(broker_id))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="holdfast-offsets")
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._bugs.watch(task)

    async def _query_while_wanted(self, broker_id: int) -> None:
        try:
            while partitions := self._wanted.pop(broker_id, None):
                wanted_as = self._in_flight[broker_id] = {
                    partition: self._led_as(partition) for partition in partitions
                }
                await self._query_latest(broker_id, wanted_as)
        finally:
            del self._in_flight[broker_id]

    async def _query_latest(self, broker_id: int, wanted_as: dict[int, tuple[int, int]]) -> None:
        round_number, began_s = self._round, self._loop.time()
        found = await self._query_broker(broker_id, wanted_as, requests.LATEST)
        self._metrics.read_index_time.record((self._loop.time() - began_s) * 1_000)
        for partition in found:
            del wanted_as[partition]
        if found:
            self._on_latest(round_number, {**found})
        if wanted_as:
            await self._refresh()  # also the pause before they are queried again
            self._on_latest(round_number, dict.fromkeys(wanted_as))

    def _on_leaders_changed(self) -> None:
        """Wait for no broker's answer about partitions that it leads no more."""
        for wanted_as in self._in_flight.values():
            moved = [partition for partition, led in wanted_as.items() if self._led_as(partition) != led]
            for partition in moved:
                del wanted_as[partition]
            if moved:
                self._loop.call_soon(self._on_latest, self._round, dict.fromkeys(moved))
        for broker_id, wanted in [*self._wanted.items()]:
            for partition in [*wanted]:
                if self._led_as(partition)[0] != broker_id:
                    wanted.discard(partition)
                    self._want(partition)

    def _led_as(self, partition: int) -> tuple[int, int]:
        return self._brokers.leaders.get(partition, _NO_LEADER)

    async def _query_broker(self, broker_id: int, wanted_as: dict[int, tuple[int, int]], which: int) -> dict[int, int]:
        """Return the offsets of those partitions of which the broker named one, and which it still leads."""
        api, version = requests.LIST_OFFSETS
        targets = [(partition, leader_epoch, which) for partition, (_, leader_epoch) in wanted_as.items()]
        wait_s = self._throttle.wait_s(broker_id)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        try:
            connection = await self._brokers.connection(broker_id, "offsets")
            body = requests.encode_list_offsets(self._brokers.topic, targets)
            sent_s = self._loop.time()
            data = await connection.exchange(api, version, body)
            answers, pause_ms = requests.read_answer(requests.decode_offsets, data)
        except Exception as failure:  # whatever it is, those who wait must learn that there is no answer
            self._bugs.explain(failure, f"querying offsets from broker {broker_id} failed")
            return {}
        throttle_ms = self._throttle.on_answer(broker_id, pause_ms)
        if throttle_ms:
            connection.wait_longer(throttle_ms)  # for what was sent behind it already
        self.on_heard(broker_id, sent_s)
        if self._is_doubted(broker_id):
            await self._confirm(broker_id)
            if self._is_doubted(broker_id):
                return {}
        found = {}
        for partition, led in wanted_as.items():
            error_code, offset = answers.get(partition, (-1, -1))
            if error_code == 0 and self._led_as(partition) == led:
                found[partition] = offset
        return found

    def _is_doubted(self, broker_id: int) -> bool:
        return self._doubted_s.get(broker_id, -inf) > self._brokers.confirmed_s(broker_id)

    async def _confirm(self, broker_id: int) -> None:
        """Look up the leaders until another broker has named this one, for a while."""
        ends_s = self._loop.time() + self._confirm_timeout_s
        while self._is_doubted(broker_id) and self._loop.time() < ends_s:
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self._brokers.refresh()
        except Exception as failure:  # whatever needs a leader looks it up again, within its own deadline
            self._bugs.explain(failure, "looking up leaders failed")
