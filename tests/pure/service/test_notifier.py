"""The looks at a program and the socket of a service manager, which is a real one of the test's own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from holdfast.service.condition import Condition
from holdfast.service.notices import Bounds
from holdfast.service.notifier import Notifier, Unwatched, notified
from holdfast.service.notify_socket import NotifySocket, ServiceManager, take_service_manager

READY: Final = Condition(
    has_started=True, is_ready=True, is_stopping=False, is_reloading=False, status="ready", progress=0, turns=0
)
BOUNDS: Final = Bounds(1_000, 1_000, None)


@pytest.fixture(params=["file", "name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """Give the address of a service manager, which is a file or a name alone, and its socket."""
    address = str(tmp_path / "notify") if request.param == "file" else f"@holdfast-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(address if request.param == "file" else f"\0{address[1:]}")
        server.setblocking(False)
        yield address, server


def test_the_environment_says_where_and_how_often_and_no_child_sees_it() -> None:
    environment = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    assert take_service_manager(environment) == ServiceManager("/run/n", 2_500)
    assert environment == {"A": "b"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"NOTIFY_SOCKET": ""}, None),
        ({"NOTIFY_SOCKET": "@"}, None),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, None),
        ({"WATCHDOG_USEC": "1000"}, None),
        ({"NOTIFY_SOCKET": "@n"}, ServiceManager("@n", None)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "1"}, ServiceManager("@n", 1)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "0"}, ServiceManager("@n", None)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "-5"}, ServiceManager("@n", None)),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, ServiceManager("@n", None)),
    ],
)
def test_what_is_no_service_manager_or_no_watchdog_of_ours_is_none(
    environment: dict[str, str], expected: ServiceManager | None
) -> None:
    assert take_service_manager(environment) == expected


async def test_a_program_is_looked_at_until_its_end_and_once_more_then(manager: tuple[str, socket.socket]) -> None:
    address, server = manager
    condition = READY
    async with notified(ServiceManager(address, None), BOUNDS, lambda: condition) as watcher:
        await asyncio.sleep(0)  # the first look comes with the first turn of the loop
        assert server.recv(1_000) == b"READY=1\nSTATUS=ready"
        watcher.reload(lambda: server.sendto(b"reloaded", server.getsockname()))
        assert server.recv(1_000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert server.recv(1_000) == b"reloaded"
        assert server.recv(1_000) == b"READY=1"
        condition = READY._replace(is_stopping=True)
    assert server.recv(1_000).startswith(b"STOPPING=1")


async def test_who_nobody_looks_after_reloads_all_the_same() -> None:
    reloaded: list[int] = []
    async with notified(None, BOUNDS, lambda: READY) as watcher:
        assert isinstance(watcher, Unwatched)
        watcher.look()
        watcher.reload(lambda: reloaded.append(1))
    assert reloaded == [1]


def test_what_the_service_manager_does_not_take_comes_before_anything_new() -> None:
    taken: list[str] = []
    room, condition = 0, READY

    def send(message: str) -> bool:
        if len(taken) < room:
            taken.append(message)
            return True
        return False

    notifier = Notifier(BOUNDS, lambda: condition, send)
    notifier.look()
    notifier.reload(lambda: None)
    condition = READY._replace(status="other")
    notifier.look()
    assert taken == []
    room = 3
    notifier.look()
    assert [each.partition("\n")[0] for each in taken] == ["READY=1", "RELOADING=1", "READY=1"]
    room = 4
    condition = READY._replace(status="third")
    notifier.look()
    assert taken[3:] == ["STATUS=third"], "nothing in between is said late"


def test_a_service_manager_that_is_gone_is_one_line_and_heard_again_later(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    link = NotifySocket(address)
    notifier = Notifier(BOUNDS, lambda: READY, link.send)
    with capture_logs() as lines:
        notifier.look()
        notifier.look()
    assert [line["event"] for line in lines] == ["service_manager_unreachable"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(address)
        notifier.look()
        server.setblocking(False)
        assert server.recv(1_000) == b"READY=1\nSTATUS=ready"
    link.close()


def test_a_socket_that_is_full_takes_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(address)
        link = NotifySocket(address)
        sent = 0
        while link.send("WATCHDOG=1"):
            sent += 1
            assert sent < 1_000_000
        assert not link.send("WATCHDOG=1")
        server.recv(1_000)
        assert link.send("WATCHDOG=1")
        link.close()
