"""Whether the topic is ours, and every log partition is of this log: checked in all of them before the first one serves.

The number of partitions decides in which log partition a share partition lives. Where partitions were added, those that
are new are empty: nothing in them says that the state is elsewhere, and only the others know. So each log partition is
read to its first checkpoint, and where one names another log, none is served.
A topic in which no record says that it is ours belongs to another program, and is not read any further.
"""

from collections.abc import Iterable
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition

from holdfast.daemon.brokers.silence import named
from holdfast.daemon.topics.state_topic import StateTopic, StateTopicError
from holdfast.kafka.librdkafka import DAMAGE, KafkaClients
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import Checkpoint, Placement
from holdfast.records.log.header import HEADER_NAME, find_header, is_foreign
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.log_check import identity_of, show
from holdfast.runtime.partition.ownership import Ownership, Verdict
from holdfast.runtime.settings import LogIdentity

#: How long the messages at hand wait for as many as there are log partitions; the last ones wait in vain, so it is short.
_POLL_S: Final = 0.005
#: For what an empty log partition keeps the answer of a broker back; all of them are read once.
_FETCH_WAIT_MS: Final = 10
#: At most, for a first look at who leads; where it takes longer, the reading goes on without.
_LEADERS_S: Final = 1.0
#: A first checkpoint lies in the first batch; what else a fetch would bring is not needed.
_FETCH_BYTES: Final = 65_536
#: No line names more log partitions than that.
_NAMED_MAX: Final = 8


class FirstRecords:
    """What the first records of one log partition say; give them in offset order until `is_known`."""

    def __init__(self, partition: int, identity: LogIdentity) -> None:
        self.partition = partition
        self.is_known = False
        self.is_empty = True
        #: Whether the first record has our header; None: none was read.
        self.has_header: bool | None = None
        #: The first checkpoint of another log, unless an admin accepted it.
        self.other: Checkpoint | None = None
        #: An admin accepted what is there.
        self.is_accepted = False
        #: That of the first checkpoint, of whichever log: what was copied here lies as it did there. None: there was none.
        self.placement: Placement | None = None
        self.why_unread = "no broker has answered"
        self._identity = identity
        self._ownership = Ownership()

    def read(self, record: LogRecord) -> None:
        """Take the next record."""
        if self.has_header is None:
            self.has_header = not is_foreign(record.header)
        self.is_empty = False
        try:
            verdict = self._ownership.judge(record)
        except RecordError:
            return  # the load names the record that cannot be read
        checkpoint = self._ownership.winner
        if verdict is not Verdict.RIVAL or checkpoint is None:
            return
        self.placement = self.placement or checkpoint.placement
        # Where a log lies by, its first records say; a load compares it.
        if identity_of(checkpoint)._replace(placement=self._identity.placement) != self._identity:
            self.other = self.other or checkpoint
        elif checkpoint.reason is not None or checkpoint.accepted_reason is not None:
            self.other, self.is_accepted, self.is_known = None, True, True
        elif self.other is None:
            self.is_known = True


def find_foreign(first_records: Iterable[FirstRecords]) -> int | None:
    """Return a log partition that another program writes, if none of them says that the topic is ours.

    One such log partition among others of ours is no problem of the topic: its load raises an alarm that an admin can clear.
    """
    found = None
    for each in first_records:
        if each.has_header or (each.has_header is None and not each.is_known):
            return None
        if each.has_header is False and found is None:
            found = each.partition
    return found


def refuse_foreign_topic(topic: str, first_records: Iterable[FirstRecords]) -> None:
    """Refuse a topic of another program.

    Raises:
        StateTopicError: none of its log partitions begins with a record of ours, and one with a record of another program.
    """
    foreign = find_foreign(first_records)
    if foreign is not None:
        raise StateTopicError(
            f"Another program writes topic {topic}: its records have no `{HEADER_NAME}` header, as in partition "
            f"{foreign}; name a topic of our own with state_topic."
        )


def find_placement(first_records: Iterable[FirstRecords]) -> Placement:
    """Return the placement of a log by its first records; a new one lies by topic partition."""
    found = (each.placement for each in first_records if each.placement is not None)
    return next(found, Placement.BY_TOPIC_PARTITION)


class LogProblem(NamedTuple):
    """Why no log partition is served."""

    text: str
    #: Whether an admin can accept the log as it is, one log partition after another.
    is_acceptable: bool


def find_problem(topic: str, identity: LogIdentity, first_records: Iterable[FirstRecords]) -> LogProblem | None:
    """Return what the first records of all log partitions say against serving any of them."""
    known = list(first_records)
    others = {each.partition: each.other for each in known if each.other is not None}
    counts = {partition: other for partition, other in others.items() if other.partition_count != len(known)}
    if counts:
        count = next(iter(counts.values())).partition_count
        return LogProblem(
            f"{_name(counts)} of topic {topic} was written for {count} partitions, and the topic has {len(known)}: partitions "
            f"were added, or a log of another size was copied here. Share partitions would be looked for in log "
            f"partitions that do not hold their state, so none is served, and nothing can be accepted. Make a topic with "
            f"{count} partitions, copy the log to it, each partition to the one of the same number, and name it in state_topic",
            is_acceptable=False,
        )
    by_group, by_topic = ([each.partition for each in known if each.placement is placement] for placement in Placement)
    if by_group and by_topic:
        return LogProblem(
            f"{_name(by_group)} of topic {topic} has share partitions {show(Placement.BY_GROUP)}, and {_name(by_topic)} "
            f"{show(Placement.BY_TOPIC_PARTITION)}: logs of two topics were copied here, or a Holdfast of before there was a second "
            f"placement has written to a new topic. Share partitions would be looked for in log partitions that do not hold their "
            f"state, so none is served, and nothing can be accepted. Make a topic of the log partitions of one placement, and name it "
            f"in state_topic",
            is_acceptable=False,
        )
    way_out = (
        "Restore the topic as it was, or, if every log partition holds what it should, `holdfast partitions accept P "
        "--reason …` for each of them goes on with what is there"
    )
    if others:
        partition, other = next(iter(others.items()))
        field, mine, its = next(
            (field, mine, its)
            for field, mine, its in zip(LogIdentity._fields, identity, identity_of(other), strict=True)
            if mine != its
        )
        return LogProblem(
            f"{_name(others)} of topic {topic} was written for another log: the first checkpoint of log partition {partition} "
            f"names {field} {show(its)} where this log has {show(mine)}. No log partition is served before all of them "
            f"are of one log. {way_out}",
            is_acceptable=True,
        )
    empty = [each.partition for each in known if each.is_empty]
    if empty and any(each.is_accepted for each in known):
        return LogProblem(
            f"{_name(empty)} of topic {topic} is empty, and others hold a log that an admin accepted, so it may lack the state "
            f"that must be restored there. No log partition is served before that is clear. {way_out}",
            is_acceptable=True,
        )
    return None


def read_first_records(
    clients: KafkaClients, topic: StateTopic, identity: LogIdentity, timeout_ms: int, stop: Event | None = None
) -> list[FirstRecords]:
    """Read each log partition to its first checkpoint or its end, all of them at once; blocks.

    Where a log partition begins with the checkpoint of another log, it is read on to one by which an admin accepted it.
    A topic of another program is read no further than that is clear. Another log may be long, so `stop` ends the reading.

    Returns:
        What is known of each log partition, by number; `is_known` is false of those of which nothing came for `timeout_ms`.
    """
    consumer = clients.consumer(
        "holdfast-first-look",
        {
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.message.max.bytes": _FETCH_BYTES,
            "queued.min.messages": 1,
            "fetch.queue.backoff.ms": 5,  # else a log partition with more records to read pauses for a second
            "fetch.wait.max.ms": _FETCH_WAIT_MS,
            "socket.nagle.disable": True,
        },
    )
    first_records = [FirstRecords(partition, identity) for partition in range(topic.partition_count)]
    deadline = monotonic() + timeout_ms / 1_000
    try:
        # A log partition whose leader librdkafka does not know yet is looked at again half a second later.
        with suppress(KafkaException):
            consumer.list_topics(topic.name, timeout=min(_LEADERS_S, timeout_ms / 1_000))
        consumer.assign(
            [TopicPartition(topic.name, partition, OFFSET_BEGINNING) for partition in range(len(first_records))]
        )
        while monotonic() < deadline and not all(each.is_known for each in first_records):
            if find_foreign(first_records) is not None or (stop is not None and stop.is_set()):
                break
            for message in consumer.consume(topic.partition_count, timeout=_POLL_S):
                place = message.partition()
                if place is None or not 0 <= place < len(first_records) or first_records[place].is_known:
                    continue
                if _read(first_records[place], message, clients):
                    deadline = monotonic() + timeout_ms / 1_000
                if first_records[place].is_known:
                    consumer.pause([TopicPartition(topic.name, place)])
    finally:
        consumer.close()
    return first_records


def _read(first: FirstRecords, message: Message, clients: KafkaClients) -> bool:
    """Take what the client reports of a log partition; return whether it made progress."""
    error, offset = message.error(), message.offset()
    if error is None:
        assert offset is not None
        first.read(LogRecord(offset, message.key(), message.value(), find_header(message.headers())))
    elif error.code() == KafkaError._PARTITION_EOF:
        first.is_known = True
    elif error.code() in DAMAGE:
        first.is_known, first.is_empty = True, False
    else:
        remedy = acl_remedy(error.code(), "Read", f"topic {message.topic()}", clients.principal)
        first.why_unread = f"{error.str()}{remedy}"
        return False
    return True


def _name(partitions: Iterable[int]) -> str:
    return f"log partition {named(partitions, _NAMED_MAX)}"
