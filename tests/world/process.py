"""One process of a node: the real runtime over the log in memory, whose time, turns and log a test moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from holdfast.metrics.registry import Registry
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.coordinator import CoordinatorRuntime, LoadAdvisers
from holdfast.runtime.errors import CoordinatorError
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import PartitionConfig, Surroundings
from holdfast.runtime.state_machine import Decision, Operation, StateMachine
from tests.simulated.memory_log import MemoryTopic

TICK_MS = 50
START_MS = 1_735_689_600_000
#: What a share shard, or another machine, answers to a caller: records and a response.
Decide = Callable[[Any, int], Decision]


class Clock:
    """Time, which stands until a test moves it."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class Observer(Protocol):
    """What learns of the partitions of a process; see `runtime.host.Host`."""

    def note(self, level: str, event: str, fields: dict[str, object]) -> None: ...

    def partition_changed(self, partition: Partition) -> None: ...

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None: ...


class Call(Operation):
    """An operation that decides by a function and keeps its outcomes."""

    name = "call"

    def __init__(self, decide: Decide) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self.outcomes: list[object] = []
        self._decide = decide

    def decide(self, machine: Any, now_ms: int) -> Decision:
        return self._decide(machine, now_ms)

    def complete(self, outcome: object) -> None:
        self.outcomes.append(outcome)


class Process:
    """A runtime, its log and its host, which keeps what the runtime reports.

    Nothing happens before `settle`, and time stands until `tick`.

    Args:
        topic: the log; several processes may work on one.
        config: of its log partitions; the node id is the seed of its chance, so that no two have the same.
        make_machine: makes the machine of a log partition, by index.
        observer: learns what the runtime reports, after it was kept.
    """

    def __init__(
        self,
        topic: MemoryTopic,
        config: PartitionConfig,
        make_machine: Callable[[int], StateMachine],
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
        metrics: RuntimeMetrics | None = None,
        advisers: LoadAdvisers = LoadAdvisers(),  # noqa: B008 - immutable
    ) -> None:
        self.topic = topic
        self.clock = clock or Clock()
        self.log = topic.open_log()
        self.turns: deque[Callable[[], None]] = deque()
        #: Level and event.
        self.notes: list[tuple[str, str]] = []
        #: The fields of the newest log line of each event.
        self.fields: dict[str, dict[str, object]] = {}
        #: Index and new state of a log partition.
        self.changes: list[tuple[int, State]] = []
        #: Node ids of winners.
        self.superseded_by: list[str] = []
        self.at_tick: list[Callable[[], object]] = []
        self._observer = observer
        self.runtime = CoordinatorRuntime(
            config,
            self.log,
            self,
            make_machine,
            Surroundings(self.clock, Random(config.node_id).randbytes, lambda: 0.5),
            metrics or RuntimeMetrics(Registry()),
            advisers,
        )

    # ---- the runtime's host ----------------------------------------------------------------------------------------

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.notes.append((level, event))
        self.fields[event] = fields
        if self._observer is not None:
            self._observer.note(level, event, fields)

    def continue_soon(self, task: Callable[[], None]) -> None:
        self.turns.append(task)

    def end_turn_with(self, task: Callable[[], None]) -> None:
        task()

    def begin_load_turn(self, ended: Callable[[], None]) -> None:
        ended()

    def partition_changed(self, partition: Partition) -> None:
        self.changes.append((partition.index, partition.state))
        if self._observer is not None:
            self._observer.partition_changed(partition)

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        self.superseded_by.append(winner.node_id)
        if self._observer is not None:
            self._observer.superseded(partition, winner, offset)

    # ---- what a test does ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the log report to the runtime."""
        self.log.start(self.runtime)

    def load(self, generation: int | None = None) -> None:
        """Load every log partition to its end."""
        for index in range(len(self.topic.partitions)):
            self.runtime.load(index, generation)
        self.settle()

    def settle(self) -> None:
        """Let everything happen that can without time."""
        while self.topic.run_until_quiet() or self.turns:
            while self.turns:
                self.turns.popleft()()

    def tick_only(self) -> None:
        """Let time pass, and nothing of the log move."""
        self.clock.now_ms += TICK_MS
        self.runtime.tick()
        for each in self.at_tick:
            each()

    def tick(self, count: int = 1) -> None:
        """Let time pass, and with it everything settle."""
        for _ in range(count):
            self.tick_only()
            self.settle()

    def call(self, index: int, decide: Decide) -> object:
        """Run an operation on a log partition to its end and return its one outcome."""
        call = Call(decide)
        self.runtime.write(index, call)
        self.settle()
        (outcome,) = call.outcomes
        return outcome

    def succeed(self, index: int, decide: Decide) -> None:
        """Run an operation that is neither refused nor fails."""
        outcome = self.call(index, decide)
        assert outcome is not None
        assert not isinstance(outcome, CoordinatorError), outcome
        assert not getattr(outcome, "error_code", 0), outcome
