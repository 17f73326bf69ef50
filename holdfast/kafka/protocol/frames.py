"""Frames of the Kafka protocol: a length, a header, a body.

A request header is version 1 (key, version, correlation id, client id) or version 2 (the same and tagged fields); a
response header is version 0 (correlation id) or version 1 (the same and tagged fields). The client id is never compact.
The answer to ApiVersions always has header version 0, so that it can be read before anything was agreed on.

Source: KIP-482, KIP-511.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from holdfast.kafka.protocol.native import twins
from holdfast.kafka.protocol.primitives import MalformedBody, skip_tags

#: Bytes of the length in front of every frame; it counts what follows it.
LENGTH_SIZE: Final = 4
_FRAME_SIZE_MAX: Final = (1 << 31) - 1

_REQUEST: Final = Struct(">hhih")
_REQUEST_FRAME: Final = Struct(">ihhih")
_RESPONSE_FRAME: Final = Struct(">ii")
_RESPONSE_FRAME_WITH_TAGS: Final = Struct(">iix")

_unpack_request: Final = _REQUEST.unpack_from
_pack_response: Final = _RESPONSE_FRAME.pack
_pack_response_with_tags: Final = _RESPONSE_FRAME_WITH_TAGS.pack


class RequestHeader(NamedTuple):
    """Which request this is and how its answer is found again."""

    api_key: int
    api_version: int
    correlation_id: int
    #: As sent, normally UTF-8; None when absent.
    client_id: bytes | None
    #: Where the tagged fields of header version 2 or the body of version 1 begin.
    end: int


_make_request_header: Final[Callable[[Iterable[object]], RequestHeader]] = partial(tuple.__new__, RequestHeader)
# Final, for it is used at every request: docs/decisions/build.md.
_HEADER: Final = RequestHeader
_read_in_c: Final = None if twins is None else twins.read_request_header
_encode_in_c: Final = None if twins is None else twins.encode_request
_encode_response_in_c: Final = None if twins is None else twins.encode_response


def read_length(data: bytes, offset: int) -> int:
    """Return the length that is announced at `offset`; it may be negative."""
    # Byte by byte, which compiled code does without a call.
    length = data[offset] << 24 | data[offset + 1] << 16 | data[offset + 2] << 8 | data[offset + 3]
    return length if length <= _FRAME_SIZE_MAX else length - (1 << 32)


def read_request_header(frame: bytes) -> RequestHeader:
    """Return the header of a request, up to its tagged fields.

    Raises:
        MalformedBody: the frame ends in the middle of it.
    """
    header = None if _read_in_c is None else _read_in_c(_HEADER, frame)
    return read_request_header_in_python(frame) if header is None else header


def read_request_header_in_python(frame: bytes) -> RequestHeader:
    """Answer as `read_request_header` does."""
    if len(frame) < _REQUEST.size:
        raise MalformedBody("the request header", 0, f"it has {_REQUEST.size} bytes at least, the frame {len(frame)}")
    api_key, api_version, correlation_id, length = _unpack_request(frame)
    if length < 0:
        return _make_request_header((api_key, api_version, correlation_id, None, _REQUEST.size))
    end = _REQUEST.size + length
    if end > len(frame):
        raise MalformedBody("ClientId", _REQUEST.size - 2, f"{length} bytes are announced, the frame has {len(frame)}")
    return _make_request_header((api_key, api_version, correlation_id, frame[_REQUEST.size : end], end))


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: bytes, body: bytes, has_tags: bool = True
) -> bytes:
    """Return the frame of a request with header version 2 if it has tags, else 1, its length included."""
    if _encode_in_c is not None:
        frame = _encode_in_c(api_key, api_version, correlation_id, client_id, body, has_tags)
        if frame is not None:
            return frame
    return encode_request_in_python(api_key, api_version, correlation_id, client_id, body, has_tags)


def encode_request_in_python(
    api_key: int, api_version: int, correlation_id: int, client_id: bytes, body: bytes, has_tags: bool
) -> bytes:
    """Answer as `encode_request` does."""
    tags = b"\x00" if has_tags else b""
    length = _REQUEST.size + len(client_id) + len(tags) + len(body)
    return b"%b%b%b%b" % (
        _REQUEST_FRAME.pack(length, api_key, api_version, correlation_id, len(client_id)),
        client_id,
        tags,
        body,
    )


def encode_response(correlation_id: int, body: bytes, has_tags: bool) -> bytes:
    """Return the frame of a response with header version 1 if it has tags, else 0, its length included."""
    if _encode_response_in_c is not None:
        frame = _encode_response_in_c(correlation_id, body, has_tags)
        if frame is not None:
            return frame
    return encode_response_in_python(correlation_id, body, has_tags)


def encode_response_in_python(correlation_id: int, body: bytes, has_tags: bool) -> bytes:
    """Answer as `encode_response` does."""
    if has_tags:
        return _pack_response_with_tags(len(body) + 5, correlation_id) + body
    return _pack_response(len(body) + 4, correlation_id) + body


def encode_response_head(correlation_id: int, body_size: int, has_tags: bool) -> bytes:
    """Return what `encode_response` puts in front of a body of `body_size` bytes.

    Raises:
        ValueError: the answer is larger than a frame can be.
    """
    size = body_size + (5 if has_tags else 4)
    if size > _FRAME_SIZE_MAX:
        raise ValueError(f"An answer of {size} bytes is larger than a frame can be.")
    return (_pack_response_with_tags if has_tags else _pack_response)(size, correlation_id)


def read_response_header(frame: bytes, has_tags: bool) -> tuple[int, int]:
    """Return the correlation id of a response and where its body begins.

    Raises:
        MalformedBody: the frame ends in the middle of it.
    """
    end = LENGTH_SIZE  # a correlation id is as long, and is read alike
    if len(frame) < end:
        raise MalformedBody("CorrelationId", 0, f"it has {end} bytes, the frame {len(frame)}")
    return read_length(frame, 0), skip_tags(frame, end, "the response header") if has_tags else end
