"""Logs as coordinators leave them, in a real topic, and what the Spark job made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.group import topics_of
from holdfast.compaction.job import run
from holdfast.compaction.report import BatchReport
from holdfast.kafka.librdkafka import IN_ORDER
from holdfast.records.log.header import HEADER_NAME, find_header
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.snapshot_store.entries import decode_key
from holdfast.records.share.snapshot_store.snapshot_set import SnapshotSet
from holdfast.records.share.values import Snapshot
from tests.configs import compaction_config
from tests.pure.records.logs import MOVES, LogWriter
from tests.real.job.quick_spark import QUICK
from tests.waiting import PATIENCE_MS, PATIENCE_S, block_until
from tests.world.records import encode_record

#: No log has it by itself.
BROKEN = SharePartitionKey("broken", bytes(16), 0)

pyarrow_dataset: Any = pytest.importorskip("pyarrow.dataset")


class FoldedLogs:
    """One log per partition of a state topic, and a job over them, which runs in this process."""

    def __init__(
        self, bootstrap_servers: str, state_topic: str, snapshot_topic: str, directory: Path, count: int
    ) -> None:
        self.config = compaction_config(
            bootstrap_servers=bootstrap_servers,
            state_topic=state_topic,
            snapshot_topic=snapshot_topic,
            group=f"group-of-{state_topic}",
            checkpoint_dir=str(directory / "checkpoint"),
            history_dir=str(directory / "history"),
            master="local[2]",
            spark_properties=QUICK,
            state_partitions=2,
            offsets_per_trigger_max=400,
            worker_start_attempts_max=100,
            request_timeout_ms=PATIENCE_MS,
        )
        self.random = Random(state_topic)
        self.logs = [LogWriter(Random(f"{state_topic}/{number}")) for number in range(count)]
        #: What the clock says, in ms, when a record of an offset is written; 0: the broker's own.
        self.clock_ms: Callable[[int], int] = lambda _: 0
        self._written = [0] * count
        # A partition that a broker does not lead yet refuses a batch, and one that came behind it would be before it.
        self._producer = Producer({**IN_ORDER, "bootstrap.servers": bootstrap_servers, "linger.ms": 5})
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def grow(self, moves: int) -> None:
        """Let each log go on for so many moves; those of a cut are left to `cut`."""
        for log in self.logs:
            for move in self.random.choices([move for move in MOVES if move != "cut"], k=moves):
                log.do(move)
        self.write()

    def write(self) -> None:
        """Write to the topic what the logs have and it has not."""
        for number, log in enumerate(self.logs):
            for offset, key, value, header in log.records[self._written[number] :]:
                headers: list[Any] = [] if header is None else [(HEADER_NAME, header)]
                timestamp_ms = self.clock_ms(offset)
                self._producer.produce(
                    self.config.state_topic, value, key, number, headers=headers, timestamp=timestamp_ms
                )
                self._written[number] = offset + 1
        assert not self._producer.flush(PATIENCE_S)

    def lose_end(self, kept: Sequence[LogWriter]) -> None:
        """Go on from logs as they were, as `copies` gave them, which another owner takes and the broker has been put back to."""
        self.logs = list(kept)
        self._written = [len(log.records) for log in self.logs]
        for log in self.logs:
            log.do("take")

    def copies(self) -> list[LogWriter]:
        """Return the logs as they are, to go on from in another way."""
        copies = deepcopy(self.logs)
        for copy in copies:
            copy.reseed(self.random.random())
        return copies

    def cut(self) -> None:
        """Write what lets each log be cut, and cut it."""
        for log in self.logs:
            log.do("cut")
        self.write()
        starts = [
            TopicPartition(self.config.state_topic, number, log.log_start) for number, log in enumerate(self.logs)
        ]
        for deleted in self._admin.delete_records(starts).values():
            deleted.result(PATIENCE_S)

    def break_one(self, number: int) -> int:
        """Append a value that is cut short, of a share partition of its own; returns its offset."""
        log = self.logs[number]
        key, value = encode_record(Codec.AVRO, BROKEN, Snapshot(0, 0, 0, 0, 0, 1, 1, (), 0, 0))
        assert value is not None
        log._append(key, value[:-1])
        self.write()
        return len(log.records) - 1

    def mend_one(self, number: int) -> None:
        """Append a tombstone of that share partition, after which its broken value matters no more."""
        self.logs[number]._put(BROKEN, None)
        self.write()

    def recreate(self) -> None:
        """Delete the state topic and make it again, with empty logs."""
        topic, count = self.config.state_topic, len(self.logs)
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)
        # Between what the controller answers and what the broker does lies a moment, in which records go to the deleted topic and are lost.
        block_until(lambda: topic not in self._admin.list_topics(timeout=PATIENCE_S).topics, "the end of the topic")
        self._admin.create_topics([NewTopic(topic, count, 1)])[topic].result(PATIENCE_S)
        block_until(lambda: topic in self._admin.list_topics(timeout=PATIENCE_S).topics, "the recreated topic")
        self.logs = [LogWriter(Random(f"{topic}/{number}/again")) for number in range(count)]
        self._written = [0] * count

    def fold(self, config: CompactionConfig | None = None) -> list[BatchReport]:
        """Run a job to the end of the logs as it is now; returns its reports.

        Spark goes on until the module ends, for its start takes longer than such a log: jobs as processes show the rest.
        """
        reports: list[BatchReport] = []
        with mock.patch.object(SparkSession, "stop"):
            run(config or self.config, topics_of(config or self.config), once=True, on_progress=reports.append)
        return reports

    def end_spark(self) -> None:
        """Let the next fold start Spark, as a job does that is started with other settings."""
        session = SparkSession.getActiveSession()
        assert session is not None
        session.stop()

    def state_topic_id(self) -> bytes:
        """Return the id of the state topic."""
        found = topics_of(self.config).describe(self.config.state_topic)
        assert found is not None
        return found[0]

    def snapshots(self) -> list[SnapshotSet]:
        """Return what the snapshot topic holds, by log partition."""
        state_topic_id = self.state_topic_id()
        sets = [SnapshotSet(state_topic_id, number) for number in range(len(self.logs))]
        for number, key, value, _ in self._read(self.config.snapshot_topic):
            decode_key(key)  # which a set passes over where it cannot be read
            sets[number].add(key, value)
        return sets

    def history(self) -> dict[int, list[dict[str, Any]]]:
        """Return the rows of the history by log partition, in the order of their offsets."""
        dataset = pyarrow_dataset.dataset(self.config.history_dir, format="parquet", partitioning="hive")
        rows = defaultdict(list)
        for row in dataset.to_table().sort_by("offset").to_pylist():
            rows[row["log_partition"]].append(row)
        return rows

    def committed(self) -> list[int]:
        """Return the group's offsets by log partition."""
        consumer = self._consumer(self.config.group)
        try:
            places = [TopicPartition(self.config.state_topic, number) for number in range(len(self.logs))]
            return [place.offset for place in consumer.committed(places, timeout=PATIENCE_S)]
        finally:
            consumer.close()

    def _read(self, topic: str) -> list[tuple[int, bytes | None, bytes | None, bytes | None]]:
        consumer = self._consumer("reads-only")
        try:
            places = [TopicPartition(topic, number, 0) for number in range(len(self.logs))]
            consumer.assign(places)
            reading = set(range(len(self.logs)))
            records = []
            deadline = monotonic() + PATIENCE_S
            while reading:
                assert monotonic() < deadline, f"{topic} cannot be read"
                for message in consumer.consume(500, 0.02):
                    number = message.partition()
                    assert number is not None
                    error = message.error()
                    if error is None:
                        records.append((number, message.key(), message.value(), find_header(message.headers())))
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        reading.discard(number)
            return records
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.config.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
            }
        )
