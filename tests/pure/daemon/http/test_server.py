"""The server of the HTTP port: what a client may hold, what TLS and a token ask of it, and how it stops."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.http.guard import (
    HostCheck,
    own_names,
    tls_files,
)
from holdfast.daemon.http.server import CannotListenHttp, HttpBounds, HttpServer
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.login.tls import FollowedTls
from holdfast.daemon.server.wire import security
from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from tests.waiting import PATIENCE_MS, wait_until
from tests.world.context import make_context
from tests.world.http import BROWSER, get, parse
from tests.world.identity.certificates import Authority, Pair

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


HOST = "127.0.0.1"

App = Callable[[Scope, Receive, Send], Awaitable[None]]


@asynccontextmanager
async def serving(app: App = answer_ok, bounds: HttpBounds | None = None, **settings: Any) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, HttpSettings(**settings), InternalErrors(Counter()), bounds=bounds)
    await server.start(HOST, 0)
    try:
        yield server
    finally:
        await server.stop(PATIENCE_MS)


async def connect(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


def connect_and_send(server: HttpServer, sent: bytes) -> socket.socket:
    """Return a connection with its first bytes in it before the server accepts it, so that no time runs out before they come."""
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(sent)
    return client


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
    async with serving(bounds=HttpBounds(request_timeout_ms=50)) as server:
        reader, writer = await asyncio.open_connection(sock=connect_and_send(server, sent))
        assert (await read_to_end(reader)).count(b"ok") == (sent == REQUEST)
        writer.close()


async def test_who_takes_no_answer_is_cut_off() -> None:
    ended = asyncio.Event()

    async def answer_much(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        disconnect = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not disconnect.done():
            await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
            await asyncio.sleep(0)
        assert (await disconnect)["type"] == "http.disconnect"
        ended.set()

    async with serving(answer_much, bounds=HttpBounds(request_timeout_ms=100)) as server:
        with connect_and_send(server, REQUEST):
            await wait_until(ended.is_set, "the answer is given up")


async def test_an_answer_that_goes_on_is_not_cut_off_while_it_is_taken() -> None:
    bounds = HttpBounds(request_timeout_ms=100)
    lines = 0

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal lines
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            lines += 1
            await send({"type": "http.response.body", "body": b"line of an event\n", "more_body": True})
            await asyncio.sleep(0.02)

    async with serving(answer, bounds) as server:
        reader, writer = await connect(server)
        writer.write(REQUEST)
        for _ in range(50):  # ten times as long as a request may take
            await reader.readuntil(b"line of an event\n")
        assert lines >= 50
        writer.close()


async def test_a_large_head_is_refused() -> None:
    async with serving(bounds=HttpBounds(head_bytes_max=1_024)) as server:
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000)
        assert b" 4" in (await read_to_end(reader)).partition(b"\r\n")[0]
        writer.close()


def head_of(size: int, end: bytes = b"\r\n") -> bytes:
    """Return the head of a request, of so many bytes."""
    begin = b"GET / HTTP/1.1" + end + b"Host: a" + end + b"X: "
    return begin + b"a" * (size - len(begin) - 2 * len(end)) + 2 * end


LIMIT = 1_024


@pytest.mark.parametrize("pieces", [1, 2, 40])
@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (head_of(LIMIT), [200]),
        (head_of(LIMIT + 2), [400]),
        (head_of(LIMIT + 2, b"\n"), [400]),
        (head_of(60_000), [400]),
        (head_of(1_000_000), [400]),
        (REQUEST[:-2] + b"".join(b"X%d: 1\r\n" % number for number in range(5_000)) + b"\r\n", [400]),
        (REQUEST[:-2] + b"X: " + b" " * 60_000 + b"a\r\n\r\n", [400]),
        (b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", [400]),
        # Behind others, which are answered.
        (REQUEST * 3 + head_of(LIMIT + 2), [200, 200, 200, 400]),
        (REQUEST * 3 + head_of(60_000) + REQUEST, [200, 200, 200, 400]),
        (head_of(LIMIT) * 5, [200] * 5),
        # Behind a body.
        (REQUEST[:-2] + b"Content-Length: 5000\r\n\r\n" + bytes(5_000) + head_of(LIMIT), [200, 200]),
        (REQUEST[:-2] + b"Content-Length: 5000\r\n\r\n" + bytes(5_000) + head_of(60_000), [200, 400]),
        (
            REQUEST[:-2] + b"Transfer-Encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 900 + b"0\r\n\r\n" + REQUEST,
            [200] * 2,
        ),
    ],
)
async def test_a_head_has_a_bound_however_it_comes(sent: bytes, statuses: list[int], pieces: int) -> None:
    async with serving(bounds=HttpBounds(head_bytes_max=LIMIT)) as server:
        reader, writer = await connect(server)
        size = len(sent) // pieces + 1
        for start in range(0, len(sent), size):
            if not reader.at_eof() and reader.exception() is None:
                writer.write(sent[start : start + size])
                await asyncio.sleep(0)
        found: list[int] = []
        for expected in statuses:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                found.append(int(head.split()[1]))
                await reader.readuntil(b"ok" if expected == 200 else b".")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                break
        writer.close()
    # The bytes behind one that is refused may reset the connection before its answers are read.
    assert found == statuses[: len(found)]
    assert 400 in statuses or found == statuses


async def test_what_comes_while_a_request_is_answered_is_not_read_on() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer_late(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await go_on.wait()
        await answer_ok(scope, receive, send)

    async with serving(answer_late, bounds=HttpBounds(head_bytes_max=LIMIT)) as server:
        reader, writer = await connect(server)
        writer.write(REQUEST)
        await begun.wait()
        writer.write(head_of(LIMIT) * 20_000)
        [connection] = server._connections
        await wait_until(lambda: connection._inner._unread)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(connection._inner._unread) < 10_000_000
        go_on.set()
        for _ in range(3):
            assert b" 200 " in await reader.readuntil(b"ok")
        writer.transport.abort()


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
        second = HttpServer(answer_ok, HttpSettings(), InternalErrors(Counter()))
        with pytest.raises(CannotListenHttp, match=r"ddress already in use\); set another `http.listen`, or an empty"):
            await second.start(HOST, server.port)


# ---- the guard -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9592", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9592", 200),
        ("[::1]", 200),
        ("10.0.0.9:9592", 200),
        ("kelp.example:80", 200),
        ("evil.example:9592", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("a@localhost", 421),
        ("", 421),
    ],
)
async def test_who_calls_the_node_by_a_name_that_is_not_its_own_is_refused(host: str, status: int) -> None:
    names = own_names(HOST, ("Kelp.example",))
    async with serving(HostCheck(answer_ok, names)) as server:
        reader, writer = await connect(server)
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = parse(await read_to_end(reader))
        assert answer.status == status
        assert (answer.body == b"ok") == (status == 200)
        writer.close()


async def test_a_browser_that_uses_another_name_is_shown_a_page() -> None:
    async with serving(HostCheck(answer_ok, ("localhost",))) as server:
        answer = await get(server.port, "/", host="evil.example", Accept=BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (421, "text/html; charset=utf-8")
    assert b"http.allowed.hosts" in answer.body


async def test_who_names_no_host_is_no_browser_and_is_answered() -> None:
    async with serving(HostCheck(answer_ok, ("localhost",))) as server:
        reader, writer = await connect(server)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert parse(await read_to_end(reader)).body == b"ok"
        writer.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@dataclass
class Encrypted:
    """A server with TLS, and what its files are followed by."""

    server: HttpServer
    files: FileWatch
    registry: Registry
    shown: Path
    bugs: Counter = field(default_factory=Counter)

    def show(self, pair: Pair) -> None:
        """Put a certificate and its key in the place of the server's."""
        draft = self.shown.with_suffix(".draft")
        draft.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
        draft.replace(self.shown)


@asynccontextmanager
async def encrypted(
    pair: Pair, directory: Path, bounds: HttpBounds | None = None, **given: Any
) -> AsyncIterator[Encrypted]:
    registry, shown = Registry(), directory / "http.pem"
    at = Encrypted(None, FileWatch(make_context(registry=registry)), registry, shown)  # type: ignore[arg-type]
    at.show(pair)
    settings = HttpSettings(tls_certificate_file=str(shown), **given)
    named = tls_files(settings)
    assert named is not None
    tls = FollowedTls("http", named, at.files, registry)
    at.server = HttpServer(answer_ok, settings, InternalErrors(at.bugs), tls, bounds)
    await at.server.start(HOST, 0)
    try:
        yield at
    finally:
        await at.server.stop(PATIENCE_MS)


async def name_shown(port: int, authority: Authority) -> str:
    """Return whom the certificate of a port names."""
    context = ssl.create_default_context(cafile=authority.certificate)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    subject = writer.get_extra_info("peercert")["subject"]
    writer.close()
    return str(subject[0][0][1])


async def test_a_bug_where_connections_are_accepted_is_noted_and_they_are_accepted_again(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, tmp_path: Path
) -> None:
    monkeypatch.setattr(security, "_ACCEPT_PAUSE_S", 0.0)
    async with encrypted(authority.sign("node", "/CN=node"), tmp_path) as at:
        really_opened, failures = at.server.opened, iter([RuntimeError("a bug")])

        def opened(connection: Any) -> bool:
            for failure in failures:
                raise failure
            return really_opened(connection)

        monkeypatch.setattr(at.server, "opened", opened)
        with capture_logs() as lines:
            with suppress(OSError):
                await name_shown(at.server.port, authority)
            await wait_until(lambda: at.bugs.value == 1)
            assert await name_shown(at.server.port, authority) == "node"
        assert [(line["event"], line["error"]) for line in lines] == [("accept_ended", "RuntimeError('a bug')")]


async def test_a_new_certificate_is_shown_to_new_connections_and_a_wrong_one_is_not(
    authority: Authority, tmp_path: Path
) -> None:
    first, second = (authority.sign(name, f"/CN={name}") for name in ("first", "second"))
    context = ssl.create_default_context(cafile=authority.certificate)
    async with encrypted(first, tmp_path) as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", at.server.port, ssl=context)
        at.show(second)
        at.files.look()
        assert await name_shown(at.server.port, authority) == "second"
        writer.write(REQUEST)
        assert parse(await reader.readuntil(b"ok")).body == b"ok", "who is connected stays so"
        assert 0 < dict(at.registry.numbers())["holdfast_certificate_days_left{port=http}"] <= 2
        at.shown.write_text("no certificate")
        with capture_logs() as lines:
            at.files.look()
        assert [line["event"] for line in lines] == ["certificate_refused"]
        assert "http.tls.certificate.file" in lines[0]["why"]
        assert await name_shown(at.server.port, authority) == "second"
        writer.close()


async def is_closed(client: socket.socket) -> bool:
    """Wait until the other side has closed a connection."""
    reader, writer = await asyncio.open_connection(sock=client)
    ended = await read_to_end(reader)
    writer.close()
    return ended == b""


async def connect_silently(server: HttpServer, count: int) -> list[socket.socket]:
    """Have many clients connect, of which every other one says the beginning of a handshake, and no more."""
    place = ("127.0.0.1", server.port)
    clients = [await asyncio.to_thread(socket.create_connection, place) for _ in range(count)]
    for each in clients[::2]:
        with suppress(OSError):  # it is closed already
            each.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    return clients


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_handshakes_take_places_from_the_first_moment_and_for_a_time_only(
    authority: Authority, tmp_path: Path, loop: str
) -> None:
    pair = authority.sign("node", "/CN=node")
    context = ssl.create_default_context(cafile=authority.certificate)

    async def besiege() -> None:
        bounds = {"connections_max": 20, "connections_per_address_max": 10}
        async with encrypted(pair, tmp_path, HttpBounds(request_timeout_ms=PATIENCE_MS), **bounds) as at:
            silent = await connect_silently(at.server, 30)
            assert all(await asyncio.gather(*map(is_closed, silent[10:]))), "what is over the bound is closed at once"
            assert len(at.server._connections) == 10
            for each in silent[:10]:
                each.close()
            await wait_until(lambda: not at.server._connections)
        async with encrypted(pair, tmp_path, HttpBounds(request_timeout_ms=500), **bounds) as at:
            silent = await connect_silently(at.server, 10)
            assert all(await asyncio.gather(*map(is_closed, silent))), "the rest is closed when its time is up"
            await wait_until(lambda: not at.server._connections)
            assert (await get(at.server.port, "/", context)).body == b"ok"

    if loop == "asyncio":
        asyncio.run(besiege())
    else:
        uvloop.run(besiege())


async def test_one_address_leaves_places_to_others() -> None:
    async with serving(connections_max=8, connections_per_address_max=2) as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        assert await is_closed(clients[2])
        other = socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.0.2", 0))
        reader, writer = await asyncio.open_connection(sock=other)
        writer.write(REQUEST)
        assert await reader.readuntil(b"ok")
        writer.close()
        for client in clients[:2]:
            client.close()
