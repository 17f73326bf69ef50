"""The security of a listener: what a connection needs of TLS and of a login, and knows nothing more of them.

The event loop deciphers the bytes of a TLS connection, below `ClientProtocol`; the handshake that comes before is a task.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

import structlog

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.wire.requests import ANONYMOUS, Request, Respond, Violation

_log = structlog.get_logger(__name__)

#: Between two attempts to accept connections, where one fails, by a bug or otherwise.
_ACCEPT_PAUSE_S: Final = 1.0


class LoginConnection(Protocol):
    """A client connection, as its login sees it."""

    #: Address of the client, with its port and without.
    address: str
    host: str

    def let_in(self, principal: str) -> None:
        """Take all requests from now on; they are those of `principal`."""

    def close_answered(self, violation: Violation) -> None:
        """Begin no more requests, and close when those in flight are answered."""

    def close(self, violation: Violation) -> None:
        """Close at once."""


class Login(Protocol):
    """How the client of one connection proves who it is."""

    def takes(self, api_key: int) -> bool:
        """Tell whether requests of a call are the login's own."""

    def handle(self, request: Request, respond: Respond) -> None:
        """Answer one of these, at once or later.

        Raises:
            MalformedBody: the body does not follow its API.
        """

    def violation(self, now_ms: float) -> Violation | None:
        """Return that the client must have logged in again before it sent another request, or None."""

    def end(self) -> None:
        """Forget the client, which is gone; again is harmless."""


class ListenerSecurity(Protocol):
    """The security of a listener: its TLS, and who its clients are."""

    #: How long a client may take from its connection to the end of its login, the TLS handshake included.
    login_timeout_ms: int
    #: Largest request before that.
    login_frame_size_bytes_max: int

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """What connections from now on are encrypted with; None: they are not."""

    def begin_login(self, connection: LoginConnection) -> Login | None:
        """Return how a client proves who it is; None: it need not."""

    def principal_of(self, certificate: bytes | None, client_address: str) -> str:
        """Return who a client is that has shown a certificate (DER), or none.

        Raises:
            NotAdmitted: nobody who may come in.
        """

    def not_encrypted(self, client_address: str, why: str) -> None:
        """Take note that the TLS handshake of a client failed."""


class NotAdmitted(Exception):
    """A client has proved to be nobody who may come in; the text says why."""


class PlaintextSecurity:
    """A listener without TLS and without logins, as Kafka's PLAINTEXT."""

    login_timeout_ms = login_frame_size_bytes_max = 0
    ssl_context: ssl.SSLContext | None = None

    def begin_login(self, connection: LoginConnection) -> Login | None:
        """See `ListenerSecurity.begin_login`."""
        return None

    def principal_of(self, certificate: bytes | None, client_address: str) -> str:
        """See `ListenerSecurity.principal_of`."""
        return ANONYMOUS

    def not_encrypted(self, client_address: str, why: str) -> None:
        """See `ListenerSecurity.not_encrypted`; without TLS none fails."""


class HandshakeConnection(Protocol):
    """A client connection whose TLS handshake is to come; also an `asyncio.Protocol`, which is not used before."""

    def take_socket(self, accepted: socket.socket, peer_name: object) -> None:
        """Take a new socket of the client at `peer_name`, or close it when there are too many."""

    def not_encrypted(self, why: str) -> None:
        """Give up, because the handshake failed."""


async def accept_encrypted(listening: socket.socket, make_client: Callable[[], HandshakeConnection]) -> None:
    """Accept connections at a socket until cancelled; so each is counted before its handshake costs anything."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, peer_name = await loop.sock_accept(listening)
        except OSError as error:  # this process has too many files open, say
            _log.warning("accept_failed", error=str(error))
            await asyncio.sleep(_ACCEPT_PAUSE_S)
            continue
        try:
            make_client().take_socket(accepted, peer_name)
        except Exception:  # a bug of ours is not to cost a file as well
            accepted.close()
            raise


async def accept_plain(listening: socket.socket, make_client: Callable[[], asyncio.Protocol]) -> None:
    """Accept connections at a socket until cancelled, one at a time.

    The loop's own server takes all that wait at once, before any of them is looked at: a crowd could take the last file descriptors, also
    those that are kept from it.
    """
    loop = asyncio.get_running_loop()
    listening.setblocking(False)
    while True:
        accepted = await _accept(loop, listening)
        try:
            await loop.connect_accepted_socket(make_client, accepted)
        except OSError:  # it is gone
            accepted.close()
        except BaseException:
            accepted.close()
            raise


async def _accept(loop: asyncio.AbstractEventLoop, listening: socket.socket) -> socket.socket:
    while True:
        try:
            return (await loop.sock_accept(listening))[0]
        except OSError as error:
            _log.warning("accept_failed", error=str(error))
            await asyncio.sleep(_ACCEPT_PAUSE_S)


async def keep_accepting(accept: Callable[[], Awaitable[None]], internal_errors: InternalErrors) -> None:
    """Await what accepts connections; a bug in it is noted, and does not leave a socket at which nobody accepts."""
    while True:
        try:
            return await accept()
        except Exception as bug:
            internal_errors.note_bug("accept_ended", bug, again_in_ms=round(_ACCEPT_PAUSE_S * 1_000))
            await asyncio.sleep(_ACCEPT_PAUSE_S)


async def encrypt(
    client: HandshakeConnection,
    accepted: socket.socket,
    context: ssl.SSLContext,
    timeout_ms: int,
    close_timeout_ms: int,
) -> None:
    """Do the TLS handshake of a connection, as its server; then the client has its transport.

    Args:
        client: takes the transport, or why there is none.
        accepted: the socket of the connection.
        context: with the certificate, of the time at which it came.
        timeout_ms: bounds the handshake.
        close_timeout_ms: bounds how long the client may take to end an encrypted connection that we close.
    """
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            # It has the interface and not the class.
            lambda: cast("asyncio.Protocol", client),
            accepted,
            ssl=context,
            ssl_handshake_timeout=timeout_ms / 1_000,
            ssl_shutdown_timeout=close_timeout_ms / 1_000,
        )
    # RuntimeError: uvloop's, where the connection ends meanwhile.
    except (OSError, RuntimeError) as error:
        client.not_encrypted(str(error) or type(error).__name__)
