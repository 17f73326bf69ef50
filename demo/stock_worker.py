"""A worker with confluent-kafka's share consumer, which knows nothing of Holdfast but an address; StockWorker.java is the same in Java.

Arguments: the address, a group, a topic, and how many milliseconds an order takes.
It writes down `given PARTITION OFFSET COUNT` of each order that it gets, and `accepted PARTITION OFFSET` once it was told that its
acknowledgement is kept, or `unsure PARTITION OFFSET` where it was not.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict

from confluent_kafka import KafkaException, Message, ShareConsumer


def say(what: str, message: Message, *more: object) -> None:
    """Write down what happened to an order."""
    print(what, message.partition(), message.offset(), *more, flush=True)


def main(address: str, group: str, topic: str, work_ms: str) -> None:
    """Work until the process is ended."""
    settings = {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
    # Without a logger it would write a line at each of its attempts to connect to a node that is gone.
    consumer = ShareConsumer({**settings, "max.poll.records": 20}, logger=logging.getLogger("quiet"))
    consumer.subscribe([topic])
    while True:
        given = defaultdict[int | None, list[Message]](list)
        polled = [message for message in consumer.poll(0.5) if message.error() is None]
        for message in polled:
            say("given", message, message.delivery_count())
        for message in polled:
            time.sleep(int(work_ms) / 1_000)
            consumer.acknowledge(message)
            given[message.partition()].append(message)
        try:
            outcomes = consumer.commit_sync()
        except KafkaException:
            outcomes = {}
        for place, error in outcomes.items():
            for message in given.pop(place.partition, []):
                say("unsure" if error else "accepted", message)
        for left in given.values():
            for message in left:
                say("unsure", message)


if __name__ == "__main__":
    logging.getLogger("quiet").disabled = True
    main(*sys.argv[1:])
