"""Watches the brokers that lead log partitions: asks those that have not answered for a while, and who leads now.

It has connections of its own and needs nothing of the log, so it sees brokers that no tail follows, too.
What any other connection of the node hears counts as well.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

import structlog

from holdfast.daemon.brokers.silence import BrokerSilence
from holdfast.kafka.connection import ConnectionOptions
from holdfast.kafka.leaders import Brokers
from holdfast.metrics.registry import Registry

_log = structlog.get_logger(__name__)

_PURPOSE: Final = "watch"

#: Looks and questions in the time after which a silence counts.
_LOOKS: Final = 15
_QUESTIONS: Final = 5


class BrokerWatch:
    """The watch of one node over the brokers of its log."""

    def __init__(
        self,
        options: ConnectionOptions,
        topic: str,
        partition_count: int,
        *,
        silence_max_ms: int,
        timeout_ms: int,
        registry: Registry,
        answered_again: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; `start` begins to watch.

        Args:
            options: how to connect; its `answers` say who was heard when.
            topic: the state topic.
            partition_count: its number of partitions.
            silence_max_ms: see `BrokerSilence`.
            timeout_ms: bound of each question.
            registry: see `BrokerSilence`.
            answered_again: called when a silence is over.
        """
        self._answers = options.answers
        self._bootstrap = options.bootstrap
        self._brokers = Brokers(options, topic, timeout_ms)
        self._partition_count = partition_count
        self._look_s = silence_max_ms / 1_000 / _LOOKS
        self._question_s = silence_max_ms / 1_000 / _QUESTIONS
        # Silent for two questions: one was asked, and had its time for an answer.
        self._silence = BrokerSilence(silence_max_ms, self._look_s, 2 * self._question_s, registry, time.time)
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered_again = answered_again
        self._asking: set[int] = set()  #: brokers with a question on its way
        self._leaders: asyncio.Task[None] | None = None  #: the question who leads

    @property
    def problem(self) -> str:
        """Why the log cannot be served now; empty while it can."""
        return self._silence.problem

    def leave_out(self, partition: int | None) -> bool:
        """See `BrokerSilence.leave_out`."""
        return self._silence.leave_out(partition)

    def start(self) -> None:
        """Begin to watch."""
        for work in (self._look_for_ever(), self._ask_for_ever()):
            self._run(work, "holdfast-broker-watch")

    async def stop(self) -> None:
        """Watch no more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._brokers.close()

    async def _look_for_ever(self) -> None:
        while True:
            if self._brokers.is_known:
                try:
                    self._look()
                except Exception:  # a bug in one look must not be the last: readiness would stay as it was
                    _log.exception("broker_watch_failed")
            await asyncio.sleep(self._look_s)

    def _look(self) -> None:
        leaders = {partition: broker for partition, (broker, _) in self._brokers.leaders.items()}
        now_s, known, problem = asyncio.get_running_loop().time(), self._brokers.addresses, self.problem
        self._silence.look(now_s, leaders, self._partition_count, known, self._heard, self._question_s)
        if problem and not self.problem:
            self._answered_again()

    async def _ask_for_ever(self) -> None:
        while True:
            if self._leaders is None or self._leaders.done():
                self._leaders = self._run(self._ask_leaders(), "holdfast-broker-watch-leaders")
            for broker in self._brokers.addresses.keys() - self._asking:
                if self._silence.quiet_s(broker) >= self._question_s:
                    self._asking.add(broker)
                    self._run(self._ask(broker), f"holdfast-broker-watch-{broker}")
            await asyncio.sleep(self._question_s)

    async def _ask_leaders(self) -> None:
        with suppress(Exception):  # nobody answered, or nothing that can be read; that is what is watched for
            await self._brokers.refresh()
            self._answers.keep({*self._brokers.addresses.values(), *self._bootstrap})

    async def _ask(self, broker: int) -> None:
        try:
            with suppress(Exception):
                await self._brokers.ask_one(broker, _PURPOSE)
        finally:
            self._asking.discard(broker)

    def _heard(self, broker: int) -> float | None:
        address = self._brokers.addresses.get(broker)
        return None if address is None else self._answers.heard_s(address)

    def _run(self, work: Coroutine[object, object, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
