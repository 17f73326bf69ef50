"""Before a node outranks an owner for the first time, it asks whether that owner still serves; still the log decides."""

from __future__ import annotations

import pytest

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.runtime.coordinator import LoadAdvisers
from holdfast.runtime.errors import NotCoordinator, OperationFailed
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from tests.configs import partition_config
from tests.pure.runtime.counter import Bugs, Counter
from tests.pure.runtime.stalling import stalled
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import Process

OWNER = Checkpoint(1, b"o" * 16, "b", 4, "memory", (1).to_bytes(16, "big"), 1, None, "b.example:9492")


class World:
    """A runtime over a log of one partition that others own; the test answers its queries."""

    def __init__(self, *owners: Checkpoint, queries_owners: bool = True) -> None:
        self.asked: list[tuple[int, int, Checkpoint]] = []
        self.topic = MemoryTopic()
        for owner in owners:
            self.append(owner)
        self.process = Process(
            self.topic,
            partition_config(node_id="a", log=self.topic.identity),
            lambda _: Counter("machine", lambda _: None, Bugs()),
            advisers=LoadAdvisers(owners=self if queries_owners else None),
        )
        self.runtime = self.process.runtime
        self.process.start()
        self.process.load()

    def append(self, checkpoint: Checkpoint) -> None:
        self.topic.write_foreign(
            0, CHECKPOINT_KEY, encode_checkpoint(checkpoint), encode_header(checkpoint.owner_epoch, 0)
        )
        self.topic.commit(0)

    def answer(self, *, is_serving: bool) -> None:
        """Answer the newest query."""
        index, instance, owner = self.asked[-1]
        self.runtime.owner_answered(index, instance, owner, is_serving)
        self.process.settle()

    @property
    def partition(self) -> Partition:
        return self.runtime.partitions[0]

    def claims(self) -> list[str]:
        """Return the node ids of all checkpoints in the log."""
        records = self.topic.partitions[0].records
        return [decode_checkpoint(held.value or b"").node_id for held in records if held.key == CHECKPOINT_KEY]

    def query_owner(self, partition: int, instance: int, owner: Checkpoint) -> None:
        self.asked.append((partition, instance, owner))


def test_nothing_is_claimed_before_the_owner_was_queried_and_is_silent() -> None:
    world = World(OWNER)
    assert world.asked == [(0, 1, OWNER)]
    assert (world.partition.state, world.claims()) == (State.LOADING, ["b"])
    world.answer(is_serving=False)
    assert (world.partition.state, world.claims()) == (State.ACTIVE, ["b", "a"])


def test_a_load_that_stalls_says_that_it_waits_for_the_owner() -> None:
    world = World(OWNER)
    assert stalled(world.partition)["waiting_for"] == "the answer of its owner, node b"


def test_serving_owner_keeps_partition_and_is_asked_by_next_load() -> None:
    world = World(OWNER)
    world.answer(is_serving=True)
    held = world.partition
    assert (held.state, held.failure, held.retry_at_ms) == (State.CLOSED, "node b at b.example:9492 serves it", None)
    assert (world.claims(), world.process.superseded_by) == (["b"], [])
    assert isinstance(world.runtime.read(0, lambda machine, _: machine), NotCoordinator)
    world.runtime.load(0, None)
    world.process.settle()
    assert len(world.asked) == 2
    world.answer(is_serving=False)
    assert world.claims() == ["b", "a"]


def test_an_admin_takes_a_log_partition_without_a_query() -> None:
    world = World(OWNER)
    world.answer(is_serving=True)
    world.runtime.take(0)
    world.process.settle()
    assert (len(world.asked), world.claims()) == (1, ["b", "a"])


def test_who_took_it_while_the_query_was_in_flight_is_queried_as_well() -> None:
    world = World(OWNER)
    other = OWNER._replace(owner_epoch=2, attempt_id=b"c" * 16, node_id="c")
    world.append(other)
    world.process.settle()
    world.answer(is_serving=False)
    assert [owner.node_id for _, _, owner in world.asked] == ["b", "c"]
    assert world.claims() == ["b", "c"]
    world.answer(is_serving=False)
    assert world.claims() == ["b", "c", "a"]


def test_an_answer_to_an_earlier_load_is_ignored() -> None:
    world = World(OWNER)
    earlier = world.asked[-1]
    world.runtime.unload(0, None)
    world.runtime.load(0, None)
    world.process.settle()
    world.runtime.owner_answered(*earlier, False)
    world.process.settle()
    assert (world.partition.state, world.claims()) == (State.LOADING, ["b"])


def test_process_that_had_the_partition_does_not_ask_its_owner() -> None:
    world = World(OWNER)
    world.answer(is_serving=False)
    world.runtime.unload(0, None)
    world.runtime.load(0, None)
    world.process.settle()
    assert (len(world.asked), world.partition.state) == (1, State.ACTIVE)


@pytest.mark.parametrize(("owners", "queries_owners"), [((), True), ((OWNER,), False)], ids=["no owner", "nobody asks"])
def test_partition_without_owner_or_query_is_claimed_at_once(
    owners: tuple[Checkpoint, ...], queries_owners: bool
) -> None:
    world = World(*owners, queries_owners=queries_owners)
    assert (world.asked, world.partition.state) == ([], State.ACTIVE)


def test_a_query_that_raises_fails_its_own_call_and_is_reported() -> None:
    world = World()

    def broken(machine: object, position: int) -> int:
        raise ZeroDivisionError

    assert isinstance(world.runtime.read(0, broken), OperationFailed)
    assert ("error", "query_failed") in world.process.notes
    assert world.partition.state is State.ACTIVE
    assert world.runtime.read(0, lambda _, position: position) == 0
