"""Which state explains an answer: written from the protocol, not from the shard."""

from __future__ import annotations

from holdfast.api.results import (
    DeletePartition,
    DeleteResult,
    InitializePartition,
    PartitionRequest,
    PartitionResult,
    ReadOrInitializePartition,
    ReadOrInitializeResult,
    ReadPartition,
    ReadResult,
    SummaryResult,
    WritePartition,
)
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.replay import ShareState


def explains(state: ShareState | None, request: PartitionRequest, result: PartitionResult) -> bool:
    """Tell whether `result` is right for `request` on `state`, for an answer that wrote nothing or wrote what it saw."""
    match result.error_code:
        case ErrorCode.NONE:
            return _explains_success(state, request, result)
        case ErrorCode.FENCED_LEADER_EPOCH:
            assert isinstance(request, ReadPartition | ReadOrInitializePartition | WritePartition)
            return state is not None and request.leader_epoch < state.leader_epoch_fence
        case ErrorCode.FENCED_STATE_EPOCH:
            assert isinstance(request, InitializePartition | WritePartition)
            return state is not None and request.state_epoch < state.state_epoch_fence
        case ErrorCode.INVALID_REQUEST:
            return state is None and isinstance(request, ReadPartition | WritePartition)
    return False


def _explains_success(state: ShareState | None, request: PartitionRequest, result: PartitionResult) -> bool:
    if isinstance(result, ReadResult):
        return state is not None and result[2:] == (state.state_epoch, state.start_offset, state.state_batches)
    if isinstance(result, ReadOrInitializeResult):
        if not result.has_state:
            return state is None and isinstance(request, ReadOrInitializePartition) and request.start_offset is None
        return state is not None and result[2:5] == (state.state_epoch, state.start_offset, state.state_batches)
    if isinstance(result, SummaryResult):
        if state is None:
            return result[2:] == (0, 0, -1, -1)
        return result[2:] == (
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
        )
    if isinstance(result, DeleteResult):
        return state is None
    # Initialize and Write always write.
    return not isinstance(request, DeletePartition) and state is not None
