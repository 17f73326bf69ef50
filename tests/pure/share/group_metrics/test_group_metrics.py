"""Metrics of share groups: sums over committed states, lag, ages, and the share partitions that are left out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.topic_ends import Ends, Place, TooManyQueries, TopicEnds
from holdfast.metrics.registry import Registry
from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.group_metrics.group_metrics import GroupMetrics
from holdfast.share.group_metrics.series import GroupSeries
from holdfast.share.settings import GroupMetricSettings
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld
from tests.world.process import Call
from tests.world.samples import OTHER_TOPIC, TOPIC, Image, batch

ORDERS, OTHERS, PAYMENTS = (
    SharePartitionKey(group, TOPIC, partition) for group, partition in (("orders", 0), ("orders", 1), ("payments", 0))
)
NOW_MS = 1_000_000


class Topics:
    """Users' topics: where they end, and when the record at an offset was written."""

    def __init__(self) -> None:
        self.ends = {(TOPIC, 0): Ends(0, 200), (TOPIC, 1): Ends(0, 0)}
        self.names: dict[bytes, str | None] = {TOPIC: "topic"}
        self.is_busy = False
        #: Written so long ago at offset 0, and each record one ms after the one before.
        self.age_ms = 5_000
        self.unreadable: set[Place] = set()
        self.asked_for_ends: list[int] = []
        self.asked_for_times: list[dict[Place, int]] = []

    async def look_up(self, wanted: Mapping[bytes, Sequence[int]]) -> dict[bytes, TopicEnds]:
        self.asked_for_ends.append(sum(map(len, wanted.values())))
        if self.is_busy:
            raise TooManyQueries
        unknown = Ends(-1, -1, "unknown")
        return {
            topic_id: TopicEnds(
                self.names.get(topic_id), {each: self.ends.get((topic_id, each), unknown) for each in partitions}
            )
            for topic_id, partitions in wanted.items()
        }


class Times:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def look_up(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        self._topics.asked_for_times.append(dict(offsets))
        return {
            place: NOW_MS - self._topics.age_ms + offset
            for place, offset in offsets.items()
            if place not in self._topics.unreadable
        }


class World:
    """A node with three share partitions, and its metrics of them."""

    def __init__(
        self, node: PartitionsWorld, places_per_query_max: int = 100, share_partitions_max: int = 20_000
    ) -> None:
        self.node = node
        self.topics = Topics()
        self.registry = Registry()
        self.metrics = GroupMetrics(
            node.settings.of(GroupMetricSettings),
            node.partitions,
            self.topics,
            Times(self.topics),
            GroupSeries(self.registry, lambda: NOW_MS),
            places_per_query_max=places_per_query_max,
            share_partitions_max=share_partitions_max,
        )

    def write(self, key: SharePartitionKey, start_offset: int, *batches: Any) -> None:
        index = {ORDERS: 0, OTHERS: 1}.get(key, 2)
        self.node.call(index, lambda shard, now_ms: shard.decide_write(key, 1, 0, start_offset, 0, batches, now_ms))

    async def shown(self) -> dict[str, float]:
        """Return what is not 0, without the number of share partitions."""
        await self.metrics.refresh()
        return {
            name.removeprefix("holdfast_group_"): value
            for name, value in self.registry.numbers()
            if value and "share_partitions" not in name
        }


async def world_of(places_per_query_max: int = 100, share_partitions_max: int = 20_000, **flags: Any) -> World:
    node = PartitionsWorld(MemoryTopic(4), **flags)
    await node.serve(Image({TOPIC: 3, OTHER_TOPIC: 3}))
    for index, key in enumerate((ORDERS, OTHERS, PAYMENTS)):
        node.initialize(index, key)
    return World(node, places_per_query_max, share_partitions_max)


def labels(group: str, **more: object) -> str:
    named = {"group": group, "topic": "topic"} | more
    return "{" + ",".join(f"{name}={named[name]}" for name in sorted(named)) + "}"


async def test_states_become_sums_by_group_and_topic() -> None:
    world = await world_of()
    world.write(ORDERS, 100, batch(100, 109, 2, 1), batch(110, 119, 0, 2), batch(120, 120, 4, 5))
    world.write(PAYMENTS, 150)
    assert await world.shown() == {
        "records_in_flight" + labels("orders"): 10,
        "records_archived" + labels("orders"): 1,
        "records_by_deliveries" + labels("orders", deliveries=2): 10,
        "lag_records" + labels("orders"): 89,  # of 100, 11 are finished; the other partition is empty
        "oldest_record_age_seconds" + labels("orders"): (5_000 - 110) / 1_000,
        "lag_records" + labels("payments"): 50,
        "oldest_record_age_seconds" + labels("payments"): (5_000 - 150) / 1_000,
    }
    # The two groups stand at two records of one partition.
    assert world.topics.asked_for_times == [{(TOPIC, 0): 110}, {(TOPIC, 0): 150}]
    shown = dict(world.registry.numbers())
    assert [shown["holdfast_group_share_partitions" + labels(group)] for group in ("orders", "payments")] == [2, 1]


async def test_uncommitted_state_is_not_shown() -> None:
    world = await world_of()
    world.write(ORDERS, 100)
    before = await world.shown()
    world.node.runtime.write(0, Call(lambda shard, now_ms: shard.decide_write(ORDERS, 1, 0, 150, 0, (), now_ms)))
    assert await world.shown() == before


async def test_unknown_lag_is_counted_and_shown_as_unknown() -> None:
    world = await world_of()
    world.topics.unreadable = {(TOPIC, 0)}
    assert await world.shown() == {
        "lag_records" + labels("orders"): 200,
        "lag_records" + labels("payments"): 200,
        "metrics_ages_unknown": 2,
    }
    world.topics.is_busy = True
    by_id = format_topic_id(TOPIC)
    assert await world.shown() == {
        f"lag_unknown{{group=orders,topic={by_id}}}": 2,
        f"lag_unknown{{group=payments,topic={by_id}}}": 1,
    }


async def test_a_record_below_the_start_of_its_topic_is_gone() -> None:
    world = await world_of()
    world.topics.ends[TOPIC, 0] = Ends(180, 200)
    await world.metrics.refresh()
    assert world.topics.asked_for_times == [{(TOPIC, 0): 180}]


async def test_only_the_groups_of_the_setting_have_series() -> None:
    world = await world_of(group_metrics_groups="pay*,x")
    assert list(await world.shown()) == [
        "lag_records" + labels("payments"),
        "oldest_record_age_seconds" + labels("payments"),
    ]
    assert not (await world_of(group_metrics_groups="")).metrics.is_wanted


async def test_each_bound_says_what_it_leaves_out() -> None:
    world = await world_of(group_metrics_pairs_max=1)
    assert (await world.shown())["metrics_left_out"] == 1
    assert "lag_records" + labels("payments") not in dict(world.registry.numbers())
    world = await world_of(share_partitions_max=1)
    assert (await world.shown())["metrics_left_out"] == 2
    world = await world_of(group_metrics_ages_max=1)
    assert (await world.shown())["metrics_ages_unknown"] == 1
    world = await world_of(places_per_query_max=1)
    assert (await world.shown())["lag_records" + labels("orders")] == 200
    assert world.topics.asked_for_ends == [1, 1]


async def test_the_series_of_what_is_gone_or_handed_over_go_with_the_next_round() -> None:
    world = await world_of()
    await world.metrics.refresh()
    assert any("orders" in name for name in dict(world.registry.numbers()))
    world.node.partitions.unload([0, 1])
    world.node.settle()
    await world.metrics.refresh()
    assert not any("orders" in name for name in dict(world.registry.numbers()))
    assert any("payments" in name for name in dict(world.registry.numbers()))


async def test_no_turn_of_the_loop_does_more_than_a_part_of_all_groups() -> None:
    world = await world_of(group_metrics_pairs_max=100)
    for number in range(1_200):
        world.node.initialize(number % 4, SharePartitionKey(f"more-{number:04d}", TOPIC, 0))
    sizes = [0]
    for wanted in ("*", "orders"):  # the second time all others are gone
        world.metrics._settings = world.node.settings.of(GroupMetricSettings).model_copy(
            update={"group_metrics_groups": (wanted,)}
        )
        refreshing = world.metrics.refresh()
        with suppress(StopIteration):
            while True:
                refreshing.send(None)
                sizes.append(sum(len(family.series) for family in world.registry.families()))
    steps = [abs(after - before) for before, after in itertools.pairwise(sizes)]
    assert max(sizes) > 100 * 16 - 100
    assert max(steps[1:]) <= 5 * 17
    assert world.metrics._series.left_out.value == 0
