"""The state of deleted topics: removed when `DeletedTopics` says that it may go, a slice at a time."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import structlog

from holdfast.daemon.topics.metadata_cache import Refresh
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.metrics.instruments import Gauge
from holdfast.runtime.errors import CoordinatorError
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.state_machine import Decision, Operation
from holdfast.share.decisions import ShareShard
from holdfast.share.deleted_topics import CleanUp, CleanUpStopped, DeletedTopics
from holdfast.share.settings import DeletedTopicSettings
from holdfast.share.shard_kind import serving

_log = structlog.get_logger(__name__)

#: Share partitions that a clean-up removes in one go: some milliseconds' worth, before others have their turn.
RECORDS_PER_SLICE_MAX: Final = 500


class TopicCleanUp(Operation):
    """Tombstones for the share partitions of deleted topics in one log partition, a slice at a time."""

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


class Runtime(Protocol):
    """The log partitions in which clean-ups run."""

    def write(self, index: int, operation: Operation) -> None:
        """Run an operation on a log partition and complete it exactly once, maybe at once."""


class StateHolder(Protocol):
    """The log partitions with the state; `partitions.Partitions`, or a fake."""

    @property
    def runtime(self) -> Runtime:
        """Return the runtime of their operations."""

    def new_metadata_image(self, image: object) -> None:
        """Hand a metadata image to every shard."""

    def active(self) -> Iterator[Partition]:
        """Yield the partitions that serve."""


class DeletedState:
    """The clean-up of the state of deleted topics, driven by what the cluster says of the topics in use (`TopicUser`)."""

    def __init__(
        self,
        settings: DeletedTopicSettings,
        cluster_id: str,
        partitions: StateHolder,
        alarm_gauge: Gauge,
        records_max: int = RECORDS_PER_SLICE_MAX,
    ) -> None:
        """Create a clean-up for a log of the cluster `cluster_id`; a slice has `records_max` records at most."""
        self.deleted = DeletedTopics(settings, cluster_id)
        #: A clean-up that waits for an admin.
        self.alarm: CleanUpStopped | None = None
        self._records_max = records_max
        self._partitions = partitions
        self._alarm_gauge = alarm_gauge

    def topics_in_use(self) -> set[bytes]:
        """Return the ids of all topics of which this node holds state."""
        return {topic_id for _, machine in serving(self._partitions.active()) for topic_id in machine.state.topic_ids()}

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        """Handle a refresh: hand the image to the shards; after one that requested every topic, clean up the state of deleted ones."""
        self._partitions.new_metadata_image(image)
        if not refresh.is_full:
            self.deleted.observe(refresh)
            return
        counts: Counter[bytes] = Counter()
        for _, machine in serving(self._partitions.active()):
            sizes = machine.state.topic_sizes()
            counts.update(sizes)
            if not machine.load.is_accepted:
                self.deleted.count_as_seen(sizes)
        self.deleted.observe(refresh)
        self._act(self.deleted.decide(counts, refresh.at_ms))

    def _act(self, decided: CleanUp | CleanUpStopped | None) -> None:
        was_alarmed = self.alarm is not None
        self.alarm = decided if isinstance(decided, CleanUpStopped) else None
        self._alarm_gauge.value = int(self.alarm is not None)
        if self.alarm is not None and not was_alarmed:
            _log.error("clean_up_stopped", why=self.alarm.text)
        if isinstance(decided, CleanUp):
            _log.info("clean_up_started", topics=len(decided.topic_ids), keys=decided.key_count)
            for partition, machine in list(serving(self._partitions.active())):
                if machine.state.share_partition_count(decided.topic_ids):
                    self._clean_up(partition.index, decided.topic_ids)

    def _clean_up(self, index: int, topic_ids: frozenset[bytes]) -> None:
        operation = TopicCleanUp(topic_ids, self._records_max, lambda: self._clean_next_slice(index, topic_ids))
        self._partitions.runtime.write(index, operation)

    def _clean_next_slice(self, index: int, topic_ids: frozenset[bytes]) -> None:
        """Clean the next slice up, unless a topic was seen again while the last one was written."""
        still_gone = self.deleted.still_gone(topic_ids)
        if still_gone:
            self._clean_up(index, still_gone)
