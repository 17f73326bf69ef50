"""A simulated node whose log is the real Kafka log on a loop of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.records.results import StateRequest, StateResponse
from tests.simulated.cluster.process import Process, ProcessLog
from tests.simulated.node import Node

if TYPE_CHECKING:
    from tests.simulated.cluster.world import ClusterWorld

TICK_S = 0.05
CLOSE_S = 2.0


class ClusterNode(Node):
    """A process on the cluster."""

    def __init__(self, world: ClusterWorld, name: str, *, is_static: bool) -> None:
        self.past_told_ms: dict[int, int] = {}  #: by log partition, when an old leader's word was rightly believed last
        self.is_started = False
        super().__init__(world, name, is_static=is_static)
        assert isinstance(self.log, ProcessLog)
        self.kafka_log = self.log
        self.process: Process = self.log.process
        self.process.loop.after_turn = self.check_turn

    @property
    def is_running(self) -> bool:
        """Tell whether anything can happen in this process."""
        return self.is_started and not (self.is_dead or self.is_closed or self.process.loop.is_frozen)

    def check_turn(self) -> None:
        """Look at it after a turn of its loop."""
        if self.is_started and not self.is_dead:
            self.check()

    def log_started(self) -> None:
        """Begin to work, and to tick."""
        self.is_started = True
        self.world.join(self)
        self._beat_clock()

    def _beat_clock(self) -> None:
        if not self.is_closed:
            self.tick()
            self.process.loop.call_later(TICK_S, self._beat_clock)

    def continue_soon(self, task: Callable[[], None]) -> None:
        """See `Host.continue_soon`."""
        self.process.loop.call_soon(task)

    def handle(self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None]) -> None:
        """Take a request when the process runs."""
        self.process.run(partial(self.service.handle, api_key, request, respond))

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """See `LogListener.read_started`."""
        self.kafka_log.bounds_told(partition)
        super().read_started(partition, instance, start_offset, end_offset)

    def learn_views(self) -> None:
        """Learn of every assignment that came."""
        while self.views and not self.is_closed:
            self.learn_view()

    def close(self) -> None:
        """Shut down in order, then close the log."""
        with self.process.running():
            super().close()
        self.process.loop.create_task(self.kafka_log.close_in(CLOSE_S))
