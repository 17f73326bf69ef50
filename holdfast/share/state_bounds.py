"""The state that the log partitions of this node hold together, and its bounds.

Counted by the shards as they change it, so that it is exact at any moment: a share partition counts from its fold until it is freed.
All that the log holds is loaded: bounds refuse growth, never state that is there.
"""

from typing import NamedTuple

from holdfast.records.share.keys import SharePartitionKey


class StateBounds(NamedTuple):
    """How much state a node may hold; each is the setting of its name."""

    share_partitions_max: int
    share_partitions_per_group_max: int
    #: Bytes of keys and values, if each share partition had one snapshot in the log: an upper estimate.
    state_bytes_max: int
    group_id_bytes_max: int


class StateTotals:
    """How much state a node holds, and for whom."""

    def __init__(self, bounds: StateBounds) -> None:
        """Hold the sums over all shards to `bounds`; they are 0 at first."""
        self.bounds = bounds
        self.share_partitions = 0
        self.state_bytes = 0
        #: Share partitions that were not initialized, and writes that were refused, because of a bound.
        self.refusals = 0
        #: Share partitions by group id.
        self._groups: dict[str, int] = {}

    def add(self, key: SharePartitionKey, size_bytes: int) -> None:
        """Count a share partition that came, and the bytes of its state."""
        groups = self._groups
        self.share_partitions += 1
        groups[key.group_id] = groups.get(key.group_id, 0) + 1
        self.state_bytes += size_bytes

    def remove(self, key: SharePartitionKey, size_bytes: int) -> None:
        """Count a share partition that went, and the bytes of its state."""
        groups = self._groups
        self.share_partitions -= 1
        left = groups[key.group_id] - 1
        if left:
            groups[key.group_id] = left
        else:
            del groups[key.group_id]
        self.state_bytes -= size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether the state may grow by a number of bytes."""
        return self.state_bytes + size_bytes <= self.bounds.state_bytes_max

    def why_not(self, key: SharePartitionKey, size_bytes: int) -> str | None:
        """Return why no state of this size may be begun for a share partition; None if it may."""
        bounds = self.bounds
        if self.share_partitions >= bounds.share_partitions_max:
            return f"This node holds {self.share_partitions} share partitions; share_partitions_max allows no more."
        held = self._groups.get(key.group_id, 0)
        if held >= bounds.share_partitions_per_group_max:
            return f"The group has {held} share partitions; share_partitions_per_group_max allows no more."
        return None if self.has_room(size_bytes) else self.why_no_growth()

    def why_no_growth(self) -> str:
        """Return why state may not grow."""
        return (
            f"This node holds {self.state_bytes} bytes of state; state_bytes_max allows {self.bounds.state_bytes_max}."
        )

    def used(self) -> dict[str, float]:
        """Return by the name of its setting which share of each bound over all groups is in use."""
        bounds = self.bounds
        return {
            "share_partitions_max": self.share_partitions / bounds.share_partitions_max,
            "state_bytes_max": self.state_bytes / bounds.state_bytes_max,
        }
