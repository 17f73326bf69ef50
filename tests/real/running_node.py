"""Nodes in the process and on the loop of a test, which can look into them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.client import Client, connect
from holdfast.daemon.node import Node
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.node_parts import NodeParts
from holdfast.daemon.settings.models import Settings
from holdfast.node_settings import load_settings
from holdfast.records.log.header import find_header
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.tenants import TABLES
from tests.real.nodes import PATIENT, PATIENT_CLIENT
from tests.waiting import PATIENCE_S, wait_until


def make_settings(kafka: str, topic: str, **flags: object) -> Settings:
    """Return settings of a static node of a state topic with two partitions, that replaces another and stays when it is replaced."""
    return load_settings(
        flags=dict(PATIENT)
        | {
            "kafka.bootstrap.servers": kafka,
            "listen": "127.0.0.1:0",
            "http.listen": "127.0.0.1:0",
            "state_topic": topic,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 2,
            "membership": "static",
            "when_superseded": "wait",
            "take_over": True,
            "retry_backoff_max_ms": 500,
            "alarm_backoff_ms": 500,
        }
        | flags
    ).settings


class RunningNode:
    """A node, its end, and a client of it."""

    def __init__(self, settings: Settings) -> None:
        self.node = Node(settings, TABLES)
        self.exit: asyncio.Task[NodeExit] = asyncio.create_task(self.node.run())
        self.client: Client

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    @property
    def requests(self) -> int:
        """Requests of clients so far."""
        metrics = self.node._server_metrics
        assert metrics is not None
        return metrics._connections.requests

    @property
    def parts(self) -> NodeParts:
        """What the node consists of, once it has found its log."""
        assert self.node.parts is not None, "the node has not found its log yet"
        return self.node.parts

    def partitions(self) -> list[Partition]:
        """Return the log partitions of the node, by index; none while it starts."""
        return [] if self.node.parts is None else list(self.node.parts.partitions)

    async def ready(self) -> RunningNode:
        await self.until(lambda: self.node.is_ready, "the node is ready")
        return self

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition, unless the node ends before."""
        await wait_until(lambda: condition() or self.exit.done(), what)
        assert not self.exit.done(), f"the node ended: {self.exit.result()!r}"

    async def until_partition(
        self, index: int, condition: Callable[[dict[str, Any]], object], what: str
    ) -> dict[str, Any]:
        """Wait until a condition holds of the description of a log partition, and return that."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            row: dict[str, Any] = (await self.client.admin("partitions"))[index]
            if condition(row):
                return row
            assert time.monotonic() < deadline, f"{what} did not come about: {row}"
            await asyncio.sleep(0.02)

    async def until_states(self, state: State) -> None:
        """Wait until all log partitions are in a state."""
        await self.until(
            lambda: self.partitions() and all(each.state is state for each in self.partitions()), f"all {state.value}"
        )

    async def stop(self) -> NodeExit:
        """Let it stop and return how it ended."""
        self.node.stop()
        async with asyncio.timeout(PATIENCE_S):
            return await self.exit


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[RunningNode]:
    """Give a node that is ready, with a client; it is stopped at the end, unless it has ended already."""
    node = RunningNode(settings)
    try:
        await node.ready()
        async with connect(node.address, PATIENT_CLIENT) as client:
            node.client = client
            yield node
    finally:
        await node.stop()


def read_log(kafka: str, topic: str, partition: int) -> list[LogRecord]:
    """Return every record of a log partition."""
    settings = {
        "bootstrap.servers": kafka,
        "group.id": "test",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        # The end is told when a fetch comes back with nothing, and `consume` waits for a full batch or its time.
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(settings | {"isolation.level": "read_uncommitted"})
    records: list[LogRecord] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.02):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return records
                offset = message.offset()
                assert offset is not None
                key, value = message.key(), message.value()
                records.append(LogRecord(offset, key, value, find_header(message.headers())))
    finally:
        consumer.close()
    raise AssertionError(f"the end of {topic}/{partition} was not reached")


def cut(kafka: str, topic: str, partition: int, before_offset: int) -> None:
    """Delete the records below an offset, as somebody else might."""
    target = TopicPartition(topic, partition, before_offset)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_records([target])[target].result(PATIENCE_S)
