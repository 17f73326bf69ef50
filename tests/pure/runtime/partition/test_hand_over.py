"""The time in which no node serves a log partition does not grow with its log: all but the newest part is folded before the claim."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from tests.configs import partition_config
from tests.pure.runtime.counter import Bugs, Counter
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import Process

OWNER = Checkpoint(1, b"o" * 16, "b", 4, "memory", (1).to_bytes(16, "big"), 1, None)


class Slow(Counter):
    """A counter that folds one record in each slice."""

    def __init__(self, is_claimed: Callable[[], bool]) -> None:
        super().__init__("machine", lambda _: None, Bugs())
        self.is_claimed = is_claimed
        self.unfolded: deque[tuple[bytes, bytes | None, int]] = deque()
        self.folded_after_claim = 0

    def load_record(self, key: bytes, value: bytes | None, offset: int) -> None:
        self.unfolded.append((key, value, offset))

    def fold_loaded(self, is_time_up: Callable[[], bool]) -> bool:
        if self.unfolded:
            super().load_record(*self.unfolded.popleft())
            super().fold_loaded(is_time_up)
            self.folded_after_claim += self.is_claimed()
        return not self.unfolded


class World:
    """A log of one partition that another node owns and writes to, and a node that gets it assigned."""

    def __init__(self, log_records: int) -> None:
        self.topic = MemoryTopic()
        self.topic.write_foreign(0, CHECKPOINT_KEY, encode_checkpoint(OWNER), encode_header(1, 0))
        self.written = 0
        for _ in range(log_records):
            self.write()
        self.machines: list[Slow] = []
        self.process = Process(
            self.topic, partition_config(node_id="a", log=self.topic.identity), self.make_machine, observer=self
        )
        self.tasks, self.runtime = self.process.turns, self.process.runtime
        self.superseded_by: list[int] = []
        self.process.start()

    def make_machine(self, _: int) -> Slow:
        self.machines.append(Slow(self.is_claimed))
        return self.machines[-1]

    def write(self) -> None:
        """Write as the owner does."""
        self.written += 1
        self.topic.write_foreign(0, b"key", b"1", encode_header(1, self.written))
        self.topic.commit(0)

    def is_claimed(self) -> bool:
        return self.runtime.partitions[0].ownership.attempt_id is not None

    def load(self, generation: int | None) -> Partition:
        self.runtime.load(0, generation)
        self.topic.run_until_quiet()
        return self.runtime.partitions[0]

    def claims(self) -> list[str]:
        """Return the node ids of all checkpoints in the log."""
        records = self.topic.partitions[0].records
        return [decode_checkpoint(held.value or b"").node_id for held in records if held.key == CHECKPOINT_KEY]

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """Listen to nothing."""

    def partition_changed(self, partition: Partition) -> None:
        """Listen to nothing."""

    def superseded(self, partition: Partition, winner: Checkpoint, offset: int) -> None:
        self.superseded_by.append(winner.generation)


@pytest.mark.parametrize("log_records", [10, 200])
def test_fold_between_claim_and_serving_does_not_grow_with_log(log_records: int) -> None:
    world = World(log_records)
    partition = world.load(generation=5)
    for _ in range(log_records // 2):  # the owner writes while the fold goes on, and is read
        world.tasks.popleft()()
        world.write()
        world.topic.run_until_quiet()
    machine = world.machines[0]
    while not world.is_claimed():
        assert world.claims() == ["b"]
        world.tasks.popleft()()
    # The records that the owner appends before our checkpoint count, and only they are left to fold.
    for _ in range(3):
        world.write()
    world.process.settle()
    assert (partition.state, machine.value) == (State.ACTIVE, world.written)
    assert machine.folded_after_claim == 3


def test_generation_below_the_log_is_reported_and_higher_one_takes() -> None:
    """Kafka forgets an empty group and counts its generations from 1 again, and an admin's take goes above all of them."""
    world = World(3)
    partition = world.load(generation=1)
    assert (partition.state, world.superseded_by, world.claims()) == (State.CLOSED, [OWNER.generation], ["b"])
    world.load(world.superseded_by[-1] + 1)
    world.process.settle()
    assert (partition.state, world.claims()) == (State.ACTIVE, ["b", "a"])
    assert partition.generation == OWNER.generation + 1


def test_an_owner_that_is_superseded_reports_the_generation_of_the_winner() -> None:
    world = World(3)
    partition = world.load(generation=5)
    world.process.settle()
    assert partition.state is State.ACTIVE
    rival = OWNER._replace(owner_epoch=3, attempt_id=b"r" * 16, generation=9)
    world.topic.write_foreign(0, CHECKPOINT_KEY, encode_checkpoint(rival), encode_header(3, 0))
    world.topic.commit(0)
    world.topic.run_until_quiet()
    assert (partition.state, world.superseded_by) == (State.CLOSED, [9])


def test_partition_assigned_by_group_cannot_be_taken_by_admin() -> None:
    """A take goes above all generations of the log, so the group could not give the partition to any other node."""
    world = World(3)
    partition = world.load(generation=1)
    world.runtime.take(0)
    world.process.settle()
    assert (partition.state, world.claims()) == (State.CLOSED, ["b"])


@pytest.mark.parametrize(("generation", "claims"), [(None, ["b", "a", "a"]), (7, ["b", "a"])])
def test_partition_assigned_to_other_node_cannot_be_taken_by_admin(generation: int | None, claims: list[str]) -> None:
    world = World(3)
    world.load(None)
    world.process.settle()
    world.runtime.unload(0, generation)
    world.runtime.take(0)
    world.process.settle()
    assert world.claims() == claims
