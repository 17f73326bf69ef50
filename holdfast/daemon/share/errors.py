"""Kafka's error codes that leave this node, and the one function that turns a failure of ours into one.

The codes are answers to a client; inside, failures are the classes of `runtime.errors`.

Source: KIP-932 (error codes of the share-state calls), Apache Kafka's protocol error table.
"""

from enum import IntEnum

from holdfast.runtime.errors import (
    CoordinatorError,
    LoadInProgress,
    NotAvailable,
    NotCoordinator,
    OutcomeUnknown,
    TimedOut,
)


class ErrorCode(IntEnum):
    """Kafka's error codes that a share-state call can be answered with."""

    UNKNOWN_SERVER_ERROR = -1  #: final for Kafka's clients, so only for what a second try cannot mend
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    FENCED_STATE_EPOCH = 124


#: What each failure is answered with, and why; whatever is not named here is UNKNOWN_SERVER_ERROR.
_CODES: dict[type[CoordinatorError], ErrorCode] = {
    # The client looks the coordinator up again and tries there.
    NotCoordinator: ErrorCode.NOT_COORDINATOR,
    LoadInProgress: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    NotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Kafka's REQUEST_TIMED_OUT is final for its persister, COORDINATOR_NOT_AVAILABLE is tried again.
    TimedOut: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # The shard loads again under a new checkpoint; a repeated write is decided on what the log then holds.
    OutcomeUnknown: ErrorCode.NOT_COORDINATOR,
}


def error_of(failure: BaseException) -> tuple[ErrorCode, str]:
    """Return the code and the text with which a failed operation is answered.

    The text of a `CoordinatorError` is meant for the caller; that of any other exception may hold anything and stays here.
    """
    if isinstance(failure, CoordinatorError):
        return _CODES.get(type(failure), ErrorCode.UNKNOWN_SERVER_ERROR), str(failure)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator failed to carry this out; its log says why."
