"""Where connections are accepted: a socket that several servers share, and a bug there."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
from contextlib import ExitStack

import pytest
import uvloop
from structlog.testing import capture_logs

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server import listener
from holdfast.daemon.server.listener import Server
from holdfast.daemon.server.wire import security as security_module
from holdfast.daemon.server.wire.connections import Connections
from holdfast.daemon.server.wire.protocol import ClientProtocol
from holdfast.daemon.server.wire.security import PlaintextSecurity, accept_plain
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.metrics.instruments import Counter
from tests.waiting import wait_until
from tests.world.identity.certificates import Authority, Pair
from tests.world.serving import (
    SUCCESS,
    Reports,
    ask,
    read_answer,
    serve,
    write_frame,
)
from tests.world.tenants import APIS


async def test_a_shared_socket_is_left_to_the_others_until_connections_are_accepted_there() -> None:
    shared = socket.create_server(("127.0.0.1", 0))
    shared.setblocking(False)
    server = Server(
        Connections(lambda request, respond: None, APIS, LimitSettings(), Reports(), InternalErrors(Counter())),
        [shared],
    )
    await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*shared.getsockname())
    loop = asyncio.get_running_loop()
    accepted, _ = await loop.sock_accept(shared)  # it waits for whoever accepts first
    accepted.close()
    writer.close()
    assert len(server.connections) == 0
    await server.accept_shared()
    _, writer = await asyncio.open_connection(*shared.getsockname())
    await wait_until(lambda: len(server.connections) == 1)
    writer.close()
    await server.drain(deadline_ms=0)


async def test_who_waits_at_a_shared_socket_is_accepted_within_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, intervals_ms = 0, []

    def has_waiting(sockets: object) -> bool:
        nonlocal looks
        looks += 1
        return True

    async def is_set(event: asyncio.Event, timeout_ms: int) -> bool:
        intervals_ms.append(timeout_ms)
        return False

    monkeypatch.setattr(listener, "has_waiting", has_waiting)
    monkeypatch.setattr(listener, "_is_set", is_set)
    bugs = InternalErrors(Counter())
    server = Server(Connections(lambda request, respond: None, APIS, LimitSettings(), Reports(), bugs))
    await server._accept_shared_when(asyncio.Event(), 500)
    assert looks == len(intervals_ms) == 6
    assert 490 < sum(intervals_ms) <= 500


@pytest.mark.parametrize("fails", ["accepting", "a client"])
async def test_a_bug_where_connections_are_accepted_is_noted_and_they_are_accepted_again(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, node: Pair, fails: str
) -> None:
    monkeypatch.setattr(security_module, "_ACCEPT_PAUSE_S", 0.0)
    shared, bugs, due = socket.create_server(("127.0.0.1", 0)), Counter(), asyncio.Event()
    shared.setblocking(False)
    security = PlaintextSecurity()
    security.login_timeout_ms = 60_000
    limits = LimitSettings()
    connections = Connections(
        lambda request, respond: None, APIS, limits, Reports(), InternalErrors(bugs), security=security
    )
    server = Server(connections, [shared])
    failures = iter([RuntimeError("a bug")])

    def fail_once(*_: object) -> None:
        for failure in failures:
            raise failure

    if fails == "accepting":
        really_accept = server.accept_shared

        async def accept_shared() -> None:
            fail_once()
            await really_accept()

        monkeypatch.setattr(server, "accept_shared", accept_shared)
    else:
        security.ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        security.ssl_context.load_cert_chain(node.certificate, node.key)
        really_make = server._make_client

        def make_client() -> ClientProtocol:
            fail_once()
            return really_make()

        monkeypatch.setattr(server, "_make_client", make_client)
    due.set()
    with capture_logs() as lines:
        server.accept_shared_when(due, 500)
        writers = [(await asyncio.open_connection(*shared.getsockname()))[1]]
        await wait_until(lambda: bugs.value == 1)
        writers.append((await asyncio.open_connection(*shared.getsockname()))[1])
        await wait_until(lambda: len(connections) > 0)
    assert [(line["event"], line["error"]) for line in lines] == [("accept_ended", "RuntimeError('a bug')")]
    for writer in writers:
        writer.transport.abort()
    await wait_until(lambda: not len(connections))
    await server.drain(deadline_ms=0)


def test_servers_that_share_a_socket_serve_it_as_long_as_one_of_them_listens() -> None:
    async def ask_shared(port: int) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(write_frame(7))
        answer = await read_answer(reader)
        writer.transport.abort()
        return answer

    async def scenario() -> None:
        shared = socket.create_server(("127.0.0.1", 0))
        port = shared.getsockname()[1]
        async with serve(shared=[shared.dup()]) as one:
            async with serve(shared=[shared.dup()]) as two:
                shared.close()
                assert len({port, one.server.port, two.server.port}) == 3, "each has a port of its own as well"
                assert [await ask_shared(port) for _ in range(5)] == [(7, SUCCESS)] * 5
                assert one.server.connections.requests + two.server.connections.requests == 5
                assert await ask(two, 3) == (3, SUCCESS)
            assert await ask_shared(port) == (7, SUCCESS)
        with pytest.raises(ConnectionRefusedError):
            await ask_shared(port)

    asyncio.run(scenario())
    uvloop.run(scenario())
    gc.collect()


async def test_connections_that_wait_are_accepted_one_at_a_time() -> None:
    """Each is looked at before the next one takes a file descriptor, so a crowd cannot take the last ones together."""
    waiting = 5
    taken: list[int] = []
    all_came = asyncio.Event()

    class Client(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.append(len(os.listdir("/proc/self/fd")))
            transports.append(transport)
            if len(taken) == waiting:
                all_came.set()

    transports: list[asyncio.BaseTransport] = []
    with socket.create_server(("127.0.0.1", 0), backlog=waiting) as listening, ExitStack() as clients:
        for _ in range(waiting):
            clients.enter_context(socket.create_connection(listening.getsockname()))
        accepting = asyncio.create_task(accept_plain(listening, Client))
        await all_came.wait()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        for transport in transports:
            transport.close()
        await asyncio.sleep(0)
    assert [number - taken[0] for number in taken] == [0, 1, 2, 3, 4]
