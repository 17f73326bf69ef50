"""What is looked at inside the Kafka log. Everything that knows its private names is here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.kafka_log.fetcher import Fetcher
from holdfast.runtime.kafka_log.log import KafkaLog
from holdfast.runtime.kafka_log.sending.sender import Sender


class Backlog(NamedTuple):
    """What a log holds of one partition on its way out."""

    lingering: int  #: records that are in no batch
    sent: int  #: records in batches that were not read back
    is_busy: bool  #: a batch has no answer


def sender_of(log: KafkaLog) -> Sender:
    """Return what sends the records of a log whose client is the native one."""
    assert isinstance(log._sender, Sender)
    return log._sender


def fetchers_of(log: KafkaLog) -> tuple[Fetcher, Fetcher]:
    """Return what follows the tails, and the loads, of a log whose client is the native one."""
    assert isinstance(log._tail, Fetcher)
    assert isinstance(log._load, Fetcher)
    return log._tail, log._load


def backlogs(log: KafkaLog) -> dict[int, Backlog]:
    """Return what is on its way out, by log partition."""
    sent = log._sent._by_partition
    queues = sender_of(log).accumulator._queues
    return {
        index: Backlog(len(queue.records), sum(batch.record_count for batch in sent.get(index, ())), queue.is_in_flight)
        for index, queue in queues.items()
    }


def has_batch(log: KafkaLog, index: int) -> bool:
    """Tell whether a batch of a log partition was made and is not answered."""
    queue = sender_of(log).accumulator._queues.get(index)
    return queue is not None and queue.is_in_flight


def unfinished(log: KafkaLog) -> dict[str, Any]:
    """Return what a log has begun and not ended, by name, where there is any."""
    sender, (tail, load), offsets = sender_of(log), fetchers_of(log), log._offsets
    accumulator = sender.accumulator
    throttles = sender._throttle, offsets._throttle, tail._throttle, load._throttle
    found = {
        "lingering or sent": {index: each for index, each in backlogs(log).items() if any(each)},
        "records counted": accumulator.records,
        "partitions that wait": set(accumulator.ready),
        "requests without an answer": sender._in_flight,
        "batches to be sent again": len(sender._tasks),
        "offsets wanted": {broker: wanted for broker, wanted in offsets._wanted.items() if wanted},
        "offsets asked": dict(offsets._in_flight),
        "read for nobody": set(tail._partitions) - set(log._reading),
        "loads": dict(load._partitions),
        # A pause that a broker requested while it throttled is kept, also when it throttles no more.
        "brokers left alone": {broker for each in throttles for broker in each._until_s if each.wait_s(broker)},
    }
    return {name: value for name, value in found.items() if value}


def unchecked(log: KafkaLog, epochs: Mapping[int, int]) -> set[int]:
    """Return the log partitions whose tail has not settled with the leader of this epoch whether the log lost what was read.

    After a pause that a broker requested, the first fetch may leave it open, and the next one follows a look-up of the leaders.
    """
    tail, _ = fetchers_of(log)
    return {
        index
        for index, fetch in tail._partitions.items()
        if not fetch.is_checked or fetch.leader_epoch != epochs.get(index)
    }


def reading(runtime: CoordinatorRuntime) -> dict[str, Any]:
    """Return the questions for read indexes that have no answer, by name, where there are any."""
    indexes = runtime._read_indexes
    found = {"wanted": indexes.wanted, "asked": indexes._in_flight, "to be asked again": indexes._unanswered}
    return {name: set(value) for name, value in found.items() if value}
