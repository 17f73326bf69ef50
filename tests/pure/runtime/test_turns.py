"""What a turn of the loop costs and keeps: a round of read indexes for its reads, a slice for its loads, no operation that is done."""

import gc
import weakref
from collections.abc import Callable

import pytest

from holdfast.runtime.deadlines import Deadlines
from tests.pure.runtime.counter import Add, Counter
from tests.pure.runtime.world import SLICE_MS, World


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


def read_again(world: World, where: str, records: int) -> None:
    """Write records to a log partition and load it again, up to where it has been read."""
    world.run(f"given serve {where}")
    for number in range(records):
        world.run(f"write {number}{where} +1 {where}")
    for command in ("land", "read", "unload", "load", "bounds", "read"):
        world.run(f"{command} {where}")


def test_all_loads_of_a_turn_share_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def fold_one_each_ms(machine: Counter, is_time_up: Callable[[], bool]) -> bool:
        while machine._loaded:
            machine.value += int(machine._loaded.pop(0)[1] or 0)
            world.now_ms += 1
            if is_time_up():
                break
        return not machine._loaded

    monkeypatch.setattr(Counter, "fold_loaded", fold_one_each_ms)
    for where in ("", "@1"):
        read_again(world, where, records=4)
    world.load_turns = []
    turns_ms = []
    loads: list[Callable[[], object]] = [lambda: world.run("caught-up"), lambda: world.run("caught-up @1")]
    while loads:
        began_ms = world.now_ms
        for load in loads:
            load()
        turns_ms.append(world.now_ms - began_ms)
        loads = list(world.turns)
        world.turns.clear()
        while world.load_turns:
            world.load_turns.pop()()
    assert max(turns_ms) <= SLICE_MS, "each of the two would take as long by itself"
    assert sum(turns_ms) == 8


def test_a_load_that_folds_in_the_turn_in_which_it_reads_began_its_slice_when_it_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, folded_ms = World(), list[int]()

    def fold(machine: Counter, is_time_up: Callable[[], bool]) -> bool:
        began_ms = world.now_ms
        while not is_time_up():
            world.now_ms += 1
        folded_ms.append(world.now_ms - began_ms)
        return True

    world.run("given serve")
    for command in ("write a +1", "land", "unload", "load", "bounds"):
        world.run(command)
    monkeypatch.setattr(Counter, "fold_loaded", fold)
    world.load_turns = []
    world.run("read")
    world.now_ms += 3
    world.run("caught-up")
    assert folded_ms == [1]
