"""Requests decoded in C are what they are in Python, to the types; the build that ships has it, the pure one has not."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api import share_state, state_requests
from holdfast.api.results import PATIENT_CALLER, ReadPartition, StateRequest, WritePartition
from holdfast.api.share_state import Buffer
from holdfast.api.state_requests import UNBOUNDED, Bounds, decode_in_python, decode_request, encode_request
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.records.native import twins
from holdfast.records.share.batches import StateBatch
from holdfast.runtime.build import BUILD
from tests.leaks import assert_no_leak
from tests.pure.api.test_share_state import CALLS, TOPIC_ID, mutations, requests, sample_bodies

if twins is None:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

#: What the twin is told of share partitions.
TOLD: dict[tuple[int, int], tuple[type, str]] = {
    (share_state.READ, 0): (ReadPartition, "ii"),
    (share_state.WRITE, 0): (WritePartition, "iiiq-B"),
    (share_state.WRITE, 1): (WritePartition, "iiiqiB"),
}


def in_c(api_key: int, version: int, data: Buffer, offset: int = 0, bounds: Bounds = UNBOUNDED) -> StateRequest | None:
    return twins.decode_request(StateRequest, *TOLD[api_key, version], data, offset, bounds, PATIENT_CALLER)


def in_python(api_key: int, version: int, data: Buffer, offset: int = 0, bounds: Bounds = UNBOUNDED) -> object:
    try:
        return decode_in_python(api_key, version, data, offset, bounds, PATIENT_CALLER)
    except MalformedBody:
        return None


def types_of(value: Any) -> Any:
    """Return the types of a value and of all that it holds."""
    if isinstance(value, list | tuple | twins.PackedBatches):
        return type(value), [types_of(each) for each in value]
    return type(value)


BATCHES = st.lists(
    st.builds(StateBatch, st.integers(0, 5), st.integers(3, 9), st.sampled_from((0, 2)), st.integers(1, 2)), max_size=3
).map(tuple)


@pytest.mark.parametrize("call", TOLD)
@given(data=st.data(), head=st.binary(max_size=3))
def test_a_request_without_tags_is_decoded_in_c(call: tuple[int, int], data: Any, head: bytes) -> None:
    request = data.draw(requests(*call))
    if call[0] == share_state.WRITE:
        _, topics, _ = request
        request = request._replace(
            topics=[(id_, [each._replace(state_batches=data.draw(BATCHES)) for each in some]) for id_, some in topics]
        )
    encoded = head + encode_request(*call, request)
    decoded, expected = in_c(*call, encoded, len(head)), in_python(*call, encoded, len(head))
    assert decoded == expected == request
    assert types_of(decoded) == types_of(expected)
    assert decode_request(*call, encoded, len(head)) == request
    assert in_c(*call, memoryview(encoded), len(head)) is None


@pytest.mark.parametrize("count", [0, 1, 2, 126, 127, 200, 16_400])
def test_many_of_anything_are_decoded_in_c(count: int) -> None:
    batches = tuple(StateBatch(2 * n, 2 * n, 2, 1) for n in range(count))
    many: list[tuple[int, StateRequest]] = [
        (share_state.READ, StateRequest("g" * count, [])),
        (share_state.READ, StateRequest("g", [(TOPIC_ID, [ReadPartition(n, 0) for n in range(count)])])),
        (share_state.READ, StateRequest("g", [(TOPIC_ID, [ReadPartition(7, 1 << 30)])] * count)),
        (share_state.WRITE, StateRequest("g", [(TOPIC_ID, [WritePartition(7, 1, -2, -1 << 63, -1, batches)])])),
    ]
    for api_key, request in many:
        assert in_c(api_key, 0, encode_request(api_key, 0, request)) == request


@pytest.mark.parametrize("call", TOLD)
def test_any_other_bytes_are_decoded_as_in_python_or_left_to_it(call: tuple[int, int]) -> None:
    sample, _ = sample_bodies(*call)
    source = random.Random(call[0] + call[1])
    found = 0
    for data in (*mutations(sample, source, 3_000), *(sample[:size] for size in range(len(sample)))):
        decoded, expected = in_c(*call, data), in_python(*call, data)
        assert decoded is None or decoded == expected
        assert decoded is None or types_of(decoded) == types_of(expected)
        found += decoded is not None
    assert found > 500


@pytest.mark.parametrize("call", TOLD)
def test_a_request_beyond_its_bounds_is_left_to_python(call: tuple[int, int]) -> None:
    sample, _ = sample_bodies(*call)
    is_write = call[0] == share_state.WRITE
    for bounds, fits in ((Bounds(4, 2), True), (Bounds(3, 2), False), (Bounds(4, 1), not is_write)):
        assert (in_c(*call, sample, 0, bounds) is not None) == fits
        assert in_c(*call, sample, 0, bounds) == in_python(*call, sample, 0, bounds)


@pytest.mark.parametrize(
    "body",
    [
        "00010000",  # a null group id
        "02ff0100",  # not UTF-8
        "0261000000",  # null topics
        "8200610100",  # a length that takes more bytes than it needs
        "818080800061",
        "0261010100026100",  # tags
        "02610100" + "00",  # bytes behind the end
        "02610200" + "00" * 16,  # null share partitions
    ],
)
def test_an_unusual_body_is_left_to_python(body: str) -> None:
    assert in_c(share_state.READ, 0, bytes.fromhex(body)) is None


def test_a_place_outside_of_the_bytes_is_left_to_python() -> None:
    for offset in (-1, 5, sys.maxsize):
        assert in_c(share_state.READ, 0, bytes.fromhex("02610100"), offset) is None
    assert in_c(share_state.READ, 0, bytes.fromhex("02610100")) == StateRequest("a", [])


def test_the_collector_knows_what_holds_the_caller_and_no_share_partition() -> None:
    sample, _ = sample_bodies(share_state.WRITE, 1)
    request = in_c(share_state.WRITE, 1, sample)
    assert request is not None
    assert gc.is_tracked(request)
    assert not any(gc.is_tracked(each) for _, partitions in request.topics for each in partitions)


@pytest.mark.parametrize("call", CALLS)
def test_the_twin_is_told_the_layout_of_each_call(call: tuple[int, int]) -> None:
    sample, _ = sample_bodies(*call)
    partition_type, layout, _ = state_requests._PARTITIONS[call]
    assert TOLD.get(call, (partition_type, layout)) == (partition_type, layout)
    decoded = twins.decode_request(StateRequest, partition_type, layout, sample, 0, UNBOUNDED, PATIENT_CALLER)
    assert decoded == in_python(*call, sample)


SAMPLE, _ = sample_bodies(share_state.WRITE, 1)
UNSETTLED = WritePartition(1 << 30, 1 << 30, 1 << 30, 1 << 40, 1 << 30, (StateBatch(1, 1 << 40, 2, 300),) * 2)
LONE = UNSETTLED._replace(state_batches=UNSETTLED.state_batches[:1])
BODY = encode_request(share_state.WRITE, 1, StateRequest("group", [(TOPIC_ID, [UNSETTLED, LONE])] * 2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: in_c(share_state.WRITE, 1, BODY),
        lambda: in_c(share_state.WRITE, 1, SAMPLE),
        lambda: [in_c(share_state.WRITE, 1, BODY[:size]) for size in range(0, len(BODY), 7)],
        lambda: [
            in_c(share_state.WRITE, 1, BODY[:at] + b"\1" + BODY[at + 1 :]) for at in range(len(BODY) - 60, len(BODY))
        ],
        lambda: in_c(share_state.WRITE, 1, BODY + b"0"),
        lambda: in_c(share_state.WRITE, 1, BODY, 0, Bounds(3)),
        lambda: in_c(share_state.WRITE, 1, BODY, 0, Bounds(4, 1)),
        lambda: in_c(share_state.WRITE, 1, memoryview(BODY)),
        lambda: in_c(share_state.READ, 0, b"\3\xff\xff\1\0"),
    ],
)
def test_nothing_is_leaked(call: Callable[[], object]) -> None:
    assert_no_leak(call)


@pytest.mark.parametrize(
    "args",
    [
        (),
        (StateRequest, ReadPartition, "ii", b"\2a\1\0", 0, UNBOUNDED),
        (list, ReadPartition, "ii", b"\2a\1\0", 0, UNBOUNDED, None),
        (StateRequest, int, "ii", b"\2a\1\0", 0, UNBOUNDED, None),
        (StateRequest, ReadPartition, b"ii", b"\2a\1\0", 0, UNBOUNDED, None),
        (StateRequest, ReadPartition, "ii", b"\2a\1\0", "0", UNBOUNDED, None),
        (StateRequest, ReadPartition, "ii", b"\2a\1\0", 0, (1,), None),
        (StateRequest, ReadPartition, "ii", b"\2a\1\0", 0, (1, "1", 1), None),
    ],
)
def test_what_is_no_call_is_refused(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        twins.decode_request(*args)
