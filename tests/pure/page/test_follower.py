"""A state topic that is followed, over sockets to a small Kafka on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import pytest

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.batches import Batch
from holdfast.page import follower, reading
from holdfast.page.kafka_page import KafkaPage
from holdfast.page.moment import Truth, tell_of_old, true_at_ms
from holdfast.page.source import SENTENCES_MAX, GroupsPage, PageRefused, utc
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Value
from tests.pure.kafka.records.fake_kafka import FakeKafka, Partition, fake_kafka
from tests.pure.page.samples import NOW_MS, Log, acknowledged, available, batch_of, snapshot, update
from tests.waiting import PATIENCE_S

STATE_TOPIC = "__share_group_state"
SHARE_GROUP_HEARTBEAT = 76


class Cluster:
    """A small Kafka with a topic of orders and one of states."""

    def __init__(self, kafka: FakeKafka, *, has_states: bool = True, orders: int = 20) -> None:
        self.kafka = kafka
        self._samples = Log()
        topic = kafka.make_topic("orders")
        self.orders = topic.partitions[0]
        self.key = SharePartitionKey("workers", topic.topic_id.bytes, 0)
        for number in range(orders):
            self.orders.append(f"order {number}".encode())
        self.states = kafka.make_topic(STATE_TOPIC).partitions[0] if has_states else Partition(1)

    def put(self, value: Value, group: str = "workers") -> None:
        """Write a record of the state topic."""
        record = self._samples.put(self.key._replace(group_id=group), value)
        self.states.append(data=batch_of(record, base_offset=self.states.end, leader_epoch=self.states.epoch))

    def prune(self, count: int) -> None:
        """Delete the first batches of the state topic, as brokers do below what is redundant."""
        self.states.start += count
        del self.states.log[:count]


@asynccontextmanager
async def page_of(
    kafka: FakeKafka, topics: Sequence[str] = (STATE_TOPIC, "__holdfast_share_state")
) -> AsyncIterator[KafkaPage]:
    page = KafkaPage(kafka.options, topics, bootstrap="here", now_ms=lambda: NOW_MS, run_id="run")
    task = asyncio.create_task(page.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield page
    finally:
        task.cancel()
        await asyncio.wait([task])


async def groups_of(page: KafkaPage, *passing: int) -> GroupsPage:
    """Return the groups as soon as the log is read; other refusals than those that pass fail."""
    while True:
        try:
            return await page.groups()
        except PageRefused as refusal:
            if refusal.status not in (503, *passing):
                raise
            await asyncio.sleep(0.01)


async def refusal_of(page: KafkaPage, status: int) -> PageRefused:
    """Return the refusal of groups as soon as it has a status."""
    while True:
        try:
            await page.groups()
        except PageRefused as refusal:
            if refusal.status == status:
                return refusal
        await asyncio.sleep(0.01)


@contextmanager
def refused(status: int, text: str) -> Iterator[None]:
    with pytest.raises(PageRefused) as refusal:
        yield
    assert refusal.value.status == status
    assert text in refusal.value.text


async def test_the_states_that_are_there_and_those_that_come_are_shown() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        cluster.put(update(4, available(7, 3)))
        found = await groups_of(page)
        [row] = found.rows
        assert (row.group, row.topic, row.lag, row.in_flight, row.delivery_count_max) == ("workers", "orders", 16, 4, 3)
        assert found.unknown == ()
        # The last answer came a moment ago.
        assert NOW_MS - 1_000 * PATIENCE_S < found.as_of_ms <= NOW_MS
        assert row.oldest is not None
        assert (row.oldest.offset, row.oldest.written_ms) == (4, 1_000)
        cluster.put(update(5))

        async for _ in page.changed():
            if (await page.window("workers", "orders", 0)).start_offset == 5:
                break
        view = await page.cluster()
        assert (view.state_topic, view.cluster_id, [each.broker_id for each in view.brokers]) == (STATE_TOPIC, "c", [1])
        [log] = view.log_partitions
        assert (log.leader, log.start_offset, log.end_offset, log.read_to, log.states) == (1, 0, 3, 3, 1)
        assert (view.log_partitions_in_all, view.nodes_in_all, view.next) == (1, 0, None)
        with pytest.raises(PageRefused, match="begin with the first page"):
            await page.cluster("none of ours")


async def test_a_log_whose_start_was_pruned_is_read_from_its_new_start() -> None:
    async with fake_kafka() as kafka:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0), group="deleted long ago")
        cluster.put(snapshot(9, epoch=4))
        cluster.prune(1)
        async with page_of(kafka) as page:
            assert [row.group for row in (await groups_of(page)).rows] == ["workers"]
            timeline = await page.timeline("workers", "orders", 0, 3)
            assert timeline.reaches_to_offset == 1
            assert "was pruned" in timeline.unknown[0]
            [log] = (await page.cluster()).log_partitions
            assert (log.start_offset, log.read_to) == (1, 2)


async def test_a_log_that_is_pruned_below_what_was_read_is_read_once_more() -> None:
    async with fake_kafka() as kafka:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0), group="to be deleted")
        async with page_of(kafka) as page:
            await groups_of(page)
            # Its tombstone is pruned before it was read.
            cluster.put(None, group="to be deleted")
            cluster.put(snapshot(9, epoch=4))
            cluster.prune(2)
            async for _ in page.changed():
                if [row.group for row in (await groups_of(page)).rows] == ["workers"]:
                    break


async def test_the_changes_of_an_offset_are_told_from_the_log() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        for count in (1, 2, 3):
            cluster.put(update(0, available(7, count)))
        cluster.put(update(0, acknowledged(8, 9)))
        await groups_of(page)
        timeline = await page.timeline("workers", "orders", 0, 7)
        assert [(each.log_offset, each.delivery_count) for each in timeline.changes] == [(1, 1), (2, 2), (3, 3)]
        assert timeline.now == timeline.changes[-1]
        assert (timeline.reaches_to_offset, timeline.reaches_to_ms, timeline.log_topic) == (0, NOW_MS, STATE_TOPIC)
        assert (await page.timeline("workers", "orders", 0, 15)).changes == ()


async def test_a_record_is_shown_and_one_that_is_not_there_has_its_words() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        cluster.orders.start = 2
        del cluster.orders.log[:2]
        await groups_of(page)
        record = await page.record("orders", 0, 7)
        assert record.value is not None
        assert (record.value.data, record.value.is_whole, record.key, record.headers) == (b"order 7", True, None, ())
        with refused(404, "the next one to be written there gets offset 20"):
            await page.record("orders", 0, 20)
        with refused(410, "the oldest record has offset 2"):
            await page.record("orders", 0, 1)
        with refused(404, "No group has state of a topic"):
            await page.record("order", 0, 7)
        with refused(404, "No group has state of partition 1"):
            await page.record("orders", 1, 7)
        with refused(400, "is no offset"):
            await page.record("orders", 0, -1)
        with refused(404, "No record has offset 1000"):
            await page.timeline("workers", "orders", 0, 1_000)


async def test_a_topic_that_may_not_be_read_names_the_acl() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(20))  # no time of a record is looked up
        await groups_of(page)
        cluster.orders.errors = [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        with refused(403, "allow Read on topic orders to User:ANONYMOUS"):
            await page.record("orders", 0, 7)


async def test_a_cluster_without_share_groups_says_so_until_there_is_one() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka, has_states=False)
        assert "too old" in (await refusal_of(page, 404)).text
        kafka.brokers[1].versions[SHARE_GROUP_HEARTBEAT] = (1, 1)
        async for _ in page.changed():
            if "no share groups yet" in (await refusal_of(page, 404)).text:
                break
        cluster.states = kafka.make_topic(STATE_TOPIC).partitions[0]
        cluster.put(snapshot(0))
        assert [row.group for row in (await groups_of(page, 404)).rows] == ["workers"]


async def test_a_topic_that_was_named_and_is_not_there_is_named_again() -> None:
    async with fake_kafka() as kafka, page_of(kafka, ("stats",)) as page:
        Cluster(kafka)
        kafka.brokers[1].versions[SHARE_GROUP_HEARTBEAT] = (1, 1)
        refusal = await refusal_of(page, 404)
        assert (
            refusal.text == "There is no topic stats; name a state topic of this cluster by --topic, or leave that out."
        )


async def test_ends_that_are_not_known_are_no_zeros() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        await groups_of(page)
        del kafka.topics["orders"]
        async for _ in page.changed():
            row = (await page.groups()).rows[0]
            if row.lag is None:
                break
        assert (row.topic, row.lag_unknown) == (None, {"the cluster knows no topic of this id": 1})


async def test_a_change_is_told_of() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        await groups_of(page)
        changes = page.changed()
        await anext(changes)
        cluster.put(update(3))
        await anext(changes)
        assert (await page.window("workers", "orders", 0)).start_offset == 3


async def test_a_state_topic_that_was_made_again_is_read_from_its_start() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0), group="former")
        await groups_of(page)
        former = cluster.states
        cluster.states = kafka.make_topic(STATE_TOPIC).partitions[0]
        cluster.put(snapshot(0), group="later")
        former.wake()
        async for _ in page.changed():
            if [row.group for row in (await groups_of(page)).rows] == ["later"]:
                break


async def test_a_log_partition_without_a_leader_is_followed_once_it_has_one() -> None:
    async with fake_kafka() as kafka:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        cluster.states.leader = 9
        async with page_of(kafka) as page:
            found = await groups_of(page)
            assert found.rows == ()
            assert found.unknown == (
                f"Log partition 0 of {STATE_TOPIC} is not read on: the partition has no leader. "
                "Share groups in it may be missing.",
            )
            with refused(503, "It is not known whether this is so now"):
                await page.group("workers")
            kafka.move(cluster.states, 1)
            async for _ in page.changed():
                if not (await page.groups()).unknown:
                    break
            assert [row.group for row in (await page.groups()).rows] == ["workers"]


async def test_a_log_partition_that_loses_its_leader_is_shown_as_it_was() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        cluster.put(update(0, available(7, 3)))
        await groups_of(page)
        kafka.move(cluster.states, 9)
        async for _ in page.changed():
            if (window := await page.window("workers", "orders", 0)).unknown:
                break
        timeline = await page.timeline("workers", "orders", 0, 7)
        for view in (window, timeline):
            assert "is not read on: " in view.unknown[0]
            assert "This is how it was at " in view.unknown[0]
            assert view.as_of_ms <= NOW_MS
        [row] = (await page.groups()).rows
        assert row.delivery_count_max == 3
        [log] = (await page.cluster()).log_partitions
        assert log.problem
        assert log.as_of_ms is not None


async def test_a_log_partition_that_the_topic_is_given_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_PARTITIONS_EVERY_S", 0.01)
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        await groups_of(page)
        cluster.states = Partition(1)
        cluster.put(snapshot(0), group="later")
        kafka.topics[STATE_TOPIC].partitions.append(cluster.states)
        async for _ in page.changed():
            if [row.group for row in (await page.groups()).rows] == ["later", "workers"]:
                break


async def test_a_time_that_was_found_is_a_change() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(4))
        cluster.orders.errors = [int(ErrorCode.KAFKA_STORAGE_ERROR)] * 1_000
        [row] = (await groups_of(page)).rows
        assert row.oldest is not None
        assert (row.oldest.written_ms, row.oldest.unknown) == (None, 1)
        changes = page.changed()
        await anext(changes)
        cluster.orders.errors.clear()
        await anext(changes)
        [row] = (await page.groups()).rows
        assert row.oldest is not None
        assert (row.oldest.written_ms, row.oldest.unknown) == (1_000, 0)


async def test_names_and_ages_stay_known_while_brokers_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "TIMEOUT_MS", 200)
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0, available(7, 3)))
        await groups_of(page)
        changes = page.changed()
        async for _ in changes:  # the look for ages is bounded by that time as well
            if not (await page.groups()).rows[0].oldest.unknown:  # type: ignore[union-attr]
                break
        kafka.brokers[1].goes_on.clear()
        async for _ in changes:
            if (window := await page.window("workers", "orders", 0)).log_unknown:
                break
        assert (window.topic, window.log_end) == ("orders", None)
        [row] = (await page.groups()).rows
        assert row.oldest is not None
        assert (row.oldest.written_ms, row.oldest.unknown) == (1_000, 0)


@pytest.mark.parametrize(("second", "as_of_ms"), [(Truth(900, "silent"), 700), (Truth(900), 900)])
def test_a_moment_is_of_what_is_not_old_or_of_the_oldest_where_all_is(second: Truth, as_of_ms: int) -> None:
    truths = [Truth(700, "silent"), second, Truth(None, "never read")]
    assert true_at_ms(truths, NOW_MS) == as_of_ms


def test_one_sentence_says_that_everything_is_old_and_since_when() -> None:
    old = {number: Truth(NOW_MS - number, "not read on: nobody answers") for number in range(50)}
    [told] = tell_of_old("states", old)
    assert told == (
        "All 50 log partitions of states are not read on: nobody answers. "
        f"Everything is shown as it was at {utc(NOW_MS - 49)}."
    )
    [told] = tell_of_old("states", old | {7: Truth(NOW_MS)})
    assert told.startswith("Log partitions 0, 1, 2 and 46 more of states are not read on: nobody answers. ")


def test_sentences_about_old_log_partitions_are_bounded() -> None:
    told = tell_of_old(
        "states", {number: Truth(None, f"not read on: batch {number} is damaged") for number in range(99)}
    )
    assert told[0] == "Log partition 0 of states is not read on: batch 0 is damaged. Share groups in it may be missing."
    assert (len(told), told[-1]) == (SENTENCES_MAX + 1, f"{99 - SENTENCES_MAX} more of these are not named here.")


# ---- timelines that are shared ---------------------------------------------------------------------------------------


async def test_readers_of_one_offset_share_a_look_and_go_on_from_it() -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        cluster.put(update(0, available(7, 1)))
        await groups_of(page)
        readers = [asyncio.create_task(page.timeline("workers", "orders", 0, 7)) for _ in range(20)]
        views = await asyncio.gather(*readers)
        assert {len(view.changes) for view in views} == {1}
        assert from_the_start(kafka) == 2  # that of the follower, and one look
        cluster.put(update(0, available(7, 2)))
        async for _ in page.changed():
            if len((await page.timeline("workers", "orders", 0, 7)).changes) == 2:
                break
        assert from_the_start(kafka) == 2
        await page.timeline("workers", "orders", 0, 8)
        assert from_the_start(kafka) == 3


async def test_a_look_that_was_cut_short_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        for count in range(1, 30):
            cluster.put(snapshot(0, available(7, count)))
        await groups_of(page)
        offsets = list[int]()
        take = reading._take_batch

        async def take_slowly(batch: Batch, end: int, found: reading.TimelineRead, rest: reading.Rest) -> None:
            if batch.base_offset in (10, 20) and batch.base_offset not in offsets:
                offsets.append(batch.base_offset)
                raise TimeoutError
            offsets.append(batch.base_offset)
            await take(batch, end, found, rest)

        monkeypatch.setattr(reading, "_take_batch", take_slowly)
        first, second, third = [await page.timeline("workers", "orders", 0, 7) for _ in range(3)]
        assert [len(each.changes) for each in (first, second, third)] == [10, 20, 29]
        assert ["was read up to offset" in " ".join(each.unknown) for each in (first, second, third)] == [
            True,
            True,
            False,
        ]
        assert offsets == [*range(11), *range(10, 21), *range(20, 29)]


async def test_one_look_too_many_is_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_TURN_S", 0.05)
    async with fake_kafka() as kafka, page_of(kafka) as page:
        cluster = Cluster(kafka)
        cluster.put(snapshot(0))
        await groups_of(page)
        kafka.brokers[1].goes_on.clear()
        looks = [asyncio.create_task(page._looks.record("orders", b"", 0, offset, 0)) for offset in range(4)]
        await asyncio.sleep(0)
        with refused(503, "4 other questions are being read from the topics"):
            await page._looks.record("orders", b"", 0, 9, 0)
        for look in looks:
            look.cancel()
        await asyncio.wait(looks)


def from_the_start(kafka: FakeKafka) -> int:
    """Return how often the state topic was read from its first offset."""
    states = kafka.topics[STATE_TOPIC].topic_id
    return sum(
        part.fetch_offset == 0
        for _, _, request in kafka.fetches
        for topic in request.topics
        if getattr(topic, "topic_id", None) == states
        for part in topic.partitions
    )
