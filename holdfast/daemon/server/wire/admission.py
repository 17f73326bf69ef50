"""How many connections there may be, from where, and with how many file descriptors left.

A process without any reaches no broker any more, and its event loop closes what it accepts at once and says nothing. So clients are
refused while some are left: the listener refuses them first, and then the HTTP port, whose probes say that the node lives.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from holdfast.daemon.settings.components.listener import is_loopback

#: File descriptors that no client of the listener gets: for brokers, other nodes, files that are read again, and the HTTP port, which
#: leaves half of them. As many as a large cluster and some probes need at once.
_DESCRIPTORS_KEPT: Final = 64
#: And no more than this part of all, where there are few.
_PART_KEPT: Final = 1 / 4
#: The last places of a port are kept for loopback addresses, from which the admin tool and the probes of this machine come: one place
#: of 16, and no more than a command needs that queries several times at once.
_PLACES_PER_RESERVED: Final = 16
_RESERVED: Final = 20


def descriptors_left() -> int:
    """Return how many file descriptors this process may still open, at most.

    The system gives the lowest one that is free, so those below are in use; it is asked for one, and that costs some microseconds.
    """
    try:
        lowest = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return 0
    os.close(lowest)
    return max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - lowest)


def descriptors_kept() -> int:
    """Return how many of them are kept from the clients of the listener."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(_DESCRIPTORS_KEPT, int(limit * _PART_KEPT))


class Refusal(NamedTuple):
    """Why there is no room for a connection."""

    why: str
    #: Whether it is for want of file descriptors, and not of places.
    is_short: bool = False


class Places(Protocol):
    """How many connections a port has room for."""

    @property
    def connections_max(self) -> int:
        """In all."""

    @property
    def connections_per_address_max(self) -> int:
        """Of these, from one address."""


class Admission:
    """Counts of connections by address, and the places that are kept for other addresses and for loopback."""

    def __init__(
        self,
        limits: Places,
        part_kept: float = 1.0,
        left: Callable[[], int] = descriptors_left,
        kept: Callable[[], int] = descriptors_kept,
    ) -> None:
        """Begin without a connection.

        Args:
            limits: of connections.
            part_kept: of the file descriptors that are kept, so many are kept from these connections, too.
            left: returns how many file descriptors are left.
            kept: returns how many are kept from the clients of the listener.
        """
        self.limits = limits
        self._part_kept = part_kept
        self._left = left
        self._kept = kept
        self._total = 0
        #: Open connections of each address that has any.
        self._counts: dict[str, int] = {}

    def refusal(self, host: str) -> Refusal | None:
        """Return why there is no room for a connection from `host`, which is accepted already, or None."""
        why = self._why_too_many(host)
        if why:
            return Refusal(why)
        left, kept = self._left(), int(self._kept() * self._part_kept)
        if left < kept:
            return Refusal(f"{left} file descriptors are left, and the last {kept} are kept (ulimit -n)", is_short=True)
        return None

    def _why_too_many(self, host: str) -> str:
        limits = self.limits
        if self._total >= limits.connections_max:
            return f"{limits.connections_max} connections are open (connections_max)"
        if self._counts.get(host, 0) >= limits.connections_per_address_max:
            most = limits.connections_per_address_max
            return f"{most} connections from its address are open (connections_per_address_max)"
        reserved = min(_RESERVED, limits.connections_max // _PLACES_PER_RESERVED)
        if self._total >= limits.connections_max - reserved and not is_loopback(host):
            return f"the last {reserved} connections are kept for loopback addresses"
        return ""

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
