"""The cache of topics, against a cluster made of dictionaries."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from random import Random

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.settings.models import MetadataSettings
from holdfast.daemon.topics.metadata_cache import ClusterMetadata, QueryBounds, Refresh
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.topics.metadata_client import RequestRefused, Topic, TopicAnswers
from holdfast.metrics.instruments import Counter
from tests.waiting import PATIENCE_S, wait_until
from tests.world.context import make_context

A, B, C = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
SECOND_MS = 1_000
NEVER_MS = 3_600 * SECOND_MS


class FakeCluster:
    """Answers at once, or when the test lets it."""

    def __init__(self) -> None:
        self.cluster_id = "cluster-a"
        self.partition_counts: dict[bytes, int] = {}
        self.unclear: set[bytes] = set()
        self.failure: str | None = None
        #: an id for whose sake a whole question is refused
        self.poison = b""
        self.asked: list[frozenset[bytes]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.closes = self.moves = 0

    async def query_ids(self, topic_ids: Collection[bytes]) -> TopicAnswers:
        self.asked.append(frozenset(topic_ids))
        known = {i: self.partition_counts[i] for i in topic_ids if i in self.partition_counts}
        await self.may_answer.wait()
        if self.failure:
            raise ConnectionFailed(self.failure)
        if self.poison in topic_ids:
            raise RequestRefused("no cluster id")
        return TopicAnswers(
            self.cluster_id,
            tuple(Topic(i, f"topic-{i[0]}", count) for i, count in known.items()),
            frozenset(topic_ids).difference(known, self.unclear),
        )

    def move_on(self) -> None:
        self.moves += 1

    def close(self) -> None:
        self.closes += 1


class Node:
    """A `ClusterMetadata` that runs, and what it told."""

    def __init__(self, cluster: FakeCluster, bounds: QueryBounds = QueryBounds(pause_ms=1), **settings: int) -> None:  # noqa: B008
        wanted = {"metadata_refresh_interval_ms": NEVER_MS, **settings}
        self.in_use: set[bytes] = set()
        self.refreshes: list[tuple[MetadataImage, Refresh]] = []
        self._news = asyncio.Event()
        self.bugs = Counter()
        self.metadata = ClusterMetadata(
            cluster,
            MetadataSettings.model_validate(wanted),
            make_context(bugs=self.bugs),
            random=Random(1),
            bounds=bounds,
        )
        self.metadata.add_user(self)

    def topics_in_use(self) -> set[bytes]:
        return self.in_use

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        self.refreshes.append((image, refresh))
        self._news.set()

    async def next_refresh(self) -> tuple[MetadataImage, Refresh]:
        self._news.clear()
        async with asyncio.timeout(PATIENCE_S):
            await self._news.wait()
        return self.refreshes[-1]

    async def ask(self, topic_id: bytes, timeout_ms: int = 10 * SECOND_MS) -> int | None:
        """Wait as a write would, and say what is known then."""
        await self.look_up([topic_id], timeout_ms=timeout_ms)
        return self.metadata.image.partition_count(topic_id) if self.metadata.image else None

    async def look_up(
        self, topic_ids: Collection[bytes], caller: str = "10.0.0.1:1", timeout_ms: int = 10 * SECOND_MS
    ) -> Collection[bytes]:
        """Return those that nobody was asked about."""
        answered: asyncio.Future[Collection[bytes]] = asyncio.get_running_loop().create_future()
        self.metadata.look_up(topic_ids, caller, answered.set_result, timeout_ms)
        async with asyncio.timeout(PATIENCE_S):
            return await answered


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[Node]:
    task = asyncio.create_task(node.metadata.run())
    try:
        await node.metadata.wait_for_first_image(10 * SECOND_MS)
        yield node
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


async def test_the_first_image_names_the_cluster_and_knows_what_is_in_use(cluster: FakeCluster) -> None:
    cluster.partition_counts = {A: 3, B: 5}
    node = Node(cluster)
    node.in_use = {A}
    async with running(node):
        image = node.metadata.image
        assert image is not None
        assert (image.cluster_id, image.version) == ("cluster-a", 1)
        assert (image.partition_count(A), image.partition_count(B)) == (3, None)
    assert cluster.closes == 1


async def test_each_full_refresh_queries_another_broker(cluster: FakeCluster) -> None:
    async with running(Node(cluster, metadata_refresh_interval_ms=100)) as node:
        await node.ask(A)
        await wait_until(lambda: len(node.refreshes) >= 3)
    assert cluster.moves == sum(refresh.is_full for _, refresh in node.refreshes)


async def test_all_who_query_at_once_share_one_request(cluster: FakeCluster) -> None:
    cluster.partition_counts = {A: 3, B: 5}
    async with running(Node(cluster)) as node:
        cluster.asked.clear()
        assert await asyncio.gather(*(node.ask(i) for i in (A, B, C, A, A))) == [3, 5, None, 3, 3]
        assert cluster.asked == [frozenset([A, B, C])]


async def test_who_queries_while_an_answer_is_in_flight_waits_for_the_next(cluster: FakeCluster) -> None:
    async with running(Node(cluster)) as node:
        cluster.asked.clear()
        cluster.may_answer.clear()
        early = asyncio.create_task(node.ask(A))
        await wait_until(lambda: cluster.asked)
        cluster.partition_counts[A] = 3
        late = asyncio.create_task(node.ask(A))
        await asyncio.sleep(0)
        cluster.may_answer.set()
        assert await early is None, "the topic was made after this question"
        assert await late == 3
        assert cluster.asked == [frozenset([A])] * 2


async def test_an_unknown_id_is_queried_each_time_and_a_known_one_stays(cluster: FakeCluster) -> None:
    async with running(Node(cluster)) as node:
        assert await node.ask(A) is None
        cluster.partition_counts[A] = 3
        assert await node.ask(A) == 3
        assert await node.ask(B) is None
        assert node.metadata.image is not None
        assert node.metadata.image.partition_count(A) == 3


async def test_who_waits_gives_up_in_time_while_no_broker_answers(cluster: FakeCluster) -> None:
    async with running(Node(cluster)) as node:
        cluster.may_answer.clear()
        assert await node.ask(A, timeout_ms=1) is None
        cluster.may_answer.set()
        cluster.partition_counts[A] = 3
        assert await node.ask(A) == 3


async def test_too_many_who_wait_are_sent_on_at_once(cluster: FakeCluster) -> None:
    async with running(Node(cluster, metadata_topics_max=1)) as node:
        cluster.may_answer.clear()
        waiting = asyncio.create_task(node.ask(A))
        await wait_until(lambda: frozenset([A]) in cluster.asked)
        assert await node.ask(B) is None
        assert not waiting.done()
        cluster.may_answer.set()
        await waiting
        assert not any(B in asked for asked in cluster.asked)


async def test_a_full_refresh_queries_what_is_in_use_or_was_wanted_lately_and_forgets_the_rest(
    cluster: FakeCluster,
) -> None:
    cluster.partition_counts = {A: 3, B: 5}
    node = Node(cluster, metadata_refresh_interval_ms=100)
    node.in_use = {A}
    async with running(node):
        assert await node.ask(B) == 5
        cluster.asked.clear()
        await wait_until(lambda: len(cluster.asked) >= 2)
        assert cluster.asked[:2] == [frozenset([A, B]), frozenset([A])]
        image, refresh = await node.next_refresh()
        assert image.topics == {A: 3}
        assert refresh.existing_ids == {A}


async def test_a_refresh_says_what_exists_what_is_unknown_and_what_is_unclear(cluster: FakeCluster) -> None:
    cluster.partition_counts = {A: 3}
    cluster.unclear = {C}
    node = Node(cluster)
    node.in_use = {A, B, C}
    async with running(node):
        (_, refresh), *_ = node.refreshes
        assert refresh[1:] == ("cluster-a", frozenset([A]), frozenset([B]), frozenset([C]), True)


async def test_an_unclear_answer_changes_nothing_and_an_unknown_id_goes(cluster: FakeCluster) -> None:
    cluster.partition_counts = {A: 3, B: 5}
    node = Node(cluster, metadata_refresh_interval_ms=100)
    node.in_use = {A, B}
    async with running(node):
        cluster.partition_counts = {}
        cluster.unclear = {A}
        await wait_until(lambda: node.metadata.image and node.metadata.image.version == 2)
        assert node.metadata.image is not None
        assert node.metadata.image.topics == {A: 3}


async def test_the_version_grows_with_what_is_known_only(cluster: FakeCluster) -> None:
    cluster.partition_counts = {A: 3}
    async with running(Node(cluster)) as node:
        versions = []
        for topic_id in (A, A, B, A):
            await node.ask(topic_id)
            assert node.metadata.image is not None
            versions.append(node.metadata.image.version)
        assert versions == [2, 2, 2, 2]
        cluster.partition_counts[A] = 4
        assert await node.ask(A) == 4
        assert node.metadata.image is not None
        assert node.metadata.image.version == 3


async def test_it_goes_on_after_a_failure(cluster: FakeCluster) -> None:
    async with running(Node(cluster)) as node:
        assert node.metadata.problem == ""
        cluster.partition_counts[A] = 3
        cluster.failure = "broker is gone"
        answer = asyncio.create_task(node.ask(A))
        await wait_until(lambda: node.metadata.problem == "broker is gone")
        cluster.failure = None
        assert await answer == 3
        assert node.metadata.problem == ""


async def test_brokers_that_fail_in_different_words_are_one_line(cluster: FakeCluster) -> None:
    with capture_logs() as lines:
        async with running(Node(cluster, QueryBounds(pause_ms=1, backoff_max_ms=1))) as node:
            for number in range(6):
                cluster.failure = f"broker {number % 3} cannot be reached"
                node.metadata.look_up([A], "10.0.0.1:1", lambda _: None, NEVER_MS)
                await wait_until(lambda: node.metadata.problem == cluster.failure)
            cluster.failure = None
            await wait_until(lambda: node.metadata.problem == "")
    assert [line["event"] for line in lines if line["event"].startswith("metadata")] == [
        "metadata_refresh_failed",
        "metadata_refresh_recovered",
    ]


async def test_it_reports_a_bug_and_goes_on(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.partition_counts = {A: 3}
    with capture_logs() as lines:
        async with running(Node(cluster, QueryBounds(pause_ms=1, backoff_max_ms=100))) as node:
            failures = iter([ZeroDivisionError("a bug")])

            def raise_once(image: MetadataImage, refresh: Refresh) -> None:
                if (bug := next(failures, None)) is not None:
                    raise bug

            monkeypatch.setattr(node, "refreshed", raise_once)
            assert await node.ask(A) == 3
            assert next(failures, None) is None
            await wait_until(lambda: node.metadata.problem == "")
    assert "metadata_refresh_crashed" in [line["event"] for line in lines]
    assert node.bugs.value == 1


async def test_another_cluster_is_no_evidence(cluster: FakeCluster) -> None:
    cluster.partition_counts = {A: 3}
    node = Node(cluster, metadata_refresh_interval_ms=100)
    node.in_use = {A}
    async with running(node):
        cluster.cluster_id, cluster.partition_counts = "cluster-b", {}
        await wait_until(lambda: "cluster-b" in node.metadata.problem)
        assert "check kafka.bootstrap.servers" in node.metadata.problem
        assert node.metadata.image is not None
        assert node.metadata.image.topics == {A: 3}
        assert all(refresh.cluster_id == "cluster-a" for _, refresh in node.refreshes)


async def test_no_first_image_in_time_is_an_error_that_says_why(cluster: FakeCluster) -> None:
    cluster.failure = "127.0.0.1:1 cannot be reached"
    node = Node(cluster)
    task = asyncio.create_task(node.metadata.run())
    await wait_until(lambda: cluster.asked)
    with pytest.raises(ConnectionFailed, match=r"no metadata came within 20 ms: 127\.0\.0\.1:1 cannot be reached"):
        await node.metadata.wait_for_first_image(20)
    task.cancel()
    await asyncio.wait([task])


# ---- many who wait, and questions that fail ----------------------------------------------------------------------------


def many(count: int, first: int = 0) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(first, first + count)]


async def test_a_flood_of_unknown_ids_keeps_nobody_from_the_next_query(cluster: FakeCluster) -> None:
    cluster.partition_counts = {A: 3}
    async with running(Node(cluster, QueryBounds(pause_ms=1, topics_per_query_max=100))) as node:
        cluster.asked.clear()
        cluster.may_answer.clear()
        flood = [
            asyncio.create_task(node.look_up(many(20_000, 20_000 * number + 1), f"10.0.0.1:{number}"))
            for number in range(6)
        ]
        await wait_until(lambda: cluster.asked)
        honest = asyncio.create_task(node.ask(A))
        await asyncio.sleep(0)
        cluster.may_answer.set()
        assert await honest == 3
        first_with_it = next(number for number, asked in enumerate(cluster.asked) if A in asked)
        assert first_with_it == 1, "the first question was asked before"
        assert max(map(len, cluster.asked)) == 100
        for each in flood:
            each.cancel()


async def test_ids_that_no_broker_was_queried_for_are_reported(cluster: FakeCluster) -> None:
    async with running(Node(cluster, QueryBounds(pause_ms=1, unknown_per_request_max=2))) as node:
        assert await node.look_up([A]) == ()
        assert await node.look_up([A, B, C]) == (C,)
        cluster.may_answer.clear()
        assert await node.look_up([A, B, C], timeout_ms=1) == (A, B, C)
        cluster.may_answer.set()
    async with running(Node(cluster, metadata_topics_max=1)) as node:
        assert await node.look_up([A, B]) == (A, B)


async def test_an_id_that_spoils_each_query_soon_spoils_only_its_own(cluster: FakeCluster) -> None:
    (cluster.poison,) = many(1)
    others = many(10, 1)
    cluster.partition_counts = dict.fromkeys(others, 3)
    async with running(Node(cluster, QueryBounds(pause_ms=1, topics_per_query_max=16))) as node:
        poisoned = asyncio.create_task(node.look_up([cluster.poison], "10.0.0.1:1"))
        await asyncio.sleep(0)
        assert (
            await asyncio.gather(*(node.look_up([each], "10.0.0.2:1", 60 * SECOND_MS) for each in others)) == [()] * 10
        )
        poisoned.cancel()


async def test_a_topic_in_use_that_spoils_each_query_is_unclear_and_the_others_are_known(
    cluster: FakeCluster,
) -> None:
    cluster.partition_counts = {A: 3, B: 5, C: 7}
    cluster.poison = B
    node = Node(cluster)
    node.in_use = {A, B, C}
    async with running(node):
        await wait_until(lambda: node.refreshes and node.refreshes[-1][1].is_full)
        (image, refresh) = node.refreshes[-1]
        assert image.topics == {A: 3, C: 7}
        assert (refresh.existing_ids, refresh.unclear_ids) == (frozenset([A, C]), frozenset([B]))


async def test_a_full_refresh_is_queried_in_parts_and_reported_as_one_and_callers_ride_along(
    cluster: FakeCluster,
) -> None:
    in_use = many(10, 1)
    cluster.partition_counts = dict.fromkeys(in_use, 3) | {A: 5}
    async with running(Node(cluster, QueryBounds(pause_ms=1, topics_per_query_max=4))) as node:
        node.in_use = set(in_use)
        node.refreshes.clear()
        cluster.asked.clear()
        node.metadata.refresh_soon()
        assert await node.ask(A) == 5
        await wait_until(lambda: any(refresh.is_full for _, refresh in node.refreshes))
        assert max(map(len, cluster.asked)) == 4
        assert A in cluster.asked[0]
        partial, whole = (refresh for _, refresh in node.refreshes)
        assert (partial.existing_ids, partial.is_full) == (frozenset([A]), False)
        assert (whole.existing_ids, whole.is_full) == (frozenset(in_use), True)
        assert node.metadata.image is not None
        assert node.metadata.image.topics.keys() == {*in_use, A}


async def test_unknown_ids_are_not_remembered_and_not_queried_again(cluster: FakeCluster) -> None:
    async with running(Node(cluster, QueryBounds(pause_ms=1, topics_per_query_max=1_000))) as node:
        await node.look_up(many(500))
        cluster.asked.clear()
        node.metadata.refresh_soon()
        await wait_until(lambda: cluster.asked)
        assert cluster.asked == [frozenset()]
