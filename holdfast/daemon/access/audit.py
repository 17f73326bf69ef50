"""The audit log: who changed what, and who was denied, as lines of a logger of their own.

It is written whatever `log_level` says. What a client can cause has a number of lines per principal and minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, Protocol

import structlog

from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.daemon.settings.logging import AUDIT_LOGGER
from holdfast.metrics.line_limit import LineLimit
from holdfast.metrics.registry import Counter

_log = structlog.get_logger(AUDIT_LOGGER)

#: What a client has put into its request is cut to so many characters.
_TEXT_MAX: Final = 300


class Client(Protocol):
    """Who made a request."""

    @property
    def principal(self) -> str:
        """Who the client has proved to be, as `User:name`."""

    @property
    def client_address(self) -> str:
        """Where it is, with its port."""


class Audit:
    """The audit log of one node."""

    def __init__(self, denials: Counter, lines_per_minute_max: int, clock: Callable[[], float] = monotonic) -> None:
        """Count each denial in `denials`, and write so many lines of them a minute for each principal."""
        self._denials = denials
        self._limit = LineLimit(lines_per_minute_max, clock)

    def denied(self, client: Client, call: str, operation: Operation, resource: ResourceType, name: str) -> None:
        """Take note that a client was not allowed what it requested."""
        self._denials.value += 1
        left_out = self._limit.admit(client.principal)
        if left_out is not None:
            _log.warning(
                "access_denied",
                principal=client.principal,
                client=client.client_address,
                call=call,
                operation=operation.value,
                resource=resource.value,
                name=name[:_TEXT_MAX],
                **left_out,
            )

    def commanded(self, client: Client, command: str, arguments: Mapping[str, Any]) -> None:
        """Take note that a client was allowed a command that changes something; the line of its outcome is the command's own."""
        _log.info(
            "admin_change_requested",
            principal=client.principal,
            client=client.client_address,
            command=command,
            arguments=str(dict(arguments))[:_TEXT_MAX],
        )
