"""How many connections there may be, and from where."""

from __future__ import annotations

from typing import Protocol

from holdfast.daemon.settings.components.listener import is_loopback


class Places(Protocol):
    """How many connections a port has room for."""

    @property
    def connections_max(self) -> int:
        """In all."""

    @property
    def connections_per_address_max(self) -> int:
        """Of these, from one address."""

    @property
    def connections_reserved(self) -> int:
        """Of these, kept for loopback addresses."""


class Admission:
    """Counts of connections by address, and the places that are kept for other addresses and for loopback."""

    def __init__(self, limits: Places) -> None:
        self.limits = limits
        self._total = 0
        #: Open connections of each address that has any.
        self._counts: dict[str, int] = {}

    def refusal(self, host: str) -> str | None:
        """Return why there is no room for a connection from `host`, or None."""
        limits = self.limits
        if self._total >= limits.connections_max:
            return f"{limits.connections_max} connections are open (connections_max)"
        if self._counts.get(host, 0) >= limits.connections_per_address_max:
            most = limits.connections_per_address_max
            return f"{most} connections from its address are open (connections_per_address_max)"
        reserved = min(limits.connections_reserved, limits.connections_max // 2)
        if self._total >= limits.connections_max - reserved and not is_loopback(host):
            return f"the last {reserved} connections are kept for loopback addresses (connections_reserved)"
        return None

    def where_to_make_room(self, host: str) -> str | None:
        """Return the address that a connection must go from, so that one from `host` has room; None: any."""
        if self._counts.get(host, 0) >= self.limits.connections_per_address_max:
            return host
        # The address with most of them gives one.
        return max(self._counts, key=self._counts.__getitem__, default=None)

    def enter(self, host: str) -> None:
        """Count a connection."""
        self._total += 1
        self._counts[host] = self._counts.get(host, 0) + 1

    def leave(self, host: str) -> None:
        """Count a connection that is gone."""
        self._total -= 1
        self._counts[host] -= 1
        if not self._counts[host]:
            del self._counts[host]
