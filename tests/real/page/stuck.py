"""A share group of a stock consumer on a stock Kafka, with one record that is tried again and again."""

from __future__ import annotations

import time
import uuid
from typing import Final, NamedTuple

from confluent_kafka import Producer

from tests.interop.gateway.clients import PYTHON, Client, Given, StockConsumer, stock_consumer
from tests.waiting import PATIENCE_S

PARTITIONS: Final = 2
DELIVERIES: Final = 4
PRODUCED: Final = 10


class Stuck(NamedTuple):
    """A share group of which one record was given back after its fourth delivery."""

    group: str
    topic: str
    record: Given


def make_stuck(kafka: str, topic: str, client: Client = PYTHON) -> Stuck:
    """Make a share group with one record stuck."""
    group = f"workers-{uuid.uuid4()}"
    with stock_consumer(client, kafka, group, topic) as consumer:
        # A share group begins at the end, as soon as its first member has joined; where a partition begins is decided with its first fetch.
        seen: set[int] = set()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, f"the consumer was given records of partitions {seen} only"
            produce(kafka, topic)
            given = consumer.poll()
            seen |= {record.partition for record in given}
            if len(seen) == PARTITIONS:
                break
            if given:
                consumer.acknowledge("ACCEPT", given)
                assert consumer.commit() == {}
        record = give_back(consumer, given)
        consumer.close()
    return Stuck(group, topic, record)


def produce(kafka: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(PRODUCED):
        headers: list[tuple[str, str | bytes | None]] = [("source", b"<script>alert(1)</script>")]
        producer.produce(topic, f"order {number}", key=f"{number}", headers=headers, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def give_back(consumer: StockConsumer, given: list[Given]) -> Given:
    """Acknowledge all records but the first one, and give that back after each of its deliveries."""
    wanted = min(given)
    count = 0
    while count < DELIVERIES:
        for record in given:
            is_wanted = record[:2] == wanted[:2]
            count = max(count, record.delivery_count) if is_wanted else count
            consumer.acknowledge("RELEASE" if is_wanted else "ACCEPT", [record])
        if given:
            assert consumer.commit() == {}
        if count < DELIVERIES:
            given = consumer.poll()
    return wanted._replace(delivery_count=count)
