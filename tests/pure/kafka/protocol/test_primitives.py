"""Varints, strings, bodies and frames: round trips, and one exception for everything else."""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kio.serial import writers
from kio.static.primitive import uvarint

from holdfast.api import admin
from holdfast.kafka.protocol import frames, primitives
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.primitives import MalformedBody


@given(st.integers(0, (1 << 31) - 1))
def test_varints_are_kios(value: int) -> None:
    buffer = BytesIO()
    writers.write_unsigned_varint(buffer, uvarint(value))
    assert primitives.encode_varint(value) == buffer.getvalue()
    assert primitives.read_varint(b"x" + buffer.getvalue() + b"y", 1, "f") == (value, 1 + len(buffer.getvalue()))


@given(st.none() | st.text(max_size=300))
def test_strings_are_kios(text: str | None) -> None:
    buffer = BytesIO()
    writers.write_nullable_compact_string(buffer, text)
    assert primitives.encode_string(text) == buffer.getvalue()
    assert primitives.read_nullable_string(buffer.getvalue(), 0, "f") == (text, len(buffer.getvalue()))


def test_a_legacy_body_field_by_field() -> None:
    data = bytes.fromhex("ff 0102 fffffffe 01 0002 6162 ffff 00000001 61 ffffffff".replace(" ", ""))
    reader = BodyReader(data, 0, is_flexible=False)
    assert reader.int8("a") == -1
    assert reader.int16("b") == 258
    assert reader.int32("c") == -2
    assert reader.boolean("d") is True
    assert reader.string("e") == "ab"
    assert reader.nullable_string("f") is None
    assert reader.count("g") == 1
    assert reader.raw(1, "h") == b"a"
    assert reader.nullable_count("i") is None
    reader.end()


def test_a_flexible_body_field_by_field() -> None:
    data = bytes.fromhex("036162 00 02 61 00 01 0001ff 00".replace(" ", ""))
    reader = BodyReader(data, 0, is_flexible=True)
    assert reader.string("a") == "ab"
    assert reader.nullable_string("b") is None
    assert reader.count("c") == 1
    assert reader.raw(1, "d") == b"a"
    assert reader.nullable_count("e") is None
    reader.tags("f")
    reader.end()


@pytest.mark.parametrize(
    ("data", "is_flexible", "take"),
    [
        ("ffff", False, "string"),
        ("fffe", False, "nullable_string"),
        ("0003 6162", False, "string"),
        ("0002 c328", False, "string"),
        ("00", True, "string"),
        ("ffffffff", False, "count"),
        ("7fffffff 00", False, "count"),
        ("80000000", False, "nullable_count"),
        ("00", True, "count"),
        ("ffffffff07 00", True, "nullable_count"),
        ("000000", False, "int32"),
        ("01", True, "end"),
        ("00 00", True, "end"),
        ("00", False, "end"),
    ],
)
def test_a_body_that_does_not_hold_the_field(data: str, is_flexible: bool, take: str) -> None:
    reader = BodyReader(bytes.fromhex(data.replace(" ", "")), 0, is_flexible)
    with pytest.raises(MalformedBody):
        getattr(reader, take)(*([] if take == "end" else ["f"]))


@given(st.integers(-(2**31), 2**31 - 1))
@example(2**31 - 1)
@example(-(2**31))
@example(-1)
def test_a_length_is_read_as_a_number_with_a_sign(length: int) -> None:
    assert frames.read_length(b"at" + length.to_bytes(4, "big", signed=True) + b"more", 2) == length


def test_request_frames() -> None:
    frame = frames.encode_request(85, 1, 7, b"me", b"body")
    assert frames.read_length(frame, 0) == len(frame) - frames.LENGTH_SIZE
    header = frames.read_request_header(frame[4:])
    assert tuple(header) == (85, 1, 7, b"me", 12)
    assert frame[4 + header.end :] == b"\x00body"
    assert frames.read_request_header(bytes.fromhex("0012 0003 00000007 ffff".replace(" ", ""))).client_id is None
    for length in range(header.end):
        with pytest.raises(MalformedBody):
            frames.read_request_header(frame[4 : 4 + length])


@pytest.mark.parametrize("has_tags", [True, False])
def test_response_frames(has_tags: bool) -> None:
    frame = frames.encode_response(-7, b"body", has_tags)
    assert frames.read_length(frame, 0) == len(frame) - frames.LENGTH_SIZE
    correlation_id, offset = frames.read_response_header(frame[4:], has_tags)
    assert (correlation_id, frame[4 + offset :]) == (-7, b"body")
    with pytest.raises(MalformedBody):
        frames.read_response_header(frame[4:7], has_tags)


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.text(max_size=10), st.dictionaries(st.text(max_size=5), json_values, max_size=3), st.integers(-1, 130))
def test_admin_bodies(command: str, arguments: dict[str, Any], error_code: int) -> None:
    request = admin.AdminRequest(command, arguments)
    assert admin.decode_admin_request(admin.encode_admin_request(request)) == request
    response = admin.AdminResponse(error_code, command, arguments)
    assert admin.decode_admin_response(b"h" + admin.encode_admin_response(response), 1) == response


def test_malformed_admin_bodies() -> None:
    source = random.Random(1)
    request = admin.encode_admin_request(admin.AdminRequest("state", {"group": "g", "list": [1, 2]}))
    response = admin.encode_admin_response(admin.AdminResponse(0, None, {"a": [1]}))
    for sample, decode in ((request, admin.decode_admin_request), (response, admin.decode_admin_response)):
        for length in range(len(sample)):
            with pytest.raises(MalformedBody):
                decode(sample[:length])
        with pytest.raises(MalformedBody):
            decode(sample + b"\x00")
        refused = 0
        for _ in range(2_000):
            data = bytearray(sample)
            data[source.randrange(len(data))] = source.randrange(256)
            try:
                decode(bytes(data))
            except MalformedBody:
                refused += 1
        assert refused > 500
    nested = primitives.encode_string("c") + primitives.encode_string("[" * 100_000) + b"\x00"
    with pytest.raises(MalformedBody, match="Arguments"):
        admin.decode_admin_request(nested)
    with pytest.raises(MalformedBody, match="it is not a JSON object"):
        admin.decode_admin_request(primitives.encode_string("c") + primitives.encode_string("[]") + b"\x00")
