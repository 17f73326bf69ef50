"""The owners of log partitions, as a tenant sees them: under which epoch this node serves, and who else does."""

from __future__ import annotations

from structlog.testing import capture_logs

from holdfast.daemon.partitions.leadership import Leader, LogLeadership
from holdfast.runtime.log_protocol import ReadError
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld


class Watch:
    """A world whose changes of leadership are noted, as they are when they are told."""

    def __init__(self, topic: MemoryTopic, node_id: int = 1) -> None:
        self.world = PartitionsWorld(topic, node_id, when_superseded="wait")
        self.world.begin()
        self.leadership = LogLeadership(self.world.view, self.world.partitions)
        self.changes: list[tuple[int, Leader]] = []
        self.leadership.watch(lambda index: self.changes.append((index, self.leadership.leader(index))))

    async def serve(self) -> Watch:
        await self.world.serve()
        return self


async def test_a_node_leads_what_it_serves_under_the_owner_epoch() -> None:
    watch = Watch(MemoryTopic(2))
    this_node = watch.world.node
    assert watch.leadership.leader(0) == Leader(this_node, -1, serves_here=False), "it is about to"
    await watch.serve()
    assert [watch.leadership.leader(index) for index in range(2)] == [Leader(this_node, 1, serves_here=True)] * 2
    told = [leader for index, leader in watch.changes if index == 0]
    assert told == [Leader(this_node, -1, serves_here=False), Leader(this_node, 1, serves_here=True)]


async def test_a_log_partition_that_is_read_again_has_a_higher_epoch() -> None:
    watch = await Watch(MemoryTopic(1)).serve()
    held = watch.world.runtime.partitions[0]
    watch.changes.clear()
    watch.world.runtime.read_failed(0, held.reading.instance, ReadError("a broker is away", is_alarm=False))
    watch.world.partitions.load_again_soon()
    watch.world.tick(50)
    node = watch.world.node
    assert [leader for _, leader in watch.changes] == [
        Leader(node, -1, serves_here=False),
        Leader(node, -1, serves_here=False),
        Leader(node, 2, serves_here=True),
    ]


async def test_a_former_owner_names_the_node_that_took_over() -> None:
    topic = MemoryTopic(1)
    former = await Watch(topic).serve()
    former.changes.clear()
    owner = await Watch(topic, 2).serve()
    former.world.settle()
    assert owner.leadership.leader(0) == Leader(owner.world.node, 2, serves_here=True)
    assert former.leadership.leader(0) == Leader(owner.world.node, 2, serves_here=False)
    assert former.changes == [(0, Leader(owner.world.node, 2, serves_here=False))]


async def test_who_is_told_and_raises_keeps_nobody_from_being_told() -> None:
    watch = Watch(MemoryTopic(1))

    def fail(index: int) -> None:
        raise RuntimeError("a bug")

    watch.leadership.watch(fail)
    told: list[int] = []
    watch.leadership.watch(told.append)
    with capture_logs() as lines:
        await watch.serve()
    assert told == [0, 0]
    assert [line["event"] for line in lines].count("partition_watch_failed") == 2
    assert watch.world.is_ready[-1]
