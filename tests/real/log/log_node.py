"""A node with counters behind a real topic: every write adds its own power of two, so a sum tells which writes it holds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.metrics.registry import Registry
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.runtime.errors import CoordinatorError
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.kafka_log.shell import CoordinatorShell
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity
from tests.configs import kafka_log_config, partition_config
from tests.pure.runtime.counter import Add, Bugs, Counter
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until


class LogClient:
    """Through what the logs of a test are written and read; a fixture sets it."""

    name: ClassVar[str] = "native"


def log_config(bootstrap_servers: str, topic: str, **settings: Any) -> KafkaLogConfig:
    """Describe the log of a topic on one broker."""
    host, port = bootstrap_servers.split(":")
    return kafka_log_config(
        topic=topic,
        connection=ConnectionOptions(bootstrap=((host, int(port)),)),
        **{"client": LogClient.name, **settings},
    )


class LogNode:
    """One node: its shell, what it noted, and what became of each write."""

    def __init__(self, name: str, config: KafkaLogConfig, write_timeout_ms: int = PATIENCE_MS) -> None:
        self.notes: list[str] = []
        self.superseded_by: list[str] = []
        self.outcomes: dict[str, object] = {}
        self.asked = 0
        of_partition = partition_config(
            node_id=name,
            log=LogIdentity("cluster", b"t" * 16, 1),
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
            alarm_backoff_ms=200,
            write_timeout_ms=write_timeout_ms,
        )
        self.shell = CoordinatorShell(
            of_partition,
            config,
            self._make,
            self,
            metrics=RuntimeMetrics(Registry()),
            tick_ms=10,
        )
        self.runtime = self.shell.runtime

    @property
    def partition(self) -> Partition:
        """The one log partition."""
        return self.runtime.partitions[0]

    @property
    def value(self) -> int:
        """The sum, uncommitted writes included."""
        machine = self.partition.machine
        assert isinstance(machine, Counter)
        return machine.value

    async def wait_state(self, state: State) -> None:
        """Wait until the partition is in a state."""
        await wait_until(lambda: self.partition.state is state, f"{state}; {self.partition.failure}")

    async def serve(self) -> None:
        """Load the partition and wait until it serves."""
        self.runtime.load(0, None)
        await self.wait_state(State.ACTIVE)

    def write_nowait(self, *numbers: int) -> str:
        """Begin a write (without numbers: an answer that rests on no record) and return its name."""
        name = f"write {self.asked}"
        self.asked += 1
        self.runtime.write(0, Add(name, list(numbers), "add", self._completed))
        return name

    async def write(self, *numbers: int) -> object:
        """Write and wait for the outcome."""
        name = self.write_nowait(*numbers)
        await self.wait_answers()
        return self.outcomes[name]

    async def wait_answers(self) -> None:
        """Wait until every write has its outcome."""
        await wait_until(lambda: len(self.outcomes) == self.asked, "every write has an outcome")

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.notes.append(f"{level}: {event} {fields}")

    def partition_changed(self, partition: Partition) -> None:
        partition.validate()

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        self.superseded_by.append(winner.node_id)

    def ticked(self, late_ms: float) -> bool:
        for partition in self.runtime.partitions.values():
            partition.validate()
        return True

    def _completed(self, operation: Add, outcome: object) -> None:
        assert operation.name not in self.outcomes, f"{operation.name} is answered twice"
        self.outcomes[operation.name] = outcome

    def _make(self, index: int) -> Counter:
        return Counter(f"machine of {index}", lambda _: None, Bugs())


@asynccontextmanager
async def log_node(
    name: str, bootstrap_servers: str, topic: str, *, write_timeout_ms: int = PATIENCE_MS, **settings: Any
) -> AsyncIterator[LogNode]:
    """Run a node; at its end every write has had exactly one outcome, and it stopped in time."""
    node = LogNode(name, log_config(bootstrap_servers, topic, **settings), write_timeout_ms)
    await node.shell.start()
    try:
        yield node
    finally:
        has_ended = await node.shell.stop(PATIENCE_S)
    assert has_ended
    assert len(node.outcomes) == node.asked


def bits_of(sum_of_powers: int) -> set[int]:
    """Return which writes a sum holds, if write `i` added 2**i."""
    return {bit for bit in range(sum_of_powers.bit_length()) if sum_of_powers >> bit & 1}


def is_failure(outcome: object) -> bool:
    """Tell whether an outcome is an error."""
    return isinstance(outcome, CoordinatorError)
