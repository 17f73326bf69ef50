"""One turn of the loop: one round of read indexes for its reads, one slice for its loads, and no operation kept that is done."""

import gc
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from holdfast.runtime.deadlines import Deadlines, Interval
from holdfast.runtime.errors import LoadFailed
from holdfast.runtime.partition.states import State
from tests.pure.runtime.counter import Add, Counter
from tests.pure.runtime.world import CONFIG, SLICE_MS, World


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
    assert world.run("index") == ["ask read index, round 2: [0]", "answer a: 0"]  # it goes with the log's next query
    assert world.run("index") == ["answer b: 0"]


def test_round_that_failed_to_be_requested_is_retried_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.run("given serve")

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(world, "query_latest_offsets", fail)
        assert world.run("write a") == ["error: read_index_request_failed (error=RuntimeError('a bug'))"]
    assert world.run("wait 1") == ["ask read index, round 2: [0]"]
    assert world.run("index") == ["answer a: 0"]


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


def test_operations_that_come_together_are_flushed_once_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.run("given serve")
    seen: list[int] = []
    monkeypatch.setattr(world, "flush_if_all_wait", lambda: seen.append(world.runtime.partitions[0].ownership.sequence))
    before = world.runtime.partitions[0].ownership.sequence
    operations = [Add(name, [number], "add", lambda _, __: None) for name, number in (("a", 1), ("b", 2), ("c", 3))]
    world.runtime.write_many([(0, each) for each in operations])
    assert seen == [before + 3]


def test_a_bug_in_a_flush_is_told_and_is_no_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.run("given serve")

    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(world, "flush_if_all_wait", fail)
    assert world.run("write a +1")[-1].startswith("error: flush_failed")
    world.run("land")
    assert world.run("read")[-1] == "answer a: 1"


def test_a_node_is_at_rest_while_nothing_is_due_by_time_alone() -> None:
    world = World()
    assert world.runtime.is_at_rest
    world.run("load")
    assert not world.runtime.is_at_rest, "it loads"
    world = World()
    world.run("given serve")
    assert world.runtime.is_at_rest
    world.run("write a +1")
    assert not world.runtime.is_at_rest, "an operation has a deadline"
    world.run("land")
    world.run("read")
    assert world.runtime.is_at_rest
    world.runtime.partitions[0].fail(LoadFailed("broken"), world.now_ms)
    assert not world.runtime.is_at_rest, "it is to be loaded again"
    world.run("unload")
    assert world.runtime.is_at_rest


@pytest.mark.parametrize("tick_ms", [10, 50, 900])
def test_stalled_append_is_found_within_two_looks_at_any_tick_rate(tick_ms: int) -> None:
    world = World(replace(CONFIG, append_stall_ms=4_000))
    world.run("given serve")
    world.run("write a +1")
    stalled_ms = 0
    while world.runtime.partitions[0].state is State.ACTIVE:
        world.run(f"wait {tick_ms}")
        stalled_ms += tick_ms
    assert 4_000 <= stalled_ms < 4_000 + 2 * (1_000 + tick_ms)


def test_an_interval_passes_once_each_time() -> None:
    interval = Interval(100)
    assert [now_ms for now_ms in range(1_000, 1_401, 30) if interval.has_passed(now_ms)] == [1_000, 1_120, 1_240, 1_360]


def test_pending_operation_keeps_its_deadline_and_later_ones() -> None:
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
        for command in (f"write {number}{where} +1", "land", "read"):
            world.run(f"{command} {where}")
    for command in ("unload", "load", "bounds", "read"):
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


def test_load_that_reads_and_folds_in_one_turn_has_one_slice(
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


class Turns:
    """The turns of the loop of a world, each as long as the work in it."""

    def __init__(self, world: World) -> None:
        world.load_turns = []
        self._world = world
        self.durations_ms: list[int] = []

    def run(self, *commands: str) -> None:
        """Run commands in one turn."""
        self._run([partial(self._world.run, command) for command in commands])

    def run_to_the_end(self) -> None:
        """Run turns while any work asks for another one."""
        while self._world.turns:
            tasks = list(self._world.turns)
            self._world.turns.clear()
            self._run(tasks)

    def _run(self, tasks: Sequence[Callable[[], object]]) -> None:
        began_ms, ended = self._world.now_ms, self._world.load_turns
        for task in tasks:
            task()
        self.durations_ms.append(self._world.now_ms - began_ms)
        assert ended is not None
        while ended:
            ended.pop()()


def take_a_ms_each(monkeypatch: pytest.MonkeyPatch, world: World) -> list[str]:
    """Make each record take 1 ms to be folded and to be freed, also while it is folded; returns a list that grows with each step."""
    done: list[str] = []

    def work(machine: Counter, what: str, is_time_up: Callable[[], bool]) -> bool:
        while machine._loaded:
            machine._loaded.pop()
            done.append(f"{machine.name} {what}")
            world.now_ms += 1
            if is_time_up():
                break
        return not machine._loaded

    monkeypatch.setattr(Counter, "fold_loaded", lambda machine, is_time_up: work(machine, "folds", is_time_up))
    monkeypatch.setattr(Counter, "discard", lambda machine, is_time_up: work(machine, "frees", is_time_up))
    return done


def test_memory_of_load_that_gives_way_is_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    read_again(world, "", records=10)
    done, turns = take_a_ms_each(monkeypatch, world), Turns(world)
    turns.run("unload")
    assert turns.durations_ms == [4], "what fits into this turn is freed at once"
    turns.run_to_the_end()
    assert turns.durations_ms == [4, 4, 2]
    assert done == ["machine 2 frees"] * 10


def test_machines_of_one_turn_are_freed_in_one_slice_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    read_again(world, "", records=6)
    read_again(world, "@1", records=4)
    done, turns = take_a_ms_each(monkeypatch, world), Turns(world)
    turns.run("unload", "unload @1")
    turns.run_to_the_end()
    assert turns.durations_ms == [4, 4, 2]
    assert done == ["machine 2 frees"] * 6 + ["machine 4 frees"] * 4


def test_load_continues_after_memory_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    read_again(world, "", records=6)
    read_again(world, "@1", records=10)
    done, turns = take_a_ms_each(monkeypatch, world), Turns(world)
    turns.run("caught-up")
    turns.run("unload @1")
    turns.run_to_the_end()
    assert turns.durations_ms == [4, 4, 4, 2, 2]
    assert done == ["machine 2 folds"] * 4 + ["machine 4 frees"] * 10 + ["machine 2 folds"] * 2


@pytest.mark.parametrize("left_to_fold", [0, 6])
def test_a_load_that_has_claimed_waits_for_nothing_that_is_freed(
    monkeypatch: pytest.MonkeyPatch, left_to_fold: int
) -> None:
    world = World()
    read_again(world, "", records=0)
    read_again(world, "@1", records=10)
    done, turns = take_a_ms_each(monkeypatch, world), Turns(world)
    turns.run("caught-up")
    turns.run("land")
    turns.run("unload @1")
    claimed = world.runtime.partitions[0]
    assert isinstance(claimed.machine, Counter)
    claimed.machine._loaded.extend([(0, b"1")] * left_to_fold)
    turns.run("read")
    states = [claimed.state]
    turns.run_to_the_end()
    assert [*states, claimed.state] == [State.LOADING, State.ACTIVE]
    assert done == ["machine 4 frees"] * 4 + ["machine 2 folds"] * left_to_fold + ["machine 4 frees"] * 6
    assert max(turns.durations_ms) == 4


@pytest.mark.parametrize(("failures", "freed"), [(1, 6), (2, 4)])
def test_a_bug_while_one_machine_is_freed_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, failures: int, freed: int
) -> None:
    world = World()
    read_again(world, "", records=6)
    read_again(world, "@1", records=1)
    done, turns = take_a_ms_each(monkeypatch, world), Turns(world)
    free, names = Counter.discard, list[str]()

    def fail_at_the_second(machine: Counter, is_time_up: Callable[[], bool]) -> bool:
        names.append(machine.name)
        if names[1:] and len(names) <= 1 + failures:
            raise RuntimeError("a bug in discard")
        return free(machine, is_time_up)

    monkeypatch.setattr(Counter, "discard", fail_at_the_second)
    turns.run("unload", "unload @1")
    turns.run_to_the_end()
    assert done == ["machine 2 frees"] * freed + ["machine 4 frees"]
    assert world.turns == deque()


def test_a_log_line_that_fails_keeps_no_machine_from_being_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    read_again(world, "", records=6)
    read_again(world, "@1", records=6)
    done, turns = take_a_ms_each(monkeypatch, world), Turns(world)
    free = Counter.discard

    def fail_of_one(machine: Counter, is_time_up: Callable[[], bool]) -> bool:
        if machine.name == "machine 2":
            raise RuntimeError("a bug in discard")
        return free(machine, is_time_up)

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Counter, "discard", fail_of_one)
    monkeypatch.setattr(world.runtime._discards, "_note", refuse)
    turns.run("unload @1")
    machine = world.runtime.partitions[0].machine
    assert machine is not None
    world.runtime._discards.add(0, machine)
    for _ in range(2):
        with pytest.raises(OSError, match="no space left"):
            turns.run_to_the_end()
    turns.run_to_the_end()
    assert done == ["machine 4 frees"] * 6
    assert world.turns == deque()


def test_a_machine_that_is_freed_is_kept_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    read_again(world, "", records=6)
    take_a_ms_each(monkeypatch, world)
    machine = weakref.ref(world.runtime.partitions[0].machine or world)
    turns = Turns(world)
    turns.run("unload")
    assert machine() is not None
    turns.run_to_the_end()
    assert machine() is None


def test_retry_waits_for_other_loads_but_not_for_stalled_ones() -> None:
    world = World(replace(CONFIG, loads_max=1))
    world.run("load")
    world.run("load @1")
    world.run("read-failed @1")
    held, waiting = (world.runtime.partitions[index] for index in (0, 1))
    assert (held.state, waiting.state, waiting.retry_at_ms) == (State.LOADING, State.FAILED, 100)
    world.run("wait 299")
    assert waiting.state is State.FAILED
    world.run("wait 1")
    assert (held.state, waiting.state) == (State.LOADING, State.LOADING)


def test_of_what_is_tried_again_the_first_that_was_due_goes_first() -> None:
    world = World(replace(CONFIG, loads_max=1))
    for line in ("load", "load @1", "read-failed @1", "wait 1", "read-failed", "wait 100"):
        world.run(line)
    assert [world.runtime.partitions[index].state for index in (0, 1)] == [State.FAILED, State.LOADING]
