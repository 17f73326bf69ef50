"""The metrics of share groups, renewed at intervals: states first, then where their topics end, then how old records are.

All of it is done in turns with requests; of each share partition the log has committed what is shown.
Every share partition is looked at twice, first to choose and then to sum up, so that what is held at a time has the bounds of the settings.
A node shows the share partitions of its own log partitions: the sum over all nodes is the group's.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.cluster_queries import ClusterQueries
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.topic_ends import PARTITIONS_PER_QUERY_MAX, Ends, Place, TooManyQueries, TopicEnds
from holdfast.metrics.registry import Registry
from holdfast.records.share.deliveries import sum_up_deliveries
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.share.decisions import ShareShard
from holdfast.share.group_metrics.choice import Choice, PairChooser
from holdfast.share.group_metrics.numbers import GroupNumbers, Pair, Standing, ends_of
from holdfast.share.group_metrics.series import GroupSeries
from holdfast.share.settings import GroupMetricSettings
from holdfast.share.shard_kind import serving

#: Keys of each turn, so that none takes more than a millisecond.
_KEYS_PER_TURN: Final = 500
#: Share partitions of all pairs that are shown: some tens of milliseconds of work in a round.
_SHARE_PARTITIONS_MAX: Final = 20_000
_BATCHES_PER_TURN: Final = 1_000
_STANDINGS_PER_TURN: Final = 200
_PAIRS_PER_TURN: Final = 5
#: Cost of a share partition in addition to its state batches, in batches.
_BATCHES_PER_STATE: Final = 10


class EndSource(Protocol):
    """The source of starts and ends of partitions of topics (`TopicEndSource`)."""

    async def look_up(self, wanted: Mapping[bytes, Sequence[int]]) -> dict[bytes, TopicEnds]:
        """Return what was found, problems included."""


class TimeSource(Protocol):
    """When records were written (`RecordTimes`)."""

    async def look_up(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """Return times in ms since 1970, without those that were not found."""


class GroupMetrics:
    """The numbers of the share groups of a node, renewed from time to time."""

    def __init__(
        self,
        settings: GroupMetricSettings,
        partitions: Partitions,
        ends: EndSource,
        times: TimeSource,
        series: GroupSeries,
        *,
        places_per_query_max: int = PARTITIONS_PER_QUERY_MAX,
        share_partitions_max: int = _SHARE_PARTITIONS_MAX,
    ) -> None:
        """Create them; `refresh` shows them.

        Args:
            settings: which groups, and bounds.
            partitions: the log partitions of the node.
            ends: of users' topics.
            times: of users' records.
            series: where they are shown.
            places_per_query_max: partitions that one query to `ends` may name.
            share_partitions_max: share partitions that all pairs may have; a pair that exceeds it is left out as a whole.
        """
        self._settings = settings
        self._partitions = partitions
        self._ends = ends
        self._times = times
        self._series = series
        self._places_per_query_max = places_per_query_max
        self._share_partitions_max = share_partitions_max

    @property
    def is_wanted(self) -> bool:
        """Tell whether any group should have metrics."""
        return bool(self._settings.group_metrics_groups)

    @property
    def interval_ms(self) -> int:
        """Return how often to renew them."""
        return self._settings.group_metrics_interval_ms

    async def refresh(self) -> None:
        """Renew all numbers."""
        choice = await self._choose()
        self._series.left_out.value = choice.left_out
        standings, places = await self._sum_up(choice.pairs)
        ends = await self._find_ends(places)
        times = await self._find_times(standings, ends)
        numbers: dict[Pair, GroupNumbers] = {}
        async for standing in _in_turns(standings, _STANDINGS_PER_TURN):
            pair, place = standing.pair, standing.place
            if pair not in numbers:
                known = ends.get(pair.topic_id)
                numbers[pair] = GroupNumbers((known and known.name) or format_topic_id(pair.topic_id))
            numbers[pair].add(standing, ends_of(ends, place), times.get((pair.group, place)))
        async for _ in _in_turns(self._series.show(numbers), _PAIRS_PER_TURN):
            pass

    # ---- the states ------------------------------------------------------------------------------------------------

    async def _keys_in_turns(self) -> AsyncIterator[tuple[Partition, ShareShard, Sequence[SharePartitionKey]]]:
        """Yield the share partitions of each log partition that serves, some in each turn."""
        for partition, shard in list(serving(self._partitions.active())):
            keys = shard.state.keys()
            async for start in _in_turns(range(0, len(keys), _KEYS_PER_TURN), 1):
                if partition.machine is not shard:
                    break  # it has been handed over meanwhile
                yield partition, shard, keys[start : start + _KEYS_PER_TURN]

    async def _choose(self) -> Choice:
        """Return which pairs of a group and a topic are shown."""
        settings = self._settings
        chooser = PairChooser(settings.group_metrics_groups, settings.group_metrics_pairs_max)
        async for _, _, keys in self._keys_in_turns():
            chooser.count(keys)
        return chooser.choose(self._share_partitions_max)

    async def _sum_up(self, pairs: frozenset[Pair]) -> tuple[list[Standing], list[Place]]:
        """Return the states of some pairs as the log has committed them, and where in their topics they are, each place once."""
        standings: list[Standing] = []
        places: dict[Place, None] = {}
        work = 0
        async for partition, shard, keys in self._keys_in_turns():
            for key in keys:
                pair = Pair(key.group_id, key.topic_id)
                if pair not in pairs:
                    continue
                if work >= _BATCHES_PER_TURN:
                    work = 0
                    await asyncio.sleep(0)
                    if partition.machine is not shard:
                        break
                state = shard.state.at(partition.committed_sequence, key)
                # A state that has come since the choice is shown from the next round on.
                if state is not None and len(standings) < self._share_partitions_max:
                    work += _BATCHES_PER_STATE + len(state.state_batches)
                    deliveries = sum_up_deliveries(state.start_offset, state.state_batches)
                    standings.append(Standing(pair, key.partition, state.start_offset, deliveries))
                    places[standings[-1].place] = None
        return standings, list(places)

    # ---- the topics ------------------------------------------------------------------------------------------------

    async def _find_ends(self, places: Sequence[Place]) -> dict[bytes, TopicEnds]:
        """Return what is known of the ends of partitions; those of a query that was refused are missing."""
        found: dict[bytes, TopicEnds] = {}
        for start in range(0, len(places), self._places_per_query_max):
            wanted: defaultdict[bytes, list[int]] = defaultdict(list)
            for topic_id, partition in places[start : start + self._places_per_query_max]:
                wanted[topic_id].append(partition)
            try:
                answer = await self._ends.look_up(wanted)
            except TooManyQueries:
                silence = Ends(-1, -1, "too many others wait for the ends of topics")
                answer = {topic_id: TopicEnds(None, dict.fromkeys(some, silence)) for topic_id, some in wanted.items()}
            for topic_id, topic in answer.items():
                before = found.get(topic_id)
                if before is None:
                    found[topic_id] = topic
                else:
                    found[topic_id] = TopicEnds(topic.name or before.name, before.partitions | topic.partitions)
        return found

    async def _find_times(
        self, standings: Sequence[Standing], ends: Mapping[bytes, TopicEnds]
    ) -> dict[tuple[str, Place], int]:
        """Return by group and place when the oldest record that is not finished was written."""
        waiting: list[tuple[tuple[str, Place], int]] = []
        wanted = 0
        async for standing in _in_turns(standings, _STANDINGS_PER_TURN):
            offset = standing.oldest_offset(ends_of(ends, standing.place))
            if offset is not None:
                wanted += 1
                if len(waiting) < self._settings.group_metrics_ages_max:
                    waiting.append(((standing.pair.group, standing.place), offset))
        found: dict[tuple[str, Place], int] = {}
        # Two groups may stand at different records of one partition: each round has a place once.
        while waiting:
            now: dict[Place, tuple[str, int]] = {}
            later = []
            for (group, place), offset in waiting:
                if place in now and now[place][1] != offset:
                    later.append(((group, place), offset))
                elif place not in now:
                    now[place] = group, offset
            times = await self._times.look_up({place: offset for place, (_, offset) in now.items()})
            for (group, place), offset in waiting:
                if place in times and now[place][1] == offset:
                    found[group, place] = times[place]
            waiting = later if times else []  # nobody answers
        self._series.ages_unknown.value = wanted - len(found)
        return found


def make_group_metrics(
    settings: Settings, partitions: Partitions, cluster: ClusterQueries, registry: Registry
) -> GroupMetrics:
    """Return the metrics of share groups of a node."""
    return GroupMetrics(
        settings.of(GroupMetricSettings),
        partitions,
        cluster.look_ups.ends,
        cluster.record_times,
        GroupSeries(registry, lambda: time.time_ns() // 1_000_000),
    )


_T = TypeVar("_T")


async def _in_turns(items: Iterable[_T], size: int) -> AsyncIterator[_T]:
    """Yield items; before the first and after each `size` of them the loop has its turn."""
    for number, item in enumerate(items):
        if number % size == 0:
            await asyncio.sleep(0)
        yield item
