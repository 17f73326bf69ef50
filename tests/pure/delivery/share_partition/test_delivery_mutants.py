"""Each deliberate bug of `mutants.txt` is caught by random lives: the share partition and the naive one disagree."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.simulated.mutants import CRASHES, Mutant, imported_again, parse

pytestmark = pytest.mark.pure_build("mutants are patches to the sources")

MUTANTS = parse((Path(__file__).parent / "mutants.txt").read_text())
#: Imported again for each mutant.
AGAIN = ("holdfast.delivery", "tests.pure.delivery")
LIFE = "tests.pure.delivery.share_partition.life"
#: Lives of this length that are lived with each mutant.
EVENTS, SEEDS = 60, range(1_000)


@contextmanager
def lives_with(mutant: Mutant | None) -> Iterator[Callable[[Random], Any]]:
    """Give the class of a life whose share partition is imported again."""
    importlib.import_module(LIFE)
    with imported_again(mutant, AGAIN):
        yield importlib.import_module(LIFE).Life


def find(mutant: Mutant | None) -> int | None:
    """Return the first seed whose life does not agree, or None."""
    with lives_with(mutant) as life:
        for seed in SEEDS:
            try:
                life(Random(seed)).live(EVENTS)
            except Exception as error:
                if type(error).__name__ in CRASHES:  # it should do something wrong, not fall over its own patch
                    raise
                return seed
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str) -> None:
    assert find(MUTANTS[name]) is not None


def test_the_real_share_partition_imported_again_is_not() -> None:
    assert find(None) is None
