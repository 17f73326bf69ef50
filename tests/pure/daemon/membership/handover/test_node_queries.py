"""How a former owner is reached: as all nodes are, by properties that may change while this one runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.daemon.membership.handover.node_queries import NodeQueries
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from tests.waiting import PATIENCE_MS


async def test_a_former_owner_is_queried_by_the_properties_for_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[tuple[Address, str]] = []

    async def open_connection(address: Address, options: ConnectionOptions, timeout_ms: int) -> BrokerConnection:
        tried.append((address, options.security_protocol))
        raise ConnectionFailed("it is away")

    monkeypatch.setattr(BrokerConnection, "open", open_connection)
    node, path = Node(2, "h", 9002), tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=p\n")
    queries = NodeQueries("state", str(path), PATIENCE_MS)
    assert await queries.query(node) is None
    path.write_text("security.protocol=PLAINTEXT\n")
    assert await queries.query(node) is None
    path.write_text("security.protocol=NONE\n")
    assert await queries.query(node) is None
    assert await NodeQueries("state", "", PATIENCE_MS).query(node) is None
    assert tried == [(("h", 9002), protocol) for protocol in ("SASL_PLAINTEXT", "PLAINTEXT", "PLAINTEXT")]
