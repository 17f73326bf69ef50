"""Exact scripts of share consumers, told to Apache Kafka's own leader and to a gateway: the same answers, and those expected.

A step that is answered otherwise by either raises `Difference`; the assertions here say that a script meets what its name promises.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final

import pytest

from holdfast.api.share_consumer import ACCEPT, GAP, REJECT, RELEASE, RENEW, AcknowledgedRange
from holdfast.api.share_fetch import RECORD_LIMIT
from holdfast.client import connect
from tests.interop.gateway.pairs import (
    CUT,
    CUT_AT,
    EMPTY,
    EVEN,
    SHORT_LOCK_S,
    SHORT_WAIT_MS,
    TEN,
    TRANSACTIONS,
    Both,
    Pair,
)
from tests.interop.gateway.sides import Outcome, Place, Side, Step
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.real, pytest.mark.interop]

EVEN_PLACE: Final[Place] = ("records", EVEN)
TEN_PLACE: Final[Place] = ("records", TEN)
#: A first fetch waits until there are records; nobody waits so long.
LONG_WAIT_MS: Final = 60_000
NONE, UNKNOWN_SERVER_ERROR, INVALID_REQUEST, INVALID_RECORD_STATE = 0, -1, 42, 121
NOT_FOUND, INVALID_EPOCH = 122, 123
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 3, 100
UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH = 25, 110


def said(
    *ranges: tuple[int, int, int], place: Place = EVEN_PLACE
) -> tuple[tuple[Place, tuple[AcknowledgedRange, ...]], ...]:
    """Return ranges of a partition with one type each."""
    return ((place, tuple(AcknowledgedRange(first, last, bytes([kind])) for first, last, kind in ranges)),)


async def begin(both: Both, member: str = "a", *places: Place, records_max: int = 10, mode: int = 0) -> Outcome:
    """Begin a session with a first fetch."""
    named = places or (EVEN_PLACE,)
    step = Step("fetch", member, epoch=0, named=named, records_max=records_max, batch_size=records_max, mode=mode)
    return await both.do(step, LONG_WAIT_MS)


async def load(both: Both, place: Place) -> None:
    """Have another member fetch a partition without records at each until its answer names it: then it is loaded there."""
    step, ends_s = Step("fetch", "c", epoch=0, named=(place,)), time.monotonic() + PATIENCE_S
    for side in (both.kafka, both.gateway):
        while place not in (found := await side.do(step, SHORT_WAIT_MS)).parts:
            assert time.monotonic() < ends_s, f"{place} is not loaded at {side.name}: {found}"


def ranges(outcome: Outcome, place: Place = EVEN_PLACE) -> list[tuple[int, int, int]]:
    """Return the ranges that a fetch locked."""
    part = outcome.parts.get(place)
    return [] if part is None else [tuple(each) for each in part.acquired]  # type: ignore[misc]  # of three numbers each


# ---- sessions --------------------------------------------------------------------------------------------------------


async def test_epochs_of_a_session(pair: Pair) -> None:
    both = await pair.group("plain")
    assert (await both.do(Step("fetch", "a", epoch=1))).error_code == NOT_FOUND
    assert (await both.do(Step("fetch", "a", epoch=-1))).error_code == NOT_FOUND
    assert (await both.do(Step("acknowledge", "a", epoch=0, said=said((0, 0, ACCEPT))))).error_code == INVALID_EPOCH
    early = Step("fetch", "a", epoch=0, named=(EVEN_PLACE,), said=said((0, 0, ACCEPT)))
    assert (await both.do(early)).error_code == INVALID_REQUEST
    assert ranges(await begin(both)) == [(0, 9, 1)]
    assert not (await both.do(Step("fetch", "a", records_max=0))).error_code
    for shift in (-1, 1, 1_000):
        assert (await both.do(Step("fetch", "a", epoch_shift=shift))).error_code == INVALID_EPOCH
        refused = Step("acknowledge", "a", epoch_shift=shift, said=said((0, 0, ACCEPT)))
        assert (await both.do(refused)).error_code == INVALID_EPOCH
    assert (await both.do(Step("acknowledge", "a", said=said((0, 0, ACCEPT))))).parts[
        EVEN_PLACE
    ].acknowledge_error == NONE
    assert (await both.do(Step("fetch", "a", epoch=-1, said=said((1, 1, ACCEPT))))).parts[
        EVEN_PLACE
    ].acknowledge_error == NONE
    assert (await both.do(Step("acknowledge", "a", said=said((2, 2, ACCEPT))))).error_code in (NOT_FOUND, INVALID_EPOCH)
    assert ranges(await begin(both, "b"))[0] == (2, 9, 2)


async def test_a_member_begins_again_and_keeps_its_locks(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both)
    assert ranges(await begin(both)) == [(10, 19, 1)]
    outcome = await both.do(Step("acknowledge", "a", said=said((0, 9, ACCEPT), (10, 19, RELEASE))))
    assert outcome.parts[EVEN_PLACE].acknowledge_error == NONE
    assert ranges(await both.do(Step("fetch", "a", records_max=10))) == [(10, 19, 2)]


async def test_partitions_that_an_answer_names(pair: Pair) -> None:
    both = await pair.group("plain")
    empty, odd = ("records", EMPTY), ("records", 99)
    await load(both, empty)
    outcome = await both.do(Step("fetch", "a", epoch=0, named=(empty, odd)), 1_000)
    assert {place: part.error_code for place, part in outcome.parts.items()} == {
        empty: NONE,
        odd: UNKNOWN_TOPIC_OR_PARTITION,
    }
    await both.do(Step("fetch", "a"))
    await both.do(Step("fetch", "a", forgotten=(odd,)))
    assert await both.do(Step("fetch", "a")) == Outcome(NONE, 60_000, {})
    await both.do(Step("fetch", "a", named=(EVEN_PLACE,), records_max=10), LONG_WAIT_MS)
    # One that is forgotten keeps its locks, and its acknowledgements count.
    assert (await both.do(Step("fetch", "a", forgotten=(EVEN_PLACE,)))).parts.keys() == set()
    outcome = await both.do(Step("acknowledge", "a", said=said((0, 9, ACCEPT))))
    assert outcome.parts[EVEN_PLACE].acknowledge_error == NONE


async def test_acknowledgements_of_what_was_never_fetched(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both)
    for place in (("records", EMPTY), ("records", 99)):
        await both.do(Step("acknowledge", "a", said=said((0, 3, ACCEPT), place=place)))
        await both.do(Step("fetch", "a", said=said((0, 3, ACCEPT), place=place), forgotten=(EVEN_PLACE,)))
        await both.do(Step("fetch", "a", forgotten=(place,)))
    for place in (("unknown", 0), ("zeros", 0)):
        outcome = await both.do(Step("acknowledge", "a", said=said((0, 3, ACCEPT), place=place)))
        assert outcome.parts[place].acknowledge_error == UNKNOWN_TOPIC_ID
    await both.do(Step("acknowledge", "a"))


async def test_a_partition_that_is_renewed_before_another_is_first_fetched(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both)
    renewed = Step("fetch", "a", named=(("records", EMPTY),), said=said((0, 3, RENEW)), is_renew=True)
    assert (await both.do(renewed)).parts.keys() == {EVEN_PLACE, ("records", EMPTY)}


# ---- requests that mean nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("member_id", ["", "x" * 37], ids=["empty", "long"])
async def test_member_ids(pair: Pair, member_id: str) -> None:
    group = pair.groups.take("plain")
    both = await pair.group("plain", members={"a": member_id}, name=group)
    await both.do(Step("fetch", "a", epoch=0, named=(EVEN_PLACE,)))
    await both.do(Step("acknowledge", "a", epoch=1))


async def test_limits_of_a_request(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both)
    for records_max in (0, -1):
        await both.do(Step("fetch", "a", records_max=records_max))
    for wait_ms in (0, -1):
        await both.do(Step("fetch", "a", records_max=0), wait_ms)


async def test_acknowledgements_that_mean_nothing(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both)
    wrong = [
        AcknowledgedRange(5, 4, bytes([ACCEPT])),
        AcknowledgedRange(0, 3, bytes([ACCEPT, ACCEPT])),
        AcknowledgedRange(0, 3, b""),
        AcknowledgedRange(0, 3, bytes([5])),
        AcknowledgedRange(0, 3, bytes([255])),
        AcknowledgedRange(0, 3, bytes([RENEW])),
        AcknowledgedRange(-5, -1, bytes([ACCEPT])),
        AcknowledgedRange(0, 300, bytes([ACCEPT])),
        AcknowledgedRange(5_000, 5_001, bytes([ACCEPT])),
        AcknowledgedRange(9, 10, bytes([ACCEPT])),
    ]
    for each in wrong:
        for kind in ("acknowledge", "fetch"):
            outcome = await both.do(Step(kind, "a", said=((EVEN_PLACE, (each,)),), records_max=0))
            assert outcome.parts[EVEN_PLACE].acknowledge_error in (INVALID_REQUEST, INVALID_RECORD_STATE), each
    crossed = said((4, 8, ACCEPT), (0, 3, ACCEPT))
    assert (await both.do(Step("acknowledge", "a", said=crossed))).parts[
        EVEN_PLACE
    ].acknowledge_error == INVALID_REQUEST
    # Nothing of all that counted.
    assert (await both.do(Step("acknowledge", "a", said=said((0, 9, ACCEPT))))).parts[
        EVEN_PLACE
    ].acknowledge_error == NONE
    assert (await both.do(Step("acknowledge", "a", said=said((0, 9, ACCEPT))))).parts[
        EVEN_PLACE
    ].acknowledge_error == NONE


# ---- records ---------------------------------------------------------------------------------------------------------


async def test_a_batch_that_is_released_again_and_again_is_divided_and_given_up(pair: Pair) -> None:
    both = await pair.group("plain")
    outcome = await begin(both)
    given: dict[int, int] = {}
    while outcome.has_records and min(first for first, _, _ in ranges(outcome)) < 10:
        got = ranges(outcome)
        for first, last, count in got:
            given.update(dict.fromkeys(range(first, last + 1), count))
        released = said(*((first, last, RELEASE) for first, last, _ in got))
        outcome = await both.do(Step("acknowledge", "a", said=released))
        outcome = await both.do(Step("fetch", "a", records_max=10, batch_size=10))
    assert [given[offset] for offset in range(10)] == [5] * 10


async def test_record_limit_gives_what_was_wanted(pair: Pair) -> None:
    both = await pair.group("plain")
    assert ranges(await begin(both, records_max=3, mode=RECORD_LIMIT)) == [(0, 2, 1)]
    for records_max in (4, 7, 25):
        step = Step("fetch", "a", records_max=records_max, batch_size=records_max, mode=RECORD_LIMIT)
        outcome = await both.do(step)
        assert sum(last - first + 1 for first, last, _ in ranges(outcome)) == records_max
    mixed = said((0, 0, ACCEPT), (1, 1, RELEASE), (2, 3, REJECT), (5, 5, GAP), (6, 6, RELEASE))
    await both.do(Step("acknowledge", "a", said=mixed))
    await both.do(Step("fetch", "b", epoch=0, named=(EVEN_PLACE,), records_max=1, batch_size=1, mode=RECORD_LIMIT))
    await both.do(Step("fetch", "b", records_max=20, batch_size=2, max_bytes=1))


async def test_no_more_records_than_locks(pair: Pair) -> None:
    both = await pair.group("locks")
    outcome = await begin(both, records_max=500)
    assert ranges(outcome)[-1][1] == 99
    assert not (await both.do(Step("fetch", "a"))).has_records
    await both.do(Step("acknowledge", "a", said=said((50, 59, ACCEPT))))
    assert not (await both.do(Step("fetch", "a"))).has_records
    await both.do(Step("acknowledge", "a", said=said((60, 69, RELEASE))))
    assert ranges(await both.do(Step("fetch", "b", epoch=0, named=(EVEN_PLACE,)))) == [(60, 69, 2)]
    await both.do(Step("acknowledge", "a", said=said((0, 9, ACCEPT))))
    assert ranges(await both.do(Step("fetch", "a"))) == [(100, 109, 1)]


async def test_a_log_that_begins_in_the_middle_of_a_batch(pair: Pair) -> None:
    both, place = await pair.group("plain"), ("records", CUT)
    assert ranges(await begin(both, "a", place, records_max=5), place)[0][0] == CUT_AT


@pytest.mark.parametrize("kind", ["plain", "committed"])
async def test_transactions(pair: Pair, kind: str) -> None:
    both, place = await pair.group(kind), ("records", TRANSACTIONS)
    outcome = await begin(both, "a", place, records_max=500)
    while outcome.has_records:
        outcome = await both.do(Step("fetch", "a", records_max=500))


async def test_the_start_of_a_new_group_is_in_our_log_before_its_first_record(pair: Pair) -> None:
    """Kafka's leader keeps it to itself until it writes something else, and the next leader decides again."""
    both = await pair.group("plain")
    assert (await begin(both)).has_records
    starts = []
    for address in (pair.kafka, pair.gateway):
        async with connect(address) as client:
            summary = await client.read_summary(both.group, pair.topic_ids["records"], EVEN)
            starts.append(summary.start_offset)
    assert starts == [-1, 0]


async def test_few_bytes_are_given_at_once_and_many_wanted_bring_no_others(pair: Pair) -> None:
    """Kafka waits for MinBytes or the end of MaxWaitMs, and then gives the same."""
    both = await pair.group("plain")
    await begin(both)
    assert ranges(await both.do(Step("fetch", "a", records_max=10, batch_size=10, min_bytes=1 << 20), 500)) == [
        (10, 19, 1)
    ]


# ---- differences that are wanted: docs/protocol.md --------------------------------------------------------------------


async def test_an_unknown_topic_id_is_an_error_of_its_partition_here(pair: Pair) -> None:
    both = await pair.group("plain")
    theirs, own = await both.ask(Step("fetch", "a", epoch=0, named=(EVEN_PLACE, ("unknown", 0))), 1_000)
    assert theirs.error_code == UNKNOWN_SERVER_ERROR
    assert own.parts[("unknown", 0)].error_code == UNKNOWN_TOPIC_ID


async def test_a_partition_acknowledged_without_ranges_is_answered_here(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both)
    theirs, own = await both.ask(Step("acknowledge", "a", named=(EVEN_PLACE,)))
    assert not theirs.parts
    assert own.parts.keys() == {EVEN_PLACE}


async def test_no_range_is_reversed_here_where_the_batch_size_is_zero(pair: Pair) -> None:
    both = await pair.group("plain")
    theirs, own = await both.ask(
        Step("fetch", "a", epoch=0, named=(EVEN_PLACE,), records_max=10, batch_size=0), LONG_WAIT_MS
    )
    assert (0, -1, 1) in ranges(theirs)
    assert ranges(own) == [(0, 9, 1)]


async def test_a_partition_that_has_no_lock_left_is_named_in_a_first_answer_here(pair: Pair) -> None:
    both = await pair.group("locks")
    await begin(both, records_max=500)
    theirs, own = await both.ask(Step("fetch", "b", epoch=0, named=(EVEN_PLACE,)))
    assert not theirs.parts
    assert own.parts.keys() == {EVEN_PLACE}


async def test_a_member_that_leaves_gives_back_what_it_got_before_here(pair: Pair) -> None:
    both = await pair.group("plain")
    await load(both, ("records", EMPTY))
    await begin(both, "a", TEN_PLACE)
    await both.do(Step("fetch", "a", epoch=0, named=(("records", EMPTY),)))
    await both.do(Step("fetch", "a", epoch=-1))
    wanted = Step("fetch", "b", epoch=0, named=(TEN_PLACE,))
    theirs, own = await asyncio.gather(both.kafka.do(wanted, 1_000), both.gateway.do(wanted, LONG_WAIT_MS))
    assert ranges(theirs, TEN_PLACE) == []
    assert ranges(own, TEN_PLACE) == [(0, 9, 2)]


async def test_an_overlap_of_one_offset_is_refused_here(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both)
    theirs, own = await both.ask(Step("acknowledge", "a", said=said((0, 3, ACCEPT), (3, 5, ACCEPT))))
    assert theirs.parts[EVEN_PLACE].acknowledge_error in (NONE, INVALID_RECORD_STATE)
    assert own.parts[EVEN_PLACE].acknowledge_error == INVALID_REQUEST


async def test_a_fetch_from_a_released_record_brings_no_new_ones_far_from_it(pair: Pair) -> None:
    both = await pair.group("plain")
    await begin(both, records_max=50)
    await both.do(Step("acknowledge", "a", said=said((5, 5, RELEASE))))
    theirs, own = await both.ask(Step("fetch", "a", records_max=10, batch_size=10))
    assert ranges(theirs) == [(5, 5, 2), (50, 59, 1)]
    assert ranges(own) == [(5, 5, 2)]


# ---- what ends locks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [Step("hang up", "a"), Step("fetch", "a", epoch=-1), Step("acknowledge", "a", epoch=-1)],
    ids=["connection", "fetch", "acknowledge"],
)
async def test_a_session_that_ends_gives_its_records_back(pair: Pair, end: Step) -> None:
    both = await pair.group("plain")
    await begin(both, records_max=20)
    await both.do(Step("acknowledge", "a", said=said((3, 3, ACCEPT), (5, 6, REJECT))))
    await both.do(end)
    await _wait_for(both, dict.fromkeys((0, 1, 2, 4, *range(7, 20)), 2), "b", EVEN_PLACE)


async def test_renewed_locks_and_refused_ones(pair: Pair) -> None:
    for kind, error in (("plain", NONE), ("fixed", INVALID_RECORD_STATE)):
        both = await pair.group(kind)
        await begin(both)
        for call in ("acknowledge", "fetch"):
            mixed = said((0, 3, RENEW), (4, 4, ACCEPT)) if call == "fetch" else said((0, 3, RENEW))
            outcome = await both.do(Step(call, "a", said=mixed, is_renew=True))
            assert outcome.parts[EVEN_PLACE].acknowledge_error == error


async def _ends_whole(both: Both) -> None:
    await begin(both, "a", TEN_PLACE)
    await both.do(Step("fetch", "b", epoch=0, named=(TEN_PLACE,)))
    await _wait_for(both, dict.fromkeys(range(10), 2))
    for member, error in (("a", INVALID_RECORD_STATE), ("c", NONE)):
        outcome = await both.do(Step("acknowledge", member, said=said((0, 9, ACCEPT), place=TEN_PLACE)))
        assert outcome.parts[TEN_PLACE].acknowledge_error == error


async def _ends_divided(both: Both) -> None:
    await begin(both, "a", TEN_PLACE)
    await both.do(Step("acknowledge", "a", said=said((2, 3, ACCEPT), (5, 5, RELEASE), place=TEN_PLACE)))
    taken = await both.do(
        Step("fetch", "b", epoch=0, named=(TEN_PLACE,), records_max=1, batch_size=1, mode=RECORD_LIMIT)
    )
    assert ranges(taken, TEN_PLACE) == [(5, 5, 2)]
    await _wait_for(both, {**dict.fromkeys((0, 1, 4, 6, 7, 8, 9), 2), 5: 3})


async def _ends_later_when_renewed(both: Both) -> None:
    await begin(both, "a", TEN_PLACE)
    await asyncio.sleep(4)
    renewed_s = time.monotonic()
    await both.do(Step("acknowledge", "a", said=said((5, 9, RENEW), place=TEN_PLACE), is_renew=True))
    for given_s in await _wait_for(both, dict.fromkeys(range(10), 2)):
        # A busy machine may give all of them at once, but none of the renewed ones before its time.
        assert min(given_s[offset] for offset in range(5, 10)) > renewed_s + SHORT_LOCK_S - 0.1


async def _wait_for(
    both: Both, wanted: dict[int, int], member: str = "c", place: Place = TEN_PLACE
) -> tuple[dict[int, float], dict[int, float]]:
    """Have another member fetch at each server until it has these, with their counts, and none between them.

    How many answers that takes, and which offsets above these come with them, is a matter of time.

    Returns:
        when each offset came, of Kafka and of ours.
    """

    async def fetch(side: Side) -> dict[int, float]:
        given: dict[int, int] = {}
        given_s: dict[int, float] = {}
        step, ends_s = Step("fetch", member, epoch=0, named=(place,)), time.monotonic() + PATIENCE_S
        while not wanted.keys() <= given.keys():
            assert time.monotonic() < ends_s, f"{side.name} gave {given} of {wanted}"
            for first, last, count in ranges(await side.do(step, LONG_WAIT_MS), place):
                for offset in range(first, last + 1):
                    given.setdefault(offset, count)
                    given_s.setdefault(offset, time.monotonic())
            step = Step("fetch", member)
        assert {offset: count for offset, count in given.items() if offset <= max(wanted)} == wanted, side.name
        return given_s

    return await asyncio.gather(fetch(both.kafka), fetch(both.gateway))


async def test_locks_end_after_their_time_and_later_where_renewed(pair: Pair) -> None:
    groups = [await pair.group("short") for _ in range(3)]
    scripts = (_ends_whole, _ends_divided, _ends_later_when_renewed)
    await asyncio.gather(*(script(both) for script, both in zip(scripts, groups, strict=True)))


# ---- members ---------------------------------------------------------------------------------------------------------


async def test_heartbeats(pair: Pair) -> None:
    both = await pair.group("plain", name=f"members-{uuid.uuid4()}")
    topics = [pair.topic]

    async def beat(member: str, epoch_of: Callable[[int], int], names: Iterable[str] | None = None) -> int:
        """Send the same to both, each with an epoch made of the last one it gave; returns the error code."""
        errors = []
        for side in (both.kafka, both.gateway):
            before = epochs[side.name].get(member, 0)
            answer = await side.heartbeat(member, epoch_of(before), names)
            if not answer.error_code:
                epochs[side.name][member] = answer.member_epoch
            errors.append(answer.error_code)
        assert errors[0] == errors[1], (member, errors)
        return errors[0]

    epochs: dict[str, dict[str, int]] = {"Kafka": {}, "gateway": {}}
    assert await beat("a", lambda _: 0) == INVALID_REQUEST
    assert await beat("a", lambda _: 0, []) == INVALID_REQUEST
    assert await beat("a", lambda _: -2, topics) == INVALID_REQUEST
    assert await beat("a", lambda _: 0, topics) == NONE
    assert await beat("b", lambda _: 5) == UNKNOWN_MEMBER_ID
    assert await beat("a", lambda epoch: epoch) == NONE
    assert await beat("a", lambda epoch: epoch + 1) == FENCED_MEMBER_EPOCH
    assert await beat("a", lambda _: 0, topics) == NONE
    assert await beat("b", lambda _: 0, ["no such topic"]) == NONE
    assert await beat("b", lambda _: -1) == NONE
    assert epochs["Kafka"]["b"] == epochs["gateway"]["b"] == -1
    assert await beat("b", lambda _: 3) == UNKNOWN_MEMBER_ID
