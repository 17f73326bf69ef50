"""Names that are spelled much like one that there is none of, within a bounded time; pure.

Two names are as alike as their pairs of neighbouring characters: that takes a time in proportion to their lengths, where the usual
comparisons take one in proportion to the product of both, which is seconds for some thousand names that others chose.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Final

#: Names that are returned.
NEAREST_MAX: Final = 3
#: Characters of a name that count.
_NAME_MAX: Final = 249
#: Characters of all names that are compared: some ten milliseconds.
_COMPARED_MAX: Final = 100_000
#: A name costs as much as some characters, however short it is.
_COST_OF_A_NAME: Final = 10
#: Pairs that both have, as a part of all that they have: half of them is a letter or two in a short name.
_ALIKE: Final = 0.5


def nearest(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that are spelled much like one, the nearest first."""
    wanted, left, found = _pairs(name), _COMPARED_MAX, list[tuple[float, str]]()
    for each in names:
        left -= min(len(each), _NAME_MAX) + _COST_OF_A_NAME
        if left < 0:
            break
        alike = _alike(wanted, _pairs(each))
        if alike >= _ALIKE:
            found.append((alike, each))
    return tuple(each for _, each in nlargest(NEAREST_MAX, found))


def likeness(one: str, other: str) -> float:
    """Return how much alike two names are, from 0 to 1."""
    return _alike(_pairs(one), _pairs(other))


def _pairs(name: str) -> set[tuple[str, str]]:
    text = name[:_NAME_MAX]
    # The first and the last character have a neighbour, too.
    return set(zip(f"\0{text}", f"{text}\0", strict=True))


def _alike(one: set[tuple[str, str]], other: set[tuple[str, str]]) -> float:
    return 2 * len(one & other) / (len(one) + len(other))
