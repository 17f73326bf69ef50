"""Each decoder takes its seeds, and thousands of inputs made from them raise nothing but what it may raise; the same ones each time."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.mutation import mutate
from tests.fuzz.targets import TARGETS, try_input

#: `make fuzz` gives each decoder as many as a minute has room for, led by the code that they reach.
INPUTS = 300


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_raises_what_it_must_not(name: str) -> None:
    target, random = TARGETS[name], Random(name)
    seeds = target.seeds()
    for seed in seeds:
        if not name.startswith("broker's"):
            target.run(seed)
    for _ in range(INPUTS):
        try_input(target, mutate(random, seeds))


def test_inputs_differ_and_are_the_same_ones_each_time() -> None:
    seeds = TARGETS["record"].seeds()
    made = [[mutate(random, seeds) for _ in range(100)] for random in (Random(1), Random(1), Random(2))]
    assert made[0] == made[1] != made[2]
    assert len(set(made[0])) > 90
