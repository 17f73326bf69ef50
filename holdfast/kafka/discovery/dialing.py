"""Connections to a host whose name may have several addresses, some of which may be silent.

An address that refuses says so at once. One that is silent, as of a host that is off or of a route that leads nowhere, would take all the
time that there is, each time. So the next address is tried as well when one has not connected for a moment, and the first that connects is
taken (RFC 8305). One that connects and then says nothing, as of a process that is frozen, gets its part of the time, before the next one.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_PORT_MAX: Final = 65_535
#: As RFC 8305 recommends it.
_NEXT_AFTER_S: Final = 0.25


class Place(NamedTuple):
    """One address of a host."""

    family: int
    #: As sockets take it.
    address: Any


async def dial(host: str, port: int, timeout_s: float, handshake: Callable[[socket.socket, float], Awaitable[T]]) -> T:
    """Return what a handshake with the first address of a host comes to that answers.

    Args:
        host: a name, or an address.
        port: of all addresses.
        timeout_s: for all addresses to connect, and for the handshakes of all together.
        handshake: takes over a socket that is connected, and its part of the time in s. It raises OSError, as of a time-out, where another
            address may do better; any other exception ends the attempt.

    Raises:
        OSError: there is no such host, or none of its addresses will do; the error is that of the last one.
    """
    try:
        async with asyncio.timeout(timeout_s):
            left = await _look_up(host, port)
    except ValueError as error:  # a name that cannot be one, as another process may announce it
        raise OSError(f"no such host: {error}") from error
    if not 0 < port <= _PORT_MAX:
        raise OSError(f"there is no port {port}")
    while True:
        connected, left = await _connect_any(left, timeout_s)
        try:
            return await handshake(connected, timeout_s / (1 + len(left)))
        except OSError:
            if not left:
                raise


def in_turns(places: Sequence[Place]) -> list[Place]:
    """Return places in their order, but one of each family in turn: as a rule a whole family is silent."""
    families = dict.fromkeys(place.family for place in places)
    by_family = [[place for place in places if place.family == family] for family in families]
    return [place for place in chain.from_iterable(zip_longest(*by_family)) if place is not None]


async def _look_up(host: str, port: int) -> list[Place]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return in_turns(list(dict.fromkeys(Place(family, address) for family, _, _, _, address in found)))


async def _connect_any(places: Sequence[Place], timeout_s: float) -> tuple[socket.socket, list[Place]]:
    """Return a socket that is connected to one of some places, and the places that have not failed so far."""
    waiting, errors = deque(places), list[OSError]()
    trying: dict[asyncio.Task[socket.socket], Place] = {}
    connected: socket.socket | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while waiting or trying:
                if waiting:
                    place = waiting.popleft()
                    task = asyncio.get_running_loop().create_task(_connect(place), name=f"dial-{place.address[0]}")
                    trying[task] = place
                await asyncio.wait(
                    trying, timeout=_NEXT_AFTER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in [task for task in trying if task.done()]:
                    place = trying.pop(task)
                    try:
                        connected = task.result()
                        return connected, [*trying.values(), *waiting]
                    except OSError as error:
                        errors.append(error)
    finally:
        for task in trying:
            task.add_done_callback(_close_connected)
            task.cancel()
        try:
            await asyncio.gather(*trying, return_exceptions=True)
        except asyncio.CancelledError:  # nobody is given what was connected
            if connected is not None:
                connected.close()
            raise
    raise _joined(errors)


def _close_connected(done: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that nobody waits for; who ends here may be cancelled again, so it is not left to that."""
    if not done.cancelled() and done.exception() is None:
        done.result().close()


def _joined(errors: Sequence[OSError]) -> OSError:
    """Return one error for those of all addresses, which are the same as a rule."""
    numbers = {error.errno for error in errors}
    if len(numbers) == 1 and (number := errors[0].errno) is not None:
        return OSError(number, os.strerror(number))
    return OSError(", ".join(dict.fromkeys(map(str, errors))))


async def _connect(place: Place) -> socket.socket:
    made = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, place.address)
    except BaseException:
        made.close()
        raise
    return made
