"""Readers of a small Kafka on loopback, and what they read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.kafka.cluster import Cluster
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.partition_reader import (
    PartitionReader,
)
from holdfast.kafka.records.reader import TopicReader
from holdfast.kafka.records.room import RecordRoom
from tests.pure.kafka.records.fake_kafka import FakeKafka
from tests.waiting import PATIENCE_S

#: Pauses are short; a broker that is silent is given up after a test's patience.
QUICK = ReaderConfig(wait_ms=200, timeout_ms=60_000, retry_backoff_ms=5)


@asynccontextmanager
async def reader_of(
    kafka: FakeKafka, config: ReaderConfig = QUICK, room: RecordRoom | None = None
) -> AsyncIterator[TopicReader]:
    reader = TopicReader(kafka.options, Cluster(kafka.options, 60_000), config, room=room)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader
    finally:
        await reader.close()


async def take_to(reading: PartitionReader, offset: int) -> list[Batch]:
    """Return all batches up to an offset."""
    batches: list[Batch] = []
    while not batches or batches[-1].last_offset + 1 < offset:
        batches += (await reading.take()).batches
    return batches


def offsets_of(batches: list[Batch]) -> list[int]:
    return [batch.base_offset for batch in batches]


BATCHES = 5


def make_logs(kafka: FakeKafka, count: int, value_bytes: int = 800) -> None:
    for log in kafka.make_topic(leaders=[1] * count).partitions:
        for _ in range(BATCHES):
            log.append(b"x" * value_bytes)
