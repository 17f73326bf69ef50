"""The page of a node whose HTTP port asks for certificates: each reader is the principal that its own one names."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlencode

import pytest

from holdfast.daemon.access.acl import Acl, Operation, Permission, ResourceType
from holdfast.daemon.access.acl_file import line_of, write_lines
from holdfast.records.share.batches import AVAILABLE, StateBatch
from tests.real.nodes import topic_id_of
from tests.real.page.stuck import produce
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import in_patience
from tests.world.http import Answer, get
from tests.world.identity.certificates import Authority

pytestmark = pytest.mark.real

GROUP = "workers"


async def test_a_reader_is_whom_its_certificate_names(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    users, authority = new_topic(2), Authority(tmp_path)
    produce(kafka, users)
    topic_id = topic_id_of(kafka, users)
    own, acls = authority.sign("node", "/CN=node"), tmp_path / "acls"
    rights = ((Operation.DESCRIBE, ResourceType.GROUP, GROUP), (Operation.READ, ResourceType.TOPIC, users))
    write_lines(acls, [line_of(Acl("User:alice", Permission.ALLOW, *right)) for right in rights])
    guarded = {
        "super.users": "User:ANONYMOUS",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Kelp$/$1/,DEFAULT",
        "http.tls.certificate.file": str(own.certificate),
        "http.tls.key.file": str(own.key),
        "http.tls.client.ca.file": str(authority.certificate),
    }
    alice, bob, stranger = (
        context_of(authority, name, subject)
        for name, subject in (("alice", "/O=Kelp/CN=alice"), ("bob", "/O=Kelp/CN=bob"), ("eve", "/O=Other/CN=alice"))
    )
    async with running(make_settings(kafka, topic, acls_file=str(acls), **guarded)) as node:
        for group in (GROUP, "others"):
            await node.client.initialize(group, topic_id, 0, state_epoch=1, start_offset=0)
        await node.client.write(GROUP, topic_id, 0, 1, 0, -1, [StateBatch(2, 2, AVAILABLE, 4)])
        where = {"group": GROUP, "topic": users, "partition": 0, "offset": 2}

        rows = (await look(node, alice, "/api/v1/group-topics")).json()["rows"]
        assert [row["group"] for row in rows] == [GROUP]
        paths = ("/group", "/window", "/offset", "/record")
        assert [(await look(node, alice, path, **where)).status for path in paths] == [200] * 4
        for reader, name in ((alice, "alice"), (bob, "bob"), (stranger, "CN=alice,O=Other")):
            hidden = await look(node, reader, "/group", group="others")
            assert (hidden.status, f"User:{name} may not DESCRIBE" in hidden.body.decode()) == (403, True)
        for reader in (bob, stranger):
            assert (await look(node, reader, "/api/v1/group-topics")).json()["rows"] == []
            assert [(await look(node, reader, path, **where)).status for path in paths] == [403] * 4

        # It is told when the answer is read, or cut off before.
        with pytest.raises((OSError, IndexError)):
            await look(node, ssl.create_default_context(cafile=authority.certificate), "/")


def context_of(authority: Authority, name: str, subject: str) -> ssl.SSLContext:
    """Return the TLS of a reader with a certificate."""
    pair = authority.sign(name, subject)
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def look(node: RunningNode, context: ssl.SSLContext, path: str, **parameters: object) -> Answer:
    """Return the answer of the HTTP port to a reader."""
    assert node.node.http_port is not None
    return await in_patience(get(node.node.http_port, f"{path}?{urlencode(parameters)}", context))
