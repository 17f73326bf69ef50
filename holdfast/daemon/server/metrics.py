"""What the server reports of its connections and requests, and of the event loop they share with everything else."""

from __future__ import annotations

from holdfast.daemon.server.wire.admission import descriptors_left
from holdfast.daemon.server.wire.connections import Connections
from holdfast.metrics.registry import Registry


class ServerMetrics:
    """The instruments of one server."""

    def __init__(self, registry: Registry, connections: Connections) -> None:
        self._connections = connections
        gauge, counter = registry.gauge, registry.counter
        self._turn = registry.histogram(
            "loop_turn_ms", "Time of the longest turns of the event loop; the longest between two ticks."
        )
        self._longest = gauge("loop_turn_longest_ms", "Longest turn of the event loop since the log was reached.")
        gauge("connections", "Open connections of clients.", lambda: len(connections))
        gauge(
            "file_descriptors_left",
            "File descriptors that the process may still open; clients are refused with fewer than 64, or a quarter of all.",
            descriptors_left,
        )
        gauge("connections_waiting", "Those whose requests wait for their turn.", lambda: connections.turns.waiting)
        counter(
            "connections_refused",
            "Connections that were closed at once since the start, because there were too many, or too few file descriptors.",
            lambda: connections.refused,
        )
        counter(
            "connections_closed_for_violations",
            "Connections that were closed since the start for what their clients did.",
            lambda: connections.violations,
        )
        gauge(
            "requests_buffered_bytes",
            "Bytes of requests that are not complete or not begun, on all connections (buffered_bytes_max).",
            lambda: connections.buffers.buffered_bytes,
        )
        gauge(
            "requests_in_flight_bytes",
            "Memory of requests that are carried out, as estimated (requests_in_flight_bytes_max).",
            lambda: connections.memory.work_bytes,
        )
        gauge(
            "answers_unsent_bytes",
            "Bytes of answers that are promised, or that clients have not taken (unsent_bytes_max).",
            connections.buffers.count_unsent_bytes,
        )

    @property
    def longest_turn_ms(self) -> float:
        """Longest turn of the event loop since the log was reached."""
        return self._longest.value

    def ticked(self, late_ms: float) -> None:
        """Take in the longest turn since the last tick of the loop: a turn that takes longer than the time between two makes one late."""
        turn_ms = max(late_ms, self._connections.turns.take_longest_ms())
        self._turn.record(turn_ms)
        if turn_ms > self._longest.value:
            self._longest.value = turn_ms
