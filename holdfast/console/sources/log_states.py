"""The states in a state topic, read from it: in `__share_group_state` of Apache Kafka, or of a Holdfast whose node is down.

No node, no Java and no Spark is needed for it.

Every record that counts is replayed, one log partition after the other, by the rule that a node replays by.
In Kafka's own topic all records count, and an update whose snapshot was pruned is applied to an empty state, as Kafka does.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import Final

from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.group_lag import GroupFilter
from holdfast.console.show.output import counted
from holdfast.console.sources.log_reader import LogEntry, LogReader
from holdfast.console.sources.state_topics import KAFKA_STATE_TOPIC, find_state_topic, no_state_topic
from holdfast.daemon.settings.models import MetadataSettings
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions, connection_options
from holdfast.kafka.errors import PropertyRefused
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.kafka.topics.topic_ends import TopicEndSource
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.group_lag import Place, Row, TopicEnd
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, fold_without_snapshot, replay
from holdfast.records.share.values import Update

_ROWS_PER_PAGE: Final = 1_000
#: Only a count of updates depends on it, which is not shown.
_UPDATES_PER_SNAPSHOT: Final = 0


class LogSource:
    """The share partitions of a state topic."""

    def __init__(self, properties: Mapping[str, str], topic: str | None) -> None:
        """Connect to nothing yet.

        Args:
            properties: librdkafka's; `bootstrap.servers` at least.
            topic: a state topic, in either codec; None: the one that the cluster has.
        """
        self._properties = properties
        self._topic = topic
        self._fold: Fold | None = None

    def pages(self, wanted: GroupFilter) -> Iterator[list[Row]]:
        """Yield the share partitions of which the topic has state, some at a time, when all of it is read.

        Raises:
            Failure: no broker answers, there is no state topic, or the one that is named is none.
        """
        with closing(LogReader(self._properties, self._topic or KAFKA_STATE_TOPIC)) as reader:
            if self._topic is None:
                # Also for the next time, so that it is not told again which of two is read.
                reader.topic = self._topic = find_state_topic(reader.kafka)
            fold = self._fold = Fold(reader.topic)
            topic_id = None if wanted.topic is None else reader.kafka.find_topic_id(wanted.topic)
            leaders = reader.kafka.leaders(reader.topic)
            rows = list(fold.rows(reader.read(), leaders, wanted.group, topic_id))
        rows.sort(key=lambda row: (row["group"], parse_topic_id(row["topic_id"]), row["partition"]))
        for start in range(0, len(rows), _ROWS_PER_PAGE):
            yield rows[start : start + _ROWS_PER_PAGE]

    def ends(self, places: Collection[Place]) -> Mapping[Place, TopicEnd]:
        """Return where partitions of topics end, as their leaders report.

        Raises:
            Failure: a property has no counterpart in connections of our own.
        """
        wanted: dict[bytes, list[int]] = {}
        for topic_id, partition in places:
            wanted.setdefault(parse_topic_id(topic_id), []).append(partition)
        try:
            options = connection_options(self._properties)
        except PropertyRefused as error:
            raise Failure(str(error), Exit.WRONG_USAGE) from None
        found = asyncio.run(_make_source(options).look_up(wanted))
        return {
            (format_topic_id(topic_id), partition): TopicEnd(
                topic.name, None if end.problem else end.end_offset, end.problem
            )
            for topic_id, topic in found.items()
            for partition, end in topic.partitions.items()
        }

    def gaps(self) -> Sequence[str]:
        """Return which records that count could not be used."""
        return () if self._fold is None else self._fold.gaps()


class Fold:
    """The replay of a state topic's records to the states of its share partitions."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._undecodable: list[LogEntry] = []
        self._without_base: list[LogEntry] = []

    def rows(
        self, entries: Iterator[LogEntry], leaders: Mapping[int, int], group: str | None, topic_id: bytes | None
    ) -> Iterator[Row]:
        """Yield share partitions with their states, log partition by log partition.

        Args:
            entries: by log partition and offset.
            leaders: by log partition, the broker that leads it: the owner of what a broker wrote itself.
            group: None for all.
            topic_id: None for all.

        Raises:
            Failure: it is no state topic.
        """
        is_first = True
        for log_partition, ours in groupby(entries, lambda entry: entry.partition):
            states: dict[SharePartitionKey, ShareState] = {}
            owner: str | None = None
            for entry in ours:
                if is_first:
                    self._check(entry)
                    is_first = False
                if not entry.counts:
                    continue
                if entry.owner_epoch is None:
                    leader = leaders.get(log_partition, -1)
                    owner = None if leader < 0 else str(leader)
                if isinstance(entry.value, Checkpoint):
                    owner = entry.value.node_id
                elif entry.problem is not None:
                    self._undecodable.append(entry)
                elif (
                    entry.key is not None
                    and entry.kind in ("snapshot", "update", "tombstone")
                    and (group is None or entry.key.group_id == group)
                    and (topic_id is None or entry.key.topic_id == topic_id)
                ):
                    self._replay(states, entry, entry.key)
            for key, state in states.items():
                yield describe_state(key, state, log_partition, owner)

    def gaps(self) -> Sequence[str]:
        """Return which records that count could not be used."""
        kinds = (
            (self._undecodable, "cannot be decoded"),
            (self._without_base, "change a state whose snapshot is not in the log"),
        )
        return [
            f"{counted(len(entries), 'record')} of {self._topic} {what}, the first at offset "
            f"{entries[0].offset} of log partition {entries[0].partition}; `holdfast dump {self._topic}` shows them, "
            "and what they are about may be missing or wrong here"
            for entries, what in kinds
            if entries
        ]

    def _check(self, entry: LogEntry) -> None:
        if entry.kind in ("undecodable", "unknown"):
            raise no_state_topic(
                self._topic,
                entry,
                "--topic names the topic that holds states; --only-topic lists those of one user's topic.",
            )

    def _replay(self, states: dict[SharePartitionKey, ShareState], entry: LogEntry, key: SharePartitionKey) -> None:
        value = entry.value
        assert not isinstance(value, Checkpoint)
        before = states.get(key)
        if isinstance(value, Update) and before is None:
            if entry.owner_epoch is not None:
                self._without_base.append(entry)
                return
            states[key] = fold_without_snapshot(value)
            return
        after = replay(before, value, _UPDATES_PER_SNAPSHOT)
        if after is None:
            states.pop(key, None)
        else:
            states[key] = after


def _make_source(options: ConnectionOptions) -> TopicEndSource:
    """Return what queries ends of topics, within a node's usual bounds."""
    timeout_ms = MetadataSettings().metadata_timeout_ms
    return TopicEndSource(Cluster(options, timeout_ms), timeout_ms=timeout_ms)
