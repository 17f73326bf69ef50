"""Stock share consumers take records from a Kafka through a node, and what they acknowledge stays acknowledged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient

from holdfast.api.share_group_heartbeat import HeartbeatResponse
from holdfast.delivery.share_group import EPOCH_END
from holdfast.gateway import tenant
from holdfast.gateway.heartbeats import Heartbeats
from tests.real.running_node import make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.real

NEVER_MS = 3_600_000
EARLIEST = {"gateway.groups.default.share.auto.offset.reset": "earliest"}


def produce(bootstrap_servers: str, topic: str, values: list[bytes], **settings: Any) -> None:
    """Write values and wait until the broker has them all."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0, **settings})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def produce_to(bootstrap_servers: str, topic: str, partition: int, count: int) -> None:
    """Write some records to a partition, each a batch of its own."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0, "batch.num.messages": 1}
    )
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


class Worker:
    """A stock share consumer on a thread of its own, as an application has one."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **settings: Any) -> None:
        self.seen: list[tuple[int | None, int | None, bytes]] = []
        self.problems: list[str] = []
        self._stop = threading.Event()
        own = {"bootstrap.servers": bootstrap_servers, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer(own | {"log_level": 0} | settings)
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for message in self._consumer.poll(0.5):
                    self._take(message)
                self._consumer.commit_async()
            self._consumer.close()
        except Exception as problem:  # the test tells of it
            self.problems.append(repr(problem))

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            self.problems.append(str(message.error()))
            return
        self.seen.append((message.partition(), message.offset(), message.value() or b""))
        self._consumer.acknowledge(message)

    async def until(self, condition: Callable[[Worker], bool]) -> None:
        await wait_until(lambda: condition(self) or self.problems, "the worker saw it")
        assert not self.problems

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join, PATIENCE_S)
        assert not self._thread.is_alive()


async def test_python_consumer_takes_each_record_once(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    orders = new_topic(4)
    settings = make_settings(kafka, topic, **{"gateway.topics": orders} | EARLIEST)
    values = [b"order %d" % number for number in range(1_000)]
    produce(kafka, orders, values)
    async with running(settings) as node:
        worker = Worker(node.address, "workers", orders)
        await worker.until(lambda w: len(w.seen) >= len(values))
        await worker.stop()
    assert sorted(value for _, _, value in worker.seen) == sorted(values)
    assert not worker.problems


def note_heartbeats(monkeypatch: pytest.MonkeyPatch) -> list[HeartbeatResponse]:
    """Note the answers to all heartbeats from now on."""
    answers: list[HeartbeatResponse] = []
    handle = Heartbeats.handle

    def note(heartbeats: Heartbeats, *arguments: Any) -> HeartbeatResponse:
        answers.append(handle(heartbeats, *arguments))
        return answers[-1]

    monkeypatch.setattr(Heartbeats, "handle", note)
    return answers


async def test_topic_that_was_made_a_moment_ago_is_consumed_at_once(
    kafka: str, topic: str, new_topic: NewTopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer asks for no topic by name: it hears of one by its assignment alone."""
    answers = note_heartbeats(monkeypatch)
    never = {"metadata_refresh_interval_ms": NEVER_MS, "deleted_topic_grace_ms": NEVER_MS}
    settings = make_settings(kafka, f"states-of-{topic}", **{"gateway.topics": "test-*"} | EARLIEST | never)
    async with running(settings) as node:
        # It is answered when the node has looked all topics up for the first time, and for the last.
        await asyncio.to_thread(AdminClient({"bootstrap.servers": node.address}).list_topics, timeout=PATIENCE_S)
        orders = new_topic(1)
        produce(kafka, orders, [b"order"])
        worker = Worker(node.address, f"workers-of-{orders}", orders)
        await worker.until(lambda w: len(w.seen) == 1)
        await worker.stop()
    assert answers[0].assignment


@pytest.mark.parametrize("epoch", [EPOCH_END - 1, EPOCH_END])
async def test_consumer_understands_epochs_however_late_it_is(
    kafka: str, topic: str, new_topic: NewTopicFactory, monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """librdkafka reads the member id of an answer up to a zero byte; with a higher epoch there would be none between the two."""
    answers = note_heartbeats(monkeypatch)
    monkeypatch.setattr(tenant, "_minutes", lambda: epoch)
    orders = new_topic(1)
    produce(kafka, orders, [b"order"])
    settings = make_settings(kafka, topic, **{"gateway.topics": orders} | EARLIEST)
    async with running(settings) as node:
        group = f"workers-of-{orders}"
        worker = Worker(node.address, group, orders)
        await worker.until(lambda w: len(w.seen) == 1)
        await worker.until(lambda _: len(answers) > 3)
        produce(kafka, orders, [b"order"])
        await worker.until(lambda w: len(w.seen) == 2)
        await worker.stop()
    assert {answer.error_code for answer in answers} == {0}
