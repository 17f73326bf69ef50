"""How other nodes are reached: what is made of files is kept until one changes; who refuses to answer is a line."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.other_nodes import NodeOptions, NodeSilent, OtherNodes, workers_of
from holdfast.kafka.errors import PropertyRefused
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.node_settings import load_settings
from tests.waiting import PATIENCE_MS
from tests.world.identity.access import closed
from tests.world.identity.certificates import Authority
from tests.world.serving import FakeCluster, FakeService, serve
from tests.world.tenants import NEEDS, make_handler

ONE, OTHER = ("h", 9001), ("h", 9002)


def test_a_context_of_tls_is_made_once_for_each_change_of_a_file(tmp_path: Path) -> None:
    authority, path = Authority(tmp_path), tmp_path / "client.properties"
    pair = authority.sign("us", "/CN=us")
    lines = (
        "security.protocol=SSL",
        f"ssl.ca.location={authority.certificate}",
        f"ssl.certificate.location={pair.certificate}",
        f"ssl.key.location={pair.key}",
    )
    path.write_text("\n".join(lines))
    options = NodeOptions(str(path))
    first, second = options.to(ONE), options.to(OTHER)
    assert (first.bootstrap, second.bootstrap) == ((ONE,), (OTHER,))
    assert first.ssl_context is second.ssl_context is not None
    known = {first.ssl_context}
    authority.sign("us", "/CN=us again")  # certificate and key under the same names
    known.add(options.to(ONE).ssl_context)
    assert len(known) == 2
    Authority(tmp_path)
    known.add(options.to(ONE).ssl_context)
    assert len(known) == 3
    path.write_text("\n".join([*lines, "ssl.endpoint.identification.algorithm=none"]))
    known.add(options.to(ONE).ssl_context)
    assert len(known) == 4
    assert options.to(OTHER).ssl_context in known


def test_what_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    options = NodeOptions(str(path))
    for _ in range(2):
        with pytest.raises(PropertyRefused, match=r"client\.properties"):
            options.to(ONE)
    path.write_text("security.protocol=PLAINTEXT")
    assert options.to(ONE).security_protocol == "PLAINTEXT"
    path.unlink()
    with pytest.raises(PropertyRefused, match=r"client\.properties"):
        options.to(ONE)


def test_without_a_file_nodes_are_reached_in_the_clear() -> None:
    options = NodeOptions("")
    assert (options.to(ONE).security_protocol, options.to(OTHER).bootstrap) == ("PLAINTEXT", (OTHER,))


async def test_a_query_that_is_denied_is_a_line_with_the_rule_that_is_missing() -> None:
    admin = Admin({"metrics": lambda _: {}}, NEEDS, PATIENCE_MS, InternalErrors(Counter()))
    handler = make_handler(FakeService(), FakeCluster(), admin, closed())
    nodes = OtherNodes(LineLimiter())
    async with serve(handler=handler) as served:
        with capture_logs() as lines:
            for _ in range(3):
                with pytest.raises(
                    NodeSilent, match="User:ANONYMOUS may not DESCRIBE the CLUSTER, which metrics needs"
                ):
                    await nodes.query(served.address, "metrics", PATIENCE_MS)
        [line] = [each for each in lines if each["event"] == "node_query_denied"]
        assert (line["address"], line["command"]) == (served.address, "metrics")
        assert "`holdfast acls add --allow-principal User:ANONYMOUS --operation DESCRIBE --cluster`" in line["why"]
    await admin.close()


@pytest.mark.parametrize("advertised", ["node.example:9492", "other.example:9492", ""])
async def test_a_worker_shows_the_certificate_of_the_advertised_host(tmp_path: Path, advertised: str) -> None:
    authority, path = Authority(tmp_path), tmp_path / "client.properties"
    path.write_text(f"security.protocol=SSL\nssl.ca.location={authority.certificate}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("node", "/CN=node", host="DNS:node.example"))
    let_in = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal let_in
        let_in += 1
        writer.close()

    flags = {"kafka.bootstrap.servers": "a:1", "listener.client.properties.file": str(path)}
    workers = workers_of(
        load_settings(flags=flags | ({"advertised_listener": advertised} if advertised else {})).settings,
        LineLimiter(),
    )
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NodeSilent) as silence:
            await workers.query(f"127.0.0.1:{port}", "metrics", PATIENCE_MS)
    is_of_the_host = advertised.startswith("node.example:")
    assert ("verify failed" in str(silence.value), let_in) == (not is_of_the_host, int(is_of_the_host)), silence.value
