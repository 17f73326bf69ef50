"""Shards, as the host knows them: state machines that a tenant makes, and that are pruned, described and restored.

There is one kind of shard in a log, so a node has one `ShardKind`.
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from typing import Any, Protocol

from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.restore_point import RestorePointFinder
from holdfast.runtime.state_machine import Decision, StateMachine


class Shard(Protocol):
    """The state machine of a log partition that serves."""

    def live_bytes(self) -> int:
        """Return how many bytes one snapshot of every key would take."""

    def key_count(self) -> int:
        """Return how many keys have state."""

    def oldest_snapshot(self) -> tuple[Hashable, int] | None:
        """Return the key whose newest snapshot is the oldest, and the offset of that; None: no key has state."""

    def decide_pruning_slice(
        self, below_offset: int, records_max: int, bytes_max: int, left_out: Container[Any]
    ) -> Decision:
        """Decide the next snapshots of keys whose newest snapshot lies below an offset; no record when there is no such key."""

    def is_prunable_to(self, offset: int) -> bool:
        """Tell whether no record below an offset is needed any more."""


class Snapshots(Protocol):
    """Snapshots outside of the log, from which loads are restored."""

    @property
    def follower(self) -> RestorePointFinder:
        """Finds the point from which a load goes on."""

    async def start(self) -> None:
        """Connect.

        Raises:
            ConnectionFailed: no broker answered.
        """

    async def stop(self, timeout_s: float) -> bool:
        """End; return whether that was done in time."""

    def partition_changed(self, partition: Partition) -> None:
        """Handle a change of the state of a log partition."""

    def tick(self) -> bool:
        """Do what is due; return whether there is more to be done soon."""


class Shards(Protocol):
    """A view of the shards of a log, for the parts that prune and describe them."""

    def shard_of(self, machine: StateMachine | None) -> Shard | None:
        """Return the shard that a state machine is; None where there is none."""

    def format_key(self, key: Any) -> str:  # noqa: ANN401 - the machine's own type
        """Return a key for people."""


class ShardKind(Shards, Protocol):
    """The kind of shard that a log holds."""

    #: How long an operation may take in all.
    write_timeout_ms: int

    def make_machine(self, partition: int) -> StateMachine:
        """Return the state machine of a log partition that loads."""

    def watch(self, topic: str, partition: int, shard: Shard) -> None:
        """Show the metrics of a log partition that serves, with the labels `topic` and `partition`, by which the host removes them."""

    def tick(self) -> None:
        """Look at what changes slowly, once in a while."""
