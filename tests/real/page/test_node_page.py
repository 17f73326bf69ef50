"""The page at the HTTP port of a node, over a real Kafka."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from tests.real.nodes import topic_id_of
from tests.real.page.stuck import produce
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.world.http import Answer, get

pytestmark = pytest.mark.real

GROUP = "workers <script>"
STUCK = 2


async def look(node: RunningNode, path: str, **parameters: object) -> Answer:
    port = node.node.http_port
    assert port is not None
    return await get(port, f"{path}?{urlencode(parameters)}" if parameters else path)


async def ask(node: RunningNode, query: str, **parameters: object) -> Any:
    found = await look(node, f"/api/v1/{query}", **parameters)
    assert found.status == 200, found.body
    return found.json()


async def write_states(node: RunningNode, topic_id: bytes) -> None:
    """Write the state of two share partitions, of which one has a record that was given back four times."""
    for partition in range(2):
        await node.client.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)
    batches = [
        StateBatch(0, 1, ACKNOWLEDGED, 1),
        StateBatch(STUCK, STUCK, AVAILABLE, 1),
        StateBatch(3, 3, ARCHIVED, 5),
    ]
    await node.client.write(GROUP, topic_id, 0, 1, 0, -1, batches)
    for count in range(2, 5):
        await node.client.write(GROUP, topic_id, 0, 1, 0, -1, [StateBatch(STUCK, STUCK, AVAILABLE, count)])


async def test_a_node_shows_the_stuck_record_by_the_numbers_of_its_cli(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    users = new_topic(2)
    produce(kafka, users)
    topic_id = topic_id_of(kafka, users)
    async with running(make_settings(kafka, topic)) as node:
        await write_states(node, topic_id)
        first = await look(node, "/")
        assert first.status == 200, first.body
        text = first.body.decode()
        assert "<bdi>workers &lt;script&gt;</bdi>" in text
        assert "<script>alert" not in text
        assert users in text
        where = {"group": GROUP, "topic": users, "partition": 0}
        window = await look(node, "/window", **where)
        assert "tries-4" in window.body.decode()
        assert (await look(node, "/group", group=GROUP)).status == 200
        assert (await look(node, "/cluster")).status == 200
        assert re.search(r"default-src 'none'", first.headers["content-security-policy"])

        rows = await ask(node, "group-topics")
        (row,) = rows["rows"]
        assert (row["lag"], row["in_flight"], row["given_up"], row["delivery_count_max"]) == (7, 1, 1, 4)
        assert row["oldest"]["offset"] in (0, STUCK)
        group = await ask(node, "group", group=GROUP)
        by_node = await ask(node, "groups/workers%20%3Cscript%3E")
        assert [group["totals"] if "totals" in group else group["lag"], group["states"]] == [
            by_node["lag"],
            by_node["states"],
        ]
        shown = await ask(node, "window", **where)
        assert [each["delivery_count"] for each in shown["ranges"]] == [1, 4, 5]

        timeline = await ask(node, "timeline", **where, offset=STUCK)
        assert [each["delivery_count"] for each in timeline["changes"]] == [1, 2, 3, 4]
        assert {each["owner_epoch"] for each in timeline["changes"]} != {None}
        record = await ask(node, "record", topic=users, partition=0, offset=STUCK)
        assert record["value"]["is_whole"]
        refused = await look(node, "/offset", **where, offset=99)
        assert refused.status == 404
        assert "next one to be written" in refused.body.decode()
        paths = (await look(node, "/openapi.json")).json()["paths"]
        assert {"/api/v1/groups", "/api/v1/group-topics", "/api/v1/window"} <= paths.keys()
