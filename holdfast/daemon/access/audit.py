"""The audit log: who logged in, who changed what, and who was denied, as lines of a logger of their own.

It is written whatever `log_level` says. What a client can cause has a number of lines per minute: a denial for each principal, a login
for each address, and logins in all, so that nobody fills a disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import structlog

from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.daemon.access.needs import Needs
from holdfast.daemon.settings.logging import AUDIT_LOGGER, CLIENT_LINES_PER_MINUTE_MAX
from holdfast.kafka.addresses import find_host
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter

_log = structlog.get_logger(AUDIT_LOGGER)

#: What a client has put into its request is cut to so many characters.
_TEXT_MAX: Final = 300
#: Lines per minute about logins that fail, and as many about others: no guessing from many addresses fills a disk.
_LOGINS_PER_MINUTE_MAX: Final = 100
#: Each argument of a command to so many, which is all of any that a node heeds: the reason of an admin has 1,000.
_ARGUMENT_MAX: Final = 1_200


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

    def __init__(
        self,
        denials: Counter,
        needs: Needs,
        limiter: LineLimiter,
        lines_per_minute_max: int = CLIENT_LINES_PER_MINUTE_MAX,
        logins_per_minute_max: int = _LOGINS_PER_MINUTE_MAX,
    ) -> None:
        """Count each denial in `denials`.

        Args:
            denials: see above.
            needs: of admin commands.
            limiter: of the lines that a client can cause.
            lines_per_minute_max: of the denials of a principal, of the failed logins of an address, of the logins of a user there.
            logins_per_minute_max: of all logins that fail, and of all others.
        """
        self._denials = denials
        self._needs = needs
        self._limiter = limiter
        self._lines_per_minute_max = lines_per_minute_max
        self._logins_per_minute_max = logins_per_minute_max

    def denied(self, client: Client, call: str, operation: Operation, resource: ResourceType, name: str) -> None:
        """Take note that a client was not allowed what it requested."""
        self._denials.value += 1
        left_out = self._limiter.admit("access_denied", self._lines_per_minute_max, client.principal)
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

    def logged_in(self, client_address: str, principal: str, mechanism: str) -> None:
        """Take note that a client has proved who it is; `mechanism` is that of SASL, or SSL for a certificate."""
        left_out = self._admit_login("login_accepted", f"{find_host(client_address)} {principal}")
        if left_out is not None:
            _log.info("login_accepted", principal=principal, client=client_address, mechanism=mechanism, **left_out)

    def login_refused(self, client_address: str, claimed_name: str, mechanism: str, why: str) -> None:
        """Take note that a client has not proved who it is; the name is the one that it gives, empty if it gives none."""
        left_out = self._admit_login("login_refused", find_host(client_address))
        if left_out is not None:
            _log.warning(
                "login_refused",
                claimed_name=claimed_name[:_TEXT_MAX],
                client=client_address,
                mechanism=mechanism,
                why=why[:_TEXT_MAX],
                **left_out,
            )

    def commanded(self, client: Client, command: str, arguments: Mapping[str, Any]) -> None:
        """Take note that a client was allowed a command that changes something; the line of its outcome is the command's own.

        The arguments stand in the order of our table, whatever order the client chose, and those that the command does not take apart.
        """
        unknown = self._needs.unknown_arguments(command, arguments)
        known = self._needs.arguments_of(command, arguments)
        heeded = (f"{name!r}: {_cut(repr(arguments[name]))}" for name in known if name in arguments)
        _log.info(
            "admin_change_requested",
            principal=client.principal,
            client=client.client_address,
            command=command,
            arguments=f"{{{', '.join(heeded)}}}",
            **({"refused_arguments": repr(unknown)[:_TEXT_MAX]} if unknown else {}),
        )

    def _admit_login(self, event: str, kind: str) -> dict[str, int] | None:
        """See `LineLimiter.admit`: a line counts for its kind, and for all of its event; nobody's guesses push out who came in."""
        own = self._limiter.admit(event, self._lines_per_minute_max, kind)
        if own is None:
            return None
        # The line carries the count that its own kind left out; if it is left out itself, the next line of all kinds carries it.
        return self._limiter.admit(f"{event} of all", self._logins_per_minute_max, untold=own.get("left_out", 0))


def _cut(text: str) -> str:
    return text if len(text) <= _ARGUMENT_MAX else f"{text[:_ARGUMENT_MAX]}… ({len(text)} characters)"
