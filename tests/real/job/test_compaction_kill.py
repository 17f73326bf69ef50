"""The Spark job and the daemon are killed again and again under load; every account of the state agrees at the end.

JOB_KILLS=10 DAEMON_KILLS=5 kill them so often (once each by default), and PAUSE_MS=0 has the writers pause for nothing;
`pytest -s` shows a line for each.
"""

import asyncio
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.api.results import ReadResult
from holdfast.client import connect
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.history.schema import GAP
from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import decode_record
from holdfast.records.share.snapshot_store.snapshot_set import SnapshotSet
from holdfast.records.share.values import Update
from tests.real.job.job_process import JobProcess, job_process
from tests.real.job.quick_spark import QUICK
from tests.real.job.test_supervised_job import processes_of
from tests.real.node.journal_writer import GROUP, Journal, batch_of
from tests.real.node.test_kill import CONNECTIONS, find_lost, writer_process
from tests.real.nodes import ONE_TRY, NodeProcess, node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, SPARK_PATIENCE_S, wait_until

pyarrow_dataset = pytest.importorskip("pyarrow.dataset")

pytestmark = pytest.mark.real

JOB_KILLS = int(os.environ.get("JOB_KILLS", "1"))
DAEMON_KILLS = int(os.environ.get("DAEMON_KILLS", "1"))
#: Of each writer, after an answer: Spark starts on the same processors.
PAUSE_MS = int(os.environ.get("PAUSE_MS", "100"))
LOG_PARTITIONS = 4
#: A kill comes after this many more answers, at least and at most.
ANSWERS_BEFORE_KILL = (100, 1_500)
#: Spark has to start before there is anything to kill; some kills come before it has.
BATCHES_BEFORE_KILL = (0, 1, 1, 2, 3)
LOG_STARTS_MIN = 3

PRUNING: dict[str, object] = {
    "share.coordinator.snapshot.update.records.per.snapshot": 20,
    "pruning_dead_bytes_min": 1,
    "pruning_check_interval_ms": 500,
}


@asynccontextmanager
async def watched_log_starts(reader: KafkaReader, topic: str) -> AsyncIterator[list[set[int]]]:
    """Collect where each log partition was seen to start."""
    seen: list[set[int]] = [set() for _ in range(LOG_PARTITIONS)]

    async def watch() -> None:
        while True:
            for partition, starts in enumerate(seen):
                with suppress(Exception):
                    starts.add((await asyncio.to_thread(reader.bounds, topic, partition)).start)
            await asyncio.sleep(0.2)

    watcher = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watcher.cancel()


async def read_all(node: NodeProcess, topic_id: bytes) -> list[ReadResult]:
    async with connect(node.address, ONE_TRY) as client:
        return [await client.read(GROUP, topic_id, partition, leader_epoch=0) for partition in range(CONNECTIONS)]


def read_snapshots(reader: KafkaReader, topic: str, snapshots: str, topic_id: bytes) -> dict[int, ReadResult]:
    """Return what the newest manifests stand for, by partition of the user's topic."""
    found = {}
    for log_partition in range(LOG_PARTITIONS):
        entries = SnapshotSet(reader.topic_id(topic), log_partition)
        for _, message in reader.read(snapshots, log_partition, reader.bounds(snapshots, log_partition).end):
            entries.add(message.key(), message.value())
        log_start = reader.bounds(topic, log_partition).start
        for key, entry in entries.verify(entries.manifest_offsets()[0], log_start).items():
            assert (key.group_id, key.topic_id) == (GROUP, topic_id)
            assert entry.snapshot is not None
            state = entry.snapshot
            found[key.partition] = ReadResult(0, None, state.state_epoch, state.start_offset, state.state_batches)
    return found


def check_history(directory: Path, answered: Counter[int]) -> int:
    """Look for each change once, without a hole, and for every answered write; returns the number of changes."""
    columns = ["log_partition", "offset", "owner_epoch", "sequence", "kind", "key", "value"]
    rows = pyarrow_dataset.dataset(directory, partitioning="hive").to_table(columns)
    places = Counter(zip(rows["log_partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert not [place for place, count in places.items() if count > 1]
    assert GAP not in rows["kind"].to_pylist()
    sequences: dict[tuple[int, int], list[int]] = {}
    of_rows = zip(*(rows[name].to_pylist() for name in ("log_partition", "owner_epoch", "sequence")), strict=True)
    for log_partition, owner_epoch, sequence in of_rows:
        sequences.setdefault((log_partition, owner_epoch), []).append(sequence)
    for found in sequences.values():
        # A checkpoint of the owner, which is no change, has a sequence too, and never stands behind another one.
        assert all(later - former in (1, 2) for former, later in pairwise(sorted(found)))
    written: dict[int, set[StateBatch]] = {}
    for key_bytes, value_bytes in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
        assert key_bytes != CHECKPOINT_KEY
        key, value, _ = decode_record(key_bytes, value_bytes)
        if isinstance(value, Update):
            written.setdefault(key.partition, set()).update(value.state_batches)
    for partition, count in answered.items():
        # Each 21st write became a snapshot, which holds more than itself.
        updates = sum(batch_of(offset) in written[partition] for offset in range(count))
        assert updates >= count * 19 // 21
    assert len(places) >= answered.total()
    return len(places)


async def test_every_account_of_the_state_agrees_whatever_was_killed(
    kafka: str, topic: str, new_topic: NewTopicFactory, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    kills = ["job"] * JOB_KILLS + ["daemon"] * DAEMON_KILLS
    moments.shuffle(kills)
    loses_its_state_at = moments.randrange(len(kills))
    print(f"\nseed {seed}: {kills}")
    topic_id = topic_id_of(kafka, new_topic(CONNECTIONS))
    snapshots, history_dir, checkpoint_dir = f"snapshots-{topic}", tmp_path / "history", tmp_path / "checkpoint"
    of_the_job: dict[str, object] = {"snapshots.topic": snapshots, "compaction.group": f"job-of-{topic}"}
    job_settings = of_the_job | {
        "kafka.bootstrap.servers": kafka,
        "state_topic": topic,
        "compaction.checkpoint.dir": checkpoint_dir,
        "compaction.history.dir": history_dir,
        "compaction.master": "local[2]",
        "compaction.state.partitions": 2,
        "compaction.trigger.interval.ms": 500,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        **QUICK,
    }
    with (
        node_processes(kafka, topic, tmp_path) as make_node,
        job_process(tmp_path, job_settings) as job,
        KafkaReader({"bootstrap.servers": kafka}) as reader,
    ):
        node = make_node(**PRUNING | of_the_job)
        await node.start()
        async with connect(node.address) as client:
            for partition in range(CONNECTIONS):
                await client.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=0)
        # What is cut before the node knows of the job is not in the history.
        job.launch()
        await until_registered(node)
        restores = 0
        async with watched_log_starts(reader, topic) as log_starts:
            with writer_process(node.address, topic_id, tmp_path / "journal", pause_ms=PAUSE_MS) as writer:
                journal = Journal(tmp_path / "journal")
                for number, kill in enumerate(kills):
                    # A job has state to lose behind its first batch only.
                    await progress(job, journal, moments, batches_min=int(number == loses_its_state_at))
                    if kill == "daemon":
                        node.kill()
                        await node.start()
                        restores += int((await node.ask("metrics"))["holdfast_restores_total"])
                    else:
                        job.kill()
                        if number == loses_its_state_at:
                            # Its Java is on its own for a moment, in which it may write there.
                            await job_is_gone(job)
                            shutil.rmtree(checkpoint_dir)
                        job.launch()
                    print(f"{number + 1} of {len(kills)}: {kill} killed, {journal.answered.total()} writes answered")
                await wait_until(
                    lambda: max(map(len, log_starts)) > LOG_STARTS_MIN, "a log that is cut", SPARK_PATIENCE_S
                )
                writer.send_signal(signal.SIGTERM)
                assert writer.wait(PATIENCE_S) == 0
        answered = journal.read_on().answered
        node.signal(signal.SIGTERM)
        assert await node.wait_exit() == 0
        job.kill()
        await job.run_once()

        from_snapshots = read_snapshots(reader, topic, snapshots, topic_id)
        await node.start()
        assert await find_lost(node, topic_id, answered) == []
        fast = await read_all(node, topic_id)
        last_restores = int((await node.ask("metrics"))["holdfast_restores_total"])
        node.signal(signal.SIGTERM)
        assert await node.wait_exit() == 0
        whole_node = make_node(**PRUNING | of_the_job | {"snapshots.topic": "", "membership": "static"})
        await whole_node.start()
        assert await read_all(whole_node, topic_id) == fast
        assert [from_snapshots[partition] for partition in range(CONNECTIONS)] == fast
        changes = check_history(history_dir, answered)
    assert last_restores == LOG_PARTITIONS
    print(
        f"{answered.total()} answered writes, {changes} changes in the history, {len(job.reports())} batches; the log was "
        f"seen to start at {[len(starts) for starts in log_starts]} offsets; {restores} restores under load, "
        f"{last_restores} at the end; snapshots, restored load, whole load and journal agree"
    )


async def job_is_gone(job: JobProcess) -> None:
    """Wait until all is gone that a job which was killed had started."""
    killed = job.pid
    assert killed is not None
    await wait_until(lambda: not processes_of(killed), "the end of the job's Java", SPARK_PATIENCE_S)


async def until_registered(node: NodeProcess) -> None:
    """Wait until a node knows what the job has read of every log partition."""
    deadline = time.monotonic() + SPARK_PATIENCE_S
    while len((await node.ask("readers"))[0]["committed"]) < LOG_PARTITIONS:
        assert time.monotonic() < deadline, "the node does not see what the job has read"
        await asyncio.sleep(0.1)


async def progress(job: JobProcess, journal: Journal, moments: random.Random, batches_min: int) -> None:
    """Wait for some more answers, and for some more batches of the job or so many in all."""
    goal = journal.read_on().answered.total() + moments.randint(*ANSWERS_BEFORE_KILL)
    batches = max(len(job.reports()) + moments.choice(BATCHES_BEFORE_KILL), batches_min)

    def is_reached() -> bool:
        assert job.is_running(), job.last_words()
        return journal.read_on().answered.total() >= goal and len(job.reports()) >= batches

    await wait_until(is_reached, f"{goal} answers and {batches} batches", SPARK_PATIENCE_S)
