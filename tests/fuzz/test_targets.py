"""Each decoder takes its seeds, and thousands of inputs made from them raise nothing but what it may raise; the same ones each time."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from tests.fuzz.mutation import mutate
from tests.fuzz.targets import TARGETS, try_input

#: `make fuzz` gives each decoder as many as a minute has room for, led by the code that they reach.
INPUTS = 300
#: An element of Python's takes up some hundred bytes, where it has one on the wire; an error with its traceback some thousands.
ROOM_BYTES_PER_BYTE, ROOM_BYTES = 300, 200_000


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_raises_what_it_must_not(name: str) -> None:
    target, random = TARGETS[name], Random(name)
    seeds = target.seeds()
    for seed in seeds:
        target.run(seed)
    for _ in range(INPUTS):
        try_input(target, mutate(random, seeds))


@pytest.mark.parametrize("name", [name for name in TARGETS if name.startswith("broker's")])
def test_what_a_broker_answers_takes_little_room_for_its_bytes(name: str) -> None:
    target, random = TARGETS[name], Random(name)
    seeds = target.seeds()
    target.run(seeds[0])  # plans of schemas are made with the first
    tracemalloc.start()
    try:
        for _ in range(INPUTS // 10):
            data = mutate(random, seeds) + bytes(1_000)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            try_input(target, data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < ROOM_BYTES_PER_BYTE * len(data) + ROOM_BYTES
    finally:
        tracemalloc.stop()


def test_inputs_differ_and_are_the_same_ones_each_time() -> None:
    seeds = TARGETS["record"].seeds()
    made = [[mutate(random, seeds) for _ in range(100)] for random in (Random(1), Random(1), Random(2))]
    assert made[0] == made[1] != made[2]
    assert len(set(made[0])) > 90
