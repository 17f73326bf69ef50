"""A share service over a runtime that is a dictionary of shards, with everything it answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.api.results import (
    DeletePartition,
    InitializePartition,
    PartitionRequest,
    ReadPartition,
    StateRequest,
    StateResponse,
    SummaryPartition,
    WritePartition,
)
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.metrics.instruments import Counter
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.runtime.errors import (
    CoordinatorError,
)
from holdfast.runtime.state_machine import Decision, Operation
from holdfast.share.service import ShareService
from tests.world.samples import EPOCH_MAX, OTHER_TOPIC, TOPIC, Image
from tests.world.shard import World

PARTITION_COUNT = 4
CALLS = [INITIALIZE, READ, WRITE, DELETE, SUMMARY]


def ask(api_key: int, partition: int, **fields: Any) -> PartitionRequest:
    """Return what one call asks of a share partition, by epochs that nothing fences unless `fields` says otherwise."""
    match api_key:
        case 83:
            return InitializePartition(partition, **{"state_epoch": 0, "start_offset": 100, **fields})
        case 84:
            return ReadPartition(partition, **{"leader_epoch": 0, **fields})
        case 85:
            unchanged: dict[str, Any] = {
                "state_epoch": EPOCH_MAX,
                "leader_epoch": EPOCH_MAX,
                "start_offset": -1,
                "delivery_complete_count": -1,
                "state_batches": (),
            }
            return WritePartition(partition, **{**unchanged, **fields})
        case 86:
            return DeletePartition(partition, **fields)
    return SummaryPartition(partition, **{"leader_epoch": -1, **fields})


class FakeRuntime:
    """Runs operations on its shards, each with a log of its own, at once; or holds their outcomes until they are released."""

    def __init__(self) -> None:
        self.worlds = [World() for _ in range(PARTITION_COUNT)]
        for world in self.worlds:
            world.shard.on_new_metadata_image(Image({TOPIC: 8, OTHER_TOPIC: 8}))
        #: What stands in for a shard.
        self.failures: dict[int, Exception] = {}
        self.is_holding = False
        self.held: list[tuple[Operation, object]] = []
        self.decisions: list[Decision] = []
        self.names: list[str] = []

    def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
        for index, operation in operations:
            self._write(index, operation)

    def _write(self, index: int, operation: Operation) -> None:
        self.names.append(operation.name)
        failure = self.failures.get(index)
        if isinstance(failure, CoordinatorError):
            self._complete(operation, failure)
            return
        if failure is not None:
            raise failure
        decision = operation.decide(self.worlds[index].shard, 1000)
        self.decisions.append(decision)
        self._complete(operation, self.worlds[index].run(decision))

    def release(self, number: int, outcome: object = None) -> None:
        """Complete the operation held as `number`, with its own response unless another outcome is given."""
        operation, response = self.held[number]
        operation.complete(response if outcome is None else outcome)

    def _complete(self, operation: Operation, outcome: object) -> None:
        if self.is_holding:
            self.held.append((operation, outcome))
        else:
            operation.complete(outcome)


class FakeMetrics:
    def __init__(self) -> None:
        self.writes = 0
        self.latencies_ms: list[float] = []

    def write_recorded(self, count: int) -> None:
        self.writes += count

    def write_latency(self, latency_ms: float) -> None:
        self.latencies_ms.append(latency_ms)


class House:
    """A service with its runtime, metrics and clock, and everything it answered."""

    def __init__(self, key_cache_size_max: int = 1000) -> None:
        self.runtime, self.metrics, self.now_ms = FakeRuntime(), FakeMetrics(), 0.0
        self.bugs = Counter()
        self.service = ShareService(
            self.runtime, self.metrics, lambda: self.now_ms, InternalErrors(self.bugs), key_cache_size_max
        )
        self.service.start_up(PARTITION_COUNT)
        self.answers: list[StateResponse] = []

    def send(self, api_key: int, *topics: tuple[bytes, list[PartitionRequest]], group_id: str = "g1") -> None:
        self.service.handle(api_key, StateRequest(group_id, list(topics)), self.answers.append)

    def call(self, api_key: int, *topics: tuple[bytes, list[PartitionRequest]], group_id: str = "g1") -> StateResponse:
        """Send a request and return its answer, of which there must be exactly one."""
        before = len(self.answers)
        self.send(api_key, *topics, group_id=group_id)
        assert len(self.answers) == before + 1
        return self.answers[-1]

    def index(self, partition: int, topic_id: bytes = TOPIC) -> int:
        return log_partition(SharePartitionKey("g1", topic_id, partition), PARTITION_COUNT)

    def initialize(self, *partitions: int) -> None:
        for topic_id in (TOPIC, OTHER_TOPIC):
            self.call(INITIALIZE, (topic_id, [ask(INITIALIZE, partition) for partition in partitions]))


def codes(response: StateResponse) -> list[tuple[bytes, list[tuple[int, int]]]]:
    return [(topic, [(partition, result.error_code) for partition, result in parts]) for topic, parts in response]
