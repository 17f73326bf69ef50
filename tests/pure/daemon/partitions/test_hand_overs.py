"""The hand-overs that a node remembers: taken and lost, each once, with the reason as far as it is known."""

from __future__ import annotations

from typing import Any

from holdfast.daemon.partitions.hand_overs import KEPT_MAX, merge
from holdfast.runtime.log_protocol import ReadError
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld


def shown(world: PartitionsWorld) -> list[tuple[object, ...]]:
    rows = world.partitions.hand_overs.describe()
    return [
        tuple(row[name] for name in ("log_partition", "from_node", "to_node", "owner_epoch", "why")) for row in rows
    ]


async def test_a_node_that_starts_takes_what_had_no_owner_or_another_one() -> None:
    topic = MemoryTopic(2)
    world = await PartitionsWorld(topic).serve()
    assert shown(world) == [(0, None, "1", 1, "the node started"), (1, None, "1", 1, "the node started")]
    other = await PartitionsWorld(topic, 2).serve()
    assert shown(other)[0] == (0, "1", "2", 2, "the node started")


async def test_a_load_after_a_failure_says_what_had_failed() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    held = world.runtime.partitions[0]
    world.runtime.read_failed(0, held.reading.instance, ReadError("a broker is away", is_alarm=False))
    world.partitions.load_again_soon()
    world.tick(50)
    place, why = shown(world)[0][:4], shown(world)[0][4]
    assert place == (0, "1", "1", 2)
    assert str(why).startswith("it had failed: reading stopped at offset ")
    assert str(why).endswith(": a broker is away")


async def test_a_log_partition_that_comes_back_has_no_reason_of_before() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    held = world.runtime.partitions[0]
    world.runtime.read_failed(0, held.reading.instance, ReadError("a broker is away", is_alarm=False))
    world.partitions.unload((0,))
    world.partitions.load_all()
    world.settle()
    assert shown(world)[0] == (0, "1", "1", 2, None)


async def test_both_nodes_tell_of_a_hand_over_and_the_new_owner_knows_more() -> None:
    topic = MemoryTopic(1)
    former = PartitionsWorld(topic, 1, membership="group")
    former.begin()
    await former.partitions.start()
    former.partitions.load((0,), 1)
    former.partitions.hand_overs.divided(1, "node 1 came")
    former.settle()
    former.handed_over = {0}
    taker = PartitionsWorld(topic, 2, membership="group")
    taker.begin()
    await taker.partitions.start()
    taker.partitions.load((0,), 2)
    taker.settle()
    former.settle()
    assert shown(former) == [(0, "1", "2", 2, None), (0, None, "1", 1, "node 1 came")]
    taker.partitions.hand_overs.divided(2, "node 2 came")
    assert shown(taker) == [(0, "1", "2", 2, "node 2 came")]
    ours, theirs = taker.partitions.hand_overs.describe(), former.partitions.hand_overs.describe()
    assert (ours[0]["generation"], theirs[0]["load_ms"]) == (2, None)
    assert ours[0]["load_ms"] is not None
    for answers in ([ours, theirs], [theirs, ours]):
        assert merge(answers) == [ours[0], theirs[1]]


async def test_a_log_partition_that_an_admin_asked_for_says_so() -> None:
    topic = MemoryTopic(1)
    first = await PartitionsWorld(topic, 1).serve()
    second = await PartitionsWorld(topic, 2).serve()
    first.settle()
    assert shown(first)[0] == (0, "1", "2", 2, None), "it cannot know why the other one takes it"
    first.partitions.hand_overs.asked(0)
    first.runtime.take(0)
    first.settle()
    second.settle()
    assert shown(first)[0] == (0, "2", "1", 3, "an admin asked for it (`holdfast partitions take`)")


async def test_a_node_remembers_the_newest_ones_alone() -> None:
    world = await PartitionsWorld(MemoryTopic(KEPT_MAX + 6)).serve()
    rows = world.partitions.hand_overs.describe()
    assert sorted(row["log_partition"] for row in rows) == list(range(6, KEPT_MAX + 6))
    for generation in range(KEPT_MAX + 6):
        world.partitions.hand_overs.divided(generation, "node 2 came")
    assert len(world.partitions.hand_overs._divided) == KEPT_MAX


def test_the_newest_come_first_of_all_nodes() -> None:
    def row(at_ms: int, log_partition: int, epoch: int) -> dict[str, Any]:
        return {"at_ms": at_ms, "log_partition": log_partition, "owner_epoch": epoch, "load_ms": 1}

    found = merge([[row(5, 0, 1), row(3, 1, 1)], [], [row(9, 1, 2), row(5, 2, 1)]])
    assert [(each["at_ms"], each["log_partition"]) for each in found] == [(9, 1), (5, 0), (5, 2), (3, 1)]
