"""What a node does by the clock: the state topic is checked again, deleted topics lose their state, log readers are looked up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.daemon.cluster import MetadataImage, Refresh
from holdfast.daemon.deleted_topics import CleanUp, CleanUpStopped, DeletedTopics
from holdfast.daemon.metrics import ShareMetrics
from holdfast.daemon.readers import LogReaders, ReaderOffsets
from holdfast.daemon.settings import Settings
from holdfast.daemon.shard import ShareShard
from holdfast.daemon.shards import Shards
from holdfast.daemon.state_topic import StateTopic, StateTopicError, check_state_topic
from holdfast.runtime.broker_connection import ConnectionFailed
from holdfast.runtime.errors import Alarm, CoordinatorError
from holdfast.runtime.machine import Decision
from holdfast.runtime.metrics import Registry

_log = structlog.get_logger(__name__)

#: How often the metrics' windows may turn.
ROLL_INTERVAL_S = 1.0


class TopicCleanUp:
    """Tombstones for the share partitions of deleted topics in one shard, a slice at a time."""

    name = "clean-up-deleted-topics"

    def __init__(self, topic_ids: frozenset[bytes], records_max: int, again: Callable[[], None]) -> None:
        self.deadline_ms = 0
        self.is_done = False
        self._topic_ids = topic_ids
        self._records_max = records_max
        self._again = again
        self._count = 0

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide the next tombstones."""
        decision = machine.decide_topic_cleanup(self._topic_ids, self._records_max)
        self._count = len(decision.records)
        return decision

    def complete(self, outcome: object) -> None:
        """Go on with the next slice; a failed one is tried again after the next refresh."""
        if self._count == self._records_max and not isinstance(outcome, CoordinatorError):
            self._again()


class Upkeep:
    """The clockwork of one node."""

    def __init__(self, settings: Settings, shards: Shards, metrics: ShareMetrics, registry: Registry) -> None:
        self.deleted: DeletedTopics | None = None
        self.alarm: CleanUpStopped | None = None  #: a clean-up that waits for an admin
        self._settings = settings
        self._shards = shards
        self._metrics = metrics
        self._registry = registry
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, topic: StateTopic, cluster_id: str, kafka: AdminClient) -> None:
        """Begin to work, for a state topic just checked."""
        settings = self._settings
        self.deleted = DeletedTopics(settings.deleted_topics, cluster_id)
        self._every(settings.log.state_topic_check_interval_ms, lambda: self._check_topic(topic, kafka))
        self._every(int(ROLL_INTERVAL_S * 1_000), self._roll)
        if settings.compaction.log_readers:
            timeout_ms = settings.log.admin_timeout_ms
            offsets = ReaderOffsets(settings.kafka.properties, topic.name, topic.partition_count, timeout_ms)
            readers = LogReaders(
                settings.compaction.log_readers,
                settings.compaction.reader_timeout_ms,
                self._shards.runtime.now_ms,
                self._reader_is_silent,
            )
            self._shards.readers = readers
            self._every(settings.compaction.compaction_check_interval_ms, lambda: self._look_up(readers, offsets))

    async def stop(self) -> None:
        """Stop all of it."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        """Take a refresh of the metadata: shards learn the image, and deleted topics their fate."""
        if self.deleted is None:
            return
        self._shards.runtime.new_metadata_image(image)
        counts: dict[bytes, int] = {}
        for _, machine in self._shards.active():
            for topic_id in machine.topic_ids():
                counts[topic_id] = counts.get(topic_id, 0) + machine.share_partition_count([topic_id])
        self.deleted.observe(refresh)
        self._act(self.deleted.decide(counts, refresh.at_ms))

    def _act(self, decided: CleanUp | CleanUpStopped | None) -> None:
        was_alarmed = self.alarm is not None
        self.alarm = decided if isinstance(decided, CleanUpStopped) else None
        self._metrics.deleted_topics_alarm.value = int(self.alarm is not None)
        if self.alarm is not None and not was_alarmed:
            _log.error("the clean-up of deleted topics stopped", why=self.alarm.text)
        if isinstance(decided, CleanUp):
            _log.info("deleted topics lose their state", topics=len(decided.topic_ids), keys=decided.key_count)
            for partition, machine in list(self._shards.active()):
                if machine.share_partition_count(decided.topic_ids):
                    self._clean_up(partition.index, decided.topic_ids)

    def _clean_up(self, index: int, topic_ids: frozenset[bytes]) -> None:
        records_max = self._settings.deleted_topics.deleted_topic_keys_per_slice_max
        operation = TopicCleanUp(topic_ids, records_max, lambda: self._clean_up(index, topic_ids))
        self._shards.write(index, operation)

    def _every(self, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1_000)
                try:
                    await work()
                except (KafkaException, ConnectionFailed) as failure:
                    _log.warning("upkeep could not ask Kafka", why=str(failure))

        self._tasks.append(asyncio.create_task(repeat(), name="holdfast-upkeep"))

    async def _roll(self) -> None:
        self._registry.roll()

    async def _check_topic(self, topic: StateTopic, kafka: AdminClient) -> None:
        """Look at the state topic again; one that became unsafe, or another one under its name, stops all shards."""
        bootstrap = self._settings.kafka.properties["bootstrap.servers"]
        problem = ""
        try:
            found, findings = await asyncio.to_thread(check_state_topic, kafka, self._settings.log, bootstrap)
            self._metrics.state_topic_warnings.value = len(findings)
            if found.topic_id != topic.topic_id:
                problem = f"the topic {topic.name} was made again: its id changed"
            elif found.partition_count != topic.partition_count:
                problem = (
                    f"the topic {topic.name} has {found.partition_count} partitions and had {topic.partition_count}"
                )
        except StateTopicError as unsafe:
            problem = str(unsafe)
        if problem:
            self._shards.runtime.distrust_log(Alarm(problem))
        else:
            self._shards.runtime.trust_log()

    async def _look_up(self, readers: LogReaders, offsets: ReaderOffsets) -> None:
        for group in readers.groups:
            readers.learn(group, await offsets.look_up(group))

    def _reader_is_silent(self, group: str, silent_ms: int) -> None:
        _log.error("a registered log reader is silent and holds the log", reader=group, silent_ms=silent_ms)
        self._metrics.silent_readers.value += 1
