"""What the first records of all log partitions say, before one of them serves."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast.daemon.topics.log_identity import (
    FirstRecords,
    LogProblem,
    find_foreign,
    find_placement,
    find_problem,
    read_first_records,
    refuse_foreign_topic,
)
from holdfast.daemon.topics.state_topic import StateTopic, StateTopicError
from holdfast.kafka import librdkafka
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, Placement, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.settings import LogIdentity

OURS = LogIdentity("cluster", b"t" * 16, 3)
TOPIC = StateTopic("state", OURS.topic_id, 3, 3, 1_048_588)


def checkpoint(
    offset: int, log: LogIdentity = OURS, epoch: int = 1, sequence: int = 0, reason: str | None = None, **fields: Any
) -> LogRecord:
    value = encode_checkpoint(Checkpoint(epoch, bytes([epoch]) * 16, "1", 1, *log[:3], reason, **fields))
    return LogRecord(offset, CHECKPOINT_KEY, value, encode_header(epoch, sequence))


def look(*logs: list[LogRecord], identity: LogIdentity = OURS) -> LogProblem | None:
    """Return what is found of log partitions with these records."""
    first_records = []
    for partition, records in enumerate(logs):
        each = FirstRecords(partition, identity)
        for record in records:
            if not each.is_known:
                each.read(record)
        first_records.append(each)
    return find_problem("state", identity, first_records)


def test_a_fresh_topic_and_one_whose_first_start_was_broken_off_are_fine() -> None:
    assert look([], [], []) is None
    assert look([], [checkpoint(0)], []) is None
    assert look([checkpoint(7, sequence=9)], [checkpoint(0)], [checkpoint(0)]) is None


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_one_checkpoint_of_another_number_of_partitions_speaks_against_all_of_them(empty: int) -> None:
    logs = [[checkpoint(0, OURS._replace(partition_count=2))], [checkpoint(0, OURS._replace(partition_count=2))]]
    logs.insert(empty, [])
    problem = look(*logs)
    assert problem is not None
    assert not problem.is_acceptable
    assert "was written for 2 partitions, and the topic has 3: partitions were added" in problem.text
    assert "Make a topic with 2 partitions, copy the log to it" in problem.text


def test_one_log_partition_restored_from_another_topic_speaks_against_all_of_them() -> None:
    problem = look([checkpoint(0)], [checkpoint(0, OURS._replace(topic_id=b"x" * 16))], [])
    assert problem is not None
    assert problem.is_acceptable
    assert problem.text.startswith("log partition 1 of topic state was written for another log: ")
    assert f"names topic_id {'78' * 16} where this log has {'74' * 16}" in problem.text
    assert "`holdfast partitions accept P --reason …`" in problem.text


def test_void_records_and_broken_ones_before_the_first_checkpoint_are_passed_over() -> None:
    void = [LogRecord(4, b"key", b"value", encode_header(1, 3)), LogRecord(5, b"key", b"value", None)]
    broken = checkpoint(6)._replace(value=b"broken")
    other = checkpoint(7, OURS._replace(cluster_id="another"), sequence=4)
    problem = look([checkpoint(0)], [*void, broken, other], [checkpoint(0)])
    assert problem is not None
    assert "names cluster_id another where this log has cluster" in problem.text
    assert look([checkpoint(0)], [*void, broken, checkpoint(7)], [checkpoint(0)]) is None


def test_what_an_admin_accepted_is_of_this_log_however_it_begins() -> None:
    restored = [
        checkpoint(0, OURS._replace(topic_id=b"x" * 16, partition_count=3)),
        checkpoint(1, epoch=2),
        checkpoint(2, epoch=3, reason="restored"),
    ]
    assert look(restored, restored, [checkpoint(0)]) is None
    assert look(restored[:2], restored, [checkpoint(0)]) is not None


def test_a_log_partition_that_nothing_was_restored_to_contradicts_those_that_were_accepted() -> None:
    restored = [checkpoint(0, OURS._replace(topic_id=b"x" * 16)), checkpoint(1, epoch=2, reason="restored")]
    pruned = [checkpoint(9, sequence=3, accepted_reason="restored")]
    for accepted in (restored, pruned):
        problem = look(accepted, [], [checkpoint(0)])
        assert problem is not None
        assert problem.is_acceptable
        assert problem.text.startswith("log partition 1 of topic state is empty")
        assert look(accepted, [checkpoint(0, reason="nothing was in it")], [checkpoint(0)]) is None


def test_no_text_names_more_than_a_few_log_partitions() -> None:
    problem = look(*([checkpoint(0, OURS._replace(topic_id=b"x" * 16))] for _ in range(50)))
    assert problem is not None
    assert problem.text.startswith("log partition 0, 1, 2, 3, 4, 5, 6, 7 and 42 more of topic state was written")


# ---- the placement ---------------------------------------------------------------------------------------------------

BY_TOPIC: dict[str, Any] = {"placement": Placement.BY_TOPIC_PARTITION}


def placement_of(*logs: list[LogRecord]) -> Placement:
    first_records = [FirstRecords(partition, OURS) for partition, _ in enumerate(logs)]
    for each, records in zip(first_records, logs, strict=True):
        for record in records:
            each.read(record)
    return find_placement(first_records)


def test_a_new_log_lies_by_topic_partition_and_one_that_was_begun_as_its_first_checkpoint_says() -> None:
    assert placement_of([], [], []) is Placement.BY_TOPIC_PARTITION
    assert placement_of([], [checkpoint(0)], []) is Placement.BY_GROUP
    assert placement_of([], [checkpoint(0, **BY_TOPIC)], [checkpoint(9, sequence=3, **BY_TOPIC)]) is (
        Placement.BY_TOPIC_PARTITION
    )


def test_a_log_that_was_copied_from_another_topic_lies_as_it_did_there() -> None:
    copied = [checkpoint(0, OURS._replace(topic_id=b"x" * 16)), checkpoint(1, epoch=2, reason="restored")]
    assert placement_of([], copied, []) is Placement.BY_GROUP


def test_checkpoints_of_two_placements_speak_against_all_log_partitions() -> None:
    for identity in (OURS, OURS._replace(placement=Placement.BY_TOPIC_PARTITION)):
        problem = look([checkpoint(0)], [checkpoint(0, **BY_TOPIC)], [checkpoint(0, **BY_TOPIC)], identity=identity)
        assert problem is not None
        assert not problem.is_acceptable
        assert problem.text.startswith(
            "log partition 0 of topic state has share partitions by group, and log partition 1, 2 by topic partition: "
        )


@pytest.mark.parametrize("fields", [{}, BY_TOPIC])
def test_one_placement_is_no_problem_whatever_was_expected_before(fields: dict[str, Any]) -> None:
    logs = [checkpoint(0, **fields)], [checkpoint(0, **fields)], list[LogRecord]()
    assert look(*map(list, logs)) is None
    assert look(*map(list, logs), identity=OURS._replace(placement=Placement.BY_TOPIC_PARTITION)) is None


# ---- the reading -----------------------------------------------------------------------------------------------------


class Told:
    """A message, or an error, of a log partition, as the client tells it."""

    def __init__(self, partition: int, record: LogRecord | None = None, code: int = 0) -> None:
        self._partition, self._record, self._code = partition, record, code

    def partition(self) -> int:
        return self._partition

    def error(self) -> KafkaError | None:
        return KafkaError(self._code) if self._code else None

    def __getattr__(self, name: str) -> Any:
        record = self._record
        headers = None if record is None or record.header is None else [("hf", record.header)]
        return lambda: headers if name == "headers" else getattr(record, name, None)


class Consumer:
    """Stands for the client: tells what a test says, and nothing more."""

    told: list[Told]

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        assert settings["auto.offset.reset"] == "earliest"
        assert settings["check.crcs"] is True
        assert settings["fetch.queue.backoff.ms"] < settings["fetch.wait.max.ms"], "no start waits for a full queue"
        self.paused: list[int] = []
        self.knows_leaders = False

    def list_topics(self, topic: str, timeout: float) -> None:
        assert 0 < timeout <= 1
        self.knows_leaders = True
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # as when no broker answers; the reading says so

    def assign(self, places: list[Any]) -> None:
        assert self.knows_leaders, "else librdkafka begins half a second late"
        assert [place.partition for place in places] == [0, 1, 2]

    def consume(self, count: int, timeout: float) -> list[Any]:
        assert timeout <= 0.01, "no start waits for messages that do not come"
        answer, Consumer.told = Consumer.told[:count], Consumer.told[count:]
        return answer

    def pause(self, places: list[Any]) -> None:
        self.paused += [place.partition for place in places]

    def close(self) -> None:
        pass


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> type[Consumer]:
    monkeypatch.setattr(librdkafka, "Consumer", Consumer)
    return Consumer


END = KafkaError._PARTITION_EOF


def test_each_log_partition_is_read_to_its_first_checkpoint_or_its_end(
    consumer: type[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who brokers take us for is for errors alone: to find it out costs more than a record.
    monkeypatch.delattr(KafkaClients, "principal")
    consumer.told = [
        Told(0, LogRecord(0, b"key", b"value", None)),
        Told(1, code=END),
        Told(0, checkpoint(1)),
        Told(0, checkpoint(2, OURS._replace(partition_count=9), epoch=2)),
        Told(2, checkpoint(0, OURS._replace(topic_id=b"x" * 16))),
        Told(2, code=END),
    ]
    found = read_first_records(KafkaClients({}), TOPIC, OURS, 60_000)
    assert [(one.is_known, one.is_empty, one.other is not None) for one in found] == [
        (True, False, False),
        (True, True, False),
        (True, False, True),
    ]


def test_a_log_partition_without_a_broker_stays_unknown_and_says_why(consumer: type[Consumer]) -> None:
    consumer.told = [Told(0, checkpoint(0)), Told(1, code=KafkaError.LEADER_NOT_AVAILABLE), Told(2, code=END)]
    found = read_first_records(KafkaClients({}), TOPIC, OURS, 50)
    assert [one.is_known for one in found] == [True, False, True]
    assert "leader" in found[1].why_unread.lower()


@pytest.mark.parametrize(
    "code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD]
)
def test_damage_is_known_at_once_and_says_nothing_of_the_others(consumer: type[Consumer], code: int) -> None:
    consumer.told = [Told(0, checkpoint(0)), Told(1, code=code), Told(2, checkpoint(0))]
    found = read_first_records(KafkaClients({}), TOPIC, OURS, 60_000)
    assert all(one.is_known for one in found)
    assert not found[1].is_empty
    assert find_problem("state", OURS, found) is None
    refuse_foreign_topic("state", found)


# ---- topics of other programs ----------------------------------------------------------------------------------------

STRAY = LogRecord(0, b"key", b"value", None)


@pytest.mark.parametrize(
    ("told", "foreign"),
    [
        ([Told(0, STRAY), Told(1, STRAY), Told(2, STRAY)], 0),
        ([Told(0, code=END), Told(1, code=END), Told(2, STRAY)], 2),
        ([Told(0, code=KafkaError._BAD_MSG), Told(1, STRAY), Told(2, code=END)], 1),
        ([Told(0, STRAY), Told(1, checkpoint(0)), Told(2, STRAY), Told(0, code=END), Told(2, code=END)], None),
        ([Told(partition, code=KafkaError._BAD_MSG) for partition in range(3)], None),
        ([Told(partition, code=END) for partition in range(3)], None),
    ],
    ids=["all of them", "the only records", "beside a damaged one", "one of ours", "all are damaged", "an empty topic"],
)
def test_a_topic_is_foreign_where_no_log_partition_begins_with_a_record_of_ours(
    consumer: type[Consumer], told: list[Told], foreign: int | None
) -> None:
    consumer.told = [*told]
    found = read_first_records(KafkaClients({}), TOPIC, OURS, 60_000)
    assert find_foreign(found) == foreign
    if foreign is not None:
        with pytest.raises(
            StateTopicError, match=f"^Another program writes topic state: .* as in partition {foreign}; "
        ):
            refuse_foreign_topic("state", found)


def test_a_topic_of_another_program_is_not_read_to_its_end(consumer: type[Consumer]) -> None:
    consumer.told = [Told(partition, STRAY._replace(offset=offset)) for offset in range(50) for partition in range(3)]
    found = read_first_records(KafkaClients({}), TOPIC, OURS, 60_000)
    assert find_foreign(found) == 0
    assert len(consumer.told) == 3 * 49


def test_a_look_that_is_to_stop_reads_no_further(consumer: type[Consumer]) -> None:
    other = OURS._replace(topic_id=b"x" * 16)
    consumer.told = [Told(partition, checkpoint(offset, other)) for offset in range(50) for partition in range(3)]
    stop = Event()
    stop.set()
    found = read_first_records(KafkaClients({}), TOPIC, OURS, 60_000, stop)
    assert len(consumer.told) == 3 * 50
    assert not any(one.is_known for one in found)


def test_while_nothing_was_read_of_a_log_partition_no_topic_is_foreign(consumer: type[Consumer]) -> None:
    consumer.told = [Told(0, STRAY), Told(1, STRAY), Told(2, code=KafkaError.LEADER_NOT_AVAILABLE)]
    assert find_foreign(read_first_records(KafkaClients({}), TOPIC, OURS, 50)) is None
