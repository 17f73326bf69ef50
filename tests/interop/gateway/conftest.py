"""Apache Kafka and a gateway before the same cluster, for the tests that compare them."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from tests.interop.gateway.pairs import KINDS, Groups, Pair, make_topic
from tests.real.gateway.raw_member import until_offered
from tests.real.nodes import node_processes, topic_id_of

#: Random lives; SHARE_LIVES=2000 lives more.
LIVES: Final = int(os.environ.get("SHARE_LIVES", "40"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def both_servers(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Give both over the cluster of all tests, with a topic of records."""
    # Each life may be tried twice, and exact scripts take some.
    groups = Groups(dict.fromkeys(KINDS, 2 * LIVES // 5 + 25))
    topic = await asyncio.to_thread(make_topic, kafka)
    await groups.tell(kafka)
    ids = {"records": topic_id_of(kafka, topic), "unknown": uuid.uuid4().bytes, "zeros": bytes(16)}
    with node_processes(kafka, f"states-{uuid.uuid4()}", tmp_path_factory.mktemp("node")) as make_node:
        node = make_node(**{"gateway.topics": topic, **groups.settings()})
        await node.start()
        await until_offered(node.address, topic)
        yield Pair(kafka, node.address, topic, ids, groups, [])


@pytest_asyncio.fixture
async def pair(both_servers: Pair) -> AsyncIterator[Pair]:
    """Give both; connections of a test end with it."""
    yield both_servers
    both_servers.close()
