"""The call with which the command line tool administers a node: API key 10900, version 0, a command and its arguments.

Request body: compact string `command`, compact string `arguments` (a JSON object), tagged fields. Response body: int16
error code, compact nullable string with the error's text, compact string `result` (JSON), tagged fields. The key lies
far above Kafka's; its clients pass over keys they do not know.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any, Final, NamedTuple

from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    read_nullable_string,
    read_string,
    skip_tags,
)

ADMIN: Final = 10_900
ADMIN_VERSION: Final = 0

#: The reason of an admin is in every later checkpoint of the log, so it is kept short.
REASON_CHARACTERS_MAX: Final = 1_000

_ERROR_CODE: Final = Struct(">h")


class AdminRequest(NamedTuple):
    """Name a command and its arguments."""

    command: str
    arguments: dict[str, Any]


class AdminResponse(NamedTuple):
    """What a command gave; error code 0 is success."""

    error_code: int
    error_message: str | None
    #: Anything JSON can say; None after an error.
    result: Any


def reason_problem(reason: str) -> str:
    """Return why a text is no reason that the log can keep; empty if it is one."""
    if not reason.strip():
        return "it is empty"
    if len(reason) > REASON_CHARACTERS_MAX:
        return f"it has {len(reason)} characters, and {REASON_CHARACTERS_MAX} are kept"
    if any(0xD800 <= ord(character) <= 0xDFFF for character in reason):
        return "it holds half of a surrogate pair, which is no text"
    return ""


def encode_admin_request(request: AdminRequest) -> bytes:
    """Return the body of a request.

    Raises:
        TypeError: an argument is nothing that JSON can say.
    """
    return encode_string(request.command) + encode_string(json.dumps(request.arguments)) + b"\x00"


def decode_admin_request(data: bytes, offset: int = 0) -> AdminRequest:
    """Return the request whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off or has bytes behind its end, or the arguments are not a JSON object.
    """
    command, arguments_offset = read_string(data, offset, "Command")
    text, offset = read_string(data, arguments_offset, "Arguments")
    _end(data, offset)
    arguments = _from_json(text, "Arguments", arguments_offset)
    if not isinstance(arguments, dict):
        raise MalformedBody("Arguments", arguments_offset, "it is not a JSON object")
    return AdminRequest(command, arguments)


def encode_admin_response(response: AdminResponse) -> bytes:
    """Return the body of a response.

    Raises:
        TypeError: the result is nothing that JSON can say.
    """
    error_code, error_message, result = response
    return _ERROR_CODE.pack(error_code) + encode_string(error_message) + encode_string(json.dumps(result)) + b"\x00"


def decode_admin_response(data: bytes, offset: int = 0) -> AdminResponse:
    """Return the response whose body reaches from `offset` to the end of `data`.

    Raises:
        MalformedBody: the body is cut off or has bytes behind its end, or the result is not JSON.
    """
    error_code, error_message, text, result_offset = _split(data, offset)
    return AdminResponse(error_code, error_message, _from_json(text, "Result", result_offset))


def split_admin_response(data: bytes) -> tuple[int, str | None, str]:
    """Return error code, error message, and the result as the JSON text that it came in.

    Raises:
        MalformedBody: the body is cut off or has bytes behind its end.
    """
    error_code, error_message, text, _ = _split(data, 0)
    return error_code, error_message, text


def _split(data: bytes, offset: int) -> tuple[int, str | None, str, int]:
    """Return the fields of a response, and where the result begins."""
    if len(data) < offset + _ERROR_CODE.size:
        raise MalformedBody("ErrorCode", offset, "the bytes end in the middle of it")
    (error_code,) = _ERROR_CODE.unpack_from(data, offset)
    error_message, result_offset = read_nullable_string(data, offset + _ERROR_CODE.size, "ErrorMessage")
    text, offset = read_string(data, result_offset, "Result")
    _end(data, offset)
    return error_code, error_message, text, result_offset


def _from_json(text: str, field: str, offset: int) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedBody(field, offset, f"it is not JSON ({error})") from error


def _end(data: bytes, offset: int) -> None:
    end = skip_tags(data, offset, "the tagged fields of the body")
    if end != len(data):
        raise MalformedBody("the end of the body", end, f"{len(data) - end} more bytes follow")
