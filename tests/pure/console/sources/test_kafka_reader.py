"""What a consumer complains of while a topic is read is told with the step that helps."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.kafka.librdkafka import DAMAGE


class FakeConsumer:
    """Gives one record and then a problem."""

    problem: KafkaError

    def __init__(self, properties: dict[str, Any], **_: Any) -> None:
        assert properties["auto.offset.reset"] == "error"
        assert properties["check.crcs"] is True

    def assign(self, places: object) -> None:
        pass

    def consume(self, count: int, timeout: float) -> list[Message]:
        return [Message("t", 2, 7, b"key", b"value"), Message("t", 2, 8, error=self.problem)]

    def close(self) -> None:
        pass


def failure_of(monkeypatch: pytest.MonkeyPatch, code: int, text: str) -> Failure:
    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", FakeConsumer)
    monkeypatch.setattr(FakeConsumer, "problem", KafkaError(code, text), raising=False)
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader:
        records = reader.read("t", 2, end=100, from_offset=7)
        assert next(records)[0] == 7
        with pytest.raises(Failure) as caught:
            next(records)
    return caught.value


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_a_topic_that_is_cut_while_it_is_read_is_no_matter_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    failure = failure_of(monkeypatch, code, "offset out of range")
    assert (failure.exit_code, failure.message) == (
        Exit.FAILED,
        "t partition 2 was cut while it was read (offset out of range); run the command again.",
    )


@pytest.mark.parametrize("code", sorted(DAMAGE))
def test_a_damaged_batch_is_named_with_its_place_and_nothing_behind_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    failure = failure_of(monkeypatch, code, "failed CRC32C check")
    assert (failure.exit_code, failure.message) == (
        Exit.FAILED,
        "t partition 2 cannot be read on: the record batch at offset 8 is damaged (failed CRC32C check); "
        "let another broker lead it, and run the command again.",
    )


def test_a_topic_that_may_not_be_read_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = failure_of(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed")
    assert failure.exit_code == Exit.FAILED
    assert failure.message == ("The topic t cannot be read (not allowed); allow Read on topic t to User:ANONYMOUS.")


def given(monkeypatch: pytest.MonkeyPatch, *answers: list[Message]) -> KafkaReader:
    """Give a reader whose consumer gives these messages, call by call, and then none."""
    left = list(answers)

    class Consumer(FakeConsumer):
        def consume(self, count: int, timeout: float) -> list[Message]:
            return left.pop(0) if left else []

    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", Consumer)
    return KafkaReader({"bootstrap.servers": "b:1"})


def message(offset: int) -> Message:
    return Message("t", 2, offset, b"key", b"value")


def test_all_records_below_the_end_are_read_and_none_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with given(monkeypatch, [message(7)], [], [message(8), message(9), message(10)]) as reader:
        assert [offset for offset, _ in reader.read("t", 2, end=10, from_offset=7)] == [7, 8, 9]


def test_a_hole_before_the_end_is_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction, or a control record that no consumer is shown."""
    with given(monkeypatch, [message(7), message(12)]) as reader:
        assert [offset for offset, _ in reader.read("t", 2, end=10, from_offset=7)] == [7]
    ended = Message("t", 2, 9, error=KafkaError(KafkaError._PARTITION_EOF, "end"))
    with given(monkeypatch, [message(7), ended]) as reader:
        assert [offset for offset, _ in reader.read("t", 2, end=10, from_offset=7)] == [7]


def test_a_broker_that_falls_silent_before_the_end_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.console.sources.kafka_reader.READ_TIMEOUT_S", 0.0)
    with given(monkeypatch, [message(7)]) as reader:
        records = reader.read("t", 2, end=10, from_offset=7)
        assert next(records)[0] == 7
        with pytest.raises(Failure, match="No broker gave the rest of t partition 2") as caught:
            next(records)
    assert caught.value.exit_code == Exit.UNREACHABLE


class EndlessConsumer(FakeConsumer):
    """Has more records than anybody wants to read."""

    offset = 0

    def consume(self, count: int, timeout: float) -> list[Message]:
        self.offset += 2
        return [Message("t", 2, self.offset - 2, b"key", b"value"), Message("t", 2, self.offset - 1, b"key", b"value")]


def test_reading_ends_where_it_is_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", EndlessConsumer)
    is_stopped = Event()
    with KafkaReader({"bootstrap.servers": "b:1"}, is_stopped) as reader:
        records = reader.read("t", 2, end=1_000_000)
        assert [next(records)[0] for _ in range(3)] == [0, 1, 2]
        is_stopped.set()
        assert list(records) == []


def test_no_more_records_are_requested_of_a_consumer_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for it until its time is up, at the end of every partition."""
    asked = []

    class CountingConsumer(EndlessConsumer):
        def consume(self, count: int, timeout: float) -> list[Message]:
            asked.append(count)
            return super().consume(count, timeout)

    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", CountingConsumer)
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader:
        assert len(list(reader.read("t", 2, end=6))) == 6
    assert asked == [6, 4, 2]
