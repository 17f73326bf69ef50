"""Deleted topics lose their state, a slice at a time, and too many at once stop it."""

from __future__ import annotations

from collections import Counter

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.admin.commands import LogCommands
from holdfast.share.shard_kind import serving
from tests.simulated.memory_log import MemoryTopic
from tests.world.maintenance import ALL, GRACE_MS, A, B, C, World, filled, make_share_commands
from tests.world.node import CLUSTER


async def test_state_of_a_deleted_topic_leaves_tombstones_after_the_grace() -> None:
    world = await filled({A: 7, B: 20}, records_max=2)
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS - 1)
    assert world.topics() == {A, B}
    before = [len(partition.records) for partition in world.topic.partitions]
    world.refresh(1)
    assert world.topics() == {B}
    written = [
        record.value
        for partition, count in zip(world.topic.partitions, before, strict=True)
        for record in partition.records[count:]
    ]
    assert written == [None] * 7
    reloaded = await World(world.topic, node_id=2).serve()
    assert reloaded.topics() == {B}


async def test_a_topic_that_is_seen_again_within_the_grace_keeps_its_state() -> None:
    world = await filled({A: 1, B: 3})
    world.existing = frozenset([B])
    world.refresh()
    world.existing = ALL
    world.refresh(GRACE_MS - 1)
    world.existing = frozenset([B])
    world.refresh(1)
    world.refresh(GRACE_MS - 1)
    assert world.topics() == {A, B}


async def test_another_clusters_answers_remove_nothing() -> None:
    world = await filled({A: 1, B: 3})
    world.existing = frozenset([B])
    world.refresh(cluster_id="other")
    world.refresh(10 * GRACE_MS, cluster_id="other")
    assert world.topics() == {A, B}


async def test_topic_deleted_without_a_node_loses_its_state_after_the_grace() -> None:
    before = await filled({A: 1, B: 3})
    world = World(before.topic, node_id=2)
    world.existing = frozenset([B, C])
    await world.serve()
    world.refresh()
    assert world.topics() == {A, B}
    world.refresh(GRACE_MS)
    assert world.topics() == {B}


async def test_topic_in_an_accepted_log_must_be_seen_before_its_absence_counts() -> None:
    elsewhere = World(MemoryTopic(2))
    elsewhere.cluster_id = "elsewhere"
    await elsewhere.serve()
    elsewhere.fill({A: 1, B: 3})
    world = World(elsewhere.topic, node_id=2)
    world.existing = frozenset([B, C])
    await world.serve()
    for index in (0, 1):
        world.runtime.accept(index, "the cluster was moved")
    world.settle()
    world.refresh()
    world.refresh(10 * GRACE_MS)
    assert world.topics() == {A, B}
    world.existing = ALL
    world.refresh()
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS)
    assert world.topics() == {B}


async def test_too_large_a_share_stops_with_an_alarm_that_an_admin_ends() -> None:
    world = await filled({A: 3, B: 2})
    decisions = make_share_commands(world, world.deleted_state).decisions()
    commands = LogCommands(None, world.partitions, world.maintenance, world.allotment, world.brokers, decisions).table()  # type: ignore[arg-type]
    world.existing = frozenset([B])
    with capture_logs() as lines:
        for after_ms in (0, GRACE_MS, GRACE_MS, GRACE_MS):
            world.refresh(after_ms)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["clean_up_stopped"]
    assert "`holdfast topics accept-deleted --reason …`" in lines[-1]["why"]
    assert world.series("holdfast_deleted_topics_alarm") == {"holdfast_deleted_topics_alarm": 1}
    assert world.topics() == {A, B}
    with capture_logs() as lines:
        answer = commands["topics-accept-deleted"]({"reason": "the shop was closed"})
    assert answer == "the state of 1 deleted topics (3 share partitions) may go"
    assert [line["reason"] for line in lines] == ["the shop was closed"]
    world.refresh(1)
    assert world.topics() == {B}
    assert world.series("holdfast_deleted_topics_alarm") == {"holdfast_deleted_topics_alarm": 0}


async def test_a_clean_up_that_fails_goes_on_after_the_next_refresh() -> None:
    world = await filled({A: 8, B: 20}, records_max=2)
    world.existing = frozenset([B])
    world.refresh()
    world.process.log.queue_records_max = 0
    world.refresh(GRACE_MS)
    assert world.topics() == {A, B}
    world.process.log.queue_records_max = 100_000
    world.refresh(1)
    assert world.topics() == {B}


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_a_clean_up_ends_where_its_topic_is_seen_again_between_two_slices(
    is_full: bool, is_elsewhere: bool
) -> None:
    world = await filled({A: 8, B: 20}, records_max=2)
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS, is_log_slow=True)
    world.existing = ALL
    world.refresh(1, is_full, cluster_id="other" if is_elsewhere else CLUSTER)
    left = Counter(key.topic_id for key in set(world.keys()))
    assert left == {A: 4, B: 20}, "one slice of each log partition is gone"
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS)
    assert world.topics() == {B}


@pytest.mark.pure_build("it stands in for a method of the shard")
async def test_a_refresh_on_demand_counts_no_keys() -> None:
    world = await filled({A: 1, B: 3})
    world.existing = frozenset([B])
    world.refresh()

    def count() -> dict[bytes, int]:
        raise AssertionError("keys were counted")

    for _, machine in serving(world.partitions.active()):
        machine.state.topic_sizes = count  # type: ignore[method-assign]
    world.refresh(GRACE_MS, is_full=False, asked=[A, C])
    assert world.topics() == {A, B}
