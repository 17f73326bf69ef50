"""The way to share state for another tenant of the node: calls of functions in its process, with values and no bytes.

They are carried out as calls over the wire are, with the same checks, fences and bounds, and are answered with the same codes and texts:
14, 15 and 16 where the log partition is loading, not served now, or another node's; 74 and 124 where a newer leader or state fences; 3 for
an unknown topic or partition. A call that is answered without an error is in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.api.results import ReadOrInitializeResult, WritePartition, WriteResult
from holdfast.records.share.keys import SharePartitionKey


class ShareStateAccess(Protocol):
    """Share state, as a leader of share partitions in the same process uses it.

    Each `respond` is called exactly once, maybe before the call returns.
    Calls of one turn of the event loop are decided together, with those that came over the wire, each in its order.
    """

    def log_partition_of(self, topic_id: bytes, partition: int) -> int | None:
        """Return the log partition that has a topic partition's state of every group; None where that depends on the group.

        Raises:
            NotAvailable: it is not known yet, or the node stops.
        """

    def read_or_initialize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        initial_start_offset: int | None,
        respond: Callable[[ReadOrInitializeResult], None],
    ) -> None:
        """Read a state as its leader, which fences leaders of a lower epoch; one that was never made, or was deleted, is made.

        It is one operation of the shard: of two leaders that find no state one makes it, and the other reads it.

        Args:
            key: the share partition.
            leader_epoch: of the caller.
            initial_start_offset: where a new state begins, in the log before it is answered. None: nothing is made; the answer has no
                state, and the caller looks for the offset and calls again.
            respond: takes the answer.
        """

    def write(
        self, group_id: str, topic_id: bytes, write: WritePartition, respond: Callable[[WriteResult], None]
    ) -> None:
        """Write to the state of a share partition."""
