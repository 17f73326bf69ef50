"""The broker whose records the gateway gives: topics with a backlog, a producer at the tail, and where groups begin."""

from __future__ import annotations

import time
from struct import Struct
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.client import BenchmarkError, Client
from benchmarks.cluster import first_address
from benchmarks.gateway.consumer import STAMP
from benchmarks.gateway.loads import PARTITIONS, TAIL_RATE, Backlog
from holdfast.broker import EmbeddedKafka
from holdfast.kafka.protocol.primitives import encode_string

START_CONFIG: Final = "share.auto.offset.reset"

_INCREMENTAL_ALTER_CONFIGS: Final = 44
_VERSION: Final = 1
_GROUP: Final = b"\x20"
_SET: Final = b"\x00"
#: Time of throttling, the count of results, and the first one's error.
_ANSWER: Final = Struct(">ibh")
_TIMEOUT_S: Final = 60.0
_QUEUE_MESSAGES: Final = 200_000
_SENT_AT_ONCE: Final = 10_000


def create(kafka: EmbeddedKafka, backlog: Backlog, records: int) -> None:
    """Make the topic of a backlog and put this number of records into it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3})
    new = NewTopic(backlog.topic, num_partitions=backlog.partitions, replication_factor=len(kafka.nodes))
    admin.create_topics([new])[backlog.topic].result(timeout=_TIMEOUT_S)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "log_level": 3,
            "batch.num.messages": backlog.batch_records,
            "batch.size": 1_000_000,
            "linger.ms": 500,
            "queue.buffering.max.messages": _QUEUE_MESSAGES,
        }
    )
    value = bytes(backlog.value_bytes)
    for number in range(records):
        while True:
            try:
                producer.produce(backlog.topic, value, partition=number % backlog.partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % _SENT_AT_ONCE == 0:
            producer.poll(0)
    if producer.flush(_TIMEOUT_S):
        raise BenchmarkError(f"The backlog {backlog.topic} was not written in time.")


def produce_at_tail(kafka: EmbeddedKafka, topic: str, seconds: float) -> int:
    """Write records at a steady rate, each with the time when it was handed to the producer; returns how many."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3, "linger.ms": 0})
    began_s, count = time.monotonic(), int(seconds * TAIL_RATE)
    for number in range(count):
        time.sleep(max(0.0, began_s + number / TAIL_RATE - time.monotonic()))
        producer.produce(topic, STAMP.pack(time.monotonic()) + bytes(92), partition=number % PARTITIONS)
        producer.poll(0)
    if producer.flush(_TIMEOUT_S):
        raise BenchmarkError("The tail was not written in time.")
    return count


def begin_at_earliest(kafka: EmbeddedKafka, group: str) -> None:
    """Have a share group of the broker's own begin at the earliest offset; librdkafka's admin client has no configs of groups.

    Raises:
        BenchmarkError: the broker refused.
    """
    config = encode_string(START_CONFIG) + _SET + encode_string("earliest") + b"\x00"
    body = b"\x02" + _GROUP + encode_string(group) + b"\x02" + config + b"\x00" + b"\x00" + b"\x00"
    with Client(first_address(kafka)) as client:
        _, _, error_code = _ANSWER.unpack_from(client.call(_INCREMENTAL_ALTER_CONFIGS, _VERSION, body))
    if error_code:
        raise BenchmarkError(f"The broker refused the config of the group {group} with error {error_code}.")
