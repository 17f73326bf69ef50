"""Ratios of a contender's medians to the first one's, with 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Final

#: Resamples of the rounds for an interval, and the share of their ratios below it, and above it.
_RESAMPLES: Final = 1_000
_TAIL: Final = 0.025
#: With fewer, the least and the greatest value are no 95 % interval.
INTERVAL_ROUNDS_MIN: Final = 6


def ratio_interval(values: Sequence[float], bases: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the ratio of two medians, both ends inclusive; the same for the same values.

    A percentile bootstrap: rounds are resampled with the value and the base of each, because what slows one contender slows the other.

    Args:
        values: one for each round.
        bases: what they are compared with, of the same rounds in the same order; more than 0.
    """
    rounds, random = list(zip(values, bases, strict=True)), Random(0)
    ratios = []
    for _ in range(_RESAMPLES):
        drawn = random.choices(rounds, k=len(rounds))
        ratios.append(median(value for value, _ in drawn) / median(base for _, base in drawn))
    ratios.sort()
    beyond = int(_TAIL * _RESAMPLES)
    return ratios[beyond], ratios[-1 - beyond]


def ratio_text(values: Sequence[float], bases: Sequence[float]) -> str:
    """Return the ratio of two medians as a table shows it, with its interval where there are enough rounds.

    Args:
        values: one for each round.
        bases: as `ratio_interval` has them; those of the first contender beside itself, which are the same, have no interval.
    """
    said = f"{median(values) / median(bases):.2f}"
    if values != bases and len(values) >= INTERVAL_ROUNDS_MIN:
        low, high = ratio_interval(values, bases)
        said += f", {low:.2f} to {high:.2f}"
    return said
