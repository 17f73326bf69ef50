"""Apache Kafka's persister reaches a node with TLS, a certificate of its own and a login by SCRAM, and is answered as without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.driver import PersisterDriver, without_messages
from tests.interop.scenarios import life_of_a_share_partition
from tests.real.nodes import node_processes
from tests.world.identity.secured import SecuredFiles

pytestmark = [pytest.mark.real, pytest.mark.interop]


async def test_a_share_partition_lives_the_same_over_tls_with_a_login(
    kafka: str, topic: str, tmp_path: Path, group_id: str, share_topic_id: str
) -> None:
    files = SecuredFiles(tmp_path)
    files.let_in(admin="open sesame", broker="kafka's")
    properties = tmp_path / "java.properties"
    properties.write_text(files.java_properties_of("broker", "kafka's", files.authority.sign("broker", "/CN=broker")))
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**{**files.settings, "ssl.client.auth": "requested", "super.users": "User:admin;User:broker"})
        await node.start()
        with PersisterDriver(node.address, client_properties=properties) as persister:
            for exchange in life_of_a_share_partition(group_id, share_topic_id):
                (answer,) = without_messages([persister.ask(exchange.step)])
                assert (exchange.claim, answer.get("partitions", answer)) == (exchange.claim, exchange.expected)
    failed = [
        line for line in node.events() if line["event"] in ("login_failed", "tls_handshake_failed", "access_denied")
    ]
    assert failed == []
