"""The loads of the gateway and of the broker, and the marks, as ratios of the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PARTITIONS: Final = 4
#: Records a second at the tail.
TAIL_RATE: Final = 250


@dataclass(frozen=True, slots=True)
class Backlog:
    """Records that lie in a topic before anyone fetches."""

    value_bytes: int
    #: In each record batch.
    batch_records: int
    records: int
    partitions: int = PARTITIONS

    @property
    def topic(self) -> str:
        """Return the name of the topic."""
        return f"backlog-{self.value_bytes}-{self.batch_records}-{self.partitions}"


@dataclass(frozen=True, slots=True)
class Load:
    """Consumers and what they do."""

    name: str
    #: `backlog`, `tail`, `first`, or `tool`, which is Kafka's own `ShareConsumerPerformance`.
    kind: str
    backlog: Backlog
    consumers: int = 1
    #: Acknowledge each record and wait until that is in the log, after each poll.
    is_explicit: bool = False
    #: Records that a poll may bring.
    poll_records: int = 500
    #: The consumers are Java's.
    is_java: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """Return settings of each consumer."""
        mode = "explicit" if self.is_explicit else "implicit"
        # Else a poll brings a whole record batch, and librdkafka knows no other way.
        exact = {"share.acquire.mode": "record_limit"} if self.poll_records == 1 else {}
        return {"share.acknowledgement.mode": mode, "max.poll.records": str(self.poll_records)} | exact


SMALL: Final = Backlog(100, 2_000, 3_000_000)
SMALL_IN_SMALL: Final = Backlog(100, 50, 2_000_000)
LARGE: Final = Backlog(1_024, 900, 800_000)
LARGE_IN_SMALL: Final = Backlog(1_024, 50, 800_000)
NOTHING: Final = Backlog(64, 1, 0)


def _at(backlog: Backlog) -> tuple[Load, Load]:
    size = "1 KiB" if backlog.value_bytes == 1_024 else f"{backlog.value_bytes} B"
    return (
        Load(f"{size} · batches of {backlog.batch_records} · 1", "backlog", backlog, 1),
        Load(f"{size} · batches of {backlog.batch_records} · 4", "backlog", backlog, 4),
    )


EXPLICIT: Final = Load("100 B · commit_sync each poll · 4", "backlog", SMALL_IN_SMALL, 4, is_explicit=True)
TAIL: Final = Load(f"tail · {TAIL_RATE}/s · 1", "tail", NOTHING)
FIRST: Final = Load("first record · 1", "first", SMALL_IN_SMALL)

#: Kafka's own tool, with one thread.
TOOL_SMALL: Final = Load("ShareConsumerPerformance · 100 B", "tool", SMALL)
TOOL_LARGE: Final = Load("ShareConsumerPerformance · 1 KiB", "tool", LARGE)
#: A queue whose workers take one task at a time.
ONE_BY_ONE: Final = Load(
    "Java · one record a poll · commitSync · 8",
    "backlog",
    SMALL_IN_SMALL,
    8,
    is_explicit=True,
    poll_records=1,
    is_java=True,
)

LOADS: Final = (
    *_at(SMALL),
    *_at(SMALL_IN_SMALL),
    *_at(LARGE),
    *_at(LARGE_IN_SMALL),
    EXPLICIT,
    TOOL_SMALL,
    TOOL_LARGE,
    ONE_BY_ONE,
    TAIL,
    FIRST,
)
#: Over three brokers, with three copies of each record.
COPIED: Final = (*_at(SMALL), *_at(LARGE))
#: The loads that two workers share.
DIVIDED: Final = (_at(SMALL_IN_SMALL)[1], EXPLICIT)

#: Consumers at 16 partitions, and partitions with 4 consumers.
CONSUMER_COUNTS: Final = (1, 2, 4, 8, 16)
PARTITION_COUNTS: Final = (1, 4, 16, 64)
_WIDE: Final = Backlog(100, 50, 2_000_000, 16)
BY_CONSUMERS: Final = {
    count: Load(f"16 partitions · {count} consumers", "backlog", _WIDE, count) for count in CONSUMER_COUNTS
}
BY_PARTITIONS: Final = {
    count: BY_CONSUMERS[4] if count == 16 else Load(f"{count} partitions · 4 consumers", "backlog", backlog, 4)
    for count in PARTITION_COUNTS
    for backlog in [Backlog(100, 50, 2_000_000, count)]
}
GROWTH: Final = tuple(dict.fromkeys((*BY_CONSUMERS.values(), *BY_PARTITIONS.values())))


@dataclass(frozen=True, slots=True)
class Mark:
    """A ratio to the broker in the same run, and the bound that it must keep."""

    text: str
    load: str
    column: str
    limit: float
    is_upper: bool = False


def _rates(text: str, backlog: Backlog, one: float, four: float) -> tuple[Mark, Mark]:
    alone, crowd = _at(backlog)
    return (
        Mark(f"{text}, 1 consumer", alone.name, "records_per_s", one),
        Mark(f"{text}, 4 consumers", crowd.name, "records_per_s", four),
    )


MARKS: Final = (
    *_rates("records/s, 100 B, batches of 2,000", SMALL, 2.0, 3.0),
    *_rates("records/s, 100 B, batches of 50", SMALL_IN_SMALL, 2.0, 3.0),
    *_rates("records/s, 1 KiB, batches of 900", LARGE, 1.5, 2.5),
    *_rates("records/s, 1 KiB, batches of 50", LARGE_IN_SMALL, 1.5, 2.5),
    Mark("records/s, 100 B, commit_sync after each poll, 4 consumers", EXPLICIT.name, "records_per_s", 3.0),
    Mark("records/s, Kafka's ShareConsumerPerformance, 100 B", TOOL_SMALL.name, "records_per_s", 1.5),
    Mark("the same, 1 KiB", TOOL_LARGE.name, "records_per_s", 1.0),
    Mark("records/s, Java, one record a poll, commitSync, 8 consumers", ONE_BY_ONE.name, "records_per_s", 1.0),
    Mark("250 records/s at the tail, produce → poll: p50", TAIL.name, "p50_ms", 1.4, is_upper=True),
    Mark("the same: p99", TAIL.name, "p99_ms", 1.0, is_upper=True),
    Mark("first record of a new group", FIRST.name, "new_ms", 0.1, is_upper=True),
    Mark("first record of a known group", FIRST.name, "known_ms", 0.1, is_upper=True),
)
#: Over three brokers.
COPIED_MARKS: Final = tuple(
    mark
    for text, backlog in (("100 B, batches of 2,000", SMALL), ("1 KiB, batches of 900", LARGE))
    for mark in _rates(f"records/s over three brokers, {text}", backlog, 1.0, 1.0)
)
