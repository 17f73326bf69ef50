"""Pruning on a real broker: the log gets short, nothing is lost, and a registered reader holds it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from structlog.testing import capture_logs

from holdfast.api.results import ReadResult
from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.real.nodes import topic_id_of
from tests.real.running_node import RunningNode, cut, make_settings, read_log, running
from tests.real.shared_kafka import NewTopicFactory

pytestmark = pytest.mark.real

GROUP = "group"
SHARE_PARTITIONS = 20
UPDATES = 300

SETTINGS: dict[str, Any] = {
    "share.coordinator.state.topic.num.partitions": 1,
    "pruning_dead_bytes_min": 1,
    "pruning_check_interval_ms": 100,
    "reader_timeout_ms": 1_000,
}


@pytest.fixture
def orders(kafka: str, new_topic: NewTopicFactory) -> bytes:
    """Give the id of a topic."""
    return topic_id_of(kafka, new_topic(SHARE_PARTITIONS))


async def fill(node: RunningNode, orders: bytes) -> None:
    """Initialize all share partitions and write to the first two, until most of the log is dead."""
    await asyncio.gather(*(node.client.initialize(GROUP, orders, n, 1, 0) for n in range(SHARE_PARTITIONS)))
    for turn in range(UPDATES):
        batch = StateBatch(turn, turn, ACKNOWLEDGED, 1)
        await asyncio.gather(*(node.client.write(GROUP, orders, n, 1, 0, turn, [batch]) for n in (0, 1)))


async def states(node: RunningNode, orders: bytes) -> list[ReadResult]:
    return [await node.client.read(GROUP, orders, n, 0) for n in range(SHARE_PARTITIONS)]


async def test_a_log_gets_short_under_load_and_loads_to_the_same_state(kafka: str, topic: str, orders: bytes) -> None:
    settings = make_settings(kafka, topic, **SETTINGS)
    async with running(settings) as node:
        await fill(node, orders)
        row = await node.until_partition(
            0,
            lambda row: row["log_start"] > 2 * UPDATES * 3 // 4 and row["committed"] - row["log_start"] < UPDATES // 2,
            "a short log",
        )
        before = await states(node, orders)
        found = await node.client.admin("metrics")
        labels = f"{{partition=0,topic={topic}}}"
        # Pruning goes on, so what the metric tells lies between two looks at the log.
        [later] = await node.client.admin("partitions")
        assert row["log_start"] <= found[f"holdfast_last_pruned_offset{labels}"] <= later["log_start"]
        assert found["holdfast_pruning_snapshots_total"] >= SHARE_PARTITIONS - 2
    records = read_log(kafka, topic, 0)
    assert records[0].key == CHECKPOINT_KEY
    assert records[0].offset >= row["log_start"]
    assert len(records) < UPDATES
    async with running(settings) as again:
        assert await states(again, orders) == before
        assert (await again.client.admin("partitions"))[0]["records_loaded"] == len(records) + 1


async def test_what_another_program_deletes_is_written_again_and_not_lost(
    kafka: str, topic: str, orders: bytes
) -> None:
    settings = make_settings(kafka, topic, **(SETTINGS | {"pruning_dead_bytes_min": 2**31 - 1}))
    with capture_logs() as lines:
        async with running(settings) as node:
            await fill(node, orders)
            before = await states(node, orders)
            cut(kafka, topic, 0, OFFSET_END)
            await node.until(lambda: "log_whole_again" in [line["event"] for line in lines], "a whole log")
    events = [line["event"] for line in lines]
    assert events.index("log_records_deleted") < events.index("log_whole_again")
    assert len(read_log(kafka, topic, 0)) == SHARE_PARTITIONS + 2, (
        "a checkpoint, the states, and the checkpoint that names it"
    )
    async with running(settings) as again:
        assert await states(again, orders) == before


async def test_a_registered_reader_holds_the_log_until_it_commits(kafka: str, topic: str, orders: bytes) -> None:
    reader = f"reader-of-{topic}"
    settings = make_settings(kafka, topic, **SETTINGS, log_readers=[reader])
    with capture_logs() as lines:
        async with running(settings) as node:
            await fill(node, orders)
            row = await node.until_partition(
                0, lambda row: "has committed nothing" in str(row["why_not_pruned"]), "a reader that is named"
            )
            cut_offset = int(row["why_not_pruned"].partition(" is pruned to ")[2].split()[0])
            waits = f"; the log is pruned to {cut_offset} when it has read that offset"
            assert row["why_not_pruned"] == f"reader {reader} has committed nothing{waits}"
            assert row["log_start"] == 0
            silent = "log_reader_stalled"
            await node.until(lambda: silent in [line["event"] for line in lines], "an alarm")
            consumer = Consumer({"bootstrap.servers": kafka, "group.id": reader, "enable.auto.commit": False})
            for offset, held in ((cut_offset, True), (cut_offset + 1, False)):
                consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
                if held:
                    stands = f"reader {reader} is at {offset}{waits}"
                    row = await node.until_partition(0, lambda row: row["why_not_pruned"] == stands, stands)  # noqa: B023
                    assert row["log_start"] == 0
                else:
                    await node.until_partition(0, lambda row: row["log_start"] >= cut_offset, "a cut")
            consumer.close()
            # Both at one moment: it may fall silent at any other.
            silences = [line for line in lines if line["event"] == silent]
            counted = dict(node.node.context.registry.numbers())["holdfast_silent_log_readers_total"]
    assert len(silences) == counted <= 3, "once for each silence, not for each look"


async def test_a_job_that_has_committed_holds_the_log_until_an_admin_drops_it(
    kafka: str, topic: str, orders: bytes
) -> None:
    job = f"job-of-{topic}"
    settings = make_settings(kafka, topic, **(SETTINGS | {"compaction.group": job, "reader_timeout_ms": 60_000}))
    async with running(settings) as node:
        readers = node.parts.partitions.readers
        await node.until(lambda: readers.describe()[0]["state"] == "not started", "the job is looked up")
        (reader,) = await node.client.admin("readers")
        assert (reader["group"], reader["state"]) == (job, "not started")
        await node.client.initialize(GROUP, orders, 0, 1, 0)
        consumer = Consumer({"bootstrap.servers": kafka, "group.id": job, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        consumer.close()
        await node.until(lambda: readers.describe()[0]["state"] == "reading", "the job is a reader")
        await fill(node, orders)
        named = f"reader {job} is at 1; the log is pruned to "
        row = await node.until_partition(0, lambda row: str(row["why_not_pruned"]).startswith(named), named)
        assert row["log_start"] == 0
        await node.client.admin("readers-drop", group=job, reason="nobody runs it any more")
        cut_offset = int(row["why_not_pruned"].removeprefix(named).split()[0])
        await node.until_partition(0, lambda row: row["log_start"] >= cut_offset, "a cut")
