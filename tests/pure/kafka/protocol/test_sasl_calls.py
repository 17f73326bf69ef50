"""SaslHandshake and SaslAuthenticate as bytes: what we write is what kio writes, and what is no call is refused by one exception."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from holdfast.kafka.protocol import sasl_calls
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.protocol.sasl_calls import AuthenticateAnswer, HandshakeAnswer

MESSAGE = b"n,,n=alice,r=x"


def entity(call: str, version: int, kind: str) -> Any:
    module = import_module(f"kio.schema.{call}.v{version}.{kind}")
    return getattr(module, f"{''.join(map(str.capitalize, call.split('_')))}{kind.capitalize()}")


def written(value: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def test_the_handshake_is_what_kio_writes() -> None:
    body = sasl_calls.encode_handshake("PLAIN")
    assert body == written(entity("sasl_handshake", 1, "request")(mechanism="PLAIN"))
    assert sasl_calls.decode_handshake(body, 0) == "PLAIN"
    answer = sasl_calls.encode_handshake_answer(33, ("PLAIN", "SCRAM-SHA-256"))
    response = entity("sasl_handshake", 1, "response")
    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    assert answer == written(response(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=mechanisms))
    assert sasl_calls.decode_handshake_answer(answer, 0) == HandshakeAnswer(33, ["PLAIN", "SCRAM-SHA-256"])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_messages_are_what_kio_writes(version: int) -> None:
    body = sasl_calls.encode_authenticate(version, MESSAGE)
    assert body == written(entity("sasl_authenticate", version, "request")(auth_bytes=MESSAGE))
    assert sasl_calls.decode_authenticate(version, body, 0, len(MESSAGE)) == MESSAGE
    assert sasl_calls.decode_authenticate(version, body, 0, len(MESSAGE) - 1) is None


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("text", [None, "no"])
def test_the_answers_are_what_kio_reads(version: int, text: str | None) -> None:
    answer = AuthenticateAnswer(58, text, b"v=1", 5_000 if version else 0)
    body = sasl_calls.encode_authenticate_answer(version, answer)
    read, size = entity_reader(entity("sasl_authenticate", version, "response"))(body, 0)
    assert size == len(body)
    assert (read.error_code, read.error_message, read.auth_bytes) == (
        ErrorCode.sasl_authentication_failed,
        text,
        b"v=1",
    )
    if version:
        lifetime: object = read.session_lifetime
        assert lifetime == timedelta(seconds=5)
    assert sasl_calls.decode_authenticate_answer(version, body, 0) == answer


@given(st.binary(max_size=60), st.integers(0, 2))
def test_bytes_of_any_kind_are_read_or_refused(data: bytes, version: int) -> None:
    for decode in (
        lambda: sasl_calls.decode_handshake(data, 0),
        lambda: sasl_calls.decode_authenticate(version, data, 0, 4_096),
        lambda: sasl_calls.decode_handshake_answer(data, 0),
        lambda: sasl_calls.decode_authenticate_answer(version, data, 0),
    ):
        with suppress(MalformedBody):
            decode()
