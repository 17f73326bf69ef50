"""The topics that a gateway offers, against a cluster made of a dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.server.topics_view import ShownTopic, TopicQuery
from holdfast.gateway.leaders import TopicLeaders
from holdfast.gateway.topics.asking import LookUpBounds
from holdfast.gateway.topics.offered import OfferedTopics, StartingTopics
from holdfast.gateway.topics.source import ClusterTopics
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import NO_TOPIC, TopicRef, TopicSummary
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topics.metadata_client import MetadataClient, Summaries
from holdfast.metrics.instruments import Counter
from tests.pure.gateway.test_leaders import Owners
from tests.pure.kafka.records.fake_kafka import fake_kafka
from tests.waiting import wait_until
from tests.world.context import make_context

CLUSTER = "cluster"
NEVER_MS = 3_600_000
INTERNAL = "__consumer_offsets"
OWN = "__holdfast_share_state"


def id_of(number: int) -> bytes:
    return bytes([number] * 16)


class FakeCluster:
    """Brokers that all know the same topics, but for one that may be out of date."""

    def __init__(self, **partition_counts: int) -> None:
        self.cluster_id = CLUSTER
        self.topics = {
            name: TopicSummary(name, id_of(number), count, is_internal=False)
            for number, (name, count) in enumerate(partition_counts.items(), 1)
        }
        self.topics[INTERNAL] = TopicSummary(INTERNAL, id_of(100), 50, is_internal=True)
        self.topics[OWN] = TopicSummary(OWN, id_of(101), 3, is_internal=False)
        #: By name, what a broker says that was cut off.
        self.past: dict[str, TopicSummary] | None = None
        self.errors: dict[TopicRef, int] = {}
        self.failure = ""
        self.asked: list[Collection[TopicRef] | None] = []
        self.confirmed: list[Mapping[str, bytes]] = []
        self.closes = 0

    def _answer(self, ref: TopicRef, topics: Mapping[str, TopicSummary]) -> TopicSummary:
        if ref in self.errors:
            return TopicSummary(str(ref), NO_TOPIC, 0, is_internal=False, error_code=self.errors[ref])
        if isinstance(ref, str):
            return topics.get(ref) or TopicSummary(
                ref, NO_TOPIC, 0, is_internal=False, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        by_id = {topic.topic_id: topic for topic in topics.values()}
        return by_id.get(ref) or TopicSummary("", ref, 0, is_internal=False, error_code=ErrorCode.UNKNOWN_TOPIC_ID)

    async def summarize(self, topics: Collection[TopicRef] | None) -> Summaries:
        self.asked.append(topics)
        known = self.topics if self.past is None else self.past
        await asyncio.sleep(0)
        if self.failure:
            raise ConnectionFailed(self.failure)
        if topics is None:
            return Summaries(self.cluster_id, tuple(known.values()))
        return Summaries(self.cluster_id, tuple(self._answer(ref, known) for ref in topics))

    async def confirm(self, topic_ids: Mapping[str, bytes]) -> Mapping[str, TopicSummary]:
        self.confirmed.append(dict(topic_ids))
        return {name: self._answer(name, self.topics) for name in topic_ids}

    def move_on(self) -> None:
        pass

    def close(self) -> None:
        self.closes += 1


class World:
    def __init__(
        self, cluster: FakeCluster, *patterns: str, refresh_interval_ms: int = NEVER_MS, **bounds: int
    ) -> None:
        self.cluster = cluster
        self.bugs = Counter()
        self.topics = OfferedTopics(
            patterns,
            (OWN,),
            cluster,
            TopicLeaders(Owners(), 3),
            make_context(bugs=self.bugs),
            cluster_id=CLUSTER,
            refresh_interval_ms=refresh_interval_ms,
            random=Random(0),
            bounds=LookUpBounds(**bounds),
        )
        self.changes: list[set[str]] = []
        self.topics.on_change(lambda names: self.changes.append(set(names)))

    async def find(self, *queries: str | bytes, caller: str = "10.0.0.1:5") -> list[ShownTopic]:
        found: asyncio.Future[Sequence[ShownTopic]] = asyncio.get_running_loop().create_future()
        wanted = [TopicQuery(None, each) if isinstance(each, bytes) else TopicQuery(each, NO_TOPIC) for each in queries]
        self.topics.find(wanted, caller, found.set_result)
        return list(await found)

    async def find_all(self) -> list[str]:
        found: asyncio.Future[Sequence[ShownTopic]] = asyncio.get_running_loop().create_future()
        self.topics.find(None, "10.0.0.1:5", found.set_result)
        return sorted(str(topic.name) for topic in await found)


@asynccontextmanager
async def running(cluster: FakeCluster, *patterns: str, **options: Any) -> AsyncIterator[World]:
    world = World(cluster, *patterns, **options)
    task = asyncio.create_task(world.topics.run())
    try:
        yield world
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert cluster.closes
        assert not world.bugs.value


@pytest.mark.parametrize(
    ("patterns", "offered"),
    [
        (("orders",), ["orders"]),
        (("orders", "absent"), ["orders"]),
        (("order*",), ["orders", "orders.v2"]),
        (("orders.v?",), ["orders.v2"]),
        (("*",), ["orders", "orders.v2", "ordersxv2", "payments"]),
        (("orders.v2", "p*"), ["orders.v2", "payments"]),
        (("ORDERS",), []),
    ],
)
@pytest.mark.virtual_time
async def test_topics_that_match_are_offered_and_no_internal_or_own_one(
    patterns: tuple[str, ...], offered: list[str]
) -> None:
    cluster = FakeCluster(**{"orders": 4, "orders.v2": 1, "ordersxv2": 1, "payments": 2})
    if patterns == ("order*",):
        del cluster.topics["ordersxv2"]
    async with running(cluster, *patterns) as world:
        assert await world.find_all() == offered


@pytest.mark.virtual_time
async def test_a_known_topic_is_found_by_name_and_by_id_without_a_look_up() -> None:
    async with running(FakeCluster(orders=4), "orders") as world:
        await world.find_all()
        asked = len(world.cluster.asked)
        expected = ShownTopic("orders", id_of(1), 4)
        assert await world.find("orders", id_of(1)) == [expected] * 2
        assert (world.topics.topic("orders"), world.topics.topic_by_id(id_of(1))) == (expected, expected)
        assert len(world.cluster.asked) == asked


@pytest.mark.virtual_time
async def test_names_that_are_not_offered_are_unknown_without_a_look_up() -> None:
    async with running(FakeCluster(orders=4, secret=1), "orders", "__*", "bad name!") as world:
        await world.find_all()
        asked = len(world.cluster.asked)
        names = ("secret", OWN, "", "a" * 250)
        assert [topic.error_code for topic in await world.find(*names)] == [3] * 4
        assert len(world.cluster.asked) == asked
        by_id = await world.find(id_of(2), id_of(100), id_of(101), id_of(77), NO_TOPIC)
        assert by_id == [ShownTopic(None, id_of(n), error_code=100) for n in (2, 100, 101, 77)] + [
            ShownTopic(None, NO_TOPIC, error_code=100)
        ]
        assert [topic.error_code for topic in await world.find(INTERNAL)] == [3]


@pytest.mark.virtual_time
async def test_a_topic_that_is_made_is_found_when_a_client_names_it() -> None:
    async with running(FakeCluster(), "*") as world:
        assert await world.find_all() == []
        world.cluster.topics["orders"] = TopicSummary("orders", id_of(1), 4, is_internal=False)
        assert await world.find("orders", "other") == [
            ShownTopic("orders", id_of(1), 4),
            ShownTopic("other", NO_TOPIC, error_code=3),
        ]
        assert world.changes == [{"orders"}]


@pytest.mark.parametrize(
    ("said", "heard"), [(3, 3), (5, 5), (17, 17), (29, 29), (7, 5), (-1, 5)], ids=lambda code: str(code)
)
@pytest.mark.virtual_time
async def test_errors_of_the_cluster_are_passed_on(said: int, heard: int) -> None:
    async with running(FakeCluster(), "*") as world:
        await world.find_all()
        world.cluster.errors["orders"] = said
        assert await world.find("orders") == [ShownTopic("orders", NO_TOPIC, error_code=heard)]


@pytest.mark.virtual_time
async def test_clients_share_a_look_up_and_brokers_get_few() -> None:
    async with running(FakeCluster(), "*", pause_ms=100) as world:
        await world.find_all()
        asked = len(world.cluster.asked)
        finds = [world.find(f"topic-{n}", caller=f"10.0.0.{n % 5}:{n}") for n in range(250)]
        found = await asyncio.gather(*finds)
        assert {topic.error_code for (topic,) in found} == {3}
        assert [len(each or ()) for each in world.cluster.asked[asked:]] == [100, 100, 50]


@pytest.mark.virtual_time
async def test_clients_hear_in_time_that_no_broker_answers() -> None:
    loop = asyncio.get_running_loop()
    cluster = FakeCluster(orders=4)
    cluster.failure = "no broker"
    with capture_logs() as lines:
        async with running(cluster, "orders", timeout_ms=5_000) as world:
            began_s = loop.time()
            assert await world.find("orders", id_of(1), "other") == [
                ShownTopic("orders", NO_TOPIC, error_code=5),
                ShownTopic(None, id_of(1), error_code=5),
                ShownTopic("other", NO_TOPIC, error_code=3),
            ]
            assert await world.find_all() == []
            assert 9 < loop.time() - began_s < 11
            cluster.failure = ""
            assert await world.find("orders") == [ShownTopic("orders", id_of(1), 4)]
    assert [line["problem"] for line in lines if line["event"] == "gateway_topics_failed"] == ["no broker"]


@pytest.mark.virtual_time
async def test_look_ups_are_bounded_and_the_greediest_address_is_dropped() -> None:
    cluster = FakeCluster()
    cluster.failure = "no broker"
    async with running(cluster, "*", waiting_max=10, timeout_ms=60_000) as world:
        greedy = asyncio.create_task(world.find(*(f"many-{n}" for n in range(10))))
        await asyncio.sleep(1)
        assert not greedy.done()
        modest = asyncio.create_task(world.find("one", caller="10.0.0.2:7"))
        assert {topic.error_code for topic in await greedy} == {5}
        assert not modest.done()
        cluster.failure = ""
        assert [topic.error_code for topic in await modest] == [3]


@pytest.mark.virtual_time
async def test_a_refresh_notices_topics_that_came_went_grew_and_were_made_again() -> None:
    cluster = FakeCluster(gone=1, grown=2, renewed=3, same=1)
    async with running(cluster, "*", refresh_interval_ms=1_000) as world:
        await world.find_all()
        world.changes.clear()
        cluster.topics |= {
            "grown": TopicSummary("grown", id_of(2), 6, is_internal=False),
            "renewed": TopicSummary("renewed", id_of(50), 1, is_internal=False),
            "new": TopicSummary("new", id_of(51), 1, is_internal=False),
        }
        del cluster.topics["gone"]
        await wait_until(lambda: world.changes)
        assert world.changes == [{"gone", "grown", "renewed", "new"}]
        assert await world.find(id_of(2), id_of(3), id_of(50), "gone") == [
            ShownTopic("grown", id_of(2), 6),
            ShownTopic(None, id_of(3), error_code=100),
            ShownTopic("renewed", id_of(50), 1),
            ShownTopic("gone", NO_TOPIC, error_code=3),
        ]


@pytest.mark.virtual_time
async def test_a_broker_of_the_past_makes_no_topic_go() -> None:
    cluster = FakeCluster(orders=4, payments=2)
    async with running(cluster, "*", refresh_interval_ms=1_000) as world:
        await world.find_all()
        world.changes.clear()
        cluster.past = {"payments": TopicSummary("payments", id_of(9), 1, is_internal=False)}
        await wait_until(lambda: cluster.confirmed)
        await asyncio.sleep(3)
        assert world.changes == []
        assert await world.find_all() == ["orders", "payments"]
        assert cluster.confirmed[0] == {"orders": id_of(1), "payments": id_of(2)}


@pytest.mark.virtual_time
async def test_the_answers_of_another_cluster_are_refused() -> None:
    cluster = FakeCluster(orders=4)
    async with running(cluster, "*", refresh_interval_ms=1_000) as world:
        await world.find_all()
        cluster.cluster_id, cluster.topics = "other", {}
        problem = "a broker of cluster other answered where cluster cluster did before"
        await wait_until(lambda: problem in world.topics.problem)
        assert world.topics.topic("orders") is not None


@pytest.mark.virtual_time
async def test_patterns_without_a_topic_are_one_line_that_names_topics() -> None:
    cluster = FakeCluster(**{f"topic-{n:02}": 1 for n in range(25)})
    with capture_logs() as lines:
        async with running(cluster, "orders", "pay*", "topic-00", refresh_interval_ms=1_000) as world:
            await world.find_all()
            await asyncio.sleep(5)
    (line,) = [line for line in lines if line["event"] == "gateway_topics_unmatched"]
    assert line["patterns"] == ["orders", "pay*"]
    assert (line["topics"], line["more_topics"]) == ([f"topic-{n:02}" for n in range(20)], 5)


@pytest.mark.virtual_time
async def test_names_alone_are_queried_where_no_pattern_has_a_wildcard() -> None:
    async with running(FakeCluster(orders=4), "orders", refresh_interval_ms=1_000) as world:
        await world.find_all()
        await asyncio.sleep(3)
        assert {None if each is None else tuple(each) for each in world.cluster.asked} == {("orders",)}


@pytest.mark.virtual_time
async def test_a_topic_of_a_cluster_without_ids_is_never_offered() -> None:
    cluster = FakeCluster()
    cluster.topics["old"] = TopicSummary("old", NO_TOPIC, 3, is_internal=False)
    async with running(cluster, "*") as world:
        assert await world.find_all() == []
        assert await world.find("old") == [ShownTopic("old", NO_TOPIC, error_code=3)]


@pytest.mark.virtual_time
async def test_a_topic_that_a_group_waits_for_is_looked_up_soon() -> None:
    cluster = FakeCluster(orders=1)
    async with running(cluster, "*", missed_pause_ms=2_000) as world:
        await world.find_all()
        asked = len(cluster.asked)
        for _ in range(100):  # heartbeats of many members
            assert world.topics.topic("late") is None
            assert world.topics.topic("not a name") is None
        await asyncio.sleep(3)
        assert [tuple(each or ()) for each in cluster.asked[asked:]] == [("late",)]
        world.changes.clear()
        cluster.topics["late"] = TopicSummary("late", id_of(7), 2, is_internal=False)
        assert world.topics.topic("late") is None
        await asyncio.sleep(3)
        assert (world.changes, world.topics.topic("late")) == ([{"late"}], ShownTopic("late", id_of(7), 2))
        await asyncio.sleep(10)
        assert len(cluster.asked) == asked + 2


@pytest.mark.virtual_time
async def test_clients_that_wait_are_answered_when_the_node_stops() -> None:
    loop, cluster = asyncio.get_running_loop(), FakeCluster(orders=4)
    cluster.failure = "no broker"
    async with running(cluster, "orders") as world:
        named, everything = asyncio.create_task(world.find("orders")), asyncio.create_task(world.find_all())
        await asyncio.sleep(1)
        began_s = loop.time()
        world.topics.answer_waiting()
        assert (await named, await everything) == ([ShownTopic("orders", NO_TOPIC, error_code=5)], [])
        assert loop.time() - began_s < 0.1


@pytest.mark.virtual_time
async def test_a_node_that_starts_has_clients_try_again() -> None:
    found: list[ShownTopic] = []
    StartingTopics().find([TopicQuery("orders", NO_TOPIC), TopicQuery(None, id_of(1))], "", found.extend)
    assert found == [ShownTopic("orders", NO_TOPIC, error_code=5), ShownTopic(None, id_of(1), error_code=5)]


@pytest.mark.parametrize("is_gone", [True, False], ids=["deleted", "made again"])
async def test_all_brokers_must_agree_that_a_topic_is_gone_or_another(is_gone: bool) -> None:
    async with fake_kafka(3) as kafka:
        first = kafka.make_topic("orders", [1, 2])
        client = MetadataClient(kafka.options, timeout_ms=30_000, random=Random(1))
        topics = ClusterTopics(client)
        kafka.brokers[3].cut_off()
        del kafka.topics["orders"]
        again = None if is_gone else kafka.make_topic("orders", [2])
        known = {"orders": first.topic_id.bytes}
        for _ in kafka.brokers:  # each is the first to be asked
            confirmed = await topics.confirm(known)
            assert {topic.topic_id for topic in confirmed.values()} <= {first.topic_id.bytes}
            assert not any(topic.is_missing for topic in confirmed.values())
        kafka.brokers[3].view = None
        (topic,) = (await topics.confirm(known)).values()
        assert topic.is_missing if again is None else topic.topic_id == again.topic_id.bytes
        # Nothing is kept of it.
        assert (client.cluster.topics, client.cluster._wanted_ids) == ({}, {})
        client.close()
