"""What the documentation tells others to do with a state topic, done to a topic that daemons wrote."""

import asyncio
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Producer

from holdfast.client import connect
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.header import HEADER_NAME, encode_header
from holdfast.records.log.single_object import MARKER
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.codecs import avro
from holdfast.records.share.codecs.codec import decode_value
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.snapshot_store.entries import EntryKey, decode_key, encode_entry_key
from holdfast.records.share.snapshot_store.folding import NEW, RawRecord, fold
from tests.pure.console.history_writer import Stamped, gap_row, rows_of, write_batch
from tests.pure.docs.pages import code_behind
from tests.pure.records.logs import DictStore, write_log
from tests.real.job.quick_spark import QUICK
from tests.real.nodes import NodeProcess, node_processes, topic_id_of
from tests.real.running_node import read_log
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, SPARK_PATIENCE_S

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[3] / "examples"
PARTITIONS = 6
SPARK_HOME = os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent))
LOG_PARTITIONS = 4


async def run_example(*command: str, code: int = 0) -> tuple[dict[int, dict[str, Any]], str]:
    """Run an example; returns the state of each share partition by its partition, and what it said beside."""
    printed, said = await run(*command, code=code)
    lines = [json.loads(line) for line in printed.splitlines()]
    return {line["partition"]: line for line in lines}, said


async def run(*command: str, code: int = 0) -> tuple[str, str]:
    """Run a command; returns what it printed, and what it said beside."""
    environment = os.environ | {"SPARK_HOME": SPARK_HOME, "PYSPARK_PYTHON": sys.executable}
    # One example imports another that lies beside it.
    environment.pop("PYTHONSAFEPATH", None)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    async with asyncio.timeout(SPARK_PATIENCE_S):
        printed, said = await process.communicate()
    assert process.returncode == code, said.decode()
    return printed.decode(), said.decode()


async def write_something(node: NodeProcess, topic_id: bytes, leader_epoch: int) -> dict[int, dict[str, Any]]:
    """Write to every share partition, forget the last, and return what the node then says of the others."""
    reports: dict[int, dict[str, Any]] = {}
    async with connect(node.address) as client:
        for partition in range(PARTITIONS):
            await client.initialize("group", topic_id, partition, state_epoch=leader_epoch, start_offset=0)
            await client.read("group", topic_id, partition, leader_epoch)
            for first in range(0, 10 * partition, 10):
                batches = [
                    StateBatch(first, first + 9, ACKNOWLEDGED, 1),
                    StateBatch(first + 5, first + 14, AVAILABLE, 2),
                ]
                await client.write("group", topic_id, partition, leader_epoch, leader_epoch, first // 2, batches, first)
        await client.delete("group", topic_id, PARTITIONS - 1)
        for partition in range(PARTITIONS - 1):
            state = await client.read("group", topic_id, partition, leader_epoch)
            summary = await client.read_summary("group", topic_id, partition)
            reports[partition] = {
                "group_id": "group",
                "topic_id": format_topic_id(topic_id),
                "partition": partition,
                "state_epoch": summary.state_epoch,
                "leader_epoch": summary.leader_epoch,
                "start_offset": state.start_offset,
                "delivery_complete_count": summary.delivery_complete_count,
                "state_batches": [batch._asdict() for batch in state.state_batches],
                "leader_epoch_fence": leader_epoch,
                "state_epoch_fence": leader_epoch,
            }
    return reports


async def test_the_example_reads_what_the_daemons_say(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    """Two owners one after the other, snapshots and updates, a tombstone, and records of neither owner."""
    topic_id = topic_id_of(kafka, new_topic(PARTITIONS))
    updates = "share.coordinator.snapshot.update.records.per.snapshot"
    with node_processes(kafka, topic, tmp_path) as make_node:
        first = make_node(node_id=1, membership="static", **{updates: 3})
        await first.start()
        await write_something(first, topic_id, 1)
        first.kill()
        second = make_node(node_id=2, membership="static")
        await second.start()
        answer = await write_something(second, topic_id, 2)

        strays = Producer({"bootstrap.servers": kafka})
        superseded: dict[str, str | bytes | None] = {HEADER_NAME: encode_header(1, 1_000)}
        for headers in (None, superseded):
            strays.produce(topic, b"stray", b"stray", partition=0, headers=headers)
        assert strays.flush(PATIENCE_S) == 0

        read, said = await run_example(
            sys.executable, str(EXAMPLES / "read_state.py"), "--bootstrap-server", kafka, "--topic", topic
        )
    hidden = ("snapshot_epoch", "create_timestamp_ms", "write_timestamp_ms")
    assert {
        partition: {name: value for name, value in line.items() if name not in hidden}
        for partition, line in read.items()
    } == answer
    assert said == f"{PARTITIONS - 1} share partitions; 2 void records were passed over.\n"


def fold_log(kafka: str, state_topic: str, snapshot_topic: str) -> None:
    """Write what a job writes that folds the log as it is."""
    producer = Producer({"bootstrap.servers": kafka})
    state_topic_id = topic_id_of(kafka, state_topic)
    for log_partition in range(LOG_PARTITIONS):
        records = [RawRecord(*record) for record in read_log(kafka, state_topic, log_partition)]
        folded = fold(state_topic_id, log_partition, LOG_PARTITIONS, NEW, DictStore(), records)
        assert folded.manifest is not None
        for key, value in (*folded.entries, folded.manifest):
            producer.produce(snapshot_topic, value, key, log_partition)
    assert producer.flush(PATIENCE_S) == 0


async def test_both_examples_read_the_same_snapshots(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    """What the daemon says is what the two read, with a deleted share partition among them."""
    topic_id = topic_id_of(kafka, new_topic(PARTITIONS))
    snapshot_topic = new_topic(LOG_PARTITIONS, cleanup_policy="compact")
    with node_processes(kafka, topic, tmp_path) as make_node:
        node = make_node()
        await node.start()
        answer = await write_something(node, topic_id, 1)
        fold_log(kafka, topic, snapshot_topic)
    options = ("--bootstrap-server", kafka, "--topic", snapshot_topic, "--state-topic", topic)
    plain = (sys.executable, str(EXAMPLES / "read_snapshots.py"), *options)
    spark = (*spark_submit(EXAMPLES / "read_snapshots_spark.py"), *options, "--json")
    read, _ = await run_example(*plain)
    assert {
        partition: {name: value for name, value in line.items() if name in answer[partition]}
        for partition, line in read.items()
    } == answer
    shown, _ = await run_example(*spark)
    assert shown.keys() == answer.keys()
    for partition, line in shown.items():
        batches = json.loads(line.pop("state_batches"))
        assert {**line, "state_batches": batches} == {name: read[partition][name] for name in (*line, "state_batches")}

    # Somebody removes an entry that is needed: the log is to be read.
    line = read[0]
    key = SharePartitionKey(line["group_id"], topic_id, 0)
    entries = [decode_key(record.key) for record in read_log(kafka, snapshot_topic, line["log_partition"])]
    (needed,) = [entry for entry in entries if isinstance(entry, EntryKey) and entry.key == key]
    producer = Producer({"bootstrap.servers": kafka})
    key_bytes = encode_entry_key(topic_id_of(kafka, topic), avro.encode_key(key), needed.covered_offset)
    producer.produce(snapshot_topic, None, key_bytes, line["log_partition"])
    assert producer.flush(PATIENCE_S) == 0
    _, said = await run_example(*plain, code=1)
    assert said == f"The snapshots of log partitions [{line['log_partition']}] do not suffice; read the log itself.\n"


@pytest.mark.parametrize("example", ["read_state.py", "read_snapshots.py"])
async def test_an_example_names_a_topic_that_is_not_there_in_one_line(
    kafka: str, topic: str, new_topic: NewTopicFactory, example: str
) -> None:
    options = () if example == "read_state.py" else ("--state-topic", new_topic(1))
    command = (sys.executable, str(EXAMPLES / example), "--bootstrap-server", kafka, "--topic", topic, *options)
    printed, said = await run(*command, code=1)
    assert printed == ""
    assert said.startswith(f"The topic {topic} cannot be read: Broker: Unknown topic or partition.")
    assert said.count("\n") == 1


async def test_the_queries_of_the_page_answer(tmp_path: Path) -> None:
    log = write_log(3, ["write"] * 30)
    stamped = [Stamped(record, BEGIN_MS) for record in log.records]
    in_avro = [row for row in rows_of(0, stamped) if row["key"].startswith(MARKER)]
    rows = [row | {"group_id": "orders-workers"} for row in in_avro]
    for batch_id in ("a-0", "b-0"):  # two jobs at once
        write_batch(tmp_path / "history", bytes(16), batch_id, rows)
    write_batch(tmp_path / "history", bytes(16), "b-1", [gap_row(0, 1, BEGIN_MS)])
    queries = code_behind((EXAMPLES.parent / "docs" / "log-format.md").read_text(), "history queries")
    (tmp_path / "queries.sql").write_text(queries.replace("/var/lib/holdfast/history", str(tmp_path / "history")))
    (tmp_path / "script.py").write_text(RUN_QUERIES)
    command = spark_submit(tmp_path / "script.py", packages="org.apache.spark:spark-avro_2.13:4.2.0")
    printed, _ = await run(*command, str(tmp_path / "queries.sql"))
    per_day, moved = map(json.loads, printed.splitlines())
    assert {kind: changes for _, _, kind, changes in per_day} == Counter(row["kind"] for row in rows)
    assert [(offset, partition, start_offset) for _, offset, partition, start_offset in moved] == [
        (row["offset"], row["partition"], value.start_offset)
        for row in rows
        if row["kind"] == "update" and (value := decode_value(row["key"], row["value"])[0]).start_offset != -1
    ]


#: 2026-02-01.
BEGIN_MS = 1_769_904_000_000
RUN_QUERIES = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for query in open(sys.argv[1]).read().split(";"):
    if query.strip() and (rows := spark.sql(query).collect()):
        print(json.dumps([list(row) for row in rows], default=str))
spark.stop()
"""


def spark_submit(script: Path, packages: str = "") -> list[str]:
    """Return the command that the head of an example gives; small, quiet and on loopback."""
    packages = packages or re.findall(r"--packages (\S+)", script.read_text())[0]
    settings = {
        **QUICK,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    flags = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [f"{SPARK_HOME}/bin/spark-submit", "--master", "local[2]", *flags, "--packages", packages, str(script)]
