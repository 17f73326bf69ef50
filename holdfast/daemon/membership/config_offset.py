"""How far a node has read the config topic; the leader divides for the highest offset that a member has."""

from typing import Protocol


class ConfigSource(Protocol):
    """The config topic, as one node reads it; it is followed all the time."""

    @property
    def offset(self) -> int:
        """Up to which it was read, inclusive; -1: nothing."""

    async def refresh(self, offset: int, timeout_ms: int) -> int:
        """Read to its end, and at least to this offset, for as long as it may take; returns up to which it was read."""
