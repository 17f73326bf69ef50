"""What brokers say of topics, and which of them is believed."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import NO_TOPIC, RESERVED_IDS, TOPICS_PER_REQUEST_MAX, TopicRef, TopicView
from tests.pure.kafka.records.fake_kafka import FakeKafka, fake_kafka
from tests.waiting import PATIENCE_S


def cluster_of(kafka: FakeKafka) -> Cluster:
    return Cluster(kafka.options, 60_000)


async def views_of(kafka: FakeKafka, cluster: Cluster, *topics: TopicRef) -> Mapping[TopicRef, TopicView]:
    """Return what is known after every broker was the first to be asked."""
    async with asyncio.timeout(PATIENCE_S):
        for _ in kafka.brokers:
            await cluster.look_up(topics)
    return cluster.topics


def leaders_of(view: TopicView) -> dict[int, tuple[int, int]]:
    return {partition: (leader.broker_id, leader.epoch) for partition, leader in view.leaders.items()}


async def test_topics_are_found_by_id_and_by_name_in_one_request_each() -> None:
    async with fake_kafka(2) as kafka:
        one, two = kafka.make_topic("one", [1, 2]), kafka.make_topic("two", [-1])
        cluster = cluster_of(kafka)
        await cluster.look_up([one.topic_id.bytes, "two"])
        by_id, by_name = cluster.topics[one.topic_id.bytes], cluster.topics["two"]
        assert (by_id.name, leaders_of(by_id)) == ("one", {0: (1, 0), 1: (2, 0)})
        assert (by_name.topic_id, leaders_of(by_name)) == (two.topic_id.bytes, {})
        assert by_name.leader_epochs == {0: 0}
        assert dict(cluster.addresses) == {number: ("127.0.0.1", each.port) for number, each in kafka.brokers.items()}
        assert sum(broker.accepted for broker in kafka.brokers.values()) == 2


async def test_many_topics_go_into_bounded_requests() -> None:
    async with fake_kafka() as kafka:
        names = [f"topic-{number}" for number in range(TOPICS_PER_REQUEST_MAX + 1)]
        for name in names:
            kafka.make_topic(name)
        cluster = cluster_of(kafka)
        await cluster.look_up(names)
        assert (set(cluster.topics), kafka.brokers[1].accepted) == (set(names), 2)


async def test_lower_leader_epoch_counts_where_no_number_of_brokers_name_it() -> None:
    async with fake_kafka(3) as kafka:
        topic = kafka.make_topic()
        log, cluster = topic.partitions[0], cluster_of(kafka)
        log.epoch = 5
        await cluster.look_up(["topic"])
        log.epoch = 4
        assert leaders_of((await views_of(kafka, cluster, "topic"))["topic"]) == {0: (1, 5)}
        log.epoch = 6
        assert leaders_of((await views_of(kafka, cluster, "topic"))["topic"]) == {0: (1, 6)}


@pytest.mark.parametrize("partial", [None, (None, 29, []), (None, 3, [])], ids=["fewer", "hidden", "missing"])
async def test_leader_of_the_past_is_known_after_an_answer_without_it(partial: Any) -> None:
    async with fake_kafka() as kafka:
        topic = kafka.make_topic("topic", [1, 1])
        log, broker, cluster = topic.partitions[1], kafka.brokers[1], cluster_of(kafka)
        log.epoch = 5
        await cluster.look_up(["topic"])
        whole = kafka.describe()["topic"]
        broker.view = {"topic": (*whole[:2], whole[2][:1]) if partial is None else partial}
        await cluster.look_up(["topic"])
        broker.view, log.epoch = None, 4
        await cluster.look_up(["topic"])
        assert leaders_of(cluster.topics["topic"]).get(1) in (None, (1, 5))
        log.epoch = 5
        await cluster.look_up(["topic"])
        assert leaders_of(cluster.topics["topic"])[1] == (1, 5)


async def test_topic_without_id_may_begin_again_once_all_brokers_missed_it() -> None:
    async with fake_kafka(2, has_ids=False) as kafka:
        kafka.make_topic().partitions[0].epoch = 5
        cluster = cluster_of(kafka)
        await cluster.look_up(["topic"])
        del kafka.topics["topic"]
        assert (await views_of(kafka, cluster, "topic"))["topic"].is_missing
        kafka.make_topic()
        assert leaders_of((await views_of(kafka, cluster, "topic"))["topic"]) == {0: (1, 0)}


@pytest.mark.parametrize("outdated", [1, 2])
async def test_first_look_keeps_the_latest_of_what_brokers_say(outdated: int) -> None:
    async with fake_kafka(2) as kafka:
        log = kafka.make_topic().partitions[0]
        kafka.brokers[outdated].cut_off()
        kafka.move(log, 2)
        cluster = cluster_of(kafka)
        # One topic that is doubted has both brokers asked, and the other one is known from both.
        await cluster.look_up(["topic", "no-such-topic"])
        assert leaders_of(cluster.topics["topic"]) == {0: (2, 1)}
        assert cluster.topics["no-such-topic"].is_missing


@pytest.mark.parametrize("by_id", [True, False])
async def test_topic_is_missing_where_all_brokers_miss_it(by_id: bool) -> None:
    async with fake_kafka(3) as kafka:
        topic = kafka.make_topic()
        ref: TopicRef = topic.topic_id.bytes if by_id else "topic"
        cluster = cluster_of(kafka)
        await cluster.look_up([ref])
        kafka.brokers[3].cut_off()
        del kafka.topics["topic"]
        assert not (await views_of(kafka, cluster, ref))[ref].is_missing
        kafka.brokers[3].view = None
        assert (await views_of(kafka, cluster, ref))[ref].is_missing
        again = kafka.make_topic()
        view = (await views_of(kafka, cluster, ref))[ref]
        assert view.is_missing if by_id else view.topic_id == again.topic_id.bytes


async def test_name_belongs_to_another_topic_where_all_brokers_say_so() -> None:
    async with fake_kafka(2) as kafka:
        first = kafka.make_topic()
        first.partitions[0].epoch = 9
        cluster = cluster_of(kafka)
        await cluster.look_up(["topic"])
        kafka.brokers[1].cut_off()
        second = kafka.make_topic()
        assert (await views_of(kafka, cluster, "topic"))["topic"].topic_id == first.topic_id.bytes
        kafka.brokers[1].view = None
        view = (await views_of(kafka, cluster, "topic"))["topic"]
        assert (view.topic_id, leaders_of(view)) == (second.topic_id.bytes, {0: (1, 0)})


async def test_broker_that_does_not_answer_leaves_a_doubted_word_undecided() -> None:
    async with fake_kafka(2) as kafka:
        kafka.make_topic()
        cluster = Cluster(kafka.options, 300)
        await cluster.look_up(["topic"])
        kafka.brokers[2].goes_on.clear()
        del kafka.topics["topic"]
        await cluster.look_up(["topic"])
        assert not cluster.topics["topic"].is_missing
        kafka.brokers[2].goes_on.set()
        assert (await views_of(kafka, cluster, "topic"))["topic"].is_missing


async def test_topic_that_may_not_be_seen_says_so_and_hides_no_leader_that_is_known() -> None:
    async with fake_kafka() as kafka:
        kafka.make_topic()
        cluster = cluster_of(kafka)
        kafka.brokers[1].view = {"topic": (None, 29, [])}
        await cluster.look_up(["topic"])
        assert (cluster.topics["topic"].error_code, cluster.topics["topic"].is_missing) == (29, False)
        kafka.brokers[1].view = None
        await cluster.look_up(["topic"])
        kafka.brokers[1].view = {"topic": (None, 29, [])}
        await cluster.look_up(["topic"])
        assert leaders_of(cluster.topics["topic"]) == {0: (1, 0)}


async def test_brokers_without_topic_ids_are_asked_by_name_and_not_by_id() -> None:
    async with fake_kafka(has_ids=False) as kafka:
        kafka.make_topic()
        cluster = cluster_of(kafka)
        await cluster.look_up(["topic"])
        view = cluster.topics["topic"]
        assert (view.topic_id, leaders_of(view)) == (NO_TOPIC, {0: (1, 0)})
        with pytest.raises(ConnectionFailed, match="version 12"):
            await cluster.look_up([bytes(15) + b"\x09"])


async def test_reserved_ids_are_no_topics_and_are_asked_of_nobody() -> None:
    async with fake_kafka() as kafka:
        kafka.make_topic()
        cluster = cluster_of(kafka)
        await cluster.look_up(["topic", *RESERVED_IDS])
        assert [cluster.topics[each].is_missing for each in RESERVED_IDS] == [True, True]
        assert leaders_of(cluster.topics["topic"]) == {0: (1, 0)}


async def test_cluster_that_cannot_be_reached_leaves_what_was_known() -> None:
    async with fake_kafka() as kafka:
        kafka.make_topic()
        cluster = cluster_of(kafka)
        await cluster.look_up(["topic"])
        known: Any = dict(cluster.topics)
    with pytest.raises(ConnectionFailed):
        await cluster.look_up(["topic"])
    assert cluster.topics == known
    cluster.forget("topic")
    assert not cluster.topics
    with pytest.raises(ConnectionFailed):
        await Cluster(ConnectionOptions(bootstrap=(("127.0.0.1", 1),)), 1_000).look_up(["topic"])
