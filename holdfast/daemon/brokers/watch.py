"""The watch over the brokers that lead log partitions: it queries those that have not answered for a while, and who leads now.

It has connections of its own and needs nothing of the log, so it sees brokers that no tail follows, too.
Answers on any other connection of the node count as well.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from holdfast.daemon.brokers.silence import BrokerSilence
from holdfast.daemon.context import NodeContext
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.exchange import exchange
from holdfast.kafka.metadata import query

_PURPOSE: Final = "watch"

#: Looks and queries in the time after which a silence counts.
_LOOKS: Final = 15
_QUERIES: Final = 5


class WatchedTopic(Protocol):
    """The state topic, as far as it is watched; `topics.state_topic.StateTopic`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def partition_count(self) -> int:
        """Its number of partitions."""


class BrokerWatch:
    """The watch of one node over the brokers of its log."""

    def __init__(
        self,
        options: ConnectionOptions,
        topic: WatchedTopic,
        cluster_id: str,
        context: NodeContext,
        *,
        silence_max_ms: int,
        timeout_ms: int,
        answered_again: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; `start` begins to watch.

        Args:
            options: how to connect; its `answers` say who was heard when.
            topic: the state topic, as it was when this node found it.
            cluster_id: of the cluster then.
            context: of the node.
            silence_max_ms: see `BrokerSilence`.
            timeout_ms: bound of each query.
            answered_again: called when a silence is over.
        """
        self._answers = options.answers
        self._internal_errors = context.internal_errors
        self._bootstrap = options.bootstrap
        self._brokers = Brokers(options, topic.name, timeout_ms)
        self._topic = topic
        self._cluster_id = cluster_id
        self._look_s = silence_max_ms / 1_000 / _LOOKS
        self._query_s = silence_max_ms / 1_000 / _QUERIES
        # Silent for two queries: one was sent, and had its time for an answer.
        self.silence = BrokerSilence(silence_max_ms, self._look_s, 2 * self._query_s, context.registry, time.time)
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered_again = answered_again
        #: Brokers with a query in flight.
        self._in_flight: set[int] = set()
        #: The query for the leaders.
        self._leaders: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str:
        """Why the log cannot be served now; empty while it can."""
        return self.silence.problem

    @property
    def another_cluster(self) -> str:
        """That the brokers are another cluster than the one that has the log; empty while they are not."""
        found = self._brokers.cluster_id
        if found in ("", self._cluster_id):
            return ""
        return f"the brokers are another cluster ({found}) than the one that has the log ({self._cluster_id})"

    def start(self) -> None:
        """Begin to watch."""
        for work in (self._look_for_ever(), self._query_for_ever()):
            self._run(work, "holdfast-broker-watch")

    async def stop(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self._brokers.close()

    async def _look_for_ever(self) -> None:
        while True:
            if self._brokers.topics:  # some broker has named the leaders
                try:
                    self._look()
                except Exception as bug:  # one look must not be the last: readiness would stay as it was
                    self._internal_errors.note_bug("broker_watch_failed", bug)
            await asyncio.sleep(self._look_s)

    def _look(self) -> None:
        # Another cluster's topic of the same name is not the one that has the log, and none of its brokers leads that.
        named = {} if self.another_cluster else self._brokers.leaders
        leaders = {partition: broker for partition, (broker, _) in named.items()}
        now_s, known, problem = asyncio.get_running_loop().time(), self._brokers.addresses, self.problem
        of_topic = leaders, self._topic.partition_count
        self.silence.look(now_s, *of_topic, known, self._heard, self._query_s, self._why_leaderless())
        if problem and not self.problem:
            self._answered_again()

    def _why_leaderless(self) -> str:
        """Return why no broker can lead the log, by the newest answer of one; empty: nothing is known against it."""
        if self.another_cluster:
            return self.another_cluster
        return f"there is no topic {self._topic.name} any more: it was deleted" if self._brokers.is_missing else ""

    async def _query_for_ever(self) -> None:
        while True:
            if self._leaders is None or self._leaders.done():
                self._leaders = self._run(self._query_leaders(), "holdfast-broker-watch-leaders")
            for broker in self._brokers.addresses.keys() - self._in_flight:
                if self.silence.quiet_s(broker) >= self._query_s:
                    self._in_flight.add(broker)
                    self._run(self._query(broker), f"holdfast-broker-watch-{broker}")
            await asyncio.sleep(self._query_s)

    async def _query_leaders(self) -> None:
        with suppress(Exception):  # no broker answered, or none that can be read; that is what is watched for
            await self._brokers.refresh()
            self._answers.keep({*self._brokers.addresses.values(), *self._bootstrap})

    async def _query(self, broker: int) -> None:
        try:
            with suppress(Exception):
                await query(partial(exchange, await self._brokers.connection(broker, _PURPOSE)), [])
        finally:
            self._in_flight.discard(broker)

    def _heard(self, broker: int) -> float | None:
        address = self._brokers.addresses.get(broker)
        return None if address is None else self._answers.heard_s(address)

    def _run(self, work: Coroutine[object, object, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
