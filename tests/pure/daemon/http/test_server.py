"""The server of the HTTP port: what a client may hold, what TLS and a token ask of it, and how it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from holdfast.daemon.http.guard import GuardRefused, OpenGuard, TokenGuard, make_guard, make_ssl_context
from holdfast.daemon.http.server import CannotListenHttp, HttpServer
from holdfast.daemon.settings.components.http import HttpSettings
from tests.waiting import PATIENCE_MS, wait_until
from tests.world.http import get, parse

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


App = Callable[[Scope, Receive, Send], Awaitable[None]]


@asynccontextmanager
async def serving(app: App = answer_ok, **settings: Any) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, HttpSettings(listen="127.0.0.1:0", **settings))
    await server.start()
    try:
        yield server
    finally:
        await server.stop(PATIENCE_MS)


async def connect(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_one_connection_serves_many_requests() -> None:
    async with serving() as server:
        reader, writer = await connect(server)
        for _ in range(3):
            writer.write(REQUEST)
            assert parse(await reader.readuntil(b"ok")).body == b"ok"
        writer.close()


def test_the_loop_that_production_has_serves_as_well() -> None:
    async def ask() -> bytes:
        async with serving() as server:
            return (await get(server.port, "/")).body

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(ask()) == b"ok"


async def test_a_connection_too_many_is_closed_and_a_place_that_is_free_again_is_taken() -> None:
    async with serving(connections_max=2) as server:
        first, second = await connect(server), await connect(server)
        for reader, writer in (first, second):
            writer.write(REQUEST)
            await reader.readuntil(b"ok")
        third, closing = await connect(server)
        assert await read_to_end(third) == b""
        closing.close()
        first[1].close()

        await wait_until(lambda: len(server._connections) == 1, "the place is free")
        reader, writer = await connect(server)
        writer.write(REQUEST)
        assert await reader.readuntil(b"ok")
        writer.close()
        second[1].close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX: ", REQUEST])
async def test_who_sends_no_request_is_cut_off(sent: bytes) -> None:
    async with serving(request_timeout_ms=50) as server:
        reader, writer = await connect(server)
        writer.write(sent)
        assert (await read_to_end(reader)).count(b"ok") == (sent == REQUEST)
        writer.close()


async def test_who_takes_no_answer_is_cut_off() -> None:
    ended = asyncio.Event()

    async def answer_much(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while (await asyncio.wait_for(receive_disconnect(receive), 0.001)) is None:
                await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
        finally:
            ended.set()

    async def receive_disconnect(receive: Receive) -> object:
        try:
            async with asyncio.timeout(0):
                message = await receive()
        except TimeoutError:
            return None
        return None if message["type"] == "http.request" else message

    async with serving(answer_much, request_timeout_ms=100) as server:
        _, writer = await connect(server)
        writer.write(REQUEST)
        await wait_until(ended.is_set, "the answer is given up")
        writer.close()


async def test_a_large_head_is_refused() -> None:
    async with serving(request_head_bytes_max=1_024) as server:
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000)
        assert b" 4" in (await read_to_end(reader)).partition(b"\r\n")[0]
        writer.close()


async def test_a_stop_lets_a_request_finish_and_closes_what_is_idle() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer_late(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go_on.wait()
        await answer_ok(scope, receive, send)

    async with serving(answer_late) as server:
        port = server.port
        idle, idle_writer = await connect(server)
        busy, busy_writer = await connect(server)
        busy_writer.write(REQUEST)
        await begun.wait()
        stopping = asyncio.create_task(server.stop(PATIENCE_MS))
        assert await read_to_end(idle) == b""
        with pytest.raises(OSError):  # noqa: PT011 - refused or reset
            await get(port, "/")
        go_on.set()
        assert (await read_to_end(busy)).endswith(b"ok")
        await stopping
        idle_writer.close()
        busy_writer.close()


async def test_a_stop_waits_for_no_client_longer_than_it_is_told() -> None:
    begun = asyncio.Event()

    async def never_answer(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with serving(never_answer) as server:
        reader, writer = await connect(server)
        writer.write(REQUEST)
        await begun.wait()
        await server.stop(10)
        assert await read_to_end(reader) == b""
        writer.close()


async def test_an_address_in_use_is_refused_by_the_setting() -> None:
    async with serving() as server:
        second = HttpServer(answer_ok, HttpSettings(listen=f"127.0.0.1:{server.port}"))
        with pytest.raises(CannotListenHttp, match=r"ddress already in use\); set another `http.listen`, or an empty"):
            await second.start()


# ---- the guard -------------------------------------------------------------------------------------------------------


def test_a_token_is_needed_where_one_is_set_and_a_new_one_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\nnot this\n")
    guard = make_guard(HttpSettings(token_file=str(file)))
    assert guard.admits({"authorization": "Bearer first"})
    assert guard.admits({"authorization": "bearer  first "})
    for wrong in ({}, {"authorization": "first"}, {"authorization": "Basic first"}, {"authorization": "Bearer firs"}):
        assert not guard.admits(wrong)
    assert not guard.admits({"authorization": "Bearer not this"})
    file.write_text("the second\n")
    assert not guard.admits({"authorization": "Bearer first"})
    assert guard.admits({"authorization": "Bearer the second"})
    for gone in (lambda: file.write_text("\n"), file.unlink):
        gone()
        assert not guard.admits({"authorization": "Bearer the second"})
        assert not guard.admits({"authorization": "Bearer "})
        assert not guard.admits({})


def test_without_a_token_all_are_admitted() -> None:
    assert isinstance(make_guard(HttpSettings()), OpenGuard)
    assert OpenGuard().admits({})


def test_a_token_that_cannot_be_read_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(GuardRefused, match=r"http\.token\.file .*/none cannot be read \(No such file"):
        TokenGuard(str(tmp_path / "none"))
    empty = tmp_path / "empty"
    empty.write_text(" \ntoken\n")
    with pytest.raises(GuardRefused, match="has no token in its first line"):
        TokenGuard(str(empty))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listen": "0.0.0.0:1"}, "set http.tls.certificate.file, and http.token.file or http.tls.client.ca.file"),
        ({"listen": "10.0.0.1:1", "token_file": "t"}, "set http.tls.certificate.file"),
        ({"listen": "node:1", "tls_certificate_file": "c"}, "set http.token.file or http.tls.client.ca.file"),
        ({"tls_client_ca_file": "c"}, "need http.tls.certificate.file"),
        ({"tls_key_file": "c"}, "need http.tls.certificate.file"),
    ],
)
def test_who_may_be_reached_by_others_needs_tls_and_a_token_or_certificates(settings: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        HttpSettings(**settings)


@pytest.mark.parametrize("listen", ["", "127.0.0.1:9", "127.3.4.5:9", "[::1]:0", "localhost:1"])
def test_on_loopback_nothing_is_needed(listen: str) -> None:
    assert (HttpSettings(listen=listen).listen_address is None) == (listen == "")
    assert make_ssl_context(HttpSettings(listen=listen)) is None


def test_the_default_address_is_known_from_one_that_was_set() -> None:
    assert not HttpSettings().is_address_given
    assert HttpSettings(listen="127.0.0.1:9592").is_address_given
