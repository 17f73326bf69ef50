"""What can go wrong for a user of the client.

`is_retriable` says whether a later try may succeed; the client has tried several times by then.
"""

from __future__ import annotations

from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.error_codes import SHARE_STATE_RETRIABLE, error_name, name_and_number


class ClientError(Exception):
    """A call did not succeed; the text says why in one sentence."""

    is_retriable = False


class Disconnected(ClientError, ConnectionFailed):
    """The connection could not be opened, or ended before the answer came."""

    is_retriable = True


class RequestTimedOut(ClientError, ConnectionFailed):
    """No answer came in time; whether the request took effect is not known."""

    is_retriable = True


class LoginRefused(ClientError):
    """The node does not let us in, or is not the one that knows our password; another try would end alike."""


class Unsupported(ClientError):
    """The server does not serve a version of a call that the client can speak."""


class ShareStateError(ClientError):
    """A share-state call was answered with an error."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(f"{name_and_number(code)}: {message or 'the server gave no reason'}")
        #: Kafka's error code.
        self.code = code
        #: Kafka's name of it, such as FENCED_STATE_EPOCH.
        self.name = error_name(code)
        #: What the server said, None when nothing.
        self.message = message
        self.is_retriable = code in SHARE_STATE_RETRIABLE


class AdminRefused(ClientError):
    """An admin command was refused or failed; the text is the node's own."""

    def __init__(self, code: int, message: str, command: str = "") -> None:
        super().__init__(message)
        #: Kafka's error code.
        self.code = code
        #: The admin command that was sent.
        self.command = command
        self.is_retriable = code in SHARE_STATE_RETRIABLE
