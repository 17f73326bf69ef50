"""Queries for the start and the end of logs (ListOffsets).

One query for latest offsets is in flight to each broker; partitions that are wanted meanwhile go into its next one. That one is sent after
the callers of the last one are answered and the sockets were read, and it waits for others (`linger.FlushRule`). A query costs the broker
and us as much as many log partitions in it, and under load the requests of other callers have come by then.

A broker that was frozen answers late, with old offsets, so an answer is used only while the broker still leads. If it was frozen for
longer than its session with the controllers, it may have lost its leadership without knowing it. So the answer of a broker that was
silent for too long is used only if another broker, asked after that answer came, also names it as the leader.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from typing import Any, Final, final

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.brokers.throttle import READ_PAUSE_MAX_MS, Throttle
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import Leader
from holdfast.kafka.protocol import requests
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.linger import FLUSH_WAIT_MAX_S, FlushRule
from holdfast.runtime.metrics import RuntimeMetrics

#: Stands for the leader of a partition without a known one.
_NO_LEADER: Final = Leader(-1, -1)
#: Stands for the (error code, offset) of a partition that is missing in an answer.
_NO_ANSWER: Final = (-1, -1)
#: Part of the recently largest query that is worth sending at once; a smaller one is sent when a turn of the loop brings no more.
_ENOUGH: Final = 1.0
#: Purpose of the connections.
_CONNECTION: Final = "offsets"


@final
class _Query:
    """A query for latest offsets, until all its partitions were reported."""

    __slots__ = ("began_s", "broker_id", "is_answered", "round_number", "size", "wanted_as")

    def __init__(self, broker_id: int, wanted_as: dict[int, Leader], round_number: int, began_s: float) -> None:
        self.broker_id = broker_id
        #: The leader by partition; reported partitions are removed.
        self.wanted_as = wanted_as
        #: Number of partitions at first.
        self.size = len(wanted_as)
        #: The newest round that was wanted before it was sent.
        self.round_number = round_number
        #: Time of its start, by the loop's clock.
        self.began_s = began_s
        self.is_answered = False


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
        """Follow changes of the leaders from now on.

        Args:
            brokers: the leaders of partitions.
            on_latest: gets (round, latest offset by partition, None if it is not known); the round is the newest
                that was wanted before the query was sent, so it answers that round and all earlier ones.
            metrics: timers.
            leader_silence_max_ms: the longest silence of a broker after which its answers need no confirmation.
            throttle_max_ms: the longest time for which a broker is sent nothing because it asks for that.
            request_timeout_ms: the longest time for which an answer waits for the confirmation of another broker.
        """
        self._brokers = brokers
        self._on_latest = on_latest
        self._metrics = metrics
        self._bugs = BugReports(metrics.internal_errors)
        self._loop = asyncio.get_running_loop()
        #: The newest round that was wanted.
        self._round = 0
        #: Partitions of the next query to each broker.
        self._wanted: defaultdict[int, set[int]] = defaultdict(set)
        #: For the query in flight to each broker, the leader by partition; empty while the next query is due.
        self._in_flight: dict[int, dict[int, Leader]] = {}
        #: The rule for the time of the next query to each broker.
        self._flush_rules: defaultdict[int, FlushRule] = defaultdict(partial(FlushRule, FLUSH_WAIT_MAX_S, _ENOUGH))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._silence_max_s = leader_silence_max_ms / 1_000
        self._confirm_timeout_s = request_timeout_ms / 1_000
        #: Last time at which each broker was certainly alive.
        self._alive_s: dict[int, float] = {}
        #: Time at which a broker answered again after it had been silent for too long.
        self._doubted_s: dict[int, float] = {}
        self._throttle: Throttle[int] = Throttle(
            min(throttle_max_ms, READ_PAUSE_MAX_MS), metrics.throttle_time_ms, self._loop.time
        )
        brokers.on_change(self._on_leaders_changed)

    async def query(self, partition: int, which: int) -> int | None:
        """Return the start (`EARLIEST`) or end (`LATEST`) of a log; None: its leader did not say, and was looked up again."""
        wanted_as = {partition: self._led_as(partition)}
        broker_id = wanted_as[partition][0]
        api, version = requests.LIST_OFFSETS
        found: dict[int, int | None] = {}
        try:
            connection = await self._connect(broker_id)
            body = self._encode(wanted_as, which)
            sent_s = self._loop.time()
            data = await connection.exchange(api, version, body)
            answers = self._read_answer(broker_id, connection, sent_s, data)
        except Exception as failure:  # in every case there is no answer
            self._explain(failure, broker_id)
        else:
            if await self._confirm(broker_id):
                found = self._choose(wanted_as, answers)
        if not found:
            await self._refresh()
        return found.get(partition)

    def want_latest(self, round_number: int, partitions: list[int]) -> None:
        """Query the latest offsets of some partitions; each is reported once."""
        self._round = round_number
        for partition in partitions:
            self._want(partition)

    def on_heard(self, broker_id: int, sent_s: float) -> None:
        """Handle an answer of a broker to a request that was sent at a time of the loop's clock.

        The broker was alive at some moment after that time, and no more is known, so the next silence is measured from there.
        """
        if self._is_closed:
            return
        now_s = self._loop.time()
        alive_s = self._alive_s.get(broker_id)
        if alive_s is None or now_s - alive_s > self._silence_max_s:
            self._doubted_s[broker_id] = now_s
            self._run(self._confirm(broker_id))
        self._alive_s[broker_id] = sent_s if alive_s is None else max(alive_s, sent_s)

    def close(self) -> None:
        """Give up all queries, and report nothing more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    def _want(self, partition: int) -> None:
        broker_id = self._led_as(partition)[0]
        self._wanted[broker_id].add(partition)
        if broker_id not in self._in_flight:
            self._in_flight[broker_id] = {}
            self._loop.call_soon(self._end_turn, broker_id)

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(work, name="holdfast-offsets")
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._bugs.watch(task)

    def _query_next(self, broker_id: int) -> None:
        """Send the next query to a broker whose last query has ended, if any partition is wanted."""
        if self._is_closed:
            return
        partitions = self._wanted.pop(broker_id, None)
        if not partitions:
            del self._in_flight[broker_id]
            return
        wanted_as = {partition: self._led_as(partition) for partition in partitions}
        query = _Query(broker_id, wanted_as, self._round, self._loop.time())
        self._in_flight[broker_id] = wanted_as
        self._flush_rules[broker_id].on_sent(len(wanted_as), 0)
        try:
            connection = self._brokers.open_connection(broker_id, _CONNECTION)
            if connection is None or self._throttle.wait_s(broker_id) > 0:
                self._run(self._connect_and_send(query))
            else:
                self._send(query, connection)
        except Exception as bug:  # the callers must learn that there is no answer
            self._end_by(bug, query)

    async def _connect_and_send(self, query: _Query) -> None:
        try:
            connection = await self._connect(query.broker_id)
            if query.wanted_as:
                self._send(query, connection)
            else:  # by now another broker leads all of them
                self._end(query, {})
        except Exception as failure:  # in every case the callers must learn that there is no answer
            self._end_by(failure, query)

    def _send(self, query: _Query, connection: BrokerConnection) -> None:
        """Send a query; a callback handles its answer, because a task would cost more than the rest of the query."""
        api, version = requests.LIST_OFFSETS
        body = self._encode(query.wanted_as, requests.LATEST)
        connection.send(api, version, body, partial(self._on_answered, query, connection, self._loop.time()))

    def _on_answered(
        self, query: _Query, connection: BrokerConnection, sent_s: float, outcome: bytes | ConnectionFailed
    ) -> None:
        """Handle the answer to a query, or the reason why none came; after any error the callers learn that there is none."""
        if self._is_closed:
            return
        try:
            answers: dict[int, tuple[int, int]] = {}
            if not isinstance(outcome, ConnectionFailed):
                answers = self._read_answer(query.broker_id, connection, sent_s, outcome)
                if self._is_doubted(query.broker_id):
                    self._run(self._confirm_and_end(query, answers))
                    return
            self._end(query, answers)
        except Exception as failure:
            self._end_by(failure, query)

    async def _confirm_and_end(self, query: _Query, answers: dict[int, tuple[int, int]]) -> None:
        try:
            self._end(query, answers if await self._confirm(query.broker_id) else {})
        except Exception as failure:
            self._end_by(failure, query)

    def _end_by(self, failure: Exception, query: _Query) -> None:
        """End a query without an answer, because of a failure."""
        self._explain(failure, query.broker_id)
        self._end(query, {})

    def _end(self, query: _Query, answers: dict[int, tuple[int, int]]) -> None:
        """Report the offsets of the partitions that the broker still leads; the others are reported after a look-up of their leaders."""
        if query.is_answered:  # sending raised because of a bug, and an answer came nevertheless
            return
        wanted_as = query.wanted_as
        found = self._choose(wanted_as, answers)
        query.is_answered = True
        self._metrics.read_index_time.record((self._loop.time() - query.began_s) * 1_000)
        for partition in found:
            del wanted_as[partition]
        if found:
            self._report(query.round_number, found)
        if wanted_as:
            self._run(self._end_unanswered(query))
        else:
            self._end_turns(query)

    def _end_turns(self, query: _Query) -> None:
        """End a query; the next one to its broker is due after the callers are answered and the sockets were read."""
        self._in_flight[query.broker_id] = {}
        self._flush_rules[query.broker_id].on_ended(query.size)
        self._loop.call_soon(self._loop.call_soon, self._end_turn, query.broker_id)

    def _end_turn(self, broker_id: int) -> None:
        """Send the next query to a broker, or wait for another turn if that may bring more partitions."""
        if self._flush_rules[broker_id].is_complete(len(self._wanted.get(broker_id, ())), self._loop.time()):
            self._query_next(broker_id)
        else:
            self._loop.call_soon(self._end_turn, broker_id)

    async def _end_unanswered(self, query: _Query) -> None:
        await self._refresh()  # also the pause before they are queried again
        self._report(query.round_number, dict.fromkeys(query.wanted_as))
        self._end_turns(query)

    def _report(self, round_number: int, offsets: dict[int, int | None]) -> None:
        if self._is_closed:
            return
        try:
            self._on_latest(round_number, offsets)
        except Exception as bug:  # the next query is still sent
            self._bugs.report(bug, "reporting latest offsets failed")

    def _on_leaders_changed(self) -> None:
        """Stop waiting for brokers' answers about partitions that they no longer lead."""
        for wanted_as in self._in_flight.values():
            moved = [partition for partition, led in wanted_as.items() if self._led_as(partition) != led]
            for partition in moved:
                del wanted_as[partition]
            if moved:
                self._loop.call_soon(self._report, self._round, dict.fromkeys(moved))
        for broker_id, wanted in [*self._wanted.items()]:
            for partition in [*wanted]:
                if self._led_as(partition)[0] != broker_id:
                    wanted.discard(partition)
                    self._want(partition)

    def _led_as(self, partition: int) -> Leader:
        return self._brokers.leaders.get(partition, _NO_LEADER)

    async def _connect(self, broker_id: int) -> BrokerConnection:
        """Return an open connection, as soon as the throttle lets us send to the broker.

        Raises:
            ConnectionFailed: the broker is unknown or cannot be reached.
        """
        wait_s = self._throttle.wait_s(broker_id)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return await self._brokers.connection(broker_id, _CONNECTION)

    def _encode(self, wanted_as: dict[int, Leader], which: int) -> bytes:
        targets = [(partition, leader_epoch, which) for partition, (_, leader_epoch) in wanted_as.items()]
        return requests.encode_list_offsets(self._brokers.topic, targets)

    def _read_answer(
        self, broker_id: int, connection: BrokerConnection, sent_s: float, data: bytes
    ) -> dict[int, tuple[int, int]]:
        """Return (error code, offset) by partition; throttles the broker for as long as the answer says.

        Raises:
            UnreadableAnswer: the bytes do not follow the message.
        """
        answers, pause_ms = requests.read_answer(requests.decode_offsets, data)
        throttle_ms = self._throttle.on_answer(broker_id, pause_ms)
        if throttle_ms:
            connection.wait_longer(throttle_ms)  # for requests that were already sent after it
        self.on_heard(broker_id, sent_s)
        return answers

    def _choose(self, wanted_as: dict[int, Leader], answers: dict[int, tuple[int, int]]) -> dict[int, int | None]:
        """Return the offsets of the partitions that the broker answered and still leads."""
        found: dict[int, int | None] = {}
        for partition, led in wanted_as.items():
            error_code, offset = answers.get(partition, _NO_ANSWER)
            if error_code == 0 and self._led_as(partition) == led:
                found[partition] = offset
        return found

    def _explain(self, failure: Exception, broker_id: int) -> None:
        self._bugs.explain(failure, f"querying offsets from broker {broker_id} failed")

    def _is_doubted(self, broker_id: int) -> bool:
        return self._doubted_s.get(broker_id, -inf) > self._brokers.confirmed_s(broker_id)

    async def _confirm(self, broker_id: int) -> bool:
        """Look up the leaders until another broker has named this one, up to a timeout; returns whether one has."""
        ends_s = self._loop.time() + self._confirm_timeout_s
        while self._is_doubted(broker_id) and self._loop.time() < ends_s:
            await self._refresh()
        return not self._is_doubted(broker_id)

    async def _refresh(self) -> None:
        try:
            await self._brokers.refresh()
        except Exception as failure:  # a caller that needs a leader looks it up again, within its own deadline
            self._bugs.explain(failure, "looking up leaders failed")
