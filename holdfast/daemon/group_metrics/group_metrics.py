"""The metrics of share groups, made anew at intervals: states first, then where their topics end, then how old records are.

States are summed up in slices, so that requests have their turn; of each share partition the log has committed what is shown.
A node shows the share partitions of its own log partitions: the sum over all nodes is the group's.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Protocol

from holdfast.daemon.group_metrics.numbers import GroupNumbers, Pair, Standing, ends_of
from holdfast.daemon.group_metrics.series import GroupSeries
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.settings.components.group_metrics import GroupMetricSettings
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.cluster_queries import ClusterQueries
from holdfast.kafka.topics.topic_ends import Ends, TooManyQueries, TopicEnds
from holdfast.kafka.topics.topic_leaders import Place
from holdfast.metrics.registry import Registry
from holdfast.records.deliveries import sum_up_deliveries
from holdfast.records.keys import SharePartitionKey, format_topic_id

#: Of each slice, so that one takes a millisecond or two.
_KEYS_PER_SLICE: Final = 2_000
_BATCHES_PER_SLICE: Final = 2_000
#: What a share partition costs beside its state batches, in batches.
_BATCHES_PER_STATE: Final = 10


class EndSource(Protocol):
    """Where partitions of topics begin and end (`TopicEndSource`)."""

    async def look_up(self, wanted: Mapping[bytes, Sequence[int]]) -> dict[bytes, TopicEnds]:
        """Return what was found, problems included."""


class TimeSource(Protocol):
    """When records were written (`RecordTimes`)."""

    async def look_up(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """Return times in ms since 1970, without those that were not found."""


class GroupMetrics:
    """What makes the numbers of the share groups of a node."""

    def __init__(
        self,
        settings: GroupMetricSettings,
        partitions: Partitions,
        ends: EndSource,
        times: TimeSource,
        series: GroupSeries,
        *,
        places_per_query_max: int,
    ) -> None:
        """Show nothing yet.

        Args:
            settings: which groups, and bounds.
            partitions: the log partitions of the node.
            ends: of users' topics.
            times: of users' records.
            series: where they are shown.
            places_per_query_max: partitions that one query to `ends` may name.
        """
        self._settings = settings
        self._partitions = partitions
        self._ends = ends
        self._times = times
        self._series = series
        self._places_per_query_max = places_per_query_max

    @property
    def is_wanted(self) -> bool:
        """Whether any group is to have metrics."""
        return bool(self._settings.group_metrics_groups)

    @property
    def interval_ms(self) -> int:
        """How often to make them anew."""
        return self._settings.group_metrics_interval_ms

    async def refresh(self) -> None:
        """Make all numbers anew."""
        standings = await self._sum_up(await self._choose())
        ends = await self._find_ends({standing.place for standing in standings})
        times = await self._find_times(standings, ends)
        numbers: dict[Pair, GroupNumbers] = {}
        for standing in standings:
            pair, place = standing.pair, standing.place
            if pair not in numbers:
                known = ends.get(pair.topic_id)
                numbers[pair] = GroupNumbers((known and known.name) or format_topic_id(pair.topic_id))
            numbers[pair].add(standing, ends_of(ends, place), times.get((pair.group, place)))
        self._series.show(numbers)

    # ---- the states ------------------------------------------------------------------------------------------------

    async def _choose(self) -> list[tuple[SharePartitionKey, int]]:
        """Return the share partitions to look at with their log partitions, in the order of group and topic."""
        patterns = self._settings.group_metrics_groups
        wanted: dict[str, bool] = {}
        chosen: list[tuple[SharePartitionKey, int]] = []
        for partition, shard in self._partitions.active():
            keys = shard.state.keys()
            for start in range(0, len(keys), _KEYS_PER_SLICE):
                for key in keys[start : start + _KEYS_PER_SLICE]:
                    group = key.group_id
                    if group not in wanted:
                        wanted[group] = any(fnmatchcase(group, pattern) for pattern in patterns)
                    if wanted[group]:
                        chosen.append((key, partition.index))
                await asyncio.sleep(0)
        chosen.sort()
        kept = chosen[: self._settings.group_metrics_share_partitions_max]
        pairs = sorted({Pair(key.group_id, key.topic_id) for key, _ in kept})
        shown = set(pairs[: self._settings.group_metrics_pairs_max])
        if len(shown) < len(pairs):
            kept = [each for each in kept if Pair(each[0].group_id, each[0].topic_id) in shown]
        self._series.left_out.value = len(chosen) - len(kept)
        return kept

    async def _sum_up(self, chosen: Sequence[tuple[SharePartitionKey, int]]) -> list[Standing]:
        """Return the states as the log has committed them; without those that are gone meanwhile."""
        standings: list[Standing] = []
        work = 0
        shards = {partition.index: (partition, shard) for partition, shard in self._partitions.active()}
        for key, index in chosen:
            if work >= _BATCHES_PER_SLICE:
                work = 0
                await asyncio.sleep(0)
                shards = {partition.index: (partition, shard) for partition, shard in self._partitions.active()}
            if index not in shards:
                continue
            partition, shard = shards[index]
            state = shard.state.at(partition.committed_sequence, key)
            if state is not None:
                work += _BATCHES_PER_STATE + len(state.state_batches)
                deliveries = sum_up_deliveries(state.start_offset, state.state_batches)
                pair = Pair(key.group_id, key.topic_id)
                standings.append(Standing(pair, key.partition, state.start_offset, deliveries))
        return standings

    # ---- the topics ------------------------------------------------------------------------------------------------

    async def _find_ends(self, places: set[Place]) -> dict[bytes, TopicEnds]:
        """Return what is known of the ends of partitions; those of a query that was refused are missing."""
        ordered, size = sorted(places), self._places_per_query_max
        found: dict[bytes, TopicEnds] = {}
        for start in range(0, len(ordered), size):
            wanted: defaultdict[bytes, list[int]] = defaultdict(list)
            for topic_id, partition in ordered[start : start + size]:
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
        oldest = {
            (standing.pair.group, standing.place): offset
            for standing in standings
            if (offset := standing.oldest_offset(ends_of(ends, standing.place))) is not None
        }
        found: dict[tuple[str, Place], int] = {}
        # Two groups may stand at different records of one partition: each round has a place once.
        waiting = list(oldest.items())[: self._settings.group_metrics_ages_max]
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
        self._series.ages_unknown.value = len(oldest) - len(found)
        return found


def make_group_metrics(
    settings: Settings, partitions: Partitions, cluster: ClusterQueries, registry: Registry
) -> GroupMetrics:
    """Return the metrics of share groups of a node."""
    return GroupMetrics(
        settings.group_metrics,
        partitions,
        cluster.look_ups.ends,
        cluster.record_times,
        GroupSeries(registry, lambda: time.time_ns() // 1_000_000),
        places_per_query_max=settings.metadata.topic_ends_partitions_max,
    )
