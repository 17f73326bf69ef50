"""Share state for other tenants of the node (`api.share_state_access`): their calls take the way of those over the wire."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast

from holdfast.api.results import (
    PartitionRequest,
    ReadOrInitializePartition,
    ReadOrInitializeResult,
    StateRequest,
    StateResponse,
    WritePartition,
    WriteResult,
)
from holdfast.api.share_state import WRITE
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.calls import ShareCalls
from holdfast.share.service import READ_OR_INITIALIZE

#: Its look-ups of topics are counted under this name.
_CALLER: Final = "in process"

_Result = TypeVar("_Result", ReadOrInitializeResult, WriteResult)


class ShareAccess:
    """Share state as function calls (`api.share_state_access.ShareStateAccess`)."""

    def __init__(
        self,
        calls: ShareCalls,
        log_partition_of: Callable[[bytes, int], int | None],
        begin_with: Callable[[Callable[[], None]], None],
    ) -> None:
        """Create a way to the calls.

        Args:
            calls: carries them out.
            log_partition_of: see `ShareStateAccess.log_partition_of`.
            begin_with: has a call decided with the others of its turn of the loop.
        """
        self.log_partition_of: Callable[[bytes, int], int | None] = log_partition_of
        self._calls = calls
        self._begin_with = begin_with

    def read_or_initialize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        initial_start_offset: int | None,
        respond: Callable[[ReadOrInitializeResult], None],
    ) -> None:
        """See `ShareStateAccess.read_or_initialize`."""
        group_id, topic_id, partition = key
        request = ReadOrInitializePartition(partition, leader_epoch, initial_start_offset)
        self._call(READ_OR_INITIALIZE, group_id, topic_id, request, partial(_take, respond, ReadOrInitializeResult))

    def write(
        self, group_id: str, topic_id: bytes, write: WritePartition, respond: Callable[[WriteResult], None]
    ) -> None:
        """See `ShareStateAccess.write`."""
        self._call(WRITE, group_id, topic_id, write, partial(_take, respond, WriteResult))

    def _call(
        self,
        api_key: int,
        group_id: str,
        topic_id: bytes,
        request: PartitionRequest,
        respond: Callable[[StateResponse], None],
    ) -> None:
        whole = StateRequest(group_id, [(topic_id, [request])])
        self._begin_with(partial(self._calls.handle, api_key, whole, respond, _CALLER))


def _take(respond: Callable[[_Result], None], result_type: type[_Result], response: StateResponse) -> None:
    """Hand over the result of the one share partition of a request; a request without a group has none."""
    if response:
        [(_, [(_, result)])] = response
        respond(cast("_Result", result))
    else:
        respond(result_type(ErrorCode.INVALID_REQUEST, "The group id is empty."))
