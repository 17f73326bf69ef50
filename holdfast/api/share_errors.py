"""The error codes that may leave a gateway, and the ones that stand for all others.

A coordinator or a broker says more than a stock share consumer understands: Kafka's own leader passes some of it on, at which Java's
`poll` throws IllegalStateException. The encoders of answers ask these functions for each code, so no other can leave.

Source: Java's `ShareFetchCollector`, `ShareConsumeRequestManager` and `AbstractHeartbeatRequestManager`; librdkafka's `rdkafka_fetcher.c`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.kafka.protocol.error_codes import ErrorCode


def _numbers(codes: Iterable[ErrorCode]) -> frozenset[int]:
    return frozenset(map(int, codes))


#: The same request may succeed later: the coordinator moves or loads, or the log does not take a record now.
_TROUBLE: Final = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
#: Another leader has written, or has read with a higher epoch.
FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
#: Codes that leave as NOT_LEADER_OR_FOLLOWER: the client looks for another leader at once.
OTHER_LEADER: Final = _numbers((ErrorCode.NOT_LEADER_OR_FOLLOWER, *FENCED))

#: ErrorCode of a partition in an answer to ShareFetch.
FETCH_CODES: Final = _numbers(
    (
        ErrorCode.NONE,
        # The client refreshes its metadata and goes on.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        # It goes on.
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        # It tells the application.
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CORRUPT_MESSAGE,
    )
)
#: ErrorCode of a partition in an answer to ShareAcknowledge, and AcknowledgeErrorCode of one in an answer to ShareFetch.
ACKNOWLEDGE_CODES: Final = _numbers(
    (
        ErrorCode.NONE,
        # Final for the client.
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        # Java acknowledges again after a ShareAcknowledge, until its deadline.
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)
#: ErrorCode of a whole answer to ShareFetch or ShareAcknowledge.
REQUEST_CODES: Final = _numbers(
    (
        ErrorCode.NONE,
        # The client begins a new session.
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        # It goes on with the next epoch; its acknowledgements failed.
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
#: ErrorCode of an answer to ShareGroupHeartbeat; GROUP_ID_NOT_FOUND would end a consumer.
HEARTBEAT_CODES: Final = _numbers(
    (
        ErrorCode.NONE,
        # The client finds the coordinator again, or waits.
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        # It joins again.
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        # It tells the application, and goes on.
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        # It ends.
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    )
)

_UNKNOWN: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)
_NOT_AVAILABLE: Final = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _instead(trouble: ErrorCode) -> Mapping[int, int]:
    """Return what stands for the codes of a coordinator in an answer about a partition."""
    return {
        **dict.fromkeys(map(int, _TROUBLE), int(trouble)),
        **dict.fromkeys(map(int, FENCED), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        int(ErrorCode.GROUP_ID_NOT_FOUND): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }


_FETCH_INSTEAD: Final = _instead(ErrorCode.KAFKA_STORAGE_ERROR)
_ACKNOWLEDGE_INSTEAD: Final = {
    **_instead(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.KAFKA_STORAGE_ERROR): _NOT_AVAILABLE,
    int(ErrorCode.INCONSISTENT_TOPIC_ID): int(ErrorCode.UNKNOWN_TOPIC_ID),
}
_HEARTBEAT_INSTEAD: Final = {
    int(ErrorCode.GROUP_ID_NOT_FOUND): int(ErrorCode.UNKNOWN_MEMBER_ID),
    int(ErrorCode.STALE_MEMBER_EPOCH): int(ErrorCode.FENCED_MEMBER_EPOCH),
}


def fetch_code(code: int) -> int:
    """Return what the ErrorCode of a partition says to a consumer that fetches."""
    return code if code in FETCH_CODES else _FETCH_INSTEAD.get(code, _UNKNOWN)


def acknowledge_code(code: int) -> int:
    """Return what the outcome of acknowledgements says to a consumer, in an answer to either call."""
    return code if code in ACKNOWLEDGE_CODES else _ACKNOWLEDGE_INSTEAD.get(code, _UNKNOWN)


def request_code(code: int) -> int:
    """Return what the ErrorCode of a whole ShareFetch or ShareAcknowledge says to a consumer."""
    return code if code in REQUEST_CODES else _UNKNOWN


def heartbeat_code(code: int) -> int:
    """Return what the ErrorCode of a heartbeat says to a consumer; what it does not expect would end it, so it tries again."""
    return code if code in HEARTBEAT_CODES else _HEARTBEAT_INSTEAD.get(code, _NOT_AVAILABLE)
