"""What a supervisor says to a worker: lines on its standard input, which end when the supervisor is gone.

The first line is the order that the worker begins with, a JSON object; each later one says `reload`.
A signal for that could reach a worker before it heeds signals, and end it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, final

RELOAD: Final = b"reload\n"

_STDIN: Final = 0
_CHUNK_BYTES: Final = 64 * 1024


class Order(NamedTuple):
    """What a worker is to do."""

    #: File of the settings; None: see `load_settings`.
    config: Path | None
    #: Flags of `holdfast serve`, and the settings that are the worker's own.
    flags: dict[str, Any]
    #: File descriptors of the listening sockets that it inherits.
    descriptors: list[int]
    #: Where the other workers listen, by node id.
    others: dict[int, str]
    #: How often it was started again.
    restarts: int
    #: How often it is to report its condition, in ms; None: nobody wants to know.
    report_interval_ms: int | None

    def encode(self) -> bytes:
        """Return the line that says it."""
        config = None if self.config is None else str(self.config)
        return json.dumps(self._asdict() | {"config": config}).encode() + b"\n"


@final
class Orders:
    """The lines that this process, a worker, is sent."""

    def __init__(self, descriptor: int = _STDIN) -> None:
        """Read them from a file descriptor, by default the standard input."""
        self._descriptor = descriptor
        self._rest = b""

    def have_ended(self) -> bool:
        """Tell whether the supervisor is gone, also where its lines are not read yet."""
        end = select.poll()
        end.register(self._descriptor, 0)  # a hang-up is told unasked
        return bool(end.poll(0))

    def first(self) -> Order:
        """Wait for the first line.

        Raises:
            EOFError: the supervisor is gone already.
        """
        line = self._next()
        if line is None:
            raise EOFError
        said = json.loads(line)
        others = {int(node_id): address for node_id, address in said["others"].items()}
        config = None if said["config"] is None else Path(said["config"])
        return Order(config, said["flags"], said["descriptors"], others, said["restarts"], said["report_interval_ms"])

    def follow(self, reload: Callable[[], object], gone: Callable[[], object]) -> None:
        """Read on in a thread, which calls `reload` for each line, and `gone` when the supervisor is."""

        def read() -> None:
            while self._next() is not None:
                reload()
            gone()

        threading.Thread(target=read, name="holdfast-orders", daemon=True).start()

    def _next(self) -> bytes | None:
        while b"\n" not in self._rest:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def take_sockets(descriptors: list[int]) -> tuple[socket.socket, ...]:
    """Return the sockets behind inherited file descriptors, which no child of this process inherits."""
    sockets = tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)
    for each in sockets:
        each.set_inheritable(False)
    return sockets
