"""What is looked at inside the Kafka log. Everything that knows its private names is here."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.kafka_log.log import KafkaLog


class Backlog(NamedTuple):
    """What a log holds of one partition on its way out."""

    gathered: int  #: records that are in no batch
    sent: int  #: records in batches that the tail has not met
    is_busy: bool  #: a batch has no answer


def backlogs(log: KafkaLog) -> dict[int, Backlog]:
    """Return what is on its way out, by log partition."""
    return {
        index: Backlog(len(lane.gathered), sum(batch.record_count for batch in lane.sent), lane.is_busy)
        for index, lane in log._appender.lanes._lanes.items()
    }


def has_batch(log: KafkaLog, index: int) -> bool:
    """Tell whether a batch of a log partition was made and is not answered."""
    lane = log._appender.lanes._lanes.get(index)
    return lane is not None and lane.is_busy


def unfinished(log: KafkaLog) -> dict[str, Any]:
    """Return what a log has begun and not ended, by name, where there is any."""
    lanes, appender, offsets = log._appender.lanes, log._appender, log._offsets
    found = {
        "gathered or sent": {index: each for index, each in backlogs(log).items() if any(each)},
        "records counted": lanes._records,
        "partitions that wait": set(lanes.waiting),
        "requests without an answer": appender._under_way,
        "batches to be sent again": len(appender._tasks),
        "offsets wanted": {broker: wanted for broker, wanted in offsets._wanted.items() if wanted},
        "offsets asked": dict(offsets._asked),
        "read for nobody": set(log._tail._followed) - set(log._reading),
        "loads": dict(log._load._followed),
    }
    return {name: value for name, value in found.items() if value}


def reading(runtime: CoordinatorRuntime) -> dict[str, Any]:
    """Return the questions for read indexes that have no answer, by name, where there are any."""
    indexes = runtime._read_indexes
    found = {"wanted": indexes.wanted, "asked": indexes._in_flight, "to be asked again": indexes._unanswered}
    return {name: set(value) for name, value in found.items() if value}
