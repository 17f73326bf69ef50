"""What is kept when a turn of the loop is over: no operation that is done."""

import gc
import weakref

from holdfast.runtime.deadlines import Deadlines
from tests.pure.runtime.counter import Add
from tests.pure.runtime.world import World


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
