"""A log of which another program deleted what is needed: its owner says so and writes it again, and loads take it for whole."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.records.checkpoint import CHECKPOINT_KEY
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import TICK_MS
from tests.world.pruning import DELETING, IDLE, WRITING, PrunedNode, tick_a_round

#: A round begins for missing records alone.
NOTHING_IS_DEAD: dict[str, Any] = {"pruning_dead_bytes_min": 1_000_000}
#: So many at the most until each log partition was looked at.
LOOKED_AT_TICKS = 2_000 // TICK_MS


@pytest.fixture
def node() -> PrunedNode:
    node = PrunedNode(MemoryTopic(), **NOTHING_IS_DEAD)
    node.fill(updates=20)
    node.delete(7)
    return node


def delete_by_others(node: PrunedNode, before_offset: int) -> None:
    """Let another program delete records; a fetch of the tail shows it."""
    node.topic.cut(0, before_offset)
    node.runtime.log_start_moved(0, node.partition.reading.instance, node.log_start)


def load_elsewhere(node: PrunedNode, generation: int = 2) -> PrunedNode:
    return PrunedNode(node.topic, generation=generation, **NOTHING_IS_DEAD)


def test_what_another_program_deleted_is_written_again_and_no_load_lacks_it(node: PrunedNode) -> None:
    before = node.states()
    for count in (1, 3, 5, 8, 11):
        delete_by_others(node, node.log_start + count)
        tick_a_round(node)
        node.tick(LOOKED_AT_TICKS)
        assert node.notes[-2:] == ["log_records_deleted", "log_whole_again"], f"{count} records more"
        assert not node.partition.reading.is_missing_records()
    assert load_elsewhere(node).states() == before


def test_until_it_is_written_a_load_is_an_alarm(node: PrunedNode) -> None:
    delete_by_others(node, 5)
    node.tick_until(WRITING)
    node.tick_only()
    failure = load_elsewhere(node).partition.failure
    assert failure is not None
    assert "another program deleted records" in failure


def test_an_emptied_log_that_begins_with_a_refresh_is_an_alarm_until_the_states_are_written(node: PrunedNode) -> None:
    before = node.states()
    delete_by_others(node, len(node.topic.partitions[0].records))
    node.tick_until(WRITING)
    assert node.topic.partitions[0].records[node.log_start].key == CHECKPOINT_KEY
    failure = load_elsewhere(node).partition.failure
    assert failure is not None
    assert "no checkpoint says that it is whole" in failure
    node.tick_until(IDLE)
    assert load_elsewhere(node, generation=3).states() == before


def test_an_emptied_log_is_whole_although_nothing_is_left_to_be_cut(node: PrunedNode) -> None:
    end, before = len(node.topic.partitions[0].records), node.states()
    delete_by_others(node, end)
    tick_a_round(node)
    assert (node.partition.reading.cut_offset, node.log_start) == (end, end), "it was named, and was the log start"
    assert load_elsewhere(node).states() == before


def test_a_round_whose_checkpoint_is_deleted_is_followed_by_another(node: PrunedNode) -> None:
    before = node.states()
    delete_by_others(node, 5)
    node.tick_until(WRITING)
    node.settle()
    node.tick(2)
    delete_by_others(node, len(node.topic.partitions[0].records))
    node.tick_until(IDLE)
    assert node.partition.reading.is_missing_records()
    tick_a_round(node)
    assert not node.partition.reading.is_missing_records()
    assert load_elsewhere(node).states() == before


def test_a_cut_of_our_own_is_not_that_of_another_program() -> None:
    node = PrunedNode(MemoryTopic())
    node.fill()
    tick_a_round(node)
    node.runtime.log_start_moved(0, node.partition.reading.instance, node.log_start)
    node.tick(LOOKED_AT_TICKS)
    assert "log_records_deleted" not in node.notes


def test_a_cut_that_an_owner_before_us_named_is_not_that_of_another_program() -> None:
    first = PrunedNode(MemoryTopic())
    first.fill()
    first.tick_until(DELETING)
    first.settle()
    first.log.crash()
    second = load_elsewhere(first)
    cut = second.partition.ownership.cut_offset
    assert cut > 0
    delete_by_others(second, cut)
    second.tick(LOOKED_AT_TICKS)
    assert "log_records_deleted" not in second.notes
    delete_by_others(second, cut + 1)
    second.tick(LOOKED_AT_TICKS)
    assert "log_records_deleted" in second.notes


def test_a_log_start_of_an_earlier_reading_is_ignored(node: PrunedNode) -> None:
    node.runtime.log_start_moved(0, node.partition.reading.instance - 1, 5)
    node.tick(LOOKED_AT_TICKS)
    assert node.partition.log_start == 0
