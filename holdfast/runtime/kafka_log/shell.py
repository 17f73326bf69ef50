"""The asyncio glue: gives the runtime its clock and its turns, and starts and stops the log."""

import asyncio
import gc
import os
import random
from collections.abc import Callable
from typing import Final, Protocol

from holdfast.clock import exact_now_ms, make_wall_clock_ms
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.coordinator import CoordinatorRuntime, LoadAdvisers
from holdfast.runtime.deadlines import rest_tick_ms
from holdfast.runtime.kafka_log.log import KafkaLog, KafkaLogConfig
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.settings import PartitionConfig, Surroundings
from holdfast.runtime.state_machine import StateMachine


class Observer(Protocol):
    """The receiver of the runtime's notifications about the partitions of a node."""

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a log line."""

    def partition_changed(self, partition: Partition) -> None:
        """Handle a partition that has entered another state."""

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        """Handle a partition that another node rightfully owns."""

    def ticked(self, late_ms: float) -> bool:
        """Do the work of a tick that came `late_ms` late; return whether there is work that needs the next tick without a longer pause."""


#: Number of new containers after which Python's collector runs, in turns of the loop in which loads work; a fifth of the value that
#: `holdfast serve` sets. The collector belongs to the process, so only one host at a time may do this; a node has only one.
_LOADING_THRESHOLD: Final = 2_000


class _LoopHost:
    """The runtime's host: log lines and notifications go to the observer, later turns to the loop."""

    def __init__(self, observer: Observer, loop: asyncio.AbstractEventLoop) -> None:
        self.note = observer.note
        self.partition_changed = observer.partition_changed
        self.superseded = observer.superseded
        self._loop = loop

    def continue_soon(self, task: Callable[[], None]) -> None:
        """Run a task after the callbacks that already wait on the loop."""
        self._loop.call_soon(task)

    def end_turn_with(self, task: Callable[[], None]) -> None:
        """Run a task after the sockets that have bytes now were read."""
        self._loop.call_soon(task)

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        """Make Python's collector run more often, for a shorter time each, until the next turn.

        A run blocks the loop, and the objects that a load makes stay alive, so each run walks through all new ones.
        """
        before = gc.get_threshold()
        gc.set_threshold(min(before[0], _LOADING_THRESHOLD), *before[1:])
        self._loop.call_soon(self._end_load_turn, before, ended)

    def _end_load_turn(self, before: tuple[int, int, int], ended: Callable[[], None]) -> None:
        gc.set_threshold(*before)
        ended()


class CoordinatorShell:
    """A runtime over a Kafka log, ticking on the running loop."""

    def __init__(
        self,
        config: PartitionConfig,
        log_config: KafkaLogConfig,
        make_machine: Callable[[int], StateMachine],
        observer: Observer,
        *,
        metrics: RuntimeMetrics,
        tick_ms: int,
        advisers: LoadAdvisers = LoadAdvisers(),  # noqa: B008 - immutable
    ) -> None:
        clock_ms = make_wall_clock_ms()
        self._log = KafkaLog(log_config, clock_ms, metrics)
        self._observer = observer
        self._tick_ms = tick_ms
        self._ticker: asyncio.Task[None] | None = None
        self.runtime = CoordinatorRuntime(
            config,
            self._log,
            _LoopHost(observer, asyncio.get_running_loop()),
            make_machine,
            Surroundings(clock_ms, os.urandom, random.random),
            metrics,
            advisers,
        )

    async def start(self) -> None:
        """Start the log and the clock.

        Raises:
            ConnectionFailed: no broker answered.
        """
        await self._log.start(self.runtime)
        self._ticker = asyncio.create_task(self._tick(), name="holdfast-tick")

    def renew_log(self, topic_id: bytes) -> None:
        """Expect another topic id, because the topic was recreated; see `CoordinatorRuntime.renew_log`."""
        self._log.renew(topic_id)
        self.runtime.renew_log(topic_id)

    async def stop(self, timeout_s: float) -> bool:
        """Close every partition, then the clock, then the log; returns whether all of it ended in time."""
        self.runtime.close()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait([self._ticker])
        return await self._log.close(timeout_s)

    async def _tick(self) -> None:
        pause_ms, woke_ms = self._tick_ms, exact_now_ms()
        while True:
            await asyncio.sleep(pause_ms / 1_000)
            before_ms, woke_ms = woke_ms, exact_now_ms()
            # Measured from one tick to the next, so that the time that a tick itself takes is included.
            late_ms, pause_ms = max(0.0, woke_ms - before_ms - pause_ms), self._tick_ms
            try:
                self.runtime.tick()
                is_at_work = self._observer.ticked(late_ms)
                if not is_at_work and self.runtime.is_at_rest:
                    pause_ms = rest_tick_ms(self._tick_ms)
            except Exception as bug:  # the clock must go on; the line names the bug
                self._observer.note("error", "tick_failed", {"error": repr(bug), "exc_info": bug})
