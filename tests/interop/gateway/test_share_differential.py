"""The same requests of share consumers sent to Apache Kafka's own leader and to a gateway before the same cluster: the same answers.

Compared are error codes, ranges with their delivery counts, the bytes of records, the partitions that an answer names, and the lock's time.
The differences that are wanted stand in docs/protocol.md, each with its test. SHARE_LIVES=2000 lives more random lives, SHARE_SEED=1000
others, and a life that shows a difference prints its seed and its steps.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Final

import pytest

from tests.interop.gateway.conftest import LIVES
from tests.interop.gateway.lives import MEMBERS, Life
from tests.interop.gateway.pairs import (
    CUT,
    EVEN,
    TRANSACTIONS,
    UNEVEN,
    Difference,
    Pair,
)
from tests.interop.gateway.sides import Outcome, Place, Side, Step

pytestmark = [pytest.mark.real, pytest.mark.interop]

_SEED: Final = int(os.environ.get("SHARE_SEED", "0"))
_STEPS: Final = 30
_AT_ONCE: Final = 6
#: A first fetch waits until there are records; nobody waits so long.
_LONG_WAIT_MS: Final = 60_000
_SLOW_PAUSE_S: Final = 1.0

_KINDS: Final = ("plain", "locks", "twice", "fixed", "committed")
_LOGS: Final = (EVEN, UNEVEN, TRANSACTIONS, CUT)
UNKNOWN_SERVER_ERROR, INVALID_RECORD_STATE = -1, 121


# ---- random lives ----------------------------------------------------------------------------------------------------


async def live(pair: Pair, seed: int, pause_s: float) -> Counter[str]:
    """Live a life, and then look at what is left of each record; returns how often which answer came."""
    kind, partition = _KINDS[seed % len(_KINDS)], _LOGS[seed // len(_KINDS) % len(_LOGS)]
    place, seen = ("records", partition), Counter[str]()
    both = await pair.group(kind, pause_s=pause_s, tells_empty=False)
    life, is_first = Life(seed, place), True
    try:
        for step in life.steps(_STEPS):
            wait_ms = _LONG_WAIT_MS if is_first else 100
            theirs = await both.do(step, wait_ms)
            is_first = False
            life.note(step, theirs)
            count(step, theirs, seen)
        for member in MEMBERS:
            await both.do(Step("hang up", member))
        theirs_left, own_left = await asyncio.gather(*(left(side, place) for side in (both.kafka, both.gateway)))
        if theirs_left != own_left:
            told = f"\n{both.told()}\n    left at Kafka: {theirs_left}\n    here:          {own_left}"
            raise Difference(told, Outcome(), Outcome())
    except Difference as difference:
        if is_fault_of_kafka(difference):
            seen["a fault of Kafka"] += 1
            return seen
        told = f"seed {seed}, {kind}, partition {partition}:{difference}"
        raise Difference(told, difference.theirs, difference.own) from None
    both.close()
    return seen


async def left(side: Side, place: Place) -> dict[int, int]:
    """Return what a member gets that comes when all others have left: offsets with their delivery counts, until nothing comes."""
    given: dict[int, int] = {}
    step, empty = Step("fetch", "a", epoch=0, named=(place,)), 0
    while empty < 2:
        outcome = await side.do(step, 300)
        for part in outcome.parts.values():
            for first, last, deliveries in part.acquired:
                given.update(dict.fromkeys(range(first, last + 1), deliveries))
        empty = 0 if outcome.has_records else empty + 1
        step = Step("fetch", "a")
    return given


def count(step: Step, outcome: Outcome, seen: Counter[str]) -> None:
    """Take down which answers came."""
    seen[f"{step.kind} {outcome.error_code}"] += 1
    for part in outcome.parts.values():
        seen[f"{step.kind} partition {part.error_code} {part.acknowledge_error}"] += 1
        for _, _, deliveries in part.acquired:
            seen[f"delivery {deliveries}"] += 1


def is_fault_of_kafka(difference: Difference) -> bool:
    """Tell whether an acknowledgement met an exception of Kafka's leader, where we say INVALID_RECORD_STATE (protocol.md)."""
    return any(
        part.acknowledge_error == UNKNOWN_SERVER_ERROR
        and difference.own.parts[place].acknowledge_error == INVALID_RECORD_STATE
        for place, part in difference.theirs.parts.items()
        if place in difference.own.parts
    )


async def test_random_lives_are_the_same_at_both(pair: Pair) -> None:
    seen: Counter[str] = Counter()
    twice: list[int] = []
    room = asyncio.Semaphore(_AT_ONCE)

    async def live_once(seed: int) -> None:
        async with room:
            try:
                seen.update(await live(pair, seed, pause_s=0.05))
            except Difference as difference:
                print(f"\nonce more with pauses: {difference}")
                twice.append(seed)

    await asyncio.gather(*(live_once(_SEED + number) for number in range(LIVES)))
    for seed in twice:
        seen.update(await live(pair, seed, pause_s=_SLOW_PAUSE_S))
    print(f"\n{LIVES} lives, {len(twice)} of them twice: {dict(sorted(seen.items()))}")
    for needed in ("fetch 0", "fetch 123", "acknowledge partition 0 121", "acknowledge partition 0 42"):
        assert seen[needed], needed
    assert seen["delivery 2"]
    assert seen["delivery 3"]
