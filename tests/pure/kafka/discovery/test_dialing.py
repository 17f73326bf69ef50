"""A name with several addresses: one that is silent takes nothing from the others, whether it connects or not."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from holdfast.kafka.discovery.dialing import Place, dial, in_turns
from tests.waiting import PATIENCE_S, in_patience, look_until

#: Far more than any of it takes.
LONG_S = 60.0
HOST = "brokers.example"


class Addresses:
    """Addresses of one name and one port, on loopback."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.order: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port: int = found.getsockname()[1]

    def add(self, address: str, kind: str) -> None:
        """Add one that "refuses", "drops" what would connect, or "connects"."""
        self.order.append(address)
        if kind == "refuses":
            return
        listener = self._stack.enter_context(
            socket.create_server((address, self.port), backlog=0 if kind == "drops" else 9)
        )
        for _ in range(4 if kind == "drops" else 0):
            client = self._stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())

    def getaddrinfo(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host == HOST
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.order]


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[Addresses]:
    with ExitStack() as stack:
        made = Addresses(stack)
        monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
        yield made


@contextmanager
def kept_sockets(is_made: asyncio.Event | None = None) -> Iterator[list[socket.socket]]:
    """Give the sockets that are made from now on; the event tells of each."""
    made: list[socket.socket] = []

    class Kept(socket.socket):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)
            if is_made is not None:
                is_made.set()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "socket", Kept)
        yield made


async def peer(connected: socket.socket, part_s: float) -> str:
    with connected:
        return str(connected.getpeername()[0])


@pytest.mark.parametrize(
    "kinds",
    [
        ("connects",),
        ("drops", "connects"),
        ("refuses", "connects"),
        ("drops", "drops", "refuses", "drops", "connects"),
        ("refuses", "drops", "connects", "drops"),
    ],
    ids=" ".join,
)
async def test_the_first_address_that_connects_is_taken(addresses: Addresses, kinds: tuple[str, ...]) -> None:
    for number, kind in enumerate(kinds, 1):
        addresses.add(f"127.0.0.{number}", kind)
    assert await dial(HOST, addresses.port, LONG_S, peer) == f"127.0.0.{kinds.index('connects') + 1}"


async def test_one_that_connects_and_says_nothing_has_its_part_of_the_time(addresses: Addresses) -> None:
    parts = {}
    for number in (1, 2, 3):
        addresses.add(f"127.0.0.{number}", "connects")

    async def handshake(connected: socket.socket, part_s: float) -> str:
        place = await peer(connected, part_s)
        parts[place] = part_s
        if place != "127.0.0.3":
            raise TimeoutError
        return place

    assert await dial(HOST, addresses.port, 12.0, handshake) == "127.0.0.3"
    assert parts == {"127.0.0.1": 4.0, "127.0.0.2": 6.0, "127.0.0.3": 12.0}


async def test_what_was_silent_at_first_is_tried_again_behind_one_that_says_nothing(addresses: Addresses) -> None:
    addresses.add("127.0.0.1", "drops")
    addresses.add("127.0.0.2", "connects")
    seen: list[str] = []

    async def handshake(connected: socket.socket, part_s: float) -> str:
        seen.append(await peer(connected, part_s))
        raise TimeoutError("silent")

    async def dial_both() -> None:
        with pytest.raises(TimeoutError):
            await dial(HOST, addresses.port, 1.0, handshake)

    # On a machine that stalls, the time is over before the second address has its turn.
    await look_until(dial_both, lambda _: seen, "a handshake")
    assert seen == ["127.0.0.2"]


async def test_a_refused_login_is_not_tried_at_the_next_address(addresses: Addresses) -> None:
    addresses.add("127.0.0.1", "connects")
    addresses.add("127.0.0.2", "connects")
    seen: list[str] = []

    async def handshake(connected: socket.socket, part_s: float) -> None:
        seen.append(await peer(connected, part_s))
        raise ValueError("wrong password")

    with pytest.raises(ValueError, match="wrong password"):
        await dial(HOST, addresses.port, LONG_S, handshake)
    assert seen == ["127.0.0.1"]


async def test_where_all_are_silent_the_time_ends_and_no_socket_is_left(addresses: Addresses) -> None:
    addresses.add("127.0.0.1", "drops")
    addresses.add("127.0.0.2", "drops")

    async def numbers_left() -> list[int]:
        with kept_sockets() as made, pytest.raises(TimeoutError):
            await dial(HOST, addresses.port, 0.6, peer)
        return [each.fileno() for each in made]

    # On a machine that stalls, the time is over before the second address has its turn.
    left = await look_until(numbers_left, lambda left: len(left) == 2, "an attempt at each address")
    assert left == [-1, -1]
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("dial-")]
    gc.collect()


async def sockets_left(addresses: Addresses, sockets: int, turns: int, cancels: int) -> list[int]:
    """Dial, and cancel that some turns of the loop after so many sockets were made; return their numbers, -1 of a closed one."""

    async def connected_at_last(connected: socket.socket, part_s: float) -> None:
        with connected:
            await asyncio.Event().wait()

    is_made = asyncio.Event()
    with kept_sockets(is_made) as made:
        dialing = asyncio.create_task(dial(HOST, addresses.port, LONG_S, connected_at_last))
        for _ in range(sockets):
            await in_patience(is_made.wait())
            is_made.clear()
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(cancels):
            dialing.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([dialing], timeout=PATIENCE_S)
        await asyncio.sleep(0)
    return [each.fileno() for each in made]


async def test_no_socket_is_left_by_who_is_cancelled_again_while_it_ends(addresses: Addresses) -> None:
    """As an opening is that its client cancels, and then the runner of the loop."""
    addresses.add("127.0.0.1", "connects")
    left = [await sockets_left(addresses, 1, turns, 2) for turns in range(12)]
    assert left == [[-1]] * 12


async def test_who_is_cancelled_leaves_no_socket_beside_a_silent_address(addresses: Addresses) -> None:
    addresses.add("127.0.0.1", "drops")
    addresses.add("127.0.0.2", "connects")
    left = [await sockets_left(addresses, 2, turns, 1) for turns in range(8)]
    assert left == [[-1, -1]] * 8


async def test_where_all_refuse_the_error_is_theirs(addresses: Addresses) -> None:
    addresses.add("127.0.0.1", "refuses")
    with pytest.raises(ConnectionRefusedError):
        await dial(HOST, addresses.port, LONG_S, peer)


def test_families_take_turns_in_the_order_of_the_resolver() -> None:
    six = [Place(socket.AF_INET6, (f"::{number}", 1, 0, 0)) for number in (1, 2, 3)]
    four = [Place(socket.AF_INET, (f"127.0.0.{number}", 1)) for number in (1, 2)]
    assert in_turns([*six, *four]) == [six[0], four[0], six[1], four[1], six[2]]
