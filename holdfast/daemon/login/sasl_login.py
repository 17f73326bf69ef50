"""The login of one client connection, without I/O: its calls in, outcomes out.

    SaslHandshake → SaslAuthenticate, … → in
    in → SaslHandshake → SaslAuthenticate, … → in        (again: KIP-368)

Whatever else a client does ends with `Refused`, after which the connection is to be closed.
Users are looked at twice: when a login begins, and when it ends, because a client may take its time in between.

Source: Kafka's `SaslServerAuthenticator`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from holdfast.daemon.login.credentials import Users
from holdfast.daemon.login.mechanisms import Challenge, Exchange, NotProved, Unchecked, begin_exchange
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.sasl_calls import (
    HANDSHAKE_VERSION,
    SASL_HANDSHAKE,
    AuthenticateAnswer,
    decode_authenticate,
    decode_handshake,
    encode_authenticate_answer,
    encode_handshake_answer,
)

#: Of a claimed name, in a log line.
_NAME_SHOWN_MAX: Final = 64


class LoginRules(NamedTuple):
    """What holds for all logins of a listener."""

    #: Those that can be chosen, of `mechanisms.MECHANISMS`.
    mechanisms: tuple[str, ...]
    #: Of a message under a mechanism.
    message_bytes_max: int
    #: For how long a login holds; 0: for good.
    lifetime_ms: int
    #: Returns the users who can log in now.
    users: Callable[[], Users]


class Answered(NamedTuple):
    """The login goes on."""

    body: bytes


class LoggedIn(NamedTuple):
    """The client is this user from now on."""

    body: bytes
    name: str
    mechanism: str
    #: For how long; 0: for good.
    lifetime_ms: int


class Refused(NamedTuple):
    """The client is not let in; after the answer its connection is closed."""

    body: bytes
    #: For log lines.
    why: str
    #: That of the login; empty: none was chosen.
    mechanism: str = ""
    #: Who the client claims to be; empty: it has not said so.
    name: str = ""

    def __str__(self) -> str:
        """Return all of it as a clause for people."""
        who = f" as user {_shown(self.name)}" if self.name else ""
        return f"{self.mechanism}{who}: {self.why}" if self.mechanism else self.why


class Undecided(NamedTuple):
    """What decides is to be done off the event loop, and its result given to `SaslLogin.checked` or `SaslLogin.put_off`."""

    check: Callable[[], bool]


Outcome = Answered | LoggedIn | Refused | Undecided


class SaslLogin:
    """The login of one client connection."""

    def __init__(self, rules: LoginRules) -> None:
        self._rules = rules
        self._mechanism = ""
        #: None: SaslHandshake comes next.
        self._exchange: Exchange | None = None
        #: Of the SaslAuthenticate whose answer is not decided; None: there is none.
        self._undecided_version: int | None = None
        #: Who the client is, and by which mechanism; None until it is logged in.
        self._known: tuple[str, str] | None = None

    def take(self, api_key: int, version: int, frame: bytes, offset: int) -> Outcome:
        """Take a SaslHandshake or a SaslAuthenticate.

        Raises:
            MalformedBody: the body does not follow its API.
        """
        if api_key == SASL_HANDSHAKE:
            return self._begin(version, decode_handshake(frame, offset))
        message = decode_authenticate(version, frame, offset, self._rules.message_bytes_max)
        if message is None:
            return self._refuse(version, f"its message has more than {self._rules.message_bytes_max} bytes")
        if self._exchange is None or self._undecided_version is not None:
            return self._refuse_order(version, "SaslAuthenticate")
        try:
            found = self._exchange.take(message)
        except NotProved as error:
            return self._refuse(version, str(error))
        if isinstance(found, Unchecked):
            self._undecided_version = version
            return Undecided(found.check)
        if isinstance(found, Challenge):
            return Answered(_answer(version, found.message))
        return self._let_in(version, found.message)

    def checked(self, is_right: bool) -> Outcome:
        """Take the result of what was undecided."""
        version = self._undecided_version
        assert version is not None, "a check has one result"
        self._undecided_version = None
        return self._let_in(version, b"") if is_right else self._refuse(version, "its password is wrong")

    def put_off(self) -> Refused:
        """Take note that what was undecided stays so, because others are before it: the client is to try again."""
        version = self._undecided_version
        assert version is not None, "what is decided is not put off"
        self._undecided_version = None
        # No failure of a login, which clients would not try again after.
        text = "Too many logins wait for the check of their password; try again later"
        answer = AuthenticateAnswer(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text, b"", 0)
        return self._refuse_with(version, answer, "too many wait for the check")

    def _begin(self, version: int, mechanism: str) -> Outcome:
        enabled = self._rules.mechanisms
        if version < HANDSHAKE_VERSION:
            body = encode_handshake_answer(ErrorCode.UNSUPPORTED_VERSION, enabled)
            return Refused(
                body,
                f"it sends SaslHandshake {version}, after which logins have no header; it must send {HANDSHAKE_VERSION}",
            )
        if self._exchange is not None:
            body = encode_handshake_answer(ErrorCode.ILLEGAL_SASL_STATE, enabled)
            return Refused(body, "it sends SaslHandshake within a login")
        if mechanism not in enabled:
            body = encode_handshake_answer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
            why = f"it chooses the mechanism {_shown(mechanism)}, and there are {', '.join(enabled)}"
            return Refused(body, why)
        self._mechanism = mechanism
        self._exchange = begin_exchange(mechanism, self._rules.users())
        return Answered(encode_handshake_answer(ErrorCode.NONE, enabled))

    def _let_in(self, version: int, message: bytes) -> Outcome:
        assert self._exchange is not None
        if not self._exchange.holds(self._rules.users()):
            return self._refuse(version, "its user was removed or changed since it began to log in")
        found = (self._exchange.name, self._mechanism)
        if self._known not in (None, found):
            return self._refuse(version, "it logs in again as another user, or by another mechanism")
        self._known, self._exchange = found, None
        lifetime_ms = self._rules.lifetime_ms
        return LoggedIn(_answer(version, message, lifetime_ms), *found, lifetime_ms)

    def _refuse(self, version: int, why: str) -> Refused:
        # One text for all: who does not exist and who gives a wrong password get the same.
        text = f"Authentication failed due to invalid credentials with SASL mechanism {self._mechanism}"
        answer = AuthenticateAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, text, b"", 0)
        return self._refuse_with(version, answer, why)

    def _refuse_with(self, version: int, answer: AuthenticateAnswer, why: str) -> Refused:
        name = "" if self._exchange is None else self._exchange.name
        return Refused(encode_authenticate_answer(version, answer), why, self._mechanism, name)

    def _refuse_order(self, version: int, call: str) -> Refused:
        text = f"{call} is not expected now"
        answer = AuthenticateAnswer(ErrorCode.ILLEGAL_SASL_STATE, text, b"", 0)
        return Refused(encode_authenticate_answer(version, answer), f"{text}, and it sends it", self._mechanism)


def _answer(version: int, message: bytes, lifetime_ms: int = 0) -> bytes:
    return encode_authenticate_answer(version, AuthenticateAnswer(ErrorCode.NONE, None, message, lifetime_ms))


def _shown(text: str) -> str:
    return repr(text[:_NAME_SHOWN_MAX])
