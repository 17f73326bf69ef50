"""A share partition beside a naive one, in random lives: both agree after every event, and what must hold holds.

- An offset is locked by one member at a time, and below the start offset by none.
- What was accepted or rejected with a write that succeeded is never handed out again.
- No record is skipped: the start offset passes only what is done with, absent, or below the log's start, and never goes down.
- A persisted delivery count never falls, nor does the start offset in the log.
- There is no dead end: with one member that accepts all that it is given, a life comes to the end of the log.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure.delivery.share_partition.life import Life


@given(st.randoms(use_true_random=False), st.integers(1, 40))
@settings(deadline=None)
def test_a_share_partition_agrees_with_a_naive_one(random: Random, events: int) -> None:
    Life(random).live(events)


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_long_lives_agree_with_a_naive_one(first: int) -> None:
    for seed in range(first, first + 100):
        Life(Random(seed)).live(60)
