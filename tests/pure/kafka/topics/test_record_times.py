"""When records of users' topics were written: by the head of the batch that holds them, and nothing where nobody says."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from struct import pack
from typing import Any

import pytest

from holdfast.kafka import cluster as cluster_view
from holdfast.kafka.aiokafka_parts import make_batch_builder
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import Answer, Leader, TopicRef, TopicView
from holdfast.kafka.protocol.primitives import encode_string, encode_varint
from holdfast.kafka.topics.record_times import RecordTimes
from holdfast.kafka.topics.topic_ends import Place

ORDERS, PAYMENTS = bytes([1] * 16), bytes([2] * 16)
OPTIONS = ConnectionOptions(bootstrap=(("a", 9092),))
TOPICS: dict[TopicRef, TopicView] = {
    ORDERS: TopicView("orders", ORDERS, {0: Leader(1, 3), 1: Leader(2, 4)}, {0: 3, 1: 4}),
    PAYMENTS: TopicView("payments", PAYMENTS, {0: Leader(1, 5)}, {0: 5, 1: 5}),
}


def batch_of(*times_ms: int, is_append_time: bool = False) -> bytes:
    builder = make_batch_builder(0, 10_000)
    for number, time_ms in enumerate(times_ms):
        builder.append(number, time_ms, None, b"value", [])
    built = bytearray(builder.build())
    if is_append_time:
        built[22] |= 8
    return bytes(built)


class Leaders(cluster_view.Cluster):
    async def find(self, topics: Collection[TopicRef]) -> Answer:
        return Answer("", {1: ("a", 9092), 2: ("b", 9092)}, {topic: TOPICS[topic] for topic in topics})


class Cluster:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: dict[tuple[str, int], bytes] = {}
        self.error_code = 0
        self.down: set[str] = set()
        self.silent: set[str] = set()
        self.asked: list[tuple[str, int]] = []
        self.open = 0
        monkeypatch.setattr(BrokerConnection, "open", self._open)

    async def _open(self, address: Address, options: ConnectionOptions, timeout_ms: int) -> Connection:
        if address[0] in self.down:
            raise ConnectionFailed("down")
        self.open += 1
        return Connection(self, address[0])

    async def look_up(self, *places: Place, timeout_ms: int = 60_000) -> dict[Place, int]:
        times = RecordTimes(Leaders(OPTIONS, 1), timeout_ms=timeout_ms)
        found = await times.look_up(dict.fromkeys(places, 7))
        assert self.open == 0
        return found


class Connection:
    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster, self._host = cluster, host

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool) -> bytes:
        assert (api_key, version, is_flexible) == (1, 12, True)
        if self._host in self._cluster.silent:
            await asyncio.Event().wait()
        topic = "orders" if b"orders" in body else "payments"
        start = body.index(topic.encode()) + len(topic) + 1
        partition, _, offset = int.from_bytes(body[start : start + 4], "big"), 0, body[start + 8 : start + 16]
        assert int.from_bytes(offset, "big") == 7
        self._cluster.asked.append((topic, partition))
        records = self._cluster.records.get((topic, partition), b"")
        head = pack(">ihi", 0, 0, 0) + encode_varint(2) + encode_string(topic) + encode_varint(2)
        of_partition = pack(">ihqqq", partition, self._cluster.error_code, 9, 9, 0) + encode_varint(0) + pack(">i", -1)
        return head + of_partition + encode_varint(len(records) + 1) + records + bytes(3)

    def close(self) -> None:
        self._cluster.open -= 1


async def test_it_is_the_time_of_the_first_record_or_of_the_append(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.records = {
        ("orders", 0): batch_of(1_000, 3_000, 2_000),
        ("orders", 1): batch_of(1_000, 3_000, 2_000, is_append_time=True),
        ("payments", 0): batch_of(5_000),
    }
    assert await cluster.look_up((ORDERS, 0), (ORDERS, 1), (PAYMENTS, 0)) == {
        (ORDERS, 0): 1_000,
        (ORDERS, 1): 3_000,
        (PAYMENTS, 0): 5_000,
    }


async def test_what_nobody_returns_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    cluster.records = {("orders", 0): batch_of(1_000), ("orders", 1): batch_of(2_000), ("payments", 0): b"short"}
    cluster.down = {"b"}
    places: list[Any] = [(ORDERS, 0), (ORDERS, 1), (PAYMENTS, 0), (PAYMENTS, 1), (ORDERS, 99)]
    assert await cluster.look_up(*places) == {(ORDERS, 0): 1_000}
    cluster.error_code = 29  # the node may not read the topic
    assert await cluster.look_up(*places) == {}
    cluster.error_code, cluster.down, cluster.silent = 0, set(), {"b"}
    assert await cluster.look_up(*places, timeout_ms=50) == {(ORDERS, 0): 1_000}
