"""A body that is none of HTTP: its client is refused or cut off, and no application and no loop fails by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import pytest
from starlette.types import Receive, Scope, Send

from holdfast.daemon.http.server import HttpServer
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.metrics.instruments import Counter
from tests.waiting import PATIENCE_MS, in_patience

HEAD: Final = b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
BROKEN: Final = [
    pytest.param(b"ZZ\r\n", id="no size of a chunk"),
    pytest.param(b"1\r\na\r\nZZ\r\n", id="after a chunk"),
    pytest.param(b"0\r\n" + b"T: z\r\n" * 40_000 + b"\r\n", id="trailers above the bound"),
    pytest.param(b"0\r\n\x00\r\n\r\n", id="trailers that are none"),
]


class Answering:
    """An application that begins its answer, and ends it when it is told; its failures, and those of the loop, are kept."""

    def __init__(self) -> None:
        self.faults: list[object] = []
        self.may_begin, self.has_begun, self.may_end, self.has_ended = (asyncio.Event() for _ in range(4))
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.faults.append(context))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.may_begin.wait()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"o", "more_body": True})
            self.has_begun.set()
            await self.may_end.wait()
            await send({"type": "http.response.body", "body": b"k"})
        except Exception as failure:
            self.faults.append(failure)
            raise
        finally:
            self.has_ended.set()


class Dialogue(NamedTuple):
    """A connection to a server of `Answering`."""

    app: Answering
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@asynccontextmanager
async def dialogue() -> AsyncIterator[Dialogue]:
    app = Answering()
    server = HttpServer(app, HttpSettings(), InternalErrors(Counter()))
    await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HEAD)
        yield Dialogue(app, reader, writer)
        writer.close()
    finally:
        await server.stop(PATIENCE_MS)


@pytest.mark.parametrize("body", BROKEN)
async def test_body_of_no_http_before_the_answer_gets_a_refusal_alone(body: bytes) -> None:
    async with dialogue() as (app, reader, writer):
        writer.write(body)
        assert (await in_patience(reader.readuntil(b"\r\n"))).split()[1] == b"400"
        app.may_begin.set()
        app.may_end.set()
        await in_patience(app.has_ended.wait())
    assert app.faults == []


@pytest.mark.parametrize("body", BROKEN)
async def test_within_the_answer_its_client_is_cut_off(body: bytes) -> None:
    async with dialogue() as (app, reader, writer):
        app.may_begin.set()
        await in_patience(reader.readuntil(b"o"))
        writer.write(body)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await in_patience(reader.readuntil(b"ok"))
        app.may_end.set()
        await in_patience(app.has_ended.wait())
    assert app.faults == []


@pytest.mark.parametrize("body", BROKEN)
async def test_after_the_answer_its_client_is_cut_off(body: bytes) -> None:
    async with dialogue() as (app, reader, writer):
        app.may_begin.set()
        app.may_end.set()
        await in_patience(reader.readuntil(b"ok"))
        writer.write(body)
        with suppress(ConnectionResetError):
            assert await in_patience(reader.read()) == b""
    assert app.faults == []
