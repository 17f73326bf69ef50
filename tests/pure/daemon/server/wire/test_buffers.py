"""The count of answers that were given to sockets, between two looks at how much of them is left there."""

from __future__ import annotations

from holdfast.daemon.server.wire.buffers import Buffers
from holdfast.daemon.server.wire.requests import RequestMemory, Violation
from holdfast.daemon.settings.components.listener import LimitSettings


class Client:
    """A connection that has as much in its socket as a test says (`Buffered`)."""

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self.violations: list[str] = []

    def count_buffered_bytes(self) -> int:
        return 0

    def count_unsent_bytes(self) -> int:
        return self.unsent_bytes

    def close(self, violation: Violation) -> None:
        self.violations.append(violation.kind)


def test_what_a_look_finds_in_the_sockets_counts_until_the_next_look() -> None:
    client, size = Client(), 1_000_000
    buffers = Buffers([client], LimitSettings(unsent_bytes_max=10 * size), RequestMemory())
    client.unsent_bytes = 9 * size
    buffers.add_written(11 * size)
    assert client.violations == []
    client.unsent_bytes += 2 * size
    buffers.add_written(2 * size)
    assert client.violations == ["buffers_exceeded"]
