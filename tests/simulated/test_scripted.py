"""Bugs that the simulation found, told step by step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from holdfast.api.results import InitializePartition, StateRequest
from holdfast.api.share_state import INITIALIZE
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.runtime.partition.states import State
from tests.simulated.around.topics import TOPIC_ID
from tests.simulated.memory_log import MemoryPartition
from tests.simulated.parts.node import APPEND_STALL_MS
from tests.simulated.parts.requests import GROUP, Clients
from tests.simulated.parts.world import World


def make_world(*, is_static: bool) -> World:
    world = World(Random(1))
    world.is_static = is_static
    world.snapshots = None
    return world


def run_until_quiet(world: World) -> None:
    for _ in range(1_000):
        moves: list[Callable[[], None]] = [move.make for move in world.topic.moves()[:1]]
        for node in world.nodes:
            if node.tasks:
                moves.append(node.tasks.popleft())
            elif node.views:
                moves.append(node.learn_view)
        if not moves:
            return
        for make in moves:
            make()
            world.settle(None)
    raise AssertionError("the world does not come to rest")


def test_a_node_that_was_told_to_take_what_it_serves_can_still_be_superseded() -> None:
    """`take` forgot the generation of the partition that it left alone; meeting a rival then raised."""
    world = make_world(is_static=True)
    first = world.start("a")
    run_until_quiet(world)
    first.runtime.take(0)
    second = world.start("b")
    run_until_quiet(world)
    held = first.partition(0)
    assert held is not None
    assert held.state is State.CLOSED
    assert second.serves(0)


def test_a_refresh_does_not_pass_the_bound_on_what_waits() -> None:
    """Every refresh that was not read back yet waited beside as many writes as the setting allows."""
    world = make_world(is_static=True)
    world.parked_writes_max = 2
    node = world.start("a")
    run_until_quiet(world)
    assert [node.runtime.refresh(0) for _ in range(4)] == [True, True, False, False]
    run_until_quiet(world)
    assert node.runtime.refresh(0)


def test_appends_lost_without_a_word_do_not_stop_a_partition_for_ever() -> None:
    """Where as many waited as may wait, nothing more was appended, so no gap was ever found."""
    world = make_world(is_static=True)
    world.parked_writes_max = 1
    node = world.start("a")
    run_until_quiet(world)
    assert node.runtime.refresh(0)
    node.log.lose(0)
    run_until_quiet(world)
    assert not node.runtime.refresh(0)
    world.now_ms += 10
    node.runtime.tick()
    world.now_ms += APPEND_STALL_MS
    node.runtime.tick()
    assert not node.serves(0)
    world.now_ms += 1_000
    node.runtime.tick()
    run_until_quiet(world)
    assert node.serves(0)
    assert node.runtime.refresh(0)


@pytest.mark.parametrize("is_static", [True, False])
def test_an_accepted_log_is_taken_whatever_generation_is_in_it(is_static: bool) -> None:
    """A checkpoint of an earlier topic kept the generation that it had there, and barred the way that its alarm names."""
    world = make_world(is_static=is_static)
    node = world.start("a")
    run_until_quiet(world)
    held = node.partition(0)
    assert held is not None
    other = Checkpoint(7, b"b" * 16, "b", 9, "memory", b"e" * 16, 1, None)
    world.alarm_reasons.add(0)
    world.topic.write_foreign(0, CHECKPOINT_KEY, encode_checkpoint(other), encode_header(7, 0))
    run_until_quiet(world)
    world.now_ms += 60_000
    node.runtime.tick()
    run_until_quiet(world)
    assert held.state is State.FAILED
    assert held.is_alarmed
    node.runtime.accept(0, "the topic was recreated")
    run_until_quiet(world)
    assert node.serves(0)


def test_a_log_that_lost_its_end_twice_is_accepted_once() -> None:
    """The checkpoint of an admin stood below where the end was lost first, and so accepted nothing."""
    world = make_world(is_static=True)
    node = world.start("a")
    run_until_quiet(world)
    for _ in range(5):
        assert node.runtime.refresh(0)
    run_until_quiet(world)
    held = node.partition(0)
    assert held is not None
    for end in (4, 1):
        partition = world.topic.partitions[0]
        shorter = MemoryPartition()
        shorter.records, shorter.origins = partition.records[:end], partition.origins[:end]
        shorter.high_watermark = end
        world.replace_log(0, shorter, is_whole=True)
        for _ in range(3):
            run_until_quiet(world)
            world.now_ms += 40_000
            node.runtime.tick()
        run_until_quiet(world)
        assert held.state is State.FAILED
        assert held.is_alarmed
    node.runtime.accept(0, "nothing else is left")
    run_until_quiet(world)
    assert node.serves(0), held.failure


def test_who_still_serves_a_log_that_was_cut_by_others_is_superseded_by_who_accepts_it() -> None:
    """The new epoch was counted from the checkpoints that were left, so it was lower than the old one, and two served."""
    world = make_world(is_static=True)
    clients = Clients(world)
    first = world.start("a")
    run_until_quiet(world)
    assert first.runtime.refresh(0)
    second = world.start("a")
    run_until_quiet(world)
    assert second.serves(0)
    for state_epoch in (1, 2):
        request = StateRequest(GROUP, [(TOPIC_ID, [InitializePartition(0, state_epoch, 0)])])
        clients.call(second, INITIALIZE, request, lambda *_: None)
        run_until_quiet(world)
    partition = world.topic.partitions[0]
    partition.log_start_offset = partition.high_watermark - 1
    world.alarm_reasons.add(0)
    world.truth_of(partition, 0).is_judged = False
    third = world.start("a")
    run_until_quiet(world)
    held = third.partition(0)
    assert held is not None
    assert held.is_alarmed
    third.runtime.accept(0, "what is left is enough")
    run_until_quiet(world)
    assert third.serves(0), held.failure
    assert not second.serves(0)
