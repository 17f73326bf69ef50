"""What a consumer complains of while a topic is read is told with the step that helps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.sources.kafka_reader import READ_TIMEOUT_S, KafkaReader, Stopped
from holdfast.kafka.errors import LoginDenied
from tests.waiting import PATIENCE_S


class FakeConsumer:
    """Gives one record and then a problem."""

    problem: KafkaError

    def __init__(self, properties: dict[str, Any], logger: Any) -> None:
        self.logger = logger
        assert properties["auto.offset.reset"] == "error"
        assert properties["check.crcs"] is True

    def assign(self, places: object) -> None:
        pass

    def consume(self, count: int, timeout: float) -> list[Message]:
        return [Message("t", 2, 7, b"key", b"value"), Message("t", 2, 8, error=self.problem)]

    def poll(self, timeout: float) -> None:
        """Give out the lines that there are."""

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


@pytest.mark.parametrize(
    "code", [KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD]
)
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
    assert failure.exit_code == Exit.DENIED
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


class SilentConsumer(FakeConsumer):
    """Has no answer, for reasons that are given, and lets a clock go on by as long as it is waited for."""

    now_s = 0.0
    tries_s: ClassVar[list[float]] = []
    code: Callable[[int], int] = lambda _: KafkaError._TRANSPORT
    on_try: Callable[[int], object] = lambda _: None

    def list_topics(self, topic: str | None, timeout: float) -> object:
        self.tries_s.append(timeout)
        type(self).now_s += timeout
        type(self).on_try(len(self.tries_s))
        raise KafkaException(KafkaError(type(self).code(len(self.tries_s)), "nothing came"))

    def get_watermark_offsets(self, place: object, timeout: float) -> object:
        return self.list_topics(None, timeout)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> type[SilentConsumer]:
    """Give the consumer of a Kafka that does not answer; time goes on by its waits alone."""
    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", SilentConsumer)
    monkeypatch.setattr("holdfast.console.sources.kafka_reader.monotonic", lambda: SilentConsumer.now_s)
    for name, value in (
        ("now_s", 0.0),
        ("tries_s", []),
        ("code", SilentConsumer.code),
        ("on_try", SilentConsumer.on_try),
    ):
        monkeypatch.setattr(SilentConsumer, name, value)
    return SilentConsumer


ASK = {
    "partitions": lambda reader: reader.partitions("t"),
    "bounds": lambda reader: reader.bounds("t", 0),
}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_brokers_are_waited_for_in_short_tries_between_which_a_signal_is_heard(
    silent: type[SilentConsumer], ask: Callable[[KafkaReader], object]
) -> None:
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader, pytest.raises(Failure, match="Kafka at b:1") as caught:
        ask(reader)
    assert caught.value.exit_code == Exit.UNREACHABLE
    assert (silent.now_s, max(silent.tries_s)) == (READ_TIMEOUT_S, 0.25)

    silent.on_try = lambda _: signal.raise_signal(signal.SIGINT)
    silent.tries_s.clear()
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader, pytest.raises(KeyboardInterrupt):
        ask(reader)
    assert silent.tries_s == [0.25]


def test_a_broker_that_is_slow_to_answer_is_given_longer_tries(silent: type[SilentConsumer]) -> None:
    """Else one that always needs half a second would never be heard."""
    silent.code = lambda _: KafkaError._TIMED_OUT
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader, pytest.raises(Failure):
        reader.partitions("t")
    assert silent.tries_s[:7] == [0.25, 0.5, 1, 2, 4, 5, 5]
    assert silent.now_s == READ_TIMEOUT_S


def test_what_another_try_would_not_mend_ends_the_wait(silent: type[SilentConsumer]) -> None:
    silent.code = lambda _: KafkaError._AUTHENTICATION
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader, pytest.raises(Failure, match="nothing came"):
        reader.partitions("t")
    assert silent.tries_s == [0.25]


def test_login_that_brokers_refuse_ends_the_wait_for_them(
    silent: type[SilentConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka would log in again and again, and says nothing of a token that it was not given."""
    denied = LoginDenied("b:1 cannot be reached: the token is refused")
    monkeypatch.setattr("holdfast.console.sources.kafka_reader.find_denied_login", lambda properties: denied)
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader, pytest.raises(Failure, match="the token is refused") as e:
        reader.partitions("t")
    assert (e.value.exit_code, silent.tries_s) == (Exit.DENIED, [0.25])


class Pauses(Event):
    """An event of which a wait has that clock go on."""

    def wait(self, timeout: float | None = None) -> bool:
        SilentConsumer.now_s += timeout or 0
        return self.is_set()


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_PARTITION, KafkaError._DESTROY])
def test_a_broker_that_goes_away_is_waited_for_with_pauses(
    silent: type[SilentConsumer], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A query for offsets in flight fails with one of these, at once, and so do those after it."""

    def fail(consumer: SilentConsumer, place: object, timeout: float) -> object:
        consumer.tries_s.append(timeout)
        raise KafkaException(KafkaError(code, "went away"))

    monkeypatch.setattr(silent, "get_watermark_offsets", fail)
    with KafkaReader({"bootstrap.servers": "b:1"}, Pauses()) as reader, pytest.raises(Failure, match="went away"):
        reader.bounds("t", 0)
    assert silent.tries_s == [0.25] * int(READ_TIMEOUT_S / 0.25)


def test_who_wants_no_more_waits_no_longer(silent: type[SilentConsumer]) -> None:
    is_stopped = Event()
    silent.on_try = lambda _: is_stopped.set()
    with KafkaReader({"bootstrap.servers": "b:1"}, is_stopped) as reader, pytest.raises(Stopped):
        reader.partitions("t")
    assert silent.tries_s == [0.25]


class StuckConsumer(FakeConsumer):
    """Is in a request until it is let go, as librdkafka is that hears no signal, and then has no answer."""

    let_go: Event
    on_request: Callable[[], object]

    def list_topics(self, topic: str | None, timeout: float) -> object:
        type(self).on_request()
        assert self.let_go.wait(PATIENCE_S / 30)
        raise KafkaException(KafkaError(KafkaError._AUTHENTICATION, "whoever waits heard nothing"))

    def get_watermark_offsets(self, place: object, timeout: float) -> object:
        return self.list_topics(None, timeout)

    def close(self) -> None:
        pytest.fail("a consumer is not closed under a request")


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StuckConsumer]]:
    """Give the consumer that does not come back; it is let go at the end."""
    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", StuckConsumer)
    monkeypatch.setattr(StuckConsumer, "let_go", Event(), raising=False)
    monkeypatch.setattr(StuckConsumer, "on_request", lambda: None, raising=False)
    yield StuckConsumer
    StuckConsumer.let_go.set()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_an_interrupt_does_not_wait_for_the_end_of_a_try(
    stuck: type[StuckConsumer], ask: Callable[[KafkaReader], object]
) -> None:
    """A broker that is frozen, or slow, has tries of several seconds."""
    stuck.on_request = lambda: signal.raise_signal(signal.SIGINT)
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader, pytest.raises(KeyboardInterrupt):
        ask(reader)

    is_stopped = Event()
    stuck.on_request = is_stopped.set
    with KafkaReader({"bootstrap.servers": "b:1"}, is_stopped) as reader, pytest.raises(Stopped):
        ask(reader)


class Unanswered(Future[object]):
    """An answer that does not come."""

    def result(self, timeout: float | None = None) -> object:
        pytest.fail("it is waited for where nobody hears that the caller wants no more")


@pytest.mark.parametrize("ask", [lambda reader: reader.topic_id("t"), KafkaReader.topic_names], ids=["id", "names"])
def test_who_wants_no_more_waits_for_no_topics_id(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[KafkaReader], object]
) -> None:
    is_stopped = Event()

    class Consumer(FakeConsumer):
        def list_topics(self, topic: str | None, timeout: float) -> object:
            return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions=[0])})

    class Admin:
        def __init__(self, properties: dict[str, Any], logger: Any) -> None:
            pass

        def poll(self, timeout: float) -> None:
            pass

        def describe_topics(self, named: TopicCollection, request_timeout: float = 0) -> dict[str, Future[object]]:
            is_stopped.set()
            return {"t": Unanswered()}

    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", Consumer)
    monkeypatch.setattr("holdfast.kafka.librdkafka.NamedAdmin", Admin)
    monkeypatch.setattr("holdfast.console.sources.kafka_reader.READ_TIMEOUT_S", 1.0)
    with KafkaReader({"bootstrap.servers": "b:1"}, is_stopped) as reader, pytest.raises(Stopped):
        ask(reader)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "[thrd:b:1/bootstrap]: b:1/bootstrap: Connect to ipv4#10.0.0.1:1 failed: Connection refused "
            "(after 0ms in state CONNECT, 29 identical error(s) suppressed)",
            "Connect to ipv4#10.0.0.1:1 failed: Connection refused",
        ),
        (
            "[thrd:b:1/bootstrap]: b:1/bootstrap: Failed to resolve 'b:1': Name or service not known "
            "(after 6ms in state CONNECT)",
            "Failed to resolve 'b:1': Name or service not known",
        ),
        (
            "[thrd:b:1/bootstrap]: b:1/bootstrap: ApiVersionRequest failed: Local: Timed out: probably due to broker version < "
            "0.10 (see api.version.request configuration) (after 10001ms in state APIVERSION_QUERY)",
            "ApiVersionRequest failed: Local: Timed out",
        ),
        (
            "[thrd:ssl://[::1]:1/bootstrap]: ssl://[::1]:1/bootstrap: SSL handshake failed: Disconnected: connecting to a "
            "PLAINTEXT broker listener? (after 3ms in state SSL_HANDSHAKE)",
            "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
        ),
    ],
)
def test_why_no_broker_can_be_reached_is_what_librdkafka_said_last(
    monkeypatch: pytest.MonkeyPatch, silent: type[SilentConsumer], line: str, reason: str
) -> None:
    def give_out(self: SilentConsumer, timeout: float) -> None:
        for kind, text in (("FAIL", "[thrd:b:1/1]: b:1/1: Disconnected"), ("FAIL", line), ("ERROR", "1/1 are down")):
            self.logger.log(40, "%s [%s] %s", kind, "rdkafka#consumer-1", text)

    monkeypatch.setattr(SilentConsumer, "poll", give_out)
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader, pytest.raises(Failure) as caught:
        reader.partitions("t")
    assert caught.value.message == f"Kafka at b:1 cannot be read ({reason}); see --bootstrap-server."


def test_no_record_is_taken_from_those_to_be_read_to_learn_why_a_broker_is_silent(
    monkeypatch: pytest.MonkeyPatch, silent: type[SilentConsumer]
) -> None:
    """A name of a topic may be looked up between two records, and is done without where that fails."""
    monkeypatch.setattr(SilentConsumer, "poll", lambda *_: pytest.fail("a record is lost"))
    monkeypatch.setattr(SilentConsumer, "problem", KafkaError(KafkaError._PARTITION_EOF, "end"), raising=False)
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader:
        assert next(reader.read("t", 2, end=100, from_offset=7))[0] == 7
        with pytest.raises(Failure, match="nothing came"):
            reader.partitions("t")


def test_topics_that_are_missing_are_looked_for_on_nodes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent address among the servers makes each look take long."""

    class Consumer(FakeConsumer):
        def list_topics(self, topic: str, timeout: float) -> object:
            missing = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
            return SimpleNamespace(topics={topic: missing})

    looked_at: list[str] = []

    def look(properties: dict[str, str]) -> None:
        looked_at.append(properties["bootstrap.servers"])

    monkeypatch.setattr("holdfast.kafka.librdkafka.Consumer", Consumer)
    monkeypatch.setattr("holdfast.console.sources.kafka_reader.node_instead", look)
    with KafkaReader({"bootstrap.servers": "b:1"}) as reader:
        for topic in ("config", "state"):
            with pytest.raises(Failure, match=f"The topic {topic} cannot be read") as caught:
                reader.partitions(topic)
            assert caught.value.exit_code == Exit.NOT_FOUND
    assert looked_at == ["b:1"]
