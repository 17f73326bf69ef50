"""The page at the HTTP port of a node, over a real Kafka."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.daemon.access.acl import CLUSTER_NAME, Acl, Operation, Permission, ResourceType
from holdfast.daemon.access.acl_file import line_of, write_lines
from holdfast.daemon.http.readers import TOKEN_READER
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from tests.interop.gateway.clients import PYTHON, Given, StockConsumer, stock_consumer
from tests.real.nodes import topic_id_of
from tests.real.page.stuck import PARTITIONS, produce
from tests.real.running_node import RunningNode, make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S
from tests.world.http import Answer, get

pytestmark = pytest.mark.real

GROUP = "workers <script>"
STUCK = 2


async def look(node: RunningNode, path: str, token: str = "", /, **parameters: object) -> Answer:
    port = node.node.http_port
    assert port is not None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    path = f"{path}?{urlencode(parameters)}" if parameters else path
    return await get(port, path, None, "GET", "localhost", **headers)


async def ask(node: RunningNode, query: str, **parameters: object) -> Any:
    found = await look(node, f"/api/v1/{query}", "", **parameters)
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
        window = await look(node, "/window", "", **where)
        assert "tries-4" in window.body.decode()
        assert (await look(node, "/group", group=GROUP)).status == 200
        assert (await look(node, "/cluster")).status == 200
        assert re.search(r"default-src 'none'", first.headers["content-security-policy"])

        cluster = await ask(node, "cluster")
        assert [each["condition"] for each in cluster["log_partitions"]] == ["active", "active"]
        assert cluster["nodes"][0]["log_partitions"] == [0, 1]
        deadline = time.monotonic() + PATIENCE_S
        while any(each["silent_ms"] is None for each in cluster["brokers"]):  # the node has not looked yet
            assert time.monotonic() < deadline, cluster
            cluster = await ask(node, "cluster")
        assert cluster["problems"] == []
        rows = await ask(node, "group-topics")
        assert abs(rows["as_of_ms"] / 1_000 - time.time()) < PATIENCE_S
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
        refused = await look(node, "/offset", "", **where, offset=99)
        assert refused.status == 404
        assert "next one to be written" in refused.body.decode()
        paths = (await look(node, "/openapi.json")).json()["paths"]
        assert {"/api/v1/groups", "/api/v1/group-topics", "/api/v1/window"} <= paths.keys()


def allow(path: Path, *rights: tuple[Operation, ResourceType, str]) -> None:
    """Write the access rules of readers with the token."""
    write_lines(path, [line_of(Acl(TOKEN_READER, Permission.ALLOW, *right)) for right in rights])


async def test_a_reader_sees_what_rules_let_through_at_every_path(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    users = new_topic(2)
    produce(kafka, users)
    topic_id = topic_id_of(kafka, users)
    acls, token = tmp_path / "acls", tmp_path / "token"
    token.write_text("s3cret")
    allow(acls)
    settings = make_settings(
        kafka,
        topic,
        acls_file=str(acls),
        **{"super.users": "User:ANONYMOUS", "http.token.file": str(token), "files.reload.interval.ms": 100},
    )
    async with running(settings) as node:
        await write_states(node, topic_id)
        await node.client.initialize("others", topic_id, 0, state_epoch=1, start_offset=0)
        record: dict[str, object] = {"topic": users, "partition": 0, "offset": STUCK}
        where: dict[str, object] = {"group": GROUP, **record}
        paths = (await look(node, "/openapi.json", "s3cret")).json()["paths"]
        queries = [path for path in paths if path.startswith("/api/v1/") and "{" not in path]
        shown = ["/", "/group", "/window", "/offset", "/record", "/cluster", "/api/v1/groups/others", *queries]
        for path in [*shown, "/events", "/help"]:
            assert (await look(node, path)).status == 401, path

        needed = {"resolve-topic": {"name": users}, "topic-ends": {"topics": "{}"}}
        parameters = {path: needed.get(path.removeprefix("/api/v1/"), {}) for path in shown}
        of_page = ("group", "window", "timeline", "record", "offset")
        parameters |= {path: where for path in shown if path.rpartition("/")[2] in of_page}
        for path in shown:
            answer = await look(node, path, "s3cret", **parameters[path])
            if path in ("/", "/api/v1/group-topics"):
                assert answer.status == 200
                assert "may DESCRIBE" in answer.body.decode()
            else:
                assert answer.status == 403, (path, answer)
                assert TOKEN_READER in answer.body.decode()
            for name in ("others", users) if "group" not in parameters[path] else ("others",):
                assert name not in answer.body.decode() or name in str(parameters[path]) or name in path, (path, answer)

        group, values = (Operation.DESCRIBE, ResourceType.GROUP, GROUP), (Operation.READ, ResourceType.TOPIC, users)
        allow(acls, group)
        await wait_for(node, "/group", 200, group=GROUP)
        rows = (await look(node, "/api/v1/group-topics", "s3cret")).json()["rows"]
        assert [row["group"] for row in rows] == [GROUP]
        for path, status in (("/window", 200), ("/offset", 200), ("/record", 403), ("/api/v1/record", 403)):
            assert (await look(node, path, "s3cret", **where)).status == status, path
        refused = await look(node, "/group", "s3cret", group="other")
        assert refused.status == 403
        assert "others" not in refused.body.decode()
        allow(acls, group, values, (Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
        await wait_for(node, "/record", 200, **where)
        assert (await look(node, "/cluster", "s3cret")).status == 200
        assert (await look(node, "/api/v1/groups", "s3cret")).status == 200


async def wait_for(node: RunningNode, path: str, status: int, **parameters: object) -> None:
    """Wait until a path answers a reader with the token by a status."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := await look(node, path, "s3cret", **parameters)).status != status:
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


def take_some(address: str, kafka: str, topic: str, consumer: StockConsumer) -> list[Given]:
    """Poll until records come; a group begins at the end of the topic, as soon as its first member has joined."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, f"{address} gave nothing"
        produce(kafka, topic)
        if given := consumer.poll():
            return given


async def test_a_gateway_shows_its_members_and_their_locks(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    users, group = new_topic(2), f"workers-{topic}"
    async with running(make_settings(kafka, topic, **{"gateway.topics": users})) as node:
        with stock_consumer(PYTHON, node.address, group, users) as consumer:
            given = await asyncio.to_thread(take_some, node.address, kafka, users, consumer)
            found = await ask(node, "group-members", group=group)
            (member,) = found["members"]
            assert (member["topics"], member["partitions"]) == ([users], 2)
            held = {
                (row["partition"], offset)
                for row in found["held"]
                for offset in range(row["first_offset"], row["last_offset"] + 1)
            }
            assert {(each.partition, each.offset) for each in given} <= held
            assert {row["member_id"] for row in found["held"]} == {member["member_id"]}
            assert all(row["until_ms"] > found["as_of_ms"] for row in found["held"])
            assert abs(found["as_of_ms"] / 1_000 - time.time()) < PATIENCE_S
            page = (await look(node, "/group", group=group)).body.decode()
            assert member["member_id"] in page
            assert "held under locks" in page
            window = await ask(node, "window", group=group, topic=users, partition=given[0].partition)
            assert {row["partition"] for row in window["holdings"]["held"]} == {given[0].partition}
            assert (await ask(node, "group-members", group="nobody"))["members"] == []


async def test_each_of_two_nodes_shows_what_the_other_one_has(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    users = new_topic(4)
    produce(kafka, users)
    topic_id = topic_id_of(kafka, users)
    first, second = (make_settings(kafka, topic, membership="group", node_id=number) for number in (1, 2))
    async with running(first) as one, running(second) as other:
        nodes = (one, other)
        await one.until(lambda: [node.parts.partitions.held_count() for node in nodes] == [1, 1], "both have work")
        for partition in range(4):
            await one.client.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)
            batches = [StateBatch(0, 0, ARCHIVED, 5), StateBatch(1, 1, AVAILABLE, partition + 1)]
            await one.client.write(GROUP, topic_id, partition, 1, 0, -1, batches)
        assert len({(await each.client.admin("status"))["node_id"] for each in nodes}) == 2
        for node in nodes:
            (row,) = (await ask(node, "group-topics"))["rows"]
            assert (row["share_partitions"], row["given_up"], row["delivery_count_max"]) == (4, 4, 4)
            for partition in range(4):
                where = {"group": GROUP, "topic": users, "partition": partition}
                window = await ask(node, "window", **where)
                assert [each["delivery_count"] for each in window["ranges"]] == [5, partition + 1]
                if partition < PARTITIONS:  # of which there are records
                    timeline = await ask(node, "timeline", **where, offset=1)
                    assert [each["delivery_count"] for each in timeline["changes"]] == [partition + 1]
