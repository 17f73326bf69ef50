"""A simulated node whose log is the real Kafka log on a loop of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.api.results import StateRequest, StateResponse
from holdfast.runtime.log_protocol import LogRecord, ReadError
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.cluster.process import Process, ProcessLog
from tests.simulated.parts.machine import WatchedOperation
from tests.simulated.parts.node import EVERY_PARTITION, Node

if TYPE_CHECKING:
    from tests.simulated.cluster.world import ClusterWorld

TICK_S = 0.05
CLOSE_S = 2.0


class ClusterNode(Node):
    """A process on the cluster."""

    def __init__(self, world: ClusterWorld, name: str, *, is_static: bool) -> None:
        self.past_told_ms: dict[int, int] = {}  #: by log partition, when an old leader's word was rightly believed last
        self.must_be_accepted: set[int] = set()  #: log partitions that lost what this process saw committed
        #: Log partitions of which a leader of the past told an end below what was committed.
        self.told_short: set[int] = set()
        self.accepted: dict[int, int | None] = {}  #: log partitions that an admin accepted here: under which generation
        self.is_started = False
        self._logs = world  #: what befalls them
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
            self.process.watch.check_backlogs()

    def may_know_the_past(self, operation: WatchedOperation) -> bool:
        """See `Node.may_know_the_past`."""
        asked_ms = operation.deadline_ms - self.runtime.write_timeout_ms
        return self.past_told_ms.get(operation.index, -1) >= asked_ms

    def log_started(self) -> None:
        """Begin to work, and to tick."""
        self.is_started = True
        self.world.join(self)
        self._beat_clock()

    def _beat_clock(self) -> None:
        if not (self.is_closed or self.process.is_dead):
            self.tick()
            self.process.loop.call_later(TICK_S, self._beat_clock)

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        """End it at once: each event of a life is a turn of its own."""
        ended()

    def continue_soon(self, task: Callable[[], None]) -> None:
        """See `Host.continue_soon`."""
        self.process.loop.call_soon(task)

    def handle(self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None]) -> None:
        """Take a request when the process runs."""
        self.process.run(partial(self.topics.let_in, api_key, request, respond))

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """See `Host.note`; an owner may say that its log holds everything again."""
        super().note(level, event, fields)
        if event == "log_whole_again":
            index = fields["partition"]
            assert isinstance(index, int)
            self._logs.log_made_whole(index)

    # ---- LogListener -----------------------------------------------------------------------------------------------

    def read_started(self, partition: int, instance: int, start_offset: int, end_offset: int) -> None:
        """See `LogListener.read_started`."""
        self.kafka_log.bounds_told(partition, instance, end_offset)
        if end_offset < self.seen_committed.get(partition, 0):
            if self.world.alarm_reasons & {partition, EVERY_PARTITION}:
                self.must_be_accepted.add(partition)
            else:
                self.world.count("the past told of an end")
                self.told_short.add(partition)
        super().read_started(partition, instance, start_offset, end_offset)

    def records_read(self, partition: int, instance: int, records: list[LogRecord]) -> None:
        """See `LogListener.records_read`."""
        offsets = [record.offset for record in records]
        if offsets != sorted({*offsets}):
            violate(Invariant.TOLD_ONCE, f"{self.name}/{partition} is told {offsets}")
        at = 0
        for number, offset in enumerate(offsets, 1):
            if number == len(offsets) or offsets[number] != offset + 1:  # a run without a hole
                self.process.watch.told(partition, instance, offsets[at], offset + 1, records[at:number])
                at = number
        super().records_read(partition, instance, records)

    def own_records_read(
        self, partition: int, instance: int, base_offset: int, count: int, first_header: bytes
    ) -> bool:
        """See `LogListener.own_records_read`."""
        is_taken = super().own_records_read(partition, instance, base_offset, count, first_header)
        if is_taken:
            self.process.watch.told(partition, instance, base_offset, base_offset + count, [])
            self.process.watch.told_own(partition, base_offset, count, first_header)
        return is_taken

    def position_reached(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.position_reached`."""
        self.process.watch.told(partition, instance, next_offset, next_offset, None)
        super().position_reached(partition, instance, next_offset)

    def caught_up(self, partition: int, instance: int, next_offset: int) -> None:
        """See `LogListener.caught_up`."""
        self.process.watch.caught_up(partition, instance, next_offset)
        super().caught_up(partition, instance, next_offset)

    def read_failed(self, partition: int, instance: int, error: ReadError) -> None:
        """See `LogListener.read_failed`; what a log takes for a bug of its own is one."""
        if "Error(" in error.text:
            violate(Invariant.BUGS_STAY_AT_HOME, f"{self.name}/{partition}: {error.text}")
        super().read_failed(partition, instance, error)

    def append_failed(self, partition: int, header: bytes | None, text: str) -> None:
        """See `LogListener.append_failed`."""
        self.world.count("append given up")
        self.process.watch.given_up(partition)
        super().append_failed(partition, header, text)

    def latest_offsets(self, round_number: int, offsets: dict[int, int | None]) -> None:
        """See `LogListener.latest_offsets`."""
        self.process.watch.told_latest(offsets)
        super().latest_offsets(round_number, offsets)

    def partition_changed(self, partition: Partition) -> None:
        """See `Host.partition_changed`."""
        super().partition_changed(partition)
        index = partition.index
        if partition.state is State.ACTIVE:
            # Where an admin accepted it at another process, the log itself says so.
            is_accepted = index in self.accepted or partition.reading.check.accepted_reason is not None
            if index in self.must_be_accepted and not is_accepted:
                violate(Invariant.LOSS_IS_TOLD, f"{self.name}/{index} serves at {partition.reading.position}")
            if index in self._logs.made_whole and not is_accepted:
                self.world.count("served what was made whole")
            self.must_be_accepted.discard(index)
            self.seen_committed[index] = partition.committed_offset

    def may_be_alarmed(self, partition: Partition) -> bool:
        """Tell whether something happened to it, or a leader of the past told of a shorter log."""
        is_told_short = partition.index in self.told_short and "but was committed to" in (partition.failure or "")
        return is_told_short or super().may_be_alarmed(partition)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def learn_views(self) -> None:
        """Learn of every assignment that came."""
        while self.views and not self.is_closed:
            self.learn_view()

    def close(self) -> None:
        """Shut down in order, then close the log."""
        with self.process.running():
            super().close()
        self.process.loop.create_task(self.kafka_log.close_in(CLOSE_S))
