"""What a process may put on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.runtime.memory_log import Append
from tests.simulated.cluster.wire import Request

if TYPE_CHECKING:
    from tests.simulated.cluster.process import Process


class Watch:
    """Looks at each request of one process and at each answer that it gets."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def appended(self, append: Append) -> None:
        """Learn of a record that was handed to the log."""

    def connecting(self, broker_id: int) -> None:
        """Learn that a connection is asked for."""

    def sent(self, broker_id: int, request: Request) -> None:
        """Look at a request."""

    def answered(self, broker_id: int, request: Request, frame: bytes) -> None:
        """Look at an answer."""
