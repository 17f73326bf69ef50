"""The bytes that all clients together make a node keep: requests not begun, and answers not taken.

Over a bound, the connections that have most of them are closed, and not the one that came last.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from holdfast.daemon.server.wire.requests import RequestMemory, Violation
from holdfast.daemon.settings.components.listener import LimitSettings


class Buffered(Protocol):
    """A connection, as far as it keeps bytes."""

    def count_buffered_bytes(self) -> int:
        """Return how many bytes it has of requests that are not begun."""

    def count_unsent_bytes(self) -> int:
        """Return how much answers take that its client has not taken, those in flight included."""

    def close(self, violation: Violation) -> None:
        """Close it because of what its client did."""


class Buffers:
    """Counts of bytes over all of `connections`, which change, and the bounds of both counts."""

    def __init__(self, connections: Collection[Buffered], limits: LimitSettings, memory: RequestMemory) -> None:
        """Count what `connections` keep; `memory` is what their requests in flight take."""
        self._connections = connections
        self._memory = memory
        #: Bytes of requests that have begun to arrive or wait for their turn.
        self.buffered_bytes = 0
        #: Answers given to sockets, in bytes; more than what is left there, until it is counted again.
        self._written_bytes = 0
        self.reconfigure(limits)

    def reconfigure(self, limits: LimitSettings) -> None:
        """Keep to other bounds from now on."""
        self._buffered_bytes_max = limits.buffered_bytes_max
        self._unsent_bytes_max = limits.unsent_bytes_max

    def add_buffered(self, change: int) -> None:
        """Take note of bytes of requests that came (or, below zero, went)."""
        self.buffered_bytes += change
        bound = self._buffered_bytes_max
        while change > 0 and self.buffered_bytes > bound:
            largest = max(self._connections, key=lambda connection: connection.count_buffered_bytes())
            text = (
                f"requests that are not begun have more than {bound} bytes on all connections, and it has most of them"
            )
            largest.close(Violation("buffers_exceeded", text))

    def add_written(self, size: int) -> None:
        """Take note of bytes given to a socket."""
        self._written_bytes += size
        bound = self._unsent_bytes_max
        if self._written_bytes + self._memory.answer_bytes <= bound:
            return
        unsent = {connection: connection.count_unsent_bytes() for connection in self._connections}
        while unsent and sum(unsent.values()) > bound:
            largest = max(unsent, key=lambda connection: unsent[connection])
            del unsent[largest]
            text = f"answers have more than {bound} bytes on all connections, and it has most of them and does not read"
            largest.close(Violation("buffers_exceeded", text))
        self._written_bytes = max(0, sum(unsent.values()) - self._memory.answer_bytes)

    def count_unsent_bytes(self) -> int:
        """Return how much answers take that clients have not taken, those in flight included."""
        return sum(connection.count_unsent_bytes() for connection in self._connections)
