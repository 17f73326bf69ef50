"""PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 from the side of the server: what a client says, and what that proves.

Source: RFC 4616, RFC 5802, RFC 7677; Kafka's `PlainSaslServer` and `ScramSaslServer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from holdfast.daemon.login.credentials import Users, is_password
from holdfast.kafka.protocol.scram import (
    KEY_BYTES,
    Keys,
    ScramRefused,
    ServerSide,
    bound_preparation,
    prepare_name,
)

PLAIN: Final = "PLAIN"
#: Of SCRAM: a name, a nonce and little else.
_FIRST_MESSAGE_BYTES_MAX: Final = 768
#: All mechanisms that a listener can have.
MECHANISMS: Final = (PLAIN, *KEY_BYTES)


class NotProved(Exception):
    """A client has not proved who it is; the text is for our log lines, and no client is sent it."""


class Challenge(NamedTuple):
    """What the client is to answer next."""

    message: bytes


class Proved(NamedTuple):
    """The client is the user that it claims to be."""

    #: What the client gets, by which it knows us in turn.
    message: bytes


class Unchecked(NamedTuple):
    """What decides takes milliseconds, and is not to be done on the event loop."""

    #: Tells whether the client is the user that it claims to be; safe in any thread.
    check: Callable[[], bool]


class Exchange(Protocol):
    """The messages of one login under one mechanism."""

    #: Who the client claims to be; empty while it has not said so.
    name: str

    def take(self, message: bytes) -> Challenge | Proved | Unchecked:
        """Take the next message of the client.

        Raises:
            NotProved: it is no such message, or proves nothing.
        """

    def holds(self, users: Users) -> bool:
        """Tell whether what was proved is that of a user among these, who may have changed since the first message."""


class PlainExchange:
    """A login by a password."""

    def __init__(self, users: Users) -> None:
        self.name = self._mechanism = ""
        self._keys: Keys | None = None
        self._users = users

    def take(self, message: bytes) -> Unchecked:
        """See `Exchange.take`."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise NotProved("its message is not UTF-8") from None
        if len(parts) != 3:
            raise NotProved(f"its message has {len(parts)} parts, and three are expected")
        acts_as, self.name, password = parts
        if not self.name or not password:
            raise NotProved("it gives no name or no password")
        if acts_as not in ("", self.name):
            raise NotProved("it wants to act as another user than it is")
        try:
            # A password is prepared in another thread, which holds the interpreter as well.
            bound_preparation(password)
            self.name = prepare_name(self.name)
        except ScramRefused as error:
            raise NotProved(str(error)) from None
        self._mechanism = mechanism = self._users.strongest_of(self.name)
        self._keys = keys = self._users.find(self.name, mechanism)
        return Unchecked(lambda: is_password(mechanism, keys, password))

    def holds(self, users: Users) -> bool:
        """See `Exchange.holds`."""
        return users.find(self.name, self._mechanism) == self._keys


class ScramExchange:
    """A login by a proof of knowing a password."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self.name = ""
        self._mechanism = mechanism
        self._users = users
        self._keys: Keys | None = None
        self._server = ServerSide(mechanism, self._find)
        self._is_challenged = False

    def take(self, message: bytes) -> Challenge | Proved:
        """See `Exchange.take`."""
        try:
            if self._is_challenged:
                return Proved(self._server.verify(message))
            self._is_challenged = True
            if len(message) > _FIRST_MESSAGE_BYTES_MAX:
                raise NotProved(
                    f"its first message has {len(message)} bytes, at most {_FIRST_MESSAGE_BYTES_MAX} are taken"
                )
            return Challenge(self._server.challenge(message))
        except ScramRefused as error:
            raise NotProved(str(error)) from None

    def holds(self, users: Users) -> bool:
        """See `Exchange.holds`."""
        return users.find(self.name, self._mechanism) == self._keys

    def _find(self, name: str) -> Keys:
        self.name = name
        self.name = prepare_name(name)
        self._keys = keys = self._users.find(self.name, self._mechanism)
        return keys


def begin_exchange(mechanism: str, users: Users) -> Exchange:
    """Return the exchange of a client that has chosen one of `MECHANISMS`."""
    return PlainExchange(users) if mechanism == PLAIN else ScramExchange(mechanism, users)
