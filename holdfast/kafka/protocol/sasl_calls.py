"""SaslHandshake (versions 0 and 1, whose bytes are the same) and SaslAuthenticate (versions 0 to 2) as bytes.

Source: Kafka's `SaslHandshakeRequest.json` and `SaslAuthenticateRequest.json`; KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import encode_legacy_string, encode_string, encode_varint

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

#: After an older one, messages would come without a header, which clients before Kafka 1.0 alone need.
HANDSHAKE_VERSION: Final = 1
#: Inclusive.
AUTHENTICATE_VERSION_MAX: Final = 2
AUTHENTICATE_FLEXIBLE_FROM: Final = 2
#: The first flexible version of SaslHandshake: no version is.
NEVER_FLEXIBLE: Final = 1 << 15
#: From which on a client learns how long its login holds.
LIFETIME_FROM: Final = 1

#: What is answered where no login is expected.
NOT_NOW: Final = int(ErrorCode.ILLEGAL_SASL_STATE)

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class HandshakeAnswer(NamedTuple):
    """The answer to SaslHandshake."""

    error_code: int
    #: Those that can be chosen.
    mechanisms: Sequence[str]


class AuthenticateAnswer(NamedTuple):
    """The answer to SaslAuthenticate."""

    error_code: int
    error_message: str | None
    #: Of the server, under the mechanism.
    message: bytes
    #: For how long the login holds; 0: for good, as far as the version says.
    lifetime_ms: int


def encode_handshake(mechanism: str) -> bytes:
    """Return the request that chooses a mechanism."""
    return encode_legacy_string(mechanism)


def decode_handshake(frame: bytes, offset: int) -> str:
    """Return the mechanism that a client chooses.

    Raises:
        MalformedBody: the bytes are no such request.
    """
    reader = BodyReader(frame, offset, is_flexible=False)
    mechanism = reader.string("Mechanism")
    reader.end()
    return mechanism


def encode_handshake_answer(error_code: int, mechanisms: Sequence[str]) -> bytes:
    """Return the answer to SaslHandshake."""
    listed = b"".join(map(encode_legacy_string, mechanisms))
    return _INT16.pack(error_code) + _INT32.pack(len(mechanisms)) + listed


def decode_handshake_answer(frame: bytes, offset: int) -> HandshakeAnswer:
    """Return what a server answers to SaslHandshake.

    Raises:
        MalformedBody: the bytes are no such answer.
    """
    reader = BodyReader(frame, offset, is_flexible=False)
    error_code = reader.int16("ErrorCode")
    mechanisms = [reader.string("Mechanisms") for _ in range(reader.count("Mechanisms"))]
    reader.end()
    return HandshakeAnswer(error_code, mechanisms)


def encode_authenticate(version: int, message: bytes) -> bytes:
    """Return the request that carries a message of the client."""
    if version >= AUTHENTICATE_FLEXIBLE_FROM:
        return encode_varint(len(message) + 1) + message + b"\x00"
    return _INT32.pack(len(message)) + message


def decode_authenticate(version: int, frame: bytes, offset: int, message_bytes_max: int) -> bytes | None:
    """Return the message of a client; None: it is longer than it may be.

    Raises:
        MalformedBody: the bytes are no such request.
    """
    reader = BodyReader(frame, offset, version >= AUTHENTICATE_FLEXIBLE_FROM)
    size = reader.count("AuthBytes")
    if size > message_bytes_max:
        return None
    message = reader.raw(size, "AuthBytes")
    reader.end()
    return message


def encode_authenticate_answer(version: int, answer: AuthenticateAnswer) -> bytes:
    """Return the answer to SaslAuthenticate."""
    error_code, text, message, lifetime_ms = answer
    lifetime = _INT64.pack(lifetime_ms) if version >= LIFETIME_FROM else b""
    head = _INT16.pack(error_code)
    if version >= AUTHENTICATE_FLEXIBLE_FROM:
        return b"%b%b%b%b%b\x00" % (head, encode_string(text), encode_varint(len(message) + 1), message, lifetime)
    reason = _INT16.pack(-1) if text is None else encode_legacy_string(text)
    return b"%b%b%b%b%b" % (head, reason, _INT32.pack(len(message)), message, lifetime)


def decode_authenticate_answer(version: int, frame: bytes, offset: int) -> AuthenticateAnswer:
    """Return what a server answers to SaslAuthenticate.

    Raises:
        MalformedBody: the bytes are no such answer.
    """
    reader = BodyReader(frame, offset, version >= AUTHENTICATE_FLEXIBLE_FROM)
    error_code, text = reader.int16("ErrorCode"), reader.nullable_string("ErrorMessage")
    message = reader.raw(reader.count("AuthBytes"), "AuthBytes")
    lifetime_ms = reader.int64("SessionLifetimeMs") if version >= LIFETIME_FROM else 0
    reader.end()
    return AuthenticateAnswer(error_code, text, message, lifetime_ms)
