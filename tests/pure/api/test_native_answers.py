"""Answers that are written in C are those that Python writes; the build that ships has it, the pure one has not."""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError  # noqa: N812
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api import share_state, state_responses
from holdfast.api.results import ReadResult, StateResponse, WriteResult
from holdfast.records.native import twins
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.combining import combine
from holdfast.runtime.build import BUILD
from tests.leaks import assert_no_leak

if twins is None:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

TOPIC_ID = bytes(range(16))
BATCHES = combine((), tuple(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(9)), -1)
#: Mostly what fits, and now and then what does not.
INT32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from((2**31, -(2**31) - 1, 2**80))
INT64 = st.integers(-(2**63), 2**63 - 1) | st.just(2**63)
BATCH = st.builds(
    StateBatch,
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(-128, 128),
    st.integers(-32_768, 32_768),
)
HELD = st.lists(BATCH, max_size=3).map(tuple) | st.lists(BATCH, max_size=3).map(lambda some: combine((), some, -1))
ERRORS = st.sampled_from(((0, None), (0, None), (0, None), (0, ""), (7, None), (7, "no")))
WRITTEN = ERRORS.map(lambda error: WriteResult(*error))
READ = st.builds(lambda error, *state: ReadResult(*error, *state), ERRORS, INT32, INT64, HELD)


def responses(result: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return answers with none, one or several topics and share partitions."""
    topic_id = st.binary(min_size=16, max_size=16)
    return st.lists(st.tuples(topic_id, st.lists(st.tuples(INT32, result), max_size=4)), max_size=3) | st.builds(
        lambda partition, only: [(TOPIC_ID, [(partition, only)])], INT32, result
    )


def check(api_key: int, encode: Callable[[Any], bytes | None], response: StateResponse) -> None:
    """Compare all ways of encoding an answer."""
    try:
        expected = state_responses.encode_response_in_python(api_key, 0, response)
    except (StructError, OverflowError):
        assert encode(response) is None
        return
    assert encode(response) in (None, expected)
    assert state_responses.encode_response(api_key, 0, response) == expected


@given(responses(WRITTEN))
def test_outcomes_are_written_as_in_python(response: StateResponse) -> None:
    for api_key in (share_state.INITIALIZE, share_state.WRITE, share_state.DELETE):
        check(api_key, twins.encode_outcomes, response)


@given(responses(READ))
def test_states_are_written_as_in_python(response: StateResponse) -> None:
    check(share_state.READ, twins.encode_states, response)


@pytest.mark.parametrize("count", [0, 1, 63, 126, 127, 128, 300])
def test_usual_answers_are_written_in_c(count: int) -> None:
    """Also where a number of elements takes two bytes, and an answer more than there is room for at first."""
    many = combine((), tuple(StateBatch(10 * n, 10 * n + 8, 2, 1) for n in range(count)), -1)
    for partitions in ([(3, many)], [(number, BATCHES) for number in range(count)]):
        states: StateResponse = [
            (TOPIC_ID, [(number, ReadResult(0, None, 4, 5, batches)) for number, batches in partitions])
        ]
        outcomes: StateResponse = [(TOPIC_ID, [(number, WriteResult()) for number, _ in partitions])] * max(1, count)
        for api_key, encode, response in (
            (share_state.READ, twins.encode_states, states),
            (share_state.WRITE, twins.encode_outcomes, outcomes),
        ):
            assert encode(response) == state_responses.encode_response_in_python(api_key, 0, response)


NOT_PACKED: list[Any] = [None, [], (), (StateBatch(0, 9, 2, 1),)]
UNUSUAL: list[Any] = [
    None,
    (),
    [()],
    [(TOPIC_ID,)],
    [[TOPIC_ID, []]],
    [("a", [])],
    [(b"short", [])],
    [(TOPIC_ID, ())],
    [(TOPIC_ID, [3])],
    [(TOPIC_ID, [(3,)])],
    [(TOPIC_ID, [(3, None)])],
    [(TOPIC_ID, [(3, ())])],
    [(TOPIC_ID, [(3, (0, None, 1))])],
    *([(TOPIC_ID, [(3, (0, None)), (partition, (0, None))])] for partition in (None, "3", 3.0, 2**31, -(2**31) - 1)),
    *([(TOPIC_ID, [(3, (code, None))])] for code in (1, -1, None, "0", 2**64)),
    [(TOPIC_ID, [(3, (0, ""))])],
    *([(TOPIC_ID, [(3, (0, None, epoch, 1, BATCHES))])] for epoch in (None, 2**31, -(2**31) - 1)),
    *([(TOPIC_ID, [(3, (0, None, 1, start, BATCHES))])] for start in (None, 2**63, -(2**63) - 1)),
    *([(TOPIC_ID, [(3, (0, None, 1, 1, batches))])] for batches in NOT_PACKED),
    *(
        [(TOPIC_ID, [(3, (0, None, 1, 1, twins.pack((StateBatch(0, 9, *kind),))))])]
        for kind in ((128, 1), (-129, 1), (2, 32_768), (2, -32_769))
    ),
]


@pytest.mark.parametrize("response", UNUSUAL)
def test_what_is_unusual_is_left_to_python(response: Any) -> None:
    assert twins.encode_outcomes(response) is None
    assert twins.encode_states(response) is None


def test_nothing_is_leaked() -> None:
    few: StateResponse = [(TOPIC_ID, [(3, ReadResult(0, None, 4, 5, BATCHES))])]
    many: StateResponse = [(TOPIC_ID, [(3, WriteResult())] * 99)]

    def encode() -> None:
        twins.encode_states(few)
        twins.encode_states(few * 9)
        twins.encode_outcomes(many)
        for response in UNUSUAL:
            twins.encode_states(response)
            twins.encode_outcomes(response)

    assert_no_leak(encode, None, BATCHES, TOPIC_ID, few, many)
