"""The one function that turns a failure of ours into an error code of Kafka.

The codes are answers to a client; inside, failures are the classes of `runtime.errors`.

Source: KIP-932 (error codes of the share-state calls).
"""

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.runtime.errors import (
    CoordinatorError,
    LoadInProgress,
    NotAvailable,
    NotCoordinator,
    OutcomeUnknown,
    TimedOut,
)

#: The answer to each failure, and why; any that is not named here is UNKNOWN_SERVER_ERROR,
#: which is final for Kafka's clients, so only for what a second try cannot mend.
_CODES: dict[type[CoordinatorError], ErrorCode] = {
    # The client looks the coordinator up again and tries there.
    NotCoordinator: ErrorCode.NOT_COORDINATOR,
    LoadInProgress: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    NotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Kafka's REQUEST_TIMED_OUT is final for its persister, COORDINATOR_NOT_AVAILABLE is tried again.
    TimedOut: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # The log partition loads again under a new checkpoint; a repeated write is decided on what the log then holds.
    OutcomeUnknown: ErrorCode.NOT_COORDINATOR,
}


def error_of(failure: BaseException) -> tuple[ErrorCode, str]:
    """Return the code and the text with which a failed operation is answered.

    The text of a `CoordinatorError` is meant for the caller; that of any other exception may hold anything and stays here.
    """
    if isinstance(failure, CoordinatorError):
        return _CODES.get(type(failure), ErrorCode.UNKNOWN_SERVER_ERROR), str(failure)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator failed to carry this out; its log says why."
