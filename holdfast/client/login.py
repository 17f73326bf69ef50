"""The login of a client at a node: SaslHandshake, then the messages of a mechanism.

Source: KIP-152; RFC 4616, RFC 5802.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

from holdfast.client.errors import Disconnected, LoginRefused
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.sasl_calls import (
    AUTHENTICATE_VERSION_MAX,
    HANDSHAKE_VERSION,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    decode_authenticate_answer,
    decode_handshake_answer,
    encode_authenticate,
    encode_handshake,
)
from holdfast.kafka.protocol.scram import ClientSide, ScramRefused
from holdfast.kafka.security import Sasl

_PLAIN: Final = "PLAIN"

#: Sends a message of the client, and returns what the node says to it.
_Say: TypeAlias = Callable[[bytes], Awaitable[bytes]]


class Connection(Protocol):
    """An open connection to a node."""

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """Send a request and return the body of its answer; raises where none came."""


async def log_in(connection: Connection, sasl: Sasl) -> None:
    """Log in, before anything else is requested.

    Raises:
        LoginRefused: the node does not let us in, or does not know our password itself.
        Disconnected: it has too many logins to check now.
        MalformedBody: an answer is none.
    """
    body = encode_handshake(sasl.mechanism)
    code, mechanisms = decode_handshake_answer(await connection.exchange(SASL_HANDSHAKE, HANDSHAKE_VERSION, body), 0)
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise LoginRefused(f"the server knows {', '.join(mechanisms)}, and sasl.mechanism is {sasl.mechanism}")
    if code != ErrorCode.NONE:
        raise LoginRefused("nobody logs in there; set security.protocol to PLAINTEXT or SSL")

    async def say(message: bytes) -> bytes:
        request = encode_authenticate(AUTHENTICATE_VERSION_MAX, message)
        body = await connection.exchange(SASL_AUTHENTICATE, AUTHENTICATE_VERSION_MAX, request, is_flexible=True)
        answer = decode_authenticate_answer(AUTHENTICATE_VERSION_MAX, body, 0)
        if answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            raise Disconnected(f"The node puts the login off: {answer.error_message}.")
        if answer.error_code != ErrorCode.NONE:
            raise LoginRefused(answer.error_message or ErrorCode(answer.error_code).name)
        return answer.message

    if sasl.mechanism == _PLAIN:
        await say(f"\0{sasl.username}\0{sasl.password}".encode())
        return
    try:
        await _prove(ClientSide(sasl.mechanism, sasl.username, sasl.password), say)
    except ScramRefused as error:
        raise LoginRefused(str(error)) from None


async def _prove(side: ClientSide, say: _Say) -> None:
    side.check(await say(side.prove(await say(side.begin()))))
