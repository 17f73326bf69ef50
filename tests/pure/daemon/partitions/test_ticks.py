"""What the log partitions of a node do at each tick, and what only now and then."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.partitions.partitions import LOOK_INTERVAL_MS
from holdfast.daemon.pruning.pruner import Phase
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld


@pytest.mark.parametrize(("check_interval_ms", "looks"), [(5_000, 3), (LOOK_INTERVAL_MS // 2, 5)])
async def test_a_pruner_has_its_turn_at_each_tick_while_it_is_at_work_and_now_and_then_between_its_rounds(
    check_interval_ms: int, looks: int
) -> None:
    world = await PartitionsWorld(MemoryTopic(8), pruning_check_interval_ms=check_interval_ms).serve()
    ticked: list[int] = []

    def note(index: int, now_ms: int) -> None:
        ticked.append(index)

    for index, pruner in world.partitions.pruners.items():
        pruner.tick = partial(note, index)  # type: ignore[method-assign]
    world.partitions.pruners[5].phase = Phase.WRITING
    for passed_ms in range(0, 2 * LOOK_INTERVAL_MS + 1, 50):
        world.clock.now_ms += 50 if passed_ms else LOOK_INTERVAL_MS
        assert world.partitions.ticked(0), "a pruner is at work"
    assert {index: ticked.count(index) for index in range(8)} == {
        **dict.fromkeys(range(8), looks),
        5: 2 * LOOK_INTERVAL_MS // 50 + 1,
    }
    world.partitions.pruners[5].phase = Phase.IDLE
    assert not world.partitions.ticked(0)


async def test_a_node_is_at_work_while_its_snapshots_have_more_to_do() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    assert not world.partitions.ticked(0)
    for has_more in (True, False):
        world.partitions._snapshots = SimpleNamespace(tick=lambda has_more=has_more: has_more)
        assert world.partitions.ticked(0) is has_more


async def test_the_node_learns_how_late_each_tick_is() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    world.late_ms.clear()
    world.partitions.ticked(0.5)
    world.partitions.ticked(70)
    assert world.late_ms == [0.5, 70]
    queue_time = world.series("holdfast_event_queue_time_seconds")
    assert queue_time["holdfast_event_queue_time_seconds_sum"] == pytest.approx(0.0705)


async def test_a_bug_in_one_pruner_is_not_anothers() -> None:
    world = await PartitionsWorld(MemoryTopic(2)).serve()
    ticked: list[int] = []

    def fail(now_ms: int) -> None:
        raise RuntimeError("a bug")

    world.partitions.pruners[0].tick = fail  # type: ignore[method-assign]
    world.partitions.pruners[1].tick = ticked.append  # type: ignore[method-assign,assignment]
    with capture_logs() as lines:
        world.clock.now_ms += LOOK_INTERVAL_MS
        world.partitions.ticked(0)
    assert ticked == [world.clock.now_ms]
    assert [(line["event"], line["partition"]) for line in lines] == [("pruning_failed", 0)]
    assert world.series("internal_errors") == {"holdfast_internal_errors_total": 1}


async def test_a_bug_in_the_look_at_the_snapshot_topic_keeps_no_pruner_from_its_step() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    ticked: list[int] = []

    class Snapshots:
        def tick(self) -> bool:
            raise KeyError(7)

    world.partitions._snapshots = Snapshots()  # type: ignore[assignment]
    world.partitions.pruners[0].phase = Phase.WRITING
    world.partitions.pruners[0].tick = ticked.append  # type: ignore[method-assign,assignment]
    with capture_logs() as lines:
        world.partitions.ticked(0)
    assert ticked == [world.clock.now_ms]
    assert [(line["event"], line["error"]) for line in lines] == [("snapshot_tick_failed", "KeyError(7)")]
    assert world.series("internal_errors") == {"holdfast_internal_errors_total": 1}
