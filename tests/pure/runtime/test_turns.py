"""What a turn of the loop costs and keeps: one round of read indexes for all its reads, and no operation that is done."""

import gc
import weakref
from collections.abc import Callable

import pytest

from holdfast.runtime.deadlines import Deadlines
from tests.pure.runtime.counter import Add
from tests.pure.runtime.world import World


def test_all_reads_of_a_turn_share_one_round_of_read_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    world, ends = World(), list[Callable[[], None]]()
    world.run("given serve")
    world.run("given serve @1")
    monkeypatch.setattr(world, "end_turn_with", ends.append)
    output = [line for name in ("read a", "read b @1", "read c") for line in world.run(name.replace("read", "write"))]
    assert output == []
    (end,) = ends
    end()
    assert world.told == ["ask read index, round 1: [0, 1]"]
    assert world.run("index") == ["answer a: 0", "answer c: 0", "answer b: 0"]


def test_a_read_after_the_round_left_waits_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world, ends = World(), list[Callable[[], None]]()
    world.run("given serve")
    monkeypatch.setattr(world, "end_turn_with", ends.append)
    world.run("write a")
    ends.pop()()
    world.run("write b")
    ends.pop()()
    assert world.run("index") == ["answer a: 0", "ask read index, round 2: [0]"]
    assert world.run("index") == ["answer b: 0"]


def test_an_operation_that_is_answered_is_kept_no_longer() -> None:
    world = World()
    world.run("given serve")
    answered = weakref.WeakSet[Add]()
    for name, number in (("a", 1), ("b", 2)):
        operation = Add(name, [number], "add", lambda _, __: None)
        answered.add(operation)
        world.runtime.write(0, operation)
        del operation
    assert len(answered) == 2
    world.run("land")
    world.run("read")
    gc.collect()
    assert len(answered) == 0


def test_one_that_is_not_done_keeps_its_deadline_and_those_behind_it() -> None:
    deadlines = Deadlines()
    operations = [Add(name, [], "add", lambda _, __: None) for name in "abc"]
    for deadline_ms, operation in enumerate(operations):
        operation.deadline_ms = deadline_ms
        deadlines.in_order.append(operation)
    operations[0].is_done = operations[2].is_done = True
    deadlines.drop_done()
    assert list(deadlines.in_order) == operations[1:]
    assert deadlines.take_due(2) == operations[1:2]
