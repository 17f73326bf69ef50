"""Where logs begin and end, queried from the brokers (ListOffsets).

One query for latest offsets is in flight to each broker, and what is wanted meanwhile goes with its next one.
That leaves when those who waited for the answer have theirs and the sockets were read, and waits for others (`linger.FlushRule`):
a query costs the broker and us as much as many log partitions in it, and under load the requests of others have come by then.
A broker that was frozen answers late and with offsets of the past, so an answer is used only while the broker still leads.
Frozen for longer than its session with the controllers, it may have lost its leadership and not know it yet.
So the answer of a broker that was silent for too long is used only when another one, queried after it came, names it leader as well.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from typing import Any, Final, final

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.brokers.throttle import READ_PAUSE_MAX_MS, Throttle
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.leaders import Brokers, Leader
from holdfast.kafka.protocol import requests
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.linger import FLUSH_WAIT_MAX_S, FlushRule
from holdfast.runtime.metrics import RuntimeMetrics

#: In place of the leader of a partition of which none is known.
_NO_LEADER: Final = Leader(-1, -1)
#: In place of (error code, offset) of a partition that an answer leaves out.
_NO_ANSWER: Final = (-1, -1)
#: A query that is as large as the largest of late is worth sending; a smaller one where a turn of the loop brings no more.
_ENOUGH: Final = 1.0
#: What the connections are for.
_CONNECTION: Final = "offsets"


@final
class _Query:
    """A query for latest offsets, until all that it is about was reported."""

    __slots__ = ("began_s", "broker_id", "is_answered", "round_number", "size", "wanted_as")

    def __init__(self, broker_id: int, wanted_as: dict[int, Leader], round_number: int, began_s: float) -> None:
        self.broker_id = broker_id
        #: The leader by partition; what was reported is taken out.
        self.wanted_as = wanted_as
        #: How many were wanted.
        self.size = len(wanted_as)
        #: The newest that was wanted before it left.
        self.round_number = round_number
        #: By the loop's clock.
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
        #: By broker, of the query in flight: the leader by partition; empty between one query and the next, which is due then.
        self._in_flight: dict[int, dict[int, Leader]] = {}
        #: By broker: when its next query is worth sending.
        self._flush_rules: defaultdict[int, FlushRule] = defaultdict(partial(FlushRule, FLUSH_WAIT_MAX_S, _ENOUGH))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._silence_max_s = leader_silence_max_ms / 1_000
        self._confirm_timeout_s = request_timeout_ms / 1_000
        #: Since when each broker can have been silent.
        self._alive_s: dict[int, float] = {}
        #: When a broker was heard again after it had been silent for too long.
        self._doubted_s: dict[int, float] = {}
        self._throttle: Throttle[int] = Throttle(
            min(throttle_max_ms, READ_PAUSE_MAX_MS), metrics.throttle_time_ms, self._loop.time
        )
        brokers.on_change(self._on_leaders_changed)

    async def query(self, partition: int, which: int) -> int | None:
        """Return where a log starts (`EARLIEST`) or ends (`LATEST`); None: its leader did not say, and was looked up again."""
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
        except Exception as failure:  # whatever it is, there is no answer
            self._explain(failure, broker_id)
        else:
            if await self._confirm(broker_id):
                found = self._choose(wanted_as, answers)
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
        if self._is_closed:
            return
        now_s = self._loop.time()
        alive_s = self._alive_s.get(broker_id)
        if alive_s is None or now_s - alive_s > self._silence_max_s:
            self._doubted_s[broker_id] = now_s
            self._run(self._confirm(broker_id))
        self._alive_s[broker_id] = sent_s if alive_s is None else max(alive_s, sent_s)

    def close(self) -> None:
        """Give up all queries; nothing more is reported."""
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
        """Query what is wanted of a broker whose last query has ended, if anything is."""
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
        except Exception as bug:  # those who wait must learn that there is no answer
            self._end_by(bug, query)

    async def _connect_and_send(self, query: _Query) -> None:
        try:
            connection = await self._connect(query.broker_id)
            if query.wanted_as:
                self._send(query, connection)
            else:  # another broker leads all of it by now
                self._end(query, {})
        except Exception as failure:  # whatever it is, those who wait must learn that there is no answer
            self._end_by(failure, query)

    def _send(self, query: _Query, connection: BrokerConnection) -> None:
        """Send a query; a callback takes its answer, because a task for each would cost more than all else of it."""
        api, version = requests.LIST_OFFSETS
        body = self._encode(query.wanted_as, requests.LATEST)
        connection.send(api, version, body, partial(self._on_answered, query, connection, self._loop.time()))

    def _on_answered(
        self, query: _Query, connection: BrokerConnection, sent_s: float, outcome: bytes | ConnectionFailed
    ) -> None:
        """Take the answer to a query, or why none came; whatever goes wrong with it, those who wait learn that there is none."""
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
        """End a query without an answer, because something went wrong with it."""
        self._explain(failure, query.broker_id)
        self._end(query, {})

    def _end(self, query: _Query, answers: dict[int, tuple[int, int]]) -> None:
        """Report what a broker said of those that it still leads; the others are reported when their leaders were looked up."""
        if query.is_answered:  # sending failed by a bug, and there is an answer all the same
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
        """End a query, and look at what else is wanted of its broker once those who waited are answered and the sockets were read."""
        self._in_flight[query.broker_id] = {}
        self._flush_rules[query.broker_id].on_ended(query.size)
        self._loop.call_soon(self._loop.call_soon, self._end_turn, query.broker_id)

    def _end_turn(self, broker_id: int) -> None:
        """Query what is wanted of a broker, or wait for another turn if that may bring more."""
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
        except Exception as bug:  # the next query is sent all the same
            self._bugs.report(bug, "reporting latest offsets failed")

    def _on_leaders_changed(self) -> None:
        """Wait for no broker's answer about partitions that it leads no more."""
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
        """Return an open connection, when the broker may be sent something.

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
        """Return (error code, offset) by partition; leaves the broker alone for as long as it says.

        Raises:
            UnreadableAnswer: the bytes do not follow the message.
        """
        answers, pause_ms = requests.read_answer(requests.decode_offsets, data)
        throttle_ms = self._throttle.on_answer(broker_id, pause_ms)
        if throttle_ms:
            connection.wait_longer(throttle_ms)  # for what was sent behind it already
        self.on_heard(broker_id, sent_s)
        return answers

    def _choose(self, wanted_as: dict[int, Leader], answers: dict[int, tuple[int, int]]) -> dict[int, int | None]:
        """Return the offsets of those partitions of which the broker named one, and which it still leads."""
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
        """Look up the leaders until another broker has named this one, for a while; returns whether one has."""
        ends_s = self._loop.time() + self._confirm_timeout_s
        while self._is_doubted(broker_id) and self._loop.time() < ends_s:
            await self._refresh()
        return not self._is_doubted(broker_id)

    async def _refresh(self) -> None:
        try:
            await self._brokers.refresh()
        except Exception as failure:  # whatever needs a leader looks it up again, within its own deadline
            self._bugs.explain(failure, "looking up leaders failed")
