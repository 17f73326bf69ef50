"""The work: a topic of orders, some of which fail a few times before they succeed, and some of which never do."""

import json
from functools import partial
from random import Random
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message
from confluent_kafka.cimpl import NewTopic

from demo.share_partition import Delivery
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED

#: A record that failed so often is archived, which is what Kafka's `group.share.delivery.count.limit` is for.
DELIVERIES_MAX: Final = 5

#: Of a hundred orders so many succeed at the first delivery, the second, the third, or never.
_WEIGHTS: Final = {1: 84, 2: 10, 3: 5, DELIVERIES_MAX + 1: 1}
_KAFKA_TIMEOUT_S: Final = 30.0


class Order(NamedTuple):
    """One record of the topic."""

    number: int
    customer: str
    cents: int
    succeeds_at: int  #: the delivery at which processing succeeds

    def outcome(self) -> Delivery:
        """Return the delivery state and count that this record must end with."""
        if self.succeeds_at > DELIVERIES_MAX:
            return Delivery(ARCHIVED, DELIVERIES_MAX)
        return Delivery(ACKNOWLEDGED, self.succeeds_at)


#: Where orders lie: by partition, then by offset.
Placed = list[dict[int, Order]]


def place_orders(
    bootstrap_servers: str, topic: str, partitions: int, per_partition: int, seed: int, per_batch: int = 10_000
) -> Placed:
    """Make the topic, produce the orders into it, and return where Kafka says that each of them lies.

    A record batch has `per_batch` orders at most.
    """
    random = Random(seed)
    clients = KafkaClients({"bootstrap.servers": bootstrap_servers})
    with clients.admin() as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_KAFKA_TIMEOUT_S)
    # Without idempotence a batch that is tried again may be appended behind a later one, or twice.
    producer = clients.producer({"enable.idempotence": True, "batch.num.messages": per_batch})
    placed: Placed = [{} for _ in range(partitions)]

    def lies_at(order: Order, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            placed[partition][offset] = order

    for number in range(partitions * per_partition):
        order = Order(
            number,
            random.choice(("Ada", "Ben", "Cleo", "Dan", "Eve")),
            random.randrange(100, 100_000),
            random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0],
        )
        producer.produce(
            topic,
            json.dumps(order._asdict()),
            partition=number % partitions,
            on_delivery=partial(lies_at, order),
        )
    producer.flush(_KAFKA_TIMEOUT_S)
    if any(len(orders) != per_partition for orders in placed):
        raise TimeoutError(f"Kafka did not take all orders in {_KAFKA_TIMEOUT_S:.0f} s.")
    return placed


def parse_order(value: bytes) -> Order:
    """Return the order in a record's value."""
    return Order(**json.loads(value))
