"""The HTTP port as a node opens it: where it listens when its port is in use, what it shows to whom, and which names it has."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.http.guard import GuardRefused
from holdfast.daemon.http.port import open_http_port
from holdfast.daemon.http.queries import PREFIX
from holdfast.daemon.http.server import CannotListenHttp, HttpServer
from holdfast.node_settings import load_settings
from tests.pure.daemon.http.test_app import Node
from tests.waiting import PATIENCE_MS
from tests.world.http import get
from tests.world.identity.certificates import Authority
from tests.world.tenants import QUERIES


@asynccontextmanager
async def opened(**flags: object) -> AsyncIterator[HttpServer]:
    given = {"kafka.bootstrap.servers": "a:1", "http.listen": "127.0.0.1:0"}
    given |= {name.replace("__", "."): str(value) for name, value in flags.items()}
    node = Node()
    files = FileWatch(node.context)
    server = await open_http_port(node, load_settings(flags=given).settings, files, QUERIES)
    assert server is not None
    try:
        yield server
    finally:
        await server.stop(PATIENCE_MS)


async def test_a_port_that_was_set_must_be_had_and_one_that_may_move_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(CannotListenHttp, match=rf"{taken} \(Address already in use\); set another `http.listen`"):
            async with opened(http__listen=taken):
                pass
        with capture_logs() as lines:
            async with opened(http__listen=taken, http__port__may__move=True) as server:
                assert (await get(server.port, "/live")).status == 200
                port = server.port
    assert [(line["event"], line["port"]) for line in lines] == [("http_port_moved", port), ("http_listening", port)]
    assert taken in lines[0]["why"]


async def test_what_commands_show_is_guarded_as_at_the_listener(tmp_path: Path) -> None:
    (tmp_path / "acls").write_text("")
    (tmp_path / "token").write_text("s3cret")
    async with opened() as server:
        assert (await get(server.port, f"{PREFIX}status")).status == 200
    async with opened(acls_file=tmp_path / "acls") as server:
        assert (await get(server.port, f"{PREFIX}status")).status == 401
        assert (await get(server.port, "/metrics")).status == 200
    async with opened(acls_file=tmp_path / "acls", http__token__file=tmp_path / "token") as server:
        assert (await get(server.port, f"{PREFIX}status")).status == 401
        assert (await get(server.port, "/metrics")).status == 401
        assert (await get(server.port, f"{PREFIX}status", Authorization="Bearer s3cret")).status == 200


async def test_a_page_whose_name_leads_here_reads_nothing() -> None:
    for path in ("/live", "/metrics", f"{PREFIX}share-partitions"):
        async with opened() as server:
            assert (await get(server.port, path, host="evil.example")).status == 421
        async with opened(http__allowed__hosts="kelp.example") as server:
            assert (await get(server.port, path, host="kelp.example:80")).status == 200


async def test_a_certificate_that_cannot_be_used_is_refused_by_its_setting(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(GuardRefused, match=r"http\.tls\.certificate\.file=.*no\.pem cannot be used"):
        async with opened(http__tls__certificate__file=tmp_path / "no.pem"):
            pass
    pair = Authority(tmp_path).sign("node", "/CN=node")
    with pytest.raises(GuardRefused, match=r"http\.tls\.client\.ca\.file=.*no\.pem cannot be used"):
        async with opened(
            http__tls__certificate__file=pair.certificate,
            http__tls__key__file=pair.key,
            http__tls__client__ca__file=tmp_path / "no.pem",
        ):
            pass
