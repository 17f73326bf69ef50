"""The socket of a service manager, to which a service sends datagrams.

Source: systemd's sd_notify(3) and sd_watchdog_enabled(3); the protocol needs no library.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final, NamedTuple, final

_ADDRESS: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"
_WATCHDOG_PID: Final = "WATCHDOG_PID"


class ServiceManager(NamedTuple):
    """The address at which a service manager expects notices of this process, and their interval."""

    #: Path of a socket, or a name that begins with `@` for one that is no file.
    address: str
    #: Time without a sign of work after which it ends this process, in ms; None: it does not.
    watchdog_ms: int | None


def take_service_manager(environment: MutableMapping[str, str]) -> ServiceManager | None:
    """Return the service manager of the environment, and remove it there, so that no child sends notices in our place.

    None: there is none, or its address is no socket of this machine.
    """
    address, watchdog, pid = (environment.pop(name, "") for name in (_ADDRESS, _WATCHDOG, _WATCHDOG_PID))
    if address[:1] not in ("/", "@") or len(address) < 2:
        return None
    is_watched = watchdog.isdecimal() and int(watchdog) > 0 and pid in ("", str(os.getpid()))
    return ServiceManager(address, max(1, int(watchdog) // 1_000) if is_watched else None)


@final
class NotifySocket:
    """A datagram socket to a service manager; sending never blocks."""

    def __init__(self, address: str) -> None:
        """See `ServiceManager.address`."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, message: str) -> bool:
        """Send a message, and return whether it was accepted; otherwise it must be sent again.

        Raises:
            OSError: no process receives at the address.
        """
        with suppress(BlockingIOError):
            self._socket.sendto(message.encode(), self._address)
            return True
        return False

    def close(self) -> None:
        """Close it."""
        self._socket.close()
