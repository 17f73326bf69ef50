"""What can go wrong for a user of the client.

`is_retriable` says whether a later try may succeed; the client has tried several times by then.
"""

from __future__ import annotations

from typing import Final

#: Codes that the client gives itself when no answer came, or none for a share partition.
UNKNOWN_SERVER_ERROR: Final = -1
REQUEST_TIMED_OUT: Final = 7
NETWORK_EXCEPTION: Final = 13

_UNKNOWN_TOPIC_OR_PARTITION: Final = 3
_COORDINATOR_LOAD_IN_PROGRESS: Final = 14
_COORDINATOR_NOT_AVAILABLE: Final = 15
_NOT_COORDINATOR: Final = 16

#: Codes after which Kafka's own persister looks the coordinator up again and tries again, and the two for no answer.
RETRIABLE_CODES: Final = frozenset(
    (
        _UNKNOWN_TOPIC_OR_PARTITION,
        REQUEST_TIMED_OUT,
        NETWORK_EXCEPTION,
        _COORDINATOR_LOAD_IN_PROGRESS,
        _COORDINATOR_NOT_AVAILABLE,
        _NOT_COORDINATOR,
    )
)


class ClientError(Exception):
    """Say in one sentence why a call did not succeed."""

    is_retriable = False


class Disconnected(ClientError):
    """The connection could not be opened, or ended before the answer came."""

    is_retriable = True


class RequestTimedOut(ClientError):
    """No answer came in time; whether the request took effect is not known."""

    is_retriable = True


class Unsupported(ClientError):
    """The server does not serve a version of a call that the client can speak."""


class ShareStateError(ClientError):
    """A share-state call was answered with an error."""

    def __init__(self, code: int, message: str | None) -> None:
        name = error_name(code)
        super().__init__(f"{name} ({code}): {message or 'the server gave no reason'}")
        #: Kafka's error code.
        self.code = code
        #: Kafka's name of it, such as FENCED_STATE_EPOCH.
        self.name = name
        #: What the server said, None when nothing.
        self.message = message
        self.is_retriable = code in RETRIABLE_CODES


class AdminRefused(ClientError):
    """An admin command was refused or failed; the text is the node's own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        #: Kafka's error code.
        self.code = code
        self.is_retriable = code in RETRIABLE_CODES


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, such as NOT_COORDINATOR."""
    # Here and not above: kio takes most of the time in which the client is imported, and few calls fail.
    from kio.schema.errors import ErrorCode

    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return "UNKNOWN_ERROR_CODE"
