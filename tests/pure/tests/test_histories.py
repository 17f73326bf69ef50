"""What the checker of histories lets pass and what it refuses, beside a search through all orders."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories import NEVER, Read, Write, bits, bits_between, register_problem, set_problem, values


def write(value: int, began_s: float, ended_s: float = NEVER) -> Write:
    return Write(began_s=began_s, ended_s=ended_s, value=value)


def read(found: int, began_s: float, ended_s: float) -> Read:
    return Read(began_s=began_s, ended_s=ended_s, found=found)


def has_order(writes: list[Write], reads: list[Read], *, grows: bool) -> bool:
    """Tell whether some order of the operations explains them, with or without each write that has no end; all begins with 0."""
    operations: list[Write | Read] = [*writes, *reads]
    for order in permutations(operations):
        place = {id(operation): index for index, operation in enumerate(order)}
        if any(a.ended_s < b.began_s and place[id(a)] > place[id(b)] for a in order for b in order):
            continue
        holds = 0
        for operation in order:
            if isinstance(operation, Write):
                holds = holds | 1 << operation.value if grows else operation.value
            elif operation.found != holds:
                break
        else:
            return True
    return False


@st.composite
def histories(draw: st.DrawFn, *, grows: bool) -> tuple[list[Write], list[Read]]:
    moments = iter(draw(st.permutations(range(12))))

    def span() -> tuple[float, float]:
        began, ended = sorted((next(moments), next(moments)))
        return float(began), float(ended)

    writes = []
    for value in range(1, 1 + draw(st.integers(0, 3))):
        began, ended = span()
        writes.append(write(value, began, draw(st.sampled_from((ended, ended, NEVER)))))
    found = st.sets(st.integers(1, 3)).map(bits) if grows else st.integers(0, 3)
    reads = [read(draw(found), *span()) for _ in range(draw(st.integers(0, 3)))]
    return writes, reads


@given(histories(grows=False))
def test_a_register_is_judged_as_by_all_orders(history: tuple[list[Write], list[Read]]) -> None:
    writes, reads = history
    assert (register_problem(0, writes, reads) is None) == has_order(writes, reads, grows=False)


@given(histories(grows=True))
def test_a_growing_set_is_judged_as_by_all_orders(history: tuple[list[Write], list[Read]]) -> None:
    writes, reads = history
    assert (set_problem(writes, reads) is None) == has_order(writes, reads, grows=True)


@pytest.mark.parametrize(
    ("reads", "why"),
    [
        ([read(0, 3, 4)], "and 0 was held from -inf until 3"),
        ([read(1, 3, 4), read(2, 5, 6), read(1, 7, 8)], "and 1 was held from 2 until 7"),
        ([read(9, 3, 4)], "which nobody wrote"),
        ([read(1, -2, -1)], "whose write began at 0"),
    ],
)
def test_a_stale_a_wavering_a_foreign_and_an_early_read_are_named(reads: list[Read], why: str) -> None:
    problem = register_problem(0, [write(1, 0, 2), write(2, 3.5)], reads)
    assert problem is not None
    assert why in problem


def test_an_answered_write_that_is_lost_is_named() -> None:
    assert set_problem([write(1, 0, 1), write(2, 0, 2)], [read(bits([1]), 1, 1.5)]) is None
    lost = set_problem([write(1, 0, 1), write(2, 0, 2)], [read(bits([1]), 3, 4)])
    assert lost == "a read from 3 until 4 lacks 2, answered at 2"


@given(st.sets(st.integers(0, 200)))
def test_a_number_holds_a_set(some: set[int]) -> None:
    assert list(values(bits(some))) == sorted(some)


def test_a_number_holds_a_range() -> None:
    assert [list(values(bits_between(*ends))) for ends in ((0, 0), (3, 5))] == [[0], [3, 4, 5]]
