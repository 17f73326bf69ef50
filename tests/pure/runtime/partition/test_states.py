"""The table of transitions between states."""

from itertools import product

import pytest

from holdfast.runtime.partition.states import TRANSITIONS, IllegalTransition, State, check_transition
from tests.pure.runtime.world import World

LEGAL = {
    ("initial", "loading"),
    ("initial", "closed"),
    ("loading", "active"),
    ("loading", "failed"),
    ("loading", "closed"),
    ("active", "failed"),
    ("active", "closed"),
    ("failed", "loading"),
    ("failed", "closed"),
    ("closed", "loading"),
}


def test_table_holds_every_state() -> None:
    assert set(TRANSITIONS) == set(State)
    assert {(start.value, finish.value) for start in State for finish in TRANSITIONS[start]} == LEGAL


@pytest.mark.parametrize(("start", "finish"), list(product(State, State)), ids=lambda state: state.value)
def test_transition_is_legal_or_raises_and_changes_nothing(start: State, finish: State) -> None:
    world = World()
    world.run("serve")
    partition = world.runtime.partitions[0]
    partition.state = start
    if (start.value, finish.value) in LEGAL:
        check_transition(0, start, finish)
        return
    with pytest.raises(IllegalTransition, match=f"partition 0: {start.value} -> {finish.value} is not") as raised:
        partition._enter(finish)
    assert (raised.value.partition, raised.value.start, raised.value.finish) == (0, start, finish)
    assert partition.state is start
    world.told.clear()
    world.runtime._drain()
    assert world.told == [], "an illegal transition has no effects"
