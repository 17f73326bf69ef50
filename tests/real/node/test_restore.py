"""Loads that begin with the snapshot topic, on a real broker; and each kind of damage to it, which costs time only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.api.results import ReadResult
from holdfast.daemon.settings.models import Settings
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.snapshot_store.entries import (
    EntryKey,
    ManifestKey,
    decode_entry,
    decode_key,
    decode_manifest,
    encode_entry,
    encode_manifest,
)
from holdfast.records.share.snapshot_store.folding import NEW, Held, Mark, RawRecord, fold
from tests.real.nodes import topic_id_of
from tests.real.running_node import RunningNode, make_settings, read_log, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

GROUP = "group"
SHARE_PARTITIONS = 12
PARTITIONS = 2
Message = tuple[bytes, bytes | None]


class Store(dict[bytes, Held]):
    """What a job holds."""

    def put(self, key: bytes, held: Held) -> None:
        self[key] = held

    def remove(self, key: bytes) -> None:
        del self[key]


class Job:
    """Folds the state topic into the snapshot topic, as the Spark job does."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.snapshot_topic = f"{topic}-snapshots"
        self._kafka = kafka
        self._topic = topic
        self._marks: list[Mark] = [NEW] * PARTITIONS
        self._stores = [Store() for _ in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": kafka})
        new = NewTopic(self.snapshot_topic, PARTITIONS, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([new])[self.snapshot_topic].result(PATIENCE_S)

    def fold(self) -> list[list[Message]]:
        """Fold what is new; returns the messages of each log partition."""
        topic_id = topic_id_of(self._kafka, self._topic)
        written = []
        for index in range(PARTITIONS):
            records = [RawRecord(*record) for record in read_log(self._kafka, self._topic, index)]
            folded = fold(topic_id, index, PARTITIONS, self._marks[index], self._stores[index], records)
            self._marks[index] = folded.mark
            messages: list[Message] = [*folded.entries, *([folded.manifest] if folded.manifest else [])]
            written.append(messages)
        return written

    def write(self, messages: Sequence[Sequence[Message]]) -> None:
        """Write messages into each partition of the snapshot topic."""
        producer = Producer({"bootstrap.servers": self._kafka})
        for index, of_partition in enumerate(messages):
            for key, value in of_partition:
                producer.produce(self.snapshot_topic, value, key, index)
        assert producer.flush(PATIENCE_S) == 0

    def live_keys(self) -> set[bytes | None]:
        """Return the keys of what stands in the snapshot topic."""
        newest = {
            record.key: record.value
            for index in range(PARTITIONS)
            for record in read_log(self._kafka, self.snapshot_topic, index)
        }
        return {key for key, value in newest.items() if value is not None}


@pytest.fixture
def orders(kafka: str, new_topic: NewTopicFactory) -> bytes:
    """Give the id of a topic."""
    return topic_id_of(kafka, new_topic(SHARE_PARTITIONS))


async def write(node: RunningNode, orders: bytes, turn: int) -> None:
    batch = StateBatch(10 * turn, 10 * turn + 9, ACKNOWLEDGED, 1)
    await asyncio.gather(*(node.client.write(GROUP, orders, n, 1, 0, -1, [batch]) for n in range(SHARE_PARTITIONS)))


async def states(node: RunningNode, orders: bytes) -> list[ReadResult]:
    return [await node.client.read(GROUP, orders, n, 0) for n in range(SHARE_PARTITIONS)]


async def loads(node: RunningNode) -> dict[str, float]:
    """Return how many loads began with snapshots ("fast"), and how many did not, by the reason."""
    found = await node.client.admin("metrics")
    refused = "holdfast_restores_refused_total{reason="
    reasons = {name.removeprefix(refused)[:-1]: n for name, n in found.items() if name.startswith(refused) and n}
    return {"fast": found["holdfast_restores_total"]} | reasons


def with_snapshots(kafka: str, topic: str, job: Job, **flags: Any) -> Settings:
    return make_settings(kafka, topic, **{"snapshots.topic": job.snapshot_topic}, **flags)


async def test_a_node_begins_with_the_snapshot_topic_and_reads_on_from_there(
    kafka: str, topic: str, orders: bytes
) -> None:
    job = Job(kafka, topic)
    settings = with_snapshots(kafka, topic, job)
    async with running(settings) as node:
        assert await loads(node) == {"fast": 0, "empty": PARTITIONS}
        await asyncio.gather(*(node.client.initialize(GROUP, orders, n, 1, 0) for n in range(SHARE_PARTITIONS)))
        await write(node, orders, 0)
        await node.client.delete(GROUP, orders, 3)
        job.write(job.fold())
        await node.client.initialize(GROUP, orders, 3, 1, 0)
        for turn in range(1, 4):
            await write(node, orders, turn)
        before = await states(node, orders)
    async with running(settings) as again:
        assert await loads(again) == {"fast": PARTITIONS}
        assert await states(again, orders) == before
        loaded = sum(row["records_loaded"] for row in await again.client.admin("partitions"))
    job.write(job.fold())
    async with running(settings) as third:
        assert await loads(third) == {"fast": PARTITIONS}
        assert await states(third, orders) == before
        assert sum(row["records_loaded"] for row in await third.client.admin("partitions")) < loaded
    whole = make_settings(kafka, topic, **{"snapshots.topic": ""})
    async with running(whole) as fourth:
        assert await states(fourth, orders) == before


def _without_an_entry(messages: list[Message]) -> list[Message]:
    return messages[1:]


def _with_another_state(messages: list[Message]) -> list[Message]:
    def change(message: Message) -> Message:
        key, value = message
        if not isinstance(decode_key(key), EntryKey) or value is None:
            return message
        entry = decode_entry(value)
        return key, encode_entry(entry._replace(update_count=entry.update_count + 1))

    return [change(message) for message in messages]


def _unreadable(messages: list[Message]) -> list[Message]:
    return [(key, b"?") for key, _ in messages]


def _of_another_topic(messages: list[Message]) -> list[Message]:
    return [(key[:10] + bytes(16) + key[26:], value) for key, value in messages]


def _for_other_partitions(messages: list[Message]) -> list[Message]:
    key, value = messages[-1]
    named, manifest = decode_key(key), decode_manifest(value or b"")
    assert isinstance(named, ManifestKey)
    return [*messages[:-1], encode_manifest(named, manifest._replace(partition_count=PARTITIONS + 1))]


def _of_another_log(messages: list[Message]) -> list[Message]:
    """Say that the record at the covered offset is another one than the log holds."""
    key, value = messages[-1]
    named, manifest = decode_key(key), decode_manifest(value or b"")
    assert isinstance(named, ManifestKey)
    position = manifest.position._replace(next_sequence=manifest.position.next_sequence + 1)
    return [*messages[:-1], encode_manifest(named, manifest._replace(position=position))]


def _ahead_of_the_log(messages: list[Message]) -> list[Message]:
    key, value = messages[-1]
    named = decode_key(key)
    assert isinstance(named, ManifestKey)
    ahead = named._replace(covered_offset=named.covered_offset + 1_000)
    return [*messages[:-1], encode_manifest(ahead, decode_manifest(value or b""))]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_without_an_entry, "disagreement"),
        (_with_another_state, "disagreement"),
        (_unreadable, "undecodable"),
        (_of_another_topic, "empty"),
        (_for_other_partitions, "foreign"),
        (_of_another_log, "refused"),
        (_ahead_of_the_log, "refused"),
    ],
)
async def test_damage_costs_a_load_of_the_whole_log_and_is_named(
    kafka: str, topic: str, orders: bytes, damage: Any, reason: str
) -> None:
    job = Job(kafka, topic)
    settings = with_snapshots(kafka, topic, job)
    async with running(settings) as node:
        await asyncio.gather(*(node.client.initialize(GROUP, orders, n, 1, 0) for n in range(SHARE_PARTITIONS)))
        await write(node, orders, 0)
        before = await states(node, orders)
    job.write([damage(messages) for messages in job.fold()])
    async with running(settings) as again:
        assert await loads(again) == {"fast": 0, reason: PARTITIONS}
        assert await states(again, orders) == before


async def test_a_snapshot_topic_that_does_not_exist_is_no_obstacle(kafka: str, topic: str, orders: bytes) -> None:
    settings = make_settings(kafka, topic, **{"snapshots.topic": f"{topic}-nothing"})
    async with running(settings) as node:
        assert await loads(node) == {"fast": 0, "missing": PARTITIONS}


async def test_a_log_cut_past_its_manifests_is_read_as_a_whole(kafka: str, topic: str, orders: bytes) -> None:
    job = Job(kafka, topic)
    pruning = {"pruning_dead_bytes_min": 1, "pruning_check_interval_ms": 100, "pruning_dead_share": 0.05}
    async with running(with_snapshots(kafka, topic, job)) as node:
        await asyncio.gather(*(node.client.initialize(GROUP, orders, n, 1, 0) for n in range(SHARE_PARTITIONS)))
        job.write(job.fold())
        for turn in range(8):
            await write(node, orders, turn)
    async with running(with_snapshots(kafka, topic, job, **pruning)) as pruned:
        assert await loads(pruned) == {"fast": PARTITIONS}
        for index in range(PARTITIONS):
            await pruned.until_partition(index, lambda row: row["log_start"] > 0, "a cut")
        before = await states(pruned, orders)
    async with running(with_snapshots(kafka, topic, job)) as again:
        assert await loads(again) == {"fast": 0, "empty": PARTITIONS}
        assert await states(again, orders) == before
    job.write(job.fold())
    async with running(with_snapshots(kafka, topic, job)) as third:
        assert await loads(third) == {"fast": PARTITIONS}
        assert await states(third, orders) == before


async def test_the_owner_verifies_manifests_and_removes_what_nobody_needs(
    kafka: str, topic: str, orders: bytes
) -> None:
    job = Job(kafka, topic)
    settings = with_snapshots(kafka, topic, job)
    async with running(settings) as node:
        await asyncio.gather(*(node.client.initialize(GROUP, orders, n, 1, 0) for n in range(SHARE_PARTITIONS)))
        for turn in range(4):
            await write(node, orders, turn)
            job.write(job.fold())
            await until_metric(node, "holdfast_snapshot_manifests_verified_total", (turn + 1) * PARTITIONS)
        # Of each share partition the oldest two of four entries, and of each log partition as many manifests.
        await until_metric(node, "holdfast_snapshot_removals_total", 2 * (SHARE_PARTITIONS + PARTITIONS))
        await wait_until(lambda: len(job.live_keys()) == 2 * (SHARE_PARTITIONS + PARTITIONS), "removals landed")
        found = await node.client.admin("metrics")
        assert (
            found["holdfast_snapshot_divergences_total"] == found["holdfast_snapshot_manifests_disagreeing_total"] == 0
        )
        before = await states(node, orders)
    async with running(settings) as again:
        assert await loads(again) == {"fast": PARTITIONS}
        assert await states(again, orders) == before


async def until_metric(node: RunningNode, name: str, wanted: float) -> None:
    """Wait until a metric has a value."""

    async def found() -> float:
        value: float = (await node.client.admin("metrics"))[name]
        return value

    deadline = time.monotonic() + PATIENCE_S
    while (value := await found()) != wanted:
        assert time.monotonic() < deadline, f"{name} is {value} in place of {wanted}"
        await asyncio.sleep(0.05)
