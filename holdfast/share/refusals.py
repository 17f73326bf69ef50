"""The refusals of the share-state calls: a code of Kafka's, and a sentence for people."""

from collections.abc import Callable

from holdfast.api.results import PartitionResult, WriteResult
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.runtime.state_machine import Decision

_Result = Callable[[int, str], PartitionResult]


def refuse_partition(result: _Result, key: SharePartitionKey) -> Decision:
    """Refuse a partition below 0."""
    text = f"The partition is {key.partition}; it must be 0 or more."
    return Decision((), result(ErrorCode.INVALID_REQUEST, text), is_malformed=True)


def refuse_negative_epoch(result: _Result, which: str, epoch: int) -> Decision:
    """Refuse an epoch below 0; `which` is state or leader."""
    text = f"The {which} epoch is {epoch}; it must be 0 or more."
    return Decision((), result(ErrorCode.INVALID_REQUEST, text), is_malformed=True)


def refuse_write(key: SharePartitionKey, leader_epoch: int, state_epoch: int) -> Decision:
    """Refuse a Write with a negative number in it, or of what was never initialized."""
    if key.partition < 0:
        return refuse_partition(WriteResult, key)
    if leader_epoch < 0:
        return refuse_negative_epoch(WriteResult, "leader", leader_epoch)
    if state_epoch < 0:
        return refuse_negative_epoch(WriteResult, "state", state_epoch)
    return refuse_uninitialized(WriteResult, key)


def refuse_uninitialized(result: _Result, key: SharePartitionKey) -> Decision:
    """Refuse a call for a share partition without state."""
    text = f"The share partition {key.partition} was never initialized; send InitializeShareGroupState first."
    return Decision((), result(ErrorCode.INVALID_REQUEST, text))


def refuse_leader_epoch(result: _Result, leader_epoch: int, state: ShareState) -> Decision:
    """Refuse a leader epoch below its fence."""
    text = f"The leader epoch {leader_epoch} is fenced; epoch {state.leader_epoch_fence} is known."
    return Decision((), result(ErrorCode.FENCED_LEADER_EPOCH, text))


def refuse_state_epoch(result: _Result, state_epoch: int, state: ShareState) -> Decision:
    """Refuse a state epoch below its fence."""
    text = f"The state epoch {state_epoch} is fenced; epoch {state.state_epoch_fence} is known."
    return Decision((), result(ErrorCode.FENCED_STATE_EPOCH, text))


def refuse_unknown(result: _Result, key: SharePartitionKey) -> Decision:
    """Refuse a topic or partition that the metadata does not hold."""
    text = f"The topic has no partition {key.partition} that this node knows of, or Kafka does not let it Describe the topic."
    return Decision((), result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))


def refuse_growth(key: SharePartitionKey, why: str) -> Decision:
    """Refuse a Write after which the state, or its own record, would be too large."""
    text = f"The share partition {key.partition} {why}; move its start offset."
    return Decision((), WriteResult(ErrorCode.UNKNOWN_SERVER_ERROR, text))
