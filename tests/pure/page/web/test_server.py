"""The connections of `holdfast page`: clients that say nothing, or take nothing, keep no other out."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from holdfast.page.web import server
from holdfast.page.web.app import make_app
from holdfast.page.web.events import STREAMS_MAX
from holdfast.page.web.server import CONNECTIONS_MAX, PageServer
from tests.waiting import PATIENCE_S, in_patience, wait_until
from tests.world.http import get
from tests.world.page_source import Held, MemorySource, quiet

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(source: MemorySource) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Give the port, and what ends the server."""
    ended = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(PageServer(make_app(source), listener).serve(ended))
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield listener.getsockname()[1], ended
        finally:
            ended.set()
            await in_patience(task)


async def say(port: int, text: str) -> Opened:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    return reader, writer


async def listen(port: int) -> Opened:
    """Open an event stream."""
    reader, writer = await say(port, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while not (await reader.readline()).startswith(b"retry: "):
        pass
    return reader, writer


@pytest.mark.parametrize(
    "said",
    ["", "GET / HT", "GET / HTTP/1.1\r\nHost: localhost\r\nA: ", "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"],
    ids=["nothing", "half a line", "half a head", "half a second one"],
)
async def test_a_client_that_sends_no_whole_request_is_cut_off(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 0.2)
    async with serving(quiet()) as (port, _):
        reader, writer = await say(port, said)
        rest = asyncio.create_task(reader.read())
        # A byte now and then gives it no more time.
        while not rest.done() and said:
            writer.write(b"x")
            await asyncio.wait([rest], timeout=0.02)
        with suppress(ConnectionError):
            await rest
        writer.close()


async def test_silent_clients_leave_those_their_place_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 5)
    async with serving(quiet()) as (port, _):
        silent = [await say(port, "GET / HT") for _ in range(30)]
        for _ in range(3):
            assert (await get(port, "/")).status == 200
        # A connection that is reset has an exception, and one that is closed is at its end.
        await wait_until(lambda: sum(reader.at_eof() or reader.exception() is not None for reader, _ in silent) >= 25)
        for _, writer in silent:
            writer.close()


async def test_a_client_that_takes_nothing_of_a_large_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 0.2)
    batches = tuple((place, place, 2 if place % 2 else 0, 1) for place in range(2_000))
    source = MemorySource([Held("orders", "orders.created", 1, 0, batches, 50_000)])
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        client.setblocking(False)
        async with serving(source) as (port, _):
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", port))
            path = "/api/v1/window?group=orders&topic=orders.created&partition=1"
            size_bytes = len((await get(port, path)).body)
            connection, cut_off = server._Connection, asyncio.Event()
            abort = connection.abort

            def cut(cut_connection: server._Connection) -> None:
                abort(cut_connection)
                cut_off.set()

            monkeypatch.setattr(connection, "abort", cut)
            await loop.sock_sendall(client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 100)
            taken = 0
            await in_patience(cut_off.wait())
            with suppress(ConnectionError):
                while chunk := await loop.sock_recv(client, 1 << 16):
                    taken += len(chunk)
            assert taken < 50 * size_bytes


async def test_the_end_waits_for_no_event_stream_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with serving(quiet()) as (port, ended):
            streams = [await listen(port) for _ in range(5)]
            kept = await say(port, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await kept[0].readuntil(b"\r\n\r\n")
            began_s = asyncio.get_running_loop().time()
            ended.set()
            for reader, writer in (*streams, kept):
                with suppress(ConnectionError):
                    await in_patience(reader.read())
                writer.close()
            assert asyncio.get_running_loop().time() - began_s < PATIENCE_S / 2
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []


async def test_nothing_that_clients_do_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with serving(quiet()) as (port, _):
            for said in (
                "\x00\x01\r\n\r\n",
                f"GET /{'a' * 100_000}",
                "GET / HTTP/1.1\r\n\r\n",
                "PRI * HTTP/2.0\r\n\r\n",
            ):
                reader, writer = await say(port, said)
                assert b" 200 " not in (await in_patience(reader.read(100))) or said.startswith("GET / ")
                writer.close()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_there_is_room_for_all_event_streams_and_for_people() -> None:
    assert CONNECTIONS_MAX >= 3 * STREAMS_MAX
