"""The sockets that a node or all workers of a host listen on, and free ports for the workers' own."""

import select
import socket
from collections.abc import Iterable
from contextlib import ExitStack

from holdfast.kafka.addresses import format_address


class CannotListen(Exception):
    """The listener's address cannot be used."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        self.why = error.strerror or str(error)
        self.error_number = error.errno
        super().__init__(f"Cannot listen on {format_address(host, port)} ({self.why}); set another `listen` address.")


def listen(host: str, port: int, backlog: int) -> tuple[socket.socket, ...]:
    """Listen at each address of a host, at one port; 0 takes a free one.

    Raises:
        CannotListen: the address is in use or not ours.
    """
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, place in socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                made = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                chosen = sockets[0].getsockname()[1] if sockets else port
                made.bind((place[0], chosen, *place[2:]))
                made.listen(backlog)
                made.setblocking(False)
                sockets.append(made)
        except OSError as error:
            raise CannotListen(host, port, error) from error
        opened.pop_all()
        return tuple(sockets)


def has_waiting(sockets: Iterable[socket.socket]) -> bool:
    """Tell whether a connection waits at one of these sockets for whoever accepts it."""
    waiting = select.poll()
    for each in sockets:
        waiting.register(each, select.POLLIN)
    return bool(waiting.poll(0))


def choose_ports(host: str, count: int) -> list[int]:
    """Return so many ports of a host that nothing listens on now.

    Raises:
        CannotListen: there are not so many, or the host is not ours.
    """
    with ExitStack() as opened:
        ports: list[int] = []
        for _ in range(count):
            probes = [opened.enter_context(each) for each in listen(host, 0, 1)]
            ports.append(probes[0].getsockname()[1])
        return ports
