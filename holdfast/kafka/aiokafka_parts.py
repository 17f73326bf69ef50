"""What we take of aiokafka, some of it private; the one module that imports it.

Its connection does TLS and SASL and learns what the broker speaks; its record batches are in C. Neither is a promise of its version, so
`pyproject.toml` bounds that, and `tests/pure/kafka/test_borrowed.py` says what must stay as it is.
"""

import asyncio
import os
import re
import socket
import ssl
import weakref
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple

from aiokafka.abc import AbstractTokenProvider  # type: ignore[import-untyped]  # as below
from aiokafka.conn import AIOKafkaConnection  # type: ignore[import-untyped]  # it ships no types
from aiokafka.errors import (  # type: ignore[import-untyped]  # as above
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]  # as above
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]  # as above

from holdfast.hidden_texts import HIDDEN_TEXTS
from holdfast.kafka.addresses import Address, format_address
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.dialing import dial
from holdfast.kafka.errors import ConnectionFailed, LoginDenied, SetupRefused
from holdfast.kafka.oauth.sources import MECHANISM
from holdfast.kafka.oauth.tokens import TokenKeeper

#: Of the record batches that we write, and of all that we can read.
MAGIC = 2

#: Of the length of an answer, and of an answer before and in a login; the versions of all APIs take two thousand.
_LENGTH_SIZE: Final = 4
_LOGIN_ANSWER_BYTES_MAX: Final = 1 << 18

#: The numbers of the operating system in a text of asyncio, whose words beside them have a tuple of Python's.
_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_OTHER_NUMBER: Final = re.compile(r"^\[Errno -\d+\] ")


class Opened(NamedTuple):
    """A connection whose broker has let us in and waits for requests."""

    #: Its protocol is to be set by the new owner.
    transport: asyncio.Transport
    #: Lowest and highest version of each API that the broker speaks, both inclusive.
    versions: Mapping[int, tuple[int, int]]
    #: Closes it.
    close: Callable[[], object]


class _TokenLogin:
    """What aiokafka takes for a provider of tokens, and for the exchange that shows one.

    Its own takes a broker's answer that the token is refused for a success, and the connection ends without a reason.

    Source: RFC 7628; Kafka's `OAuthBearerClientInitialResponse`.
    """

    def __init__(self, tokens: TokenKeeper, timeout_s: float) -> None:
        self._tokens = tokens
        self._timeout_s = timeout_s

    async def token(self) -> str:
        """Return the token that holds now."""
        return (await asyncio.to_thread(self._tokens.token, self._timeout_s)).text

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        """Take the broker's answer, None before the first; return the next message, and whether it is answered."""
        if answer is None:
            fields = [f"auth=Bearer {await self.token()}"]
            fields += [f"{name}={value}" for name, value in self._tokens.extensions.items()]
            return "".join(f"{field}\x01" for field in ("n,,", *fields, "")).encode(), True
        if answer:
            why = HIDDEN_TEXTS.hide(answer.decode(errors="replace"))  # it may repeat the token
            raise LoginDenied(f"the broker refuses the token: {why}")
        return None


AbstractTokenProvider.register(_TokenLogin)


#: A broker that answers so answers the same until a user, a password or a mechanism is another one.
_LOGIN_DENIALS: Final = (LoginDenied, IllegalSaslStateError, SaslAuthenticationFailed, UnsupportedSaslMechanismError)
#: And these until another setting or a certificate is.
_SETUP_REFUSALS: Final = (SetupRefused, ssl.SSLCertVerificationError)


class _BoundedConnection(AIOKafkaConnection):  # type: ignore[misc]  # it ships no types
    """aiokafka's connection, with a bound on answers, and whose reader tells its caller alone why it ended."""

    @staticmethod
    async def _read(self_ref: "weakref.ref[_BoundedConnection]") -> None:
        inner = self_ref()
        if inner is None:
            return
        reader = inner._reader
        del inner
        while True:
            size = int.from_bytes(await reader.readexactly(_LENGTH_SIZE), "big", signed=True)
            if not 0 <= size <= _LOGIN_ANSWER_BYTES_MAX:
                raise KafkaConnectionError(f"it announced an answer of {size} bytes")
            answer = await reader.readexactly(size)
            inner = self_ref()
            if inner is None:
                return
            inner._handle_frame(answer)
            del inner

    @classmethod
    def _on_read_task_error(cls, self_ref: "weakref.ref[_BoundedConnection]", read_task: "asyncio.Task[None]") -> None:
        error = None if read_task.cancelled() else read_task.exception()
        inner = self_ref()
        if error is not None and inner is not None:
            inner.close(exc=error)


class _LoopOfSocket:
    """What aiokafka takes for the event loop, whose connections are all made of one socket that is connected already."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, tls_name: str) -> None:
        self._loop = loop
        self._connected = connected
        self._tls_name = tls_name
        self._transport: asyncio.Transport | None = None
        self._is_taken = False

    def drop(self) -> None:
        """Close the connection at once.

        Once a transport has the socket, it alone closes that: a number that is free too soon is that of another connection, whose
        bytes this transport would read.
        """
        if self._transport is not None:
            self._transport.abort()
        elif not self._is_taken:
            self._connected.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._loop, name)

    async def create_connection(
        self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int, ssl: ssl.SSLContext | None
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Return a connection over the socket; its certificate must be of the name that was given."""
        self._is_taken = True
        server_hostname = None if ssl is None else self._tls_name
        self._transport, protocol = await self._loop.create_connection(
            make_protocol, sock=self._connected, ssl=ssl, server_hostname=server_hostname
        )
        return self._transport, protocol


async def open_transport(address: Address, options: ConnectionOptions, timeout_ms: int) -> Opened:
    """Connect, and authenticate if the security protocol says so; `timeout_ms` bounds each step.

    Where a host has several addresses, one that is silent gets its part of that, and then the next one its own.

    Raises:
        ConnectionFailed: it did not come about.
    """
    host, port = address
    secured = options if options.renewed is None else options.renewed()

    async def shake_hands(connected: socket.socket, part_s: float) -> Opened:
        login = None if secured.tokens is None else _TokenLogin(secured.tokens, part_s)
        by_token = {} if login is None else {"sasl_mechanism": MECHANISM, "sasl_oauth_token_provider": login}
        inner = _BoundedConnection(
            host,
            port,
            client_id=options.client_id,
            request_timeout_ms=part_s * 1_000,
            ssl_context=secured.ssl_context,
            security_protocol=secured.security_protocol,
            **secured.sasl,
            **by_token,
        )
        loop = inner._loop = _LoopOfSocket(inner._loop, connected, secured.tls_name or host)
        if login is not None:
            inner.authenticator_oauth = lambda: login
        try:
            _, writer = await inner.connect()
        except BaseException:
            inner.close()
            loop.drop()
            raise
        return Opened(writer.transport, inner._versions, inner.close)

    try:
        return await dial(host, port, timeout_ms / 1_000, shake_hands)
    # RuntimeError: uvloop's, when it closes while it opens. UnicodeError: a host that is no name of a host. AssertionError: aiokafka's,
    # of versions that a broker announces.
    except (OSError, KafkaError, ConnectionFailed, RuntimeError, UnicodeError, AssertionError) as error:
        why, failure = _why(error, timeout_ms), ConnectionFailed
        if isinstance(error, _LOGIN_DENIALS):
            failure = LoginDenied
        elif isinstance(error, _SETUP_REFUSALS):
            failure = SetupRefused
        if secured.security_protocol == "SSL" and isinstance(error, KafkaConnectionError):
            why += "; a broker ends a connection without a word whose certificate it does not accept"
            failure = SetupRefused
        raise failure(f"{format_address(host, port)} cannot be reached: {why}") from error


def _why(error: BaseException, timeout_ms: int) -> str:
    """Return why a connection did not come about, for people; asyncio shows them a tuple of Python's, or nothing."""
    if isinstance(error, KafkaConnectionError) and not isinstance(error.__cause__, (OSError, EOFError, NoneType)):
        error = error.__cause__  # why the reader ended, which is not that the broker hung up
    text = str(error)
    if isinstance(error, TimeoutError) and not text:
        return f"no answer in {timeout_ms} ms"
    if isinstance(error, ConnectionResetError) and not text:
        return "the connection was closed in the TLS handshake, as by a port without TLS"
    if isinstance(error, IllegalSaslStateError):
        return "nobody logs in there; set security.protocol to PLAINTEXT or SSL"
    # A host may have several addresses, each with an error of its own.
    if numbers := dict.fromkeys(_ERRNO.findall(text)):
        return ", ".join(os.strerror(int(number)) for number in numbers)
    # What looks up hosts has numbers of its own, below zero.
    return _OTHER_NUMBER.sub("", text) or type(error).__name__


def make_batch_builder(compression: int, size_max: int) -> Any:  # noqa: ANN401
    """Return a builder of one record batch of no producer: `append(number, timestamp_ms, key, value, headers)`, then `build()`.

    Args:
        compression: Kafka's number of a codec.
        size_max: bytes of the batch, of which its first record alone may take more.
    """
    return DefaultRecordBatchBuilder(MAGIC, compression, 0, -1, -1, -1, size_max)


def read_batch(data: bytes) -> Any:  # noqa: ANN401
    """Return the first record batch of some bytes, to be checked by `validate_crc()` and then iterated, or None.

    Raises:
        Exception: whatever it likes, where the bytes are no batch; so do the check and the iteration.
    """
    return MemoryRecords(data).next_batch()
