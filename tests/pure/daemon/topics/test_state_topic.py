"""Which topic a node takes for its log at its start: the one that every broker means that answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from random import Random
from typing import Any, Final, cast
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from holdfast.daemon.settings.components.log import LogSettings
from holdfast.daemon.topics import state_topic
from holdfast.daemon.topics.state_topic import (
    StateTopic,
    StateTopicError,
    TopicDeleted,
    TopicDisputed,
    TopicMissing,
    TopicReplaced,
    describe_topic,
    ensure_state_topic,
)
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.metadata_client import MetadataClient
from tests.pure.kafka.brokers.metadata_answers import UNREACHABLE, answer_by_host, metadata, namesake
from tests.waiting import PATIENCE_MS

NONE, DELETED, NOW = 0, 1, 2
#: What a broker describes that is no topic to be used.
UNSAFE: Final = -1
#: Ids as people see them.
DELETED_TEXT, NOW_TEXT = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
#: An answer about the topic that is there now, with its one partition, which is led.
LED: Final = metadata({0: (1, 0)}, UUID(int=NOW), (1, 2))


class Former:
    """Tells what a test says of a topic that was there before."""

    def __init__(self, remains: str = "", predecessor: str = "") -> None:
        self.remains = remains
        self.predecessor = predecessor

    async def find_remains(self) -> str:
        return self.remains

    async def find_predecessor(self, topic: StateTopic) -> str:
        return self.predecessor


def topic_of(topic: int) -> StateTopic:
    return StateTopic("topic", UUID(int=topic).bytes, 1, 1, 1_048_588)


def test_a_node_in_the_place_of_a_broker_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    class NodeAdmin:
        def describe_configs(self, *_: object, **__: object) -> None:
            raise KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE, "not supported by broker"))

    monkeypatch.setattr(state_topic, "find_topic", lambda *_: topic_of(NOW))
    monkeypatch.setattr(state_topic, "who", lambda _: "User:x")
    with pytest.raises(ConnectionFailed, match=r"not supported by broker; name Kafka's brokers, not a Holdfast node$"):
        describe_topic(cast("Any", NodeAdmin()), "topic", PATIENCE_MS)


class Cluster:
    """Two brokers that answer by themselves, and an admin client that is answered by either."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        described: list[int | None],
        first: bytes | Iterator[bytes],
        second: bytes | Iterator[bytes],
    ) -> None:
        self.described = described
        self.made = 0
        answers: Mapping[str, bytes | Iterator[bytes]] = {"host-1": first, "host-2": second}
        self.asked = answer_by_host(monkeypatch, answers)
        monkeypatch.setattr(state_topic, "check_state_topic", self._check)
        monkeypatch.setattr(state_topic, "make_state_topic", self._make)

    def _check(self, *_: object) -> tuple[StateTopic, tuple[()]]:
        topic = self.described.pop(0) if len(self.described) > 1 else self.described[0]
        if topic is None:
            raise TopicMissing("There is no topic of this name.")
        if topic == UNSAFE:
            raise StateTopicError("retention.ms is 1000")
        return topic_of(topic), ()

    def _make(self, *_: object) -> None:
        self.made += 1

    async def found(
        self, timeout_ms: int = PATIENCE_MS, former: Former | None = None, *, new_state_topic: bool = False
    ) -> StateTopic:
        """Return the topic with which a node starts."""
        options = ConnectionOptions(bootstrap=(("host-1", 9092), ("host-2", 9092)))
        client = MetadataClient(options, timeout_ms=30_000, random=Random(1))
        settings = LogSettings(
            state_topic="topic", state_topic_create_timeout_ms=timeout_ms, new_state_topic=new_state_topic
        )
        admin: Any = None
        topic, _ = await ensure_state_topic(admin, client, settings, "host-1:9092", former or Former())
        client.close()
        return topic


async def test_a_topic_that_all_brokers_mean_is_taken_with_one_request_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, [NOW], namesake(NOW, 1, 2), namesake(NOW, 1, 2))
    assert await cluster.found() == topic_of(NOW)
    assert sorted(cluster.asked) == ["host-1", "host-2"]


async def test_making_a_topic_is_a_line_and_one_that_was_deleted_is_made_only_when_an_admin_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> Cluster:
        none, made = namesake(NONE, 1, 2), LED
        return Cluster(monkeypatch, [None, NOW], chain([none], repeat(made)), chain([none], repeat(made)))

    remains = Former("the group holdfast-state is known")
    fresh = missing()
    with capture_logs() as lines:
        assert await fresh.found() == topic_of(NOW)
    topic_id = format_topic_id(topic_of(NOW).topic_id)
    [line] = [line for line in lines if line["event"] == "state_topic_made"]
    assert (line["log_level"], line["topic_id"]) == ("warning", topic_id)
    assert fresh.made == 1
    deleted = Cluster(monkeypatch, [None], namesake(0, 1, 2), namesake(0, 1, 2))
    with pytest.raises(TopicDeleted, match=r"the group holdfast-state is known.*--new-state-topic") as refused:
        await deleted.found(PATIENCE_MS, remains)
    # It does not wait for a topic that nobody makes: one request to each broker in each of two looks.
    assert (deleted.made, isinstance(refused.value, StateTopicError), len(deleted.asked)) == (0, True, 4)
    # Another node makes it meanwhile: a broker was behind, and no more.
    late = missing()
    assert (await late.found(PATIENCE_MS, remains), late.made) == (topic_of(NOW), 0)
    allowed = missing()
    assert (await allowed.found(PATIENCE_MS, remains, new_state_topic=True), allowed.made) == (topic_of(NOW), 1)


async def test_an_empty_topic_is_refused_where_another_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def there() -> Cluster:
        return Cluster(monkeypatch, [NOW], namesake(NOW, 1, 2), namesake(NOW, 1, 2))

    other = Former(predecessor=f"the group holdfast-state remembers the id {DELETED_TEXT}")
    with pytest.raises(TopicReplaced) as refused:
        await there().found(former=other)
    assert str(refused.value).startswith(
        f"The state topic topic is empty and has the id {NOW_TEXT}, and was another one before: {other.predecessor}. That one was deleted"
    )
    assert str(refused.value).endswith("`holdfast serve --new-state-topic`, once")
    assert await there().found(former=other, new_state_topic=True) == topic_of(NOW)
    # The node that made the topic itself does not take it for a stranger.
    brokers = [chain([namesake(NONE, 1, 2)], repeat(LED)) for _ in range(2)]
    assert await Cluster(monkeypatch, [None, NOW], *brokers).found(former=other) == topic_of(NOW)


async def test_a_broker_that_cannot_be_reached_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, [NOW], namesake(NOW, 1, 2), UNREACHABLE)
    assert await cluster.found() == topic_of(NOW)


async def test_where_nobody_confirms_the_topic_none_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionFailed, match="no broker said which topic topic is"):
        await Cluster(monkeypatch, [NOW], UNREACHABLE, UNREACHABLE).found()


@pytest.mark.parametrize("described", [DELETED, NOW])
async def test_a_node_waits_until_a_broker_of_the_deleted_topic_has_heard_of_the_one_that_is_there(
    monkeypatch: pytest.MonkeyPatch, described: int
) -> None:
    behind = chain([namesake(DELETED, 1, 2)] * 2, repeat(namesake(NOW, 1, 2)))
    cluster = Cluster(monkeypatch, [described, described, NOW], namesake(NOW, 1, 2), behind)
    assert await cluster.found() == topic_of(NOW)


@pytest.mark.parametrize(
    ("described", "first", "second", "said"),
    [
        (DELETED, NOW, DELETED, f"{DELETED_TEXT} (host-2:9092); {NOW_TEXT} (host-1:9092)"),
        (NOW, NOW, DELETED, f"{NOW_TEXT} (host-1:9092); {DELETED_TEXT} (host-2:9092)"),
        (DELETED, 0, DELETED, f"{DELETED_TEXT} (host-2:9092); no such topic (host-1:9092)"),
        (DELETED, NOW, NOW, f"{DELETED_TEXT} (the broker that described it); {NOW_TEXT} (host-1:9092, host-2:9092)"),
    ],
    ids=["the deleted one described", "the new one described", "deleted for good", "by a broker that is gone"],
)
async def test_where_brokers_do_not_agree_in_time_the_start_ends_and_says_who_means_what(
    monkeypatch: pytest.MonkeyPatch, described: int, first: int, second: int, said: str
) -> None:
    cluster = Cluster(monkeypatch, [described], namesake(first, 1, 2), namesake(second, 1, 2))
    with pytest.raises(TopicDisputed) as disputed:
        await cluster.found(timeout_ms=1)
    assert str(disputed.value) == (
        f"the brokers do not agree which topic topic is: {said}; one that lags has not heard that the topic was deleted or made; "
        "see that it reaches the controllers, or stop it"
    )
    assert cluster.made == 0


async def test_a_topic_that_was_made_is_not_taken_for_one_that_a_broker_still_describes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = chain([namesake(NONE, 1, 2)], repeat(LED))
    behind = chain([namesake(NONE, 1, 2)], [namesake(DELETED, 1, 2)] * 2, repeat(LED))
    cluster = Cluster(monkeypatch, [None, DELETED, NOW], first, behind)
    assert await cluster.found() == topic_of(NOW)
    assert cluster.made == 1


async def test_a_topic_that_is_missing_once_the_brokers_agree_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    first = chain([namesake(NONE, 1, 2)] * 2, repeat(LED))
    behind = chain([namesake(DELETED, 1, 2), namesake(NONE, 1, 2)], repeat(LED))
    cluster = Cluster(monkeypatch, [DELETED, None, NOW], first, behind)
    assert await cluster.found() == topic_of(NOW)
    assert cluster.made == 1


async def test_what_a_broker_that_is_behind_says_of_the_deleted_topic_is_no_reason_to_refuse_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind = chain([namesake(DELETED, 1, 2)], repeat(namesake(NOW, 1, 2)))
    cluster = Cluster(monkeypatch, [UNSAFE, NOW], namesake(NOW, 1, 2), behind)
    assert await cluster.found() == topic_of(NOW)


@pytest.mark.parametrize("answer", [namesake(NOW, 1, 2), UNREACHABLE], ids=["all agree", "nobody says"])
async def test_a_topic_that_would_lose_state_is_refused_where_nobody_means_another(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    with pytest.raises(StateTopicError, match="retention"):
        await Cluster(monkeypatch, [UNSAFE], answer, answer).found()
