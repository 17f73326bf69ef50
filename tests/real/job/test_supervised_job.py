"""The Spark job under a node: it runs, is counted, and is gone with the node, however that ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import connect
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from tests.real.job.quick_spark import QUICK
from tests.real.nodes import ONE_TRY, NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import SPARK_PATIENCE_S, wait_until

pytestmark = pytest.mark.real

SHARE_PARTITIONS = 10


def processes_of(session: int) -> list[int]:
    """Return the processes of a session that live: the job is the leader of one of its own."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session = status.read_text().rpartition(") ")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of_session) == session and state not in "ZX":
            found.append(int(status.parent.name))
    return found


def jobs_of(node: NodeProcess) -> list[int]:
    return [line["pid"] for line in node.events() if line["event"] == "compaction_started"]


async def metric(node: NodeProcess, name: str) -> float:
    return float((await node.ask("metrics")).get(f"holdfast_compaction_{name}", 0))


async def until_metric(node: NodeProcess, name: str, least: float) -> None:
    async def reached() -> None:
        while await metric(node, name) < least:
            assert node.exit_code() is None, node.last_words()
            await asyncio.sleep(0.1)

    try:
        await asyncio.wait_for(reached(), SPARK_PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"{name} is below {least}:\n{node.last_words()}") from None


async def test_a_node_runs_the_job_and_takes_it_along_when_it_ends(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    orders = topic_id_of(kafka, new_topic(SHARE_PARTITIONS))
    settings: dict[str, Any] = {
        "compaction.run": "true",
        "snapshots.topic": f"{topic}-snapshots",
        "compaction.group": f"{topic}-job",
        "compaction.checkpoint.dir": tmp_path / "checkpoint",
        "compaction.history.dir": tmp_path / "history",
        "compaction.master": "local[1]",
        "compaction.state.partitions": 1,
        "compaction.worker.start.attempts.max": 100,
        "compaction.trigger.interval.ms": 500,
        **QUICK,
    }
    with node_processes(kafka, topic, tmp_path) as make:
        node = make(**settings)
        await node.start()
        async with connect(node.address, ONE_TRY) as client:
            for number in range(SHARE_PARTITIONS):
                await client.initialize("group", orders, number, 1, 0)
                await client.write("group", orders, number, 1, 0, 0, [StateBatch(0, 9, ACKNOWLEDGED, 1)])
        await until_metric(node, "share_partitions", SHARE_PARTITIONS)
        assert await metric(node, "running") == 1
        (reader,) = await node.ask("readers")
        assert reader["group"] == f"{topic}-job"
        (job,) = jobs_of(node)
        assert len(processes_of(job)) > 1, "Java runs below it"

        node.kill()
        await wait_until(lambda: not processes_of(job), "the job is gone with a node that was killed")

        await node.start()
        async with connect(node.address, ONE_TRY) as client:
            for number in range(SHARE_PARTITIONS):
                await client.write("group", orders, number, 1, 0, 0, [StateBatch(10, 19, ACKNOWLEDGED, 1)])
        await until_metric(node, "entries_total", SHARE_PARTITIONS)
        (job,) = set(jobs_of(node)) - {job}
        node.signal(signal.SIGTERM)
        assert await node.wait_exit() == 0, node.last_words()
        await wait_until(lambda: not processes_of(job), "the job is gone with a node that was stopped")
    assert not [line for line in node.events() if line["event"] == "compaction_ended"]
