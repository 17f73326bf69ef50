"""The share partitions of the node's own log partitions, as the log has committed them; looked at in slices of the loop's time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from holdfast.daemon.partitions.partitions import Partitions
from holdfast.page.book import Described
from holdfast.records.share.deliveries import describe_state, sum_up_deliveries
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from holdfast.share.shard_kind import serving

#: Work of a slice of a millisecond or so: share partitions that are as they were cost one, and others as much as this and their batches.
_WORK_PER_SLICE: Final = 1_000
_WORK_OF_A_CHANGE: Final = 20


class Held(NamedTuple):
    """The share partitions that this node knows."""

    described: dict[SharePartitionKey, Described]
    #: By log partition, the offset up to which it was applied.
    ends: dict[int, int]
    #: By log partition, why it is not shown, as a clause.
    missing: dict[int, str]


class OwnStates:
    """The share partitions of a node, which remembers how it described those that have not changed since."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._described: dict[SharePartitionKey, Described] = {}

    def forget(self) -> None:
        """Remember nothing."""
        self._described = {}

    async def collect(self) -> Held:
        """Look at all share partitions."""
        found: dict[SharePartitionKey, Described] = {}
        ends: dict[int, int] = {}
        known, work = self._described, 0
        for partition, shard in list(serving(self._partitions.active())):
            ends[partition.index] = partition.committed_offset
            winner = partition.ownership.winner
            owner = None if winner is None else winner.node_id
            for key in list(shard.state.keys()):
                if work >= _WORK_PER_SLICE:
                    work = 0
                    await asyncio.sleep(0)
                if partition.state is not State.ACTIVE or partition.machine is not shard:
                    ends.pop(partition.index, None)
                    break
                state = shard.state.at(partition.committed_sequence, key)
                work += 1
                if state is None:
                    continue
                described = known.get(key)
                if described is None or described.state is not state or described.owner != owner:
                    work += _WORK_OF_A_CHANGE + len(state.state_batches)
                    deliveries = sum_up_deliveries(state.start_offset, state.state_batches)
                    row = describe_state(key, state, partition.index, owner, deliveries)
                    described = Described(state, owner, row, deliveries.archived)
                found[key] = described
        self._described = found
        return Held(found, ends, self._missing(ends))

    def _missing(self, ends: Mapping[int, int]) -> dict[int, str]:
        return {
            each.index: f"it is {each.state.value} here{f' ({each.failure})' if each.failure else ''}"
            for each in self._partitions
            if each.index not in ends
        }
