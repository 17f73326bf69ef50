"""What is written in C of Kafka's protocol answers as its twin in Python; the build that ships has it, the pure one has not."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.protocol import frames, requests
from holdfast.kafka.protocol.frames import RequestHeader
from holdfast.kafka.protocol.native import twins
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.protocol.requests import Produced
from holdfast.runtime.build import BUILD
from tests.leaks import assert_no_leak

if twins is None:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
#: Some of which have no room in a field.
NUMBERS = INT16 | INT32 | INT64 | st.integers(-(2**65), 2**65)
PRODUCED = struct.Struct(">ihqqqih")
HEADER = struct.pack(">hhih", 85, 1, 7, 2) + b"me"
ONE = struct.pack(">ih", 1, 5) + b"topic"
ANSWER = ONE + struct.pack(">i", 1) + PRODUCED.pack(3, 0, 2**40, -1, 0, 0, -1) + bytes(4)
FAILURES = (MalformedBody, struct.error, UnicodeError)


def outcome(function: Callable[..., Any], *arguments: object) -> object:
    """Return what a function returns, or how it fails."""
    try:
        return function(*arguments)
    except FAILURES as failure:
        return type(failure), str(failure)


@st.composite
def changed(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Some bytes as they are, cut short, or with some of them replaced."""
    data = bytearray(draw(whole))
    for at, byte in draw(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 255)), max_size=2)):
        if at < len(data):
            data[at] = byte
    return bytes(data[: draw(st.none() | st.integers(0, len(data)))])


HEADERS = st.builds(
    lambda key, version, number, name, body: struct.pack(">hhih", key, version, number, len(name)) + name + body,
    *(INT16, INT16, INT32, st.binary(max_size=9), st.binary(max_size=9)),
)
#: With messages and errors of single records seldom.
EACH = st.builds(PRODUCED.pack, INT32, INT16, INT64, INT64, INT64, st.sampled_from((0, 0, -1, 1)), st.just(-1))
TOPICS = st.builds(
    lambda name, parts: struct.pack(">h", len(name)) + name + struct.pack(">i", len(parts)) + b"".join(parts),
    *(st.sampled_from((b"topic", b"", "ä".encode())), st.lists(EACH, max_size=3)),
)
ANSWERS = st.builds(
    lambda topics, throttle_ms, more: struct.pack(">i", len(topics)) + b"".join(topics) + throttle_ms + more,
    *(st.lists(TOPICS, min_size=1, max_size=2), st.binary(min_size=4, max_size=4), st.binary(max_size=2)),
)


@given(changed(HEADERS))
def test_request_headers_are_read_as_in_python(frame: bytes) -> None:
    expected = outcome(frames.read_request_header_in_python, frame)
    assert outcome(frames.read_request_header, frame) == expected
    header = twins.read_request_header(RequestHeader, frame)
    assert header is None or (header == expected and type(header) is RequestHeader)
    assert (header is None) == (not isinstance(expected, RequestHeader) or expected.client_id is None)


@given(NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=9), st.binary(max_size=50), st.booleans())
def test_requests_are_encoded_as_in_python(
    api_key: int, version: int, number: int, client_id: bytes, body: bytes, has_tags: bool
) -> None:
    arguments = api_key, version, number, client_id, body, has_tags
    expected = outcome(frames.encode_request_in_python, *arguments)
    assert outcome(frames.encode_request, *arguments) == expected
    encoded = twins.encode_request(*arguments)
    assert encoded == (expected if isinstance(expected, bytes) else None)


@given(NUMBERS, st.binary(max_size=50), st.booleans())
def test_responses_are_encoded_as_in_python(number: int, body: bytes, has_tags: bool) -> None:
    expected = outcome(frames.encode_response_in_python, number, body, has_tags)
    assert outcome(frames.encode_response, number, body, has_tags) == expected
    encoded = twins.encode_response(number, body, has_tags)
    assert encoded == (expected if isinstance(expected, bytes) else None)


@given(
    st.text(max_size=5) | st.just("topic"),
    NUMBERS,
    st.lists(st.tuples(INT32 | NUMBERS, st.binary(max_size=30)), max_size=4),
)
def test_produce_requests_are_encoded_as_in_python(
    topic: str, timeout_ms: int, batches: list[tuple[int, bytes]]
) -> None:
    expected = outcome(requests.encode_produce_in_python, topic, timeout_ms, batches)
    assert outcome(requests.encode_produce, topic, timeout_ms, batches) == expected
    assert outcome(requests.encode_produce, topic, timeout_ms, iter(batches)) == expected
    encoded = twins.encode_produce(topic, timeout_ms, batches)
    assert encoded == (expected if isinstance(expected, bytes) and topic.isascii() else None)


@given(changed(ANSWERS))
def test_answers_to_produce_requests_are_decoded_as_in_python(data: bytes) -> None:
    expected = outcome(requests.decode_produced, data)
    decoded = twins.decode_produced(Produced, data)
    if decoded is not None:
        assert decoded == expected
        assert {type(each) for each in decoded[0]} <= {Produced}
        assert requests.read_produced(data) == expected
    elif isinstance(expected, tuple) and isinstance(expected[0], list):
        assert requests.read_produced(data) == expected


@given(st.binary(max_size=80))
def test_any_bytes_are_taken_as_in_python(data: bytes) -> None:
    assert outcome(frames.read_request_header, data) == outcome(frames.read_request_header_in_python, data)
    decoded = twins.decode_produced(Produced, data)
    assert decoded is None or decoded == requests.decode_produced(data)


def test_the_usual_ones_are_made_in_c() -> None:
    assert twins.read_request_header(RequestHeader, HEADER) == (85, 1, 7, b"me", 12)
    assert twins.encode_request(0, 8, 1, b"me", b"body", False) == b"\0\0\0\x10\0\0\0\x08\0\0\0\x01\0\x02mebody"
    assert twins.encode_response(7, b"body", True) == b"\0\0\0\x09\0\0\0\x07\0body"
    assert twins.encode_response(-1, b"", False) == b"\0\0\0\x04\xff\xff\xff\xff"
    assert twins.encode_produce("topic", 30_000, [(3, b"batch")]) is not None
    assert twins.decode_produced(Produced, ANSWER) == ([(3, 0, 2**40, "")], 0)


@pytest.mark.parametrize("size", range(len(ANSWER)))
def test_an_answer_that_is_cut_short_is_left_to_python(size: int) -> None:
    assert twins.decode_produced(Produced, ANSWER[:size]) is None


@pytest.mark.parametrize("size", range(len(HEADER)))
def test_a_header_that_is_cut_short_is_left_to_python(size: int) -> None:
    assert twins.read_request_header(RequestHeader, HEADER[:size]) is None


@pytest.mark.parametrize(
    ("errors", "message"), [(1, b"\xff\xff"), (0, b"\0\x02no"), (0, b"\0\0")], ids=["error", "message", "empty"]
)
def test_messages_are_left_to_python(errors: int, message: bytes) -> None:
    each = PRODUCED.pack(3, 87, -1, -1, 0, errors, -1)[:-2] + bytes(4) * errors + b"\xff\xff" * errors + message
    data = ONE + struct.pack(">i", 1) + each + bytes(4)
    assert twins.decode_produced(Produced, data) is None
    assert requests.read_produced(data) == ([(3, 87, -1, "no" if b"no" in message else "")], 0)


@pytest.mark.parametrize(
    "batches", [((3, b"batch"),), [[3, b"batch"]], [(3, bytearray(b"batch"))], [(3, b"batch", 1)], [("3", b"batch")]]
)
def test_other_batches_are_left_to_python(batches: Any) -> None:
    assert twins.encode_produce("topic", 1, batches) is None


@pytest.mark.parametrize("body", [bytearray(b"body"), memoryview(b"body")])
def test_another_body_of_a_response_is_left_to_python(body: Any) -> None:
    assert twins.encode_response(1, body, True) is None


def test_a_name_that_is_too_long_is_left_to_python() -> None:
    assert twins.encode_produce("t" * 2**15, 1, []) is None
    assert twins.encode_request(0, 8, 1, b"m" * 2**15, b"", False) is None
    assert twins.encode_request(0, 8, 1, b"m" * (2**15 - 1), b"", False) is not None


def test_what_holds_no_tuples_is_no_type_of_what_is_made() -> None:
    for make in (twins.read_request_header, twins.decode_produced):
        for other in (list, int):
            with pytest.raises(TypeError, match="no tuple"):
                make(other, b"")  # type: ignore[type-var]


def test_what_is_made_is_unknown_to_the_collector() -> None:
    decoded = twins.decode_produced(Produced, ANSWER)
    assert decoded is not None
    assert not gc.is_tracked(decoded[0][0])
    assert not gc.is_tracked(twins.read_request_header(RequestHeader, HEADER))


@pytest.mark.parametrize(
    "call",
    [
        lambda: twins.read_request_header(RequestHeader, HEADER + bytes(40)),
        lambda: twins.read_request_header(RequestHeader, HEADER[:-1]),
        lambda: twins.read_request_header(list, HEADER),  # type: ignore[type-var]
        lambda: twins.encode_request(0, 8, 2**30, b"me", bytes(600), True),
        lambda: twins.encode_request(0, 8, 2**90, b"me", bytes(600), True),
        lambda: twins.encode_response(2**30, bytes(600), True),
        lambda: twins.encode_response(2**90, bytes(600), True),
        lambda: twins.encode_response(1, bytes(600)),  # type: ignore[call-arg]
        lambda: twins.encode_produce("topic", 1, [(2**30, bytes(600)), (1, b"")]),
        lambda: twins.encode_produce("topic", 1, [(2**30, bytes(600)), (2**90, b"")]),
        lambda: twins.encode_produce("topic", 1),  # type: ignore[call-arg]
        lambda: twins.decode_produced(Produced, ANSWER),
        lambda: twins.decode_produced(Produced, ANSWER[:-1]),
        lambda: twins.decode_produced(
            Produced, ONE + struct.pack(">i", 2) + ANSWER[15:51] + PRODUCED.pack(3, 0, 2**40, -1, 0, 1, -1) + bytes(4)
        ),
    ],
)
def test_nothing_is_leaked(call: Callable[[], object]) -> None:
    assert_no_leak(call, refusals=(TypeError,))
