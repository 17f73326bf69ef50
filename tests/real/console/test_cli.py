"""The tool as a user runs it: on a real broker, against a real node."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.cli import main
from holdfast.client import connect
from holdfast.console.outcomes import Exit
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.real.nodes import FIRST_CLIENT, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, Lines

pytestmark = pytest.mark.real


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
    return result


def dump(kafka: str, topic: str, *arguments: str) -> list[dict[str, Any]]:
    result = run("dump", topic, "--bootstrap-server", kafka, "--json", *arguments)
    assert result.exit_code == Exit.DONE, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def listed(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == Exit.DONE, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def produce(kafka: str, topic: str, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(count):
        producer.produce(topic, str(number), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def test_what_is_written_by_hand_is_read_back_and_found_in_the_log(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    orders = new_topic(2)
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node()
        asyncio.run(node.start())

        def state(*arguments: str) -> Result:
            named = ("--group", "by:hand", "--topic", orders, "--partition", "1", "--address", node.address)
            return run("state", *arguments, *named)

        never = state("read")
        assert (never.exit_code, "has no state" in never.stderr) == (Exit.NOT_FOUND, True)
        beyond = state("init", "--state-epoch", "3", "--start-offset", "100")
        assert (beyond.exit_code, "the next record of" in beyond.stderr) == (Exit.WRONG_USAGE, True)
        begun = state("init", "--state-epoch", "3", "--start-offset", "100", "--beyond-the-end")
        assert begun.exit_code == Exit.DONE, begun.stderr
        written = state("write", "--batch", "100-109:acknowledged:1", "--beyond-the-end")
        assert written.exit_code == Exit.DONE, written.stderr
        assert "  offsets 100-109: none → acknowledged:1\nDone" in written.stderr
        assert json.loads(state("read", "--json").stdout)["state_batches"] == [
            {"first_offset": 100, "last_offset": 109, "delivery_state": "acknowledged", "delivery_count": 1}
        ]
        assert json.loads(state("summary", "--json").stdout)["state_epoch"] == 3
        found = json.loads(run("find", f"by:hand:{orders}:1", "--address", node.address, "--json").stdout)
        assert found[0]["coordinator"] == node.address
        partitions = json.loads(run("partitions", "--address", node.address, "--json").stdout)
        assert [row["state"] for row in partitions] == ["active"] * 4
        assert partitions[found[0]["log_partition"]]["keys"] == 1
        produce(kafka, orders, 1, 130)
        from_node = listed("state", "list", "--address", node.address)
        assert [(row["topic"], row["partition"], row["lag"], row["finished"]) for row in from_node] == [
            (orders, 1, 20, 10)
        ]
        from_log = ("--topic", topic, "--bootstrap-server", kafka)
        assert listed("state", "list", *from_log, "--only-topic", orders) == from_node, "by node or by log"
        output = run("groups", "describe", "by:hand", *from_log)
        assert (output.exit_code, output.stderr) == (Exit.DONE, "")
        assert output.stdout.splitlines()[-1].split() == [orders, "1", "100", "110", "130", "20", "0", "-"]
        assert state("delete").exit_code == Exit.WRONG_USAGE
        assert json.loads(state("delete", "--force", "--json").stdout)["changed"] is True
        assert state("delete").exit_code == Exit.NOT_FOUND
        assert listed("state", "list", "--address", node.address) == listed("state", "list", *from_log) == []

        records = dump(kafka, topic, "--partition", str(found[0]["log_partition"]))
        assert [
            (record["kind"], record["owner_epoch"], record["sequence"], record["counts"]) for record in records
        ] == [
            ("checkpoint", 1, 0, True),
            ("snapshot", 1, 1, True),
            ("update", 1, 2, True),
            ("tombstone", 1, 3, True),
        ]
        topic_id = format_topic_id(topic_id_of(kafka, orders))
        assert {(record["group_id"], record["topic_id"], record["share_partition"]) for record in records[1:]} == {
            ("by:hand", topic_id, 1)
        }
        # Whether a record counts is known wherever the reading is asked to begin.
        assert dump(kafka, topic, "--partition", str(found[0]["log_partition"]), "--from-offset", "2") == records[2:]
        last_ms = records[-1]["timestamp_ms"]
        assert dump(kafka, topic, "--from-time", str(last_ms), "--kind", "tombstone") == records[3:]
        assert dump(kafka, topic, "--from-time", str(last_ms + 3_600_000)) == []
        assert dump(kafka, topic, "--kind", "update", "--limit", "1") == records[2:3]
        table = run("dump", topic, "--bootstrap-server", kafka, "--kind", "update").stdout
        assert "100-109:acknowledged:1" in table.splitlines()[1]


def test_kafkas_own_state_topic_is_shown_as_well(kafka: str, new_topic: NewTopicFactory) -> None:
    group, orders = f"group-{new_topic(1)}", new_topic(1)
    topic_id = topic_id_of(kafka, orders)

    async def write() -> None:
        async with connect(kafka, FIRST_CLIENT) as client:
            await client.initialize(group, topic_id, 0, state_epoch=1, start_offset=0)
            await client.write(group, topic_id, 0, 1, 0, -1, [StateBatch(0, 4, ACKNOWLEDGED, 1)])

    asyncio.run(write())
    records = [record for record in dump(kafka, "__share_group_state") if record["group_id"] == group]
    assert [(record["kind"], record["codec"], record["counts"], record["owner_epoch"]) for record in records] == [
        ("snapshot", "kafka", True, None),
        ("update", "kafka", True, None),
    ]
    produce(kafka, orders, 0, 12)
    brokers = ("--bootstrap-server", kafka)
    [state] = listed("state", "list", "--group", group, *brokers)
    assert (state["topic"], state["start_offset"], state["lag"], state["owner"]) == (orders, 0, 7, "1")
    assert [state] == listed("state", "list", "--group", group, "--topic", "__share_group_state", *brokers)
    assert group in run("groups", "list", *brokers).stdout.split()
    assert f"group             {group}" in run("groups", "describe", group, *brokers).stdout.splitlines()
    found = run("dump", *brokers, "--json").stdout.splitlines()
    assert set(map(str, records)) <= {str(json.loads(line)) for line in found}
    users = run("groups", "list", "--topic", orders, "--bootstrap-server", kafka)
    assert (users.exit_code, "is no state topic" in users.stderr) == (Exit.WRONG_USAGE, True)


def test_following_shows_what_comes_until_it_is_interrupted(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    orders = new_topic(1)
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node(**{"share.coordinator.state.topic.num.partitions": 1})
        asyncio.run(node.start())
        named = ("--group", "g", "--topic", orders, "--partition", "0", "--address", node.address)
        with following_dump(kafka, topic, "--json") as (following, lines):
            assert json.loads(lines.next())["kind"] == "checkpoint"
            done = run("state", "init", *named)
            assert done.exit_code == Exit.DONE, done.stderr
            assert json.loads(lines.next())["kind"] == "snapshot"
            assert interrupted(following) == "2 records.\n"
        with following_dump(kafka, topic) as (following, lines):
            header, *rows = (lines.next().split() for _ in range(3))
            assert header[:3] == ["partition", "offset", "time"]
            assert (
                run("state", "write", *named, "--batch", "0-9:acknowledged:1", "--beyond-the-end").exit_code
                == Exit.DONE
            )
            assert [row[6] for row in (*rows, lines.next().split())] == ["checkpoint", "snapshot", "update"]
            assert interrupted(following) == "3 records.\n"


@contextmanager
def following_dump(kafka: str, topic: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Lines]]:
    command = [sys.executable, "-m", "holdfast", "dump", topic, "--bootstrap-server", kafka, "--follow", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            yield following, Lines(following.stdout)
        finally:
            following.kill()


def interrupted(following: subprocess.Popen[str]) -> str:
    """Interrupt a command, and return what it said beside its data."""
    following.send_signal(signal.SIGINT)
    assert following.wait(PATIENCE_S) == 0
    assert following.stderr is not None
    return following.stderr.read()


def test_a_missing_topic_or_partition_is_named(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    absent = run("dump", topic, "--bootstrap-server", kafka)
    assert (absent.exit_code, topic in absent.stderr) == (Exit.NOT_FOUND, True)
    beyond = run("dump", new_topic(2), "--partition", "2", "--bootstrap-server", kafka)
    assert beyond.exit_code == Exit.NOT_FOUND
    assert beyond.stderr.endswith("has no partition 2; it has 0 to 1.\n")


def test_a_daemon_refuses_a_topic_that_would_lose_state_and_says_what_mends_it(
    kafka: str, topic: str, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    unsafe = FIXED_CONFIG | {"cleanup.policy": "compact"}
    admin.create_topics([NewTopic(topic, 1, 1, config=unsafe)])[topic].result(PATIENCE_S)
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node()
        node.launch()
        assert asyncio.run(node.wait_exit()) == Exit.REFUSED_TO_START
        assert "--add-config cleanup.policy=delete" in node.events()[-1]["reason"]


def test_a_broker_is_started_found_and_stopped(tmp_path: Path) -> None:
    data_dir = ("--data-dir", str(tmp_path / "kafka"))
    assert run("broker", "status", *data_dir).exit_code == Exit.NOT_FOUND
    try:
        started = run("broker", "start", *data_dir)
        assert started.exit_code == Exit.DONE, started.stderr
        # The address alone is data; what tells of the wait is not.
        assert re.fullmatch(r"127\.0\.0\.1:\d+\n", started.stdout)
        said = re.sub(r"[\d.]+ s", "… s", started.stderr).splitlines()
        assert said[1:] == [f"Broker 1 {step}, after … s." for step in ("was started", "listens", "knows the cluster")]
        assert run("broker", "start", *data_dir).stdout == started.stdout
        assert run("broker", "status", *data_dir).stdout == started.stdout
        servers = json.loads(run("broker", "status", *data_dir, "--json").stdout)["bootstrap_servers"]
        assert AdminClient({"bootstrap.servers": servers}).list_topics(timeout=PATIENCE_S).brokers
    finally:
        assert run("broker", "stop", *data_dir).exit_code == Exit.DONE
    assert run("broker", "status", *data_dir).exit_code == Exit.NOT_FOUND
