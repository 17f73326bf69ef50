"""The lines of all workers in one stream, each whole and with the node id of its worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Final, final

import structlog

from holdfast.daemon.settings.logging import LIBRARY_LINES_PER_MINUTE_MAX, LineForPeople
from holdfast.metrics.line_limit import LineLimiter

_log = structlog.get_logger(__name__)

_TEXT_MAX: Final = 1_000


@final
class WorkerLines:
    """The forwarding of the lines of workers, which come as JSON."""

    def __init__(
        self,
        stream: IO[str],
        people: LineForPeople | None,
        foreign_per_minute_max: int = LIBRARY_LINES_PER_MINUTE_MAX,
    ) -> None:
        """Write to `stream`.

        Args:
            stream: takes them.
            people: the form that they get there; None: they stay JSON.
            foreign_per_minute_max: how many lines of each worker a minute that libraries wrote past our log are logged.
        """
        self._stream = stream
        self._people = people
        self._foreign_per_minute_max = foreign_per_minute_max
        self._limiter = LineLimiter()

    def __call__(self, node_id: int, line: str) -> None:
        """Forward a line of the worker with this node id."""
        fields = _read(line)
        if fields is not None:
            self._write(line if self._people is None else self._people(None, "", dict(fields)))
        elif line.strip():
            left_out = self._limiter.admit("worker_line_foreign", self._foreign_per_minute_max, str(node_id))
            if left_out is not None:
                _log.warning("worker_line_foreign", node_id=node_id, text=line[:_TEXT_MAX], **left_out)

    def _write(self, line: str) -> None:
        # As where a node logs by itself: it goes on although nobody reads its lines any more.
        with suppress(OSError):
            self._stream.write(f"{line}\n")
            self._stream.flush()


def _read(line: str) -> Mapping[str, Any] | None:
    """Return the fields of a line of our log; None: it is none."""
    if not line.startswith("{"):
        return None
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and "event" in fields else None
