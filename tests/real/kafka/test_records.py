"""The reader of any topics on real brokers, with what librdkafka writes and what it reads as the oracle."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.records import fetch, lanes
from holdfast.kafka.records.batches import Batch
from holdfast.kafka.records.config import ReaderConfig
from holdfast.kafka.records.partition_reader import OffsetOutOfRange, PartitionReader, TopicGone, TopicRecreated
from holdfast.kafka.records.reader import TopicReader
from holdfast.kafka.records.transactions import mark_aborted
from tests.real.container_kafka import needs_processes
from tests.real.quick_java import QUICK_KAFKA
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.real

QUICK = ReaderConfig(wait_ms=200, timeout_ms=60_000)


@asynccontextmanager
async def reader_of(bootstrap_servers: str, config: ReaderConfig = QUICK) -> AsyncIterator[TopicReader]:
    options = connection_options({"bootstrap.servers": bootstrap_servers})
    reader = TopicReader(options, Cluster(options, 60_000), config)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader
    finally:
        await reader.close()


async def topic_id_of(reader: TopicReader, name: str) -> bytes:
    await reader.cluster.look_up([name])
    return reader.cluster.topics[name].topic_id


async def take_to(reading: PartitionReader, offset: int) -> list[tuple[Batch, bool]]:
    """Return all batches up to an offset, each with whether it was aborted."""
    found: list[tuple[Batch, bool]] = []
    while not found or found[-1][0].last_offset + 1 < offset:
        chunk = await reading.take()
        found += mark_aborted(chunk.batches, chunk.aborted)
    return found


def values_in(batches: Sequence[tuple[Batch, bool]]) -> list[bytes]:
    """Return the values that a consumer of committed records gets, checksums compared."""
    values = []
    for batch, is_aborted in batches:
        if is_aborted or batch.is_control:
            continue
        decoded = MemoryRecords(bytes(batch.data)).next_batch()
        assert decoded.validate_crc()
        values += [record.value for record in decoded]
    return values


def write(bootstrap_servers: str, topic: str, values: Sequence[bytes], **settings: str) -> None:
    """Write values in batches of a few each."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0, **given})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=0)
        if number % 3 == 2:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0


def consumed(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=PATIENCE_S)]
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_each_codec_come_as_they_were_written(
    kafka: str, new_topic: NewTopicFactory, codec: str
) -> None:
    name, values = new_topic(2), [b"value %d " % number * 30 for number in range(20)]
    await asyncio.to_thread(write, kafka, name, values, compression_type=codec)
    async with reader_of(kafka) as reader:
        topic_id = await topic_id_of(reader, name)
        for ref in (topic_id, name):
            found = await take_to(reader.open(ref, 0, 0), 20)
            assert values_in(found) == values
            assert {batch.compression for batch, _ in found} == {["none", "gzip", "snappy", "lz4", "zstd"].index(codec)}
        middle = await take_to(reader.open(topic_id, 0, 10), 20)
        assert middle[0][0].base_offset <= 10 <= middle[0][0].last_offset
        empty = reader.open(topic_id, 1, 0)
        await wait_until(lambda: empty.is_at_end)
        assert empty.take_nowait() is None


@pytest.mark.parametrize("version", range(fetch.VERSIONS[0], fetch.VERSIONS[1] + 1))
async def test_each_version_of_fetch_is_spoken(
    kafka: str, new_topic: NewTopicFactory, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "choose_version", lambda _: version)
    name = new_topic(3)
    await asyncio.to_thread(write, kafka, name, [b"a", b"b"])
    async with reader_of(kafka, QUICK._replace(is_committed=True)) as reader:
        readings = [reader.open(await topic_id_of(reader, name), partition, 0) for partition in range(3)]
        assert values_in(await take_to(readings[0], 2)) == [b"a", b"b"]
        await wait_until(lambda: all(reading.is_at_end for reading in readings))


async def test_aborted_records_are_told_and_open_transactions_are_not_read(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    name = new_topic(1)

    def run() -> Producer:
        producers = [
            Producer(
                {
                    "bootstrap.servers": kafka,
                    "transactional.id": f"{name}-{number}",
                    "transaction.timeout.ms": PATIENCE_MS,
                    "log_level": 0,
                }
            )
            for number in range(2)
        ]
        for producer in producers:
            producer.init_transactions(PATIENCE_S)
        first, second = producers
        for ends in (first.commit_transaction, first.abort_transaction, first.commit_transaction):
            first.begin_transaction()
            second.begin_transaction()
            for number in range(3):
                first.produce(name, f"{ends.__name__} {number}".encode(), partition=0)
                first.flush(PATIENCE_S)
                second.produce(name, b"aborted", partition=0)
                second.flush(PATIENCE_S)
            second.abort_transaction(PATIENCE_S)
            ends(PATIENCE_S)
        second.begin_transaction()
        second.produce(name, b"not decided", partition=0)
        second.flush(PATIENCE_S)
        return second

    undecided = await asyncio.to_thread(run)
    async with reader_of(kafka, QUICK._replace(is_committed=True)) as reader, reader_of(kafka) as other:
        reading = reader.open(await topic_id_of(reader, name), 0, 0)
        stable = 24  # three times six records and two markers
        expected = await asyncio.to_thread(consumed, kafka, name, 6)
        assert values_in(await take_to(reading, stable)) == expected
        await wait_until(lambda: reading.is_at_end)
        assert (reading.position, reading.last_stable_offset, reading.high_watermark) == (stable, stable, stable + 1)
        # From any offset on, the list that comes with the answer is enough.
        reading.seek(0)
        whole = await take_to(reading, stable)
        for offset in range(stable):
            reading.seek(offset)
            found = await take_to(reading, stable)
            assert values_in(found) == values_in([each for each in whole if each[0].last_offset >= offset])
        everything = other.open(name, 0, 0)
        assert b"not decided" in values_in(await take_to(everything, stable + 1))
        await asyncio.to_thread(undecided.abort_transaction, PATIENCE_S)
        reading.seek(stable)
        assert values_in(await take_to(reading, stable + 2)) == []


async def test_offsets_outside_of_the_log_are_told(kafka: str, new_topic: NewTopicFactory) -> None:
    name = new_topic(1)
    await asyncio.to_thread(write, kafka, name, [b"x"] * 5)
    admin = AdminClient({"bootstrap.servers": kafka})
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 3)]).values()
    await asyncio.to_thread(deleted.result, PATIENCE_S)
    async with reader_of(kafka) as reader:
        for offset in (1, 9):
            with pytest.raises(OffsetOutOfRange) as caught:
                await reader.open(name, 0, offset).take()
            assert (caught.value.first_offset, caught.value.end_offset) == (3, 5)
        assert len(values_in(await take_to(reader.open(name, 0, 3), 5))) >= 2


async def test_topic_that_is_made_again_is_another_one(kafka: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})

    async def make() -> None:
        await asyncio.to_thread(admin.create_topics([NewTopic(topic, 1, 1)])[topic].result, PATIENCE_S)

    await make()
    await asyncio.to_thread(write, kafka, topic, [b"old"])
    async with reader_of(kafka) as reader:
        by_name = reader.open(topic, 0, 0)
        assert values_in(await take_to(by_name, 1)) == [b"old"]
        by_id = reader.open(by_name.topic_id, 0, 0)
        assert values_in(await take_to(by_id, 1)) == [b"old"]
        await asyncio.to_thread(admin.delete_topics([topic])[topic].result, PATIENCE_S)
        with pytest.raises(TopicGone):
            await by_id.take()
        await make()
        await asyncio.to_thread(write, kafka, topic, [b"new", b"new", b"new"])
        # It ended when the name had no topic, or when it had another one.
        with pytest.raises((TopicGone, TopicRecreated)):
            await by_name.take()
        assert values_in(await take_to(reader.open(topic, 0, 0), 3)) == [b"new"] * 3
    await asyncio.to_thread(admin.delete_topics([topic])[topic].result, PATIENCE_S)


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedKafka]:
    needs_processes("The test kills and freezes two brokers")
    with EmbeddedKafka(brokers=3, jvm_options=QUICK_KAFKA, heap_mib=256) as cluster:
        yield cluster


@pytest.mark.parametrize("blow", ["kill", "freeze"])
async def test_leader_that_is_lost_is_followed(brokers: EmbeddedKafka, topic: str, blow: str) -> None:
    servers = brokers.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    created = admin.create_topics([NewTopic(topic, 3, 3)])[topic]
    await asyncio.to_thread(created.result, PATIENCE_S)
    await asyncio.to_thread(write, servers, topic, [b"before"])
    async with reader_of(servers) as reader:
        readings = [reader.open(topic, partition, 0) for partition in range(3)]
        assert values_in(await take_to(readings[0], 1)) == [b"before"]
        await wait_until(lambda: all(reading.is_at_end for reading in readings))
        led = reader.cluster.topics[topic].leaders[0]
        hit, mend = (brokers.kill, brokers.restart) if blow == "kill" else (brokers.freeze, brokers.thaw)
        await asyncio.to_thread(hit, led.broker_id)
        await asyncio.to_thread(write, servers, topic, [b"after"])
        assert values_in(await take_to(readings[0], 2)) == [b"after"]
        moved = reader.cluster.topics[topic].leaders[0]
        assert moved.broker_id != led.broker_id
        assert moved.epoch > led.epoch
        await asyncio.to_thread(mend, led.broker_id)
