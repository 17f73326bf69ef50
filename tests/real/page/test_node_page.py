"""The page at the HTTP port of a node, over a real Kafka."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.daemon.access.acl import CLUSTER_NAME, Acl, Operation, Permission, ResourceType
from holdfast.daemon.access.acl_file import line_of, write_lines
from holdfast.daemon.http.readers import TOKEN_READER
from holdfast.hidden_texts import REDACTED
from holdfast.page.web.app import QUERIES
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from holdfast.records.share.snapshot_store.folding import RawRecord
from tests.interop.gateway.clients import PYTHON, Given, StockConsumer, stock_consumer
from tests.pure.console.history_writer import Stamped, rows_of, write_batch
from tests.real.nodes import topic_id_of
from tests.real.page.stuck import PARTITIONS, produce
from tests.real.running_node import RunningNode, make_settings, read_log, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, look_until
from tests.world.described import Description
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
    return await as_described(node, query, found)


async def as_described(node: RunningNode, query: str, found: Answer) -> Any:
    """Return the JSON of an answer, which is as the node describes it."""
    if query in QUERIES:
        description = Description((await look(node, "/openapi.json")).json())
        assert description.faults(f"/api/v1/{query}", found.status, found.json()) == []
    return found.json()


async def ask_until(node: RunningNode, holds: Callable[[Any], object], query: str, **parameters: object) -> Any:
    """Return an answer as soon as a condition holds of it: nodes and brokers have a bounded time for theirs, and a moment lasts a while."""
    found = await look_until(
        lambda: look(node, f"/api/v1/{query}", "", **parameters),
        lambda answer: answer.status == 200 and holds(answer.json()),
    )
    return await as_described(node, query, found)


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

        def is_known(cluster: Any) -> bool:
            """Tell whether the node has looked at its brokers, and nothing is wrong."""
            return not cluster["problems"] and all(each["silent_ms"] is not None for each in cluster["brokers"])

        cluster = await ask_until(node, is_known, "cluster")
        assert [each["condition"] for each in cluster["log_partitions"]] == ["active", "active"]
        assert cluster["nodes"][0]["log_partitions"] == [0, 1]
        taken = {
            (each["log_partition"], each["from_node"], each["to_node"], each["why"]) for each in cluster["hand_overs"]
        }
        assert taken == {(number, None, "1", "the node started") for number in (0, 1)}
        assert cluster["hand_overs"] == await ask(node, "hand-overs")
        in_all = [cluster[f"{name}_in_all"] for name in ("log_partitions", "nodes", "hand_overs")]
        assert (in_all, cluster["next"]) == ([2, 1, 2], None)
        refused = await look(node, "/cluster", "", after="none of this run")
        assert (refused.status, "begin with the first page" in refused.body.decode()) == (400, True)
        rows = await ask_until(node, lambda found: all(row["lag"] is not None for row in found["rows"]), "group-topics")
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


async def test_a_timeline_of_a_pruned_log_goes_on_in_the_history(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    """DESCRIBE on the group shows what the history has of it; the place of the history is for those who may DESCRIBE the cluster."""
    users = new_topic(2)
    produce(kafka, users)
    topic_id, acls, token = topic_id_of(kafka, users), tmp_path / "acls", tmp_path / "token"
    token.write_text("s3cret")
    allow(acls, (Operation.DESCRIBE, ResourceType.GROUP, GROUP))
    settings = make_settings(
        kafka,
        topic,
        acls_file=str(acls),
        **{
            "compaction.history.dir": str(tmp_path),
            "pruning_dead_bytes_min": 1,
            "pruning_check_interval_ms": 100,
            "share.coordinator.state.topic.num.partitions": 1,
            "super.users": "User:ANONYMOUS",
            "http.token.file": str(token),
            "files.reload.interval.ms": 100,
        },
    )
    where: dict[str, object] = {"group": GROUP, "topic": users, "partition": 0, "offset": STUCK}
    async with running(settings) as node:
        await write_states(node, topic_id)
        before = (await look(node, "/api/v1/timeline", "s3cret", **where)).json()
        assert before["history"] is None
        records = [RawRecord(*each) for each in await asyncio.to_thread(read_log, kafka, topic, 0)]
        rows = rows_of(0, [Stamped(record, before["changes"][0]["at_ms"]) for record in records])
        write_batch(tmp_path, topic_id_of(kafka, topic), "a-0", rows)
        end = len(records)
        await node.client.initialize("others", topic_id, 0, state_epoch=1, start_offset=0)
        for turn in range(60):
            await node.client.write("others", topic_id, 0, 1, 0, turn, [StateBatch(turn, turn, ACKNOWLEDGED, 1)])
        # All that was read before ends here, and would only go on in a log that begins here.
        await node.until_partition(0, lambda row: row["log_start"] > end, "a log without all that was read")
        # The moment before the pruning may be kept for a while.
        pruned = await when(node, lambda answer: answer.json()["reaches_to_offset"] > 0, "/api/v1/timeline", **where)
        after = pruned.json()
        told = [
            [(each["state"], each["delivery_count"], each["log_offset"]) for each in view["changes"]]
            for view in (before, after)
        ]
        assert told[0] == told[1]
        assert {each["source"] for each in after["changes"]} == {"history"}
        assert (after["history"]["place"], after["history"]["problem"]) == (REDACTED, "")
        shown = (await look(node, "/offset", "s3cret", **where)).body.decode()
        assert "by the history" in shown
        assert str(tmp_path) not in shown
        group = Operation.DESCRIBE, ResourceType.GROUP, GROUP
        allow(acls, group, (Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
        await wait_for(node, "/cluster", 200)
        assert str(tmp_path) in (await look(node, "/offset", "s3cret", **where)).body.decode()
        allow(acls)
        await wait_for(node, "/offset", 403, **where)
        refused = await look(node, "/api/v1/timeline", "s3cret", **where)
        assert (refused.status, str(tmp_path) in refused.body.decode()) == (403, False)


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
    await when(node, lambda answer: answer.status == status, path, **parameters)


async def when(node: RunningNode, holds: Callable[[Answer], bool], path: str, **parameters: object) -> Answer:
    """Return what a path answers to a reader with the token, as soon as a condition holds of it."""
    return await look_until(lambda: look(node, path, "s3cret", **parameters), holds)


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
            assert f"<dt>Held now</dt><dd>{found['records_held']}</dd>" in page
            first = found["held"][0]
            place = f"topic={users}&amp;partition={first['partition']}&amp;offset={first['first_offset']}"
            assert f'href="offset?group={group}&amp;{place}"' in page
            window = await ask(node, "window", group=group, topic=users, partition=given[0].partition)
            assert {(row["topic"], row["partition"]) for row in window["holdings"]["held"]} == {
                (users, given[0].partition)
            }
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
        seen = [
            await ask_until(node, lambda view: not any("hand-overs" in each for each in view["problems"]), "cluster")
            for node in nodes
        ]
        assert seen[0]["hand_overs"] == seen[1]["hand_overs"], "each asks the other one"
        assert {each["to_node"] for each in seen[0]["hand_overs"]} == {"1", "2"}
        for node in nodes:
            await ask_until(node, lambda found: list(map(sums, found["rows"])) == [(4, 4, 4)], "group-topics")
            for partition in range(4):
                where = {"group": GROUP, "topic": users, "partition": partition}
                await ask_until(node, partial(are_tries, "ranges", [5, partition + 1]), "window", **where)
                if partition < PARTITIONS:  # of which there are records
                    await ask_until(node, partial(are_tries, "changes", [partition + 1]), "timeline", **where, offset=1)


def are_tries(name: str, wanted: list[int], view: Any) -> bool:
    """Tell whether what a view has under a name was delivered so often."""
    return [each["delivery_count"] for each in view[name]] == wanted


def sums(row: dict[str, Any]) -> tuple[int, ...]:
    return row["share_partitions"], row["given_up"], row["delivery_count_max"]
