"""A log of which another program deleted what is needed: its owner says so and writes it again, and loads take it for whole."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast.daemon.pruning.pruner import REWRITE_PAUSE_MS, SLICE_INTERVAL_MS, Pruner
from holdfast.daemon.settings.models import PruningSettings
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.partition.states import State
from holdfast.runtime.state_machine import Operation
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import TICK_MS
from tests.world.pruning import DELETING, IDLE, REFRESHING, SETTINGS, WRITING, PrunedNode, tick_a_round
from tests.world.tenants import SHARDS

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


def named_cut(node: PrunedNode) -> int:
    """Return where the log is whole from, as the newest checkpoint in it that says so has it."""
    checkpoints = [
        decode_checkpoint(record.value or b"")
        for record in node.topic.partitions[0].records[node.log_start :]
        if record.key == CHECKPOINT_KEY
    ]
    return [checkpoint.cut_offset for checkpoint in checkpoints if checkpoint.cut_offset >= 0][-1]


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
        assert node.process.fields["log_whole_again"]["whole_from"] == named_cut(node)
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


# ---- one wrong answer -------------------------------------------------------------------------------------------------


def claim(node: PrunedNode, log_start: int) -> None:
    """Let a fetch of the tail name a log start that is none."""
    node.runtime.log_start_moved(0, node.partition.reading.instance, log_start)


def test_a_log_start_that_is_none_is_neither_told_nor_written_again(node: PrunedNode) -> None:
    refreshes = node.refreshes
    claim(node, 5)
    node.tick(2 * LOOKED_AT_TICKS)
    assert "log_records_deleted" not in node.notes
    assert (node.partition.log_start, node.partition.reading.log_start_seen) == (0, 0)
    assert node.refreshes == refreshes
    delete_by_others(node, 3)
    tick_a_round(node)
    node.tick(LOOKED_AT_TICKS)
    assert node.notes[-2:] == ["log_records_deleted", "log_whole_again"], "below the one that was none"


def test_a_log_start_that_no_broker_takes_back_counts_until_one_does(
    node: PrunedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node.states()
    monkeypatch.setattr(node.log, "look_up_start", partial(node.log.look_up_start, is_known=False))
    claim(node, 2**40)
    node.tick(LOOKED_AT_TICKS)
    assert node.notes[-1] == "log_records_deleted"
    monkeypatch.undo()
    node.tick(LOOKED_AT_TICKS + 10_000 // TICK_MS)
    assert node.notes[-1] == "log_whole_again"
    assert node.partition.log_start < 2**40
    assert load_elsewhere(node).states() == before


def test_one_answer_that_nothing_is_missing_takes_nothing_back(
    node: PrunedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_by_others(node, 5)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(node.log, "query_log_start", lambda *of: asked.append(of))
    node.tick(LOOKED_AT_TICKS)
    node.runtime.log_start_found(*asked[0], 0)
    node.tick(LOOKED_AT_TICKS)
    node.runtime.log_start_found(*asked[1], 5)
    node.tick_only()
    assert len(asked) == 2
    assert node.notes[-1] == "log_records_deleted"


def test_an_answer_to_a_question_before_the_log_start_moved_takes_nothing_back(
    node: PrunedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(node.log, "query_log_start", lambda *of: asked.append(of))
    claim(node, 3)
    node.tick(LOOKED_AT_TICKS)
    node.runtime.log_start_found(*asked[0], 0)
    node.tick(LOOKED_AT_TICKS)
    delete_by_others(node, 5)
    node.runtime.log_start_found(*asked[1], 0)
    assert node.partition.reading.log_start_claimed == 5
    node.tick(LOOKED_AT_TICKS)
    assert len(asked) == 3
    node.runtime.log_start_found(*asked[2], 5)
    node.tick_only()
    assert node.notes[-1] == "log_records_deleted"


# ---- when it is written ------------------------------------------------------------------------------------------------


def test_it_is_written_without_waiting_for_the_next_look() -> None:
    node = PrunedNode(MemoryTopic(), pruning_check_interval_ms=3_600_000, **NOTHING_IS_DEAD)
    node.fill(updates=0)
    node.tick()
    delete_by_others(node, 5)
    node.tick(LOOKED_AT_TICKS + (REWRITE_PAUSE_MS + 10 * SLICE_INTERVAL_MS) // TICK_MS)
    node.tick(LOOKED_AT_TICKS)
    assert node.notes[-2:] == ["log_records_deleted", "log_whole_again"]


def test_two_rounds_for_it_have_a_pause_between_them(node: PrunedNode) -> None:
    delete_by_others(node, 5)
    node.tick_until(WRITING)
    node.settle()
    node.tick(2)
    delete_by_others(node, len(node.topic.partitions[0].records))
    node.tick_until(IDLE)
    assert node.partition.reading.is_missing_records()
    ended_ms = node.process.clock()
    node.tick_until(REFRESHING)
    assert node.process.clock() - ended_ms >= REWRITE_PAUSE_MS


def test_where_an_admin_accepted_the_log_it_counts_as_whole(node: PrunedNode) -> None:
    node.topic.cut(0, 5)
    successor = load_elsewhere(node)
    successor.runtime.accept(0, "restored")
    successor.settle()
    assert successor.partition.state is State.ACTIVE
    delete_by_others(successor, 5)
    successor.tick(LOOKED_AT_TICKS)
    assert "log_records_deleted" not in successor.notes


class Unnamed:
    """The runtime of a log that takes no name of a cut."""

    def __init__(self, runtime: CoordinatorRuntime) -> None:
        self._runtime = runtime
        self.deleted: list[int] = []

    def write(self, index: int, operation: Operation) -> None:
        self._runtime.write(index, operation)

    def refresh(self, index: int, cut_offset: int = -1) -> bool:
        return cut_offset < 0 and self._runtime.refresh(index)

    def delete_records(self, index: int, before_offset: int) -> None:
        self.deleted.append(before_offset)


def test_a_cut_that_was_not_named_is_not_asked_for() -> None:
    node = PrunedNode(MemoryTopic())
    node.fill()
    runtime = Unnamed(node.runtime)
    node.pruner = Pruner(node.partition, runtime, PruningSettings(**SETTINGS), node.readers, SHARDS)
    node.tick_until(DELETING)
    node.tick(100)
    assert (node.pruner.phase, runtime.deleted) == (DELETING, [])
