"""The snapshot topic as a node uses it: a log of its own, followed for the partitions that load or serve here."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.daemon.components import quiet_log_config
from holdfast.daemon.context import NodeContext
from holdfast.daemon.partitions.partitions import LogPlace
from holdfast.daemon.settings.logging import warn_of_library
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.metadata_cache import TopicUser
from holdfast.kafka.connection_options import LiveProperties
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.metrics.registry import Registry
from holdfast.runtime.coordinator import CoordinatorRuntime
from holdfast.runtime.kafka_log.log import KafkaLog
from holdfast.runtime.load_slices import SLICE_MS
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity
from holdfast.share.components import snapshot_bounds
from holdfast.share.settings import DeletedTopicSettings
from holdfast.share.snapshots.follower import SnapshotFollower
from holdfast.share.snapshots.metrics import SnapshotMetrics
from holdfast.share.snapshots.other_topics import OtherTopics
from holdfast.share.snapshots.verifier import RemovalRefused, SnapshotVerifier

_log = structlog.get_logger(__name__)

#: Messages of the snapshot topic that a node removes in a second: brokers have other work, and nothing waits for it.
_REMOVALS_PER_SECOND_MAX: Final = 1_000


class RuntimeHolder(Protocol):
    """The log partitions that restore from snapshots, and whose owner verifies them."""

    #: Not before all of the node is made.
    runtime: CoordinatorRuntime


class Topics(Protocol):
    """The source of the cluster's topics; `ClusterMetadata`, or a fake."""

    def add_user(self, user: TopicUser) -> None:
        """See `ClusterMetadata.add_user`."""


class Snapshots:
    """The follower of the snapshot topic with its log and its producer, from `start` to `stop`."""

    def __init__(
        self,
        settings: Settings,
        kafka: LiveProperties,
        place: LogPlace,
        context: NodeContext,
        partitions: RuntimeHolder,
        topics: Topics,
    ) -> None:
        """Create the snapshots of a node; `start` connects, on a running event loop.

        Args:
            settings: of the node.
            kafka: how producers reach the brokers.
            place: where the log is.
            context: of the node.
            partitions: what restores from the snapshots.
            topics: tells which other state topics exist.
        """
        snapshots = settings.snapshots
        self._others = OtherTopics(
            place.cluster_id, settings.of(DeletedTopicSettings).deleted_topic_grace_ms, self._note_shared
        )
        topics.add_user(self._others)
        self._holder = partitions
        #: See `SnapshotHost.now_ms`.
        self.now_ms: Callable[[], int] = context.now_ms
        # Only the log of the state topic has metrics.
        self._log = KafkaLog(
            quiet_log_config(settings, settings.snapshots.topic, place.connection),
            context.now_ms,
            RuntimeMetrics(Registry()),
        )
        metrics = SnapshotMetrics(context.registry)
        verifier = SnapshotVerifier(self, metrics, _REMOVALS_PER_SECOND_MAX, SLICE_MS)
        self._topic = snapshots.topic
        self._clients = KafkaClients(kafka, partial(warn_of_library, context.limiter))
        #: None before the first removal.
        self._producer: Producer | None = None
        #: Version of the properties that it was made with.
        self._renewals = 0
        #: Why the last removal failed; empty after one that did not.
        self._removal_problem = ""
        self._loop = asyncio.get_running_loop()
        self.follower = SnapshotFollower(self._log, snapshot_bounds(settings), self, metrics, verifier)

    async def start(self) -> None:
        """Connect.

        Raises:
            ConnectionFailed: no broker answered.
        """
        await self._log.start(self.follower)

    async def stop(self, timeout_s: float) -> bool:
        """Close the log of the topic; return whether that was done in time."""
        if self._producer is not None:
            self._producer.purge()  # what is not removed now is found again by the next owner
        return await self._log.close(timeout_s)

    def partition_changed(self, partition: Partition) -> None:
        """Stop following a partition that will not be loaded again."""
        if partition.state is State.CLOSED:
            self.follower.forget(partition.index)

    def tick(self) -> bool:
        """Let the follower do what is due, and the producer report; return whether there is more to be done soon."""
        is_at_work = self.follower.tick(self.now_ms())
        if self._producer is not None:
            self._producer.poll(0)
        return is_at_work

    # ---- for the follower and the verifier (SnapshotHost) ----------------------------------------------------------

    @property
    def log_identity(self) -> LogIdentity:
        """See `SnapshotHost.log_identity`."""
        return self._holder.runtime.config.log

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """See `SnapshotHost.partitions`."""
        return self._holder.runtime.partitions

    def continue_soon(self, task: Callable[[], None]) -> None:
        """See `SnapshotHost.continue_soon`."""
        self._loop.call_soon(task)

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        """See `SnapshotHost.note`."""
        getattr(_log, level)(event, **fields)

    def restore_point_found(self, partition: int, instance: int, point: RestorePoint | None) -> None:
        """See `SnapshotHost.restore_point_found`."""
        self._holder.runtime.restore_point_found(partition, instance, point)

    def is_gone(self, topic_id: bytes) -> bool:
        """See `SnapshotHost.is_gone`."""
        return self._others.is_gone(topic_id, self.now_ms())

    def _note_shared(self, topic_id: bytes) -> None:
        fields: dict[str, object] = {"topic": self._topic, "state_topic_id": format_topic_id(topic_id)}
        self.note("warning", "snapshot_topic_shared", fields)

    def remove(self, partition: int, key: bytes) -> bool:
        """See `SnapshotHost.remove`."""
        try:
            if self._producer is None or self._renewals != self._clients.renewals:
                self._producer, self._renewals = self._clients.producer({"linger.ms": 100}), self._clients.renewals
            self._producer.produce(self._topic, None, key, partition, on_delivery=self._on_removed)
        except BufferError:
            return False
        except KafkaException as error:
            raise RemovalRefused(self._explain(error.args[0])) from error
        return True

    def _explain(self, error: KafkaError) -> str:
        return f"{error.str()}{acl_remedy(error.code(), 'Write', f'topic {self._topic}', self._clients.principal)}"

    def _on_removed(self, error: KafkaError | None, message: Message) -> None:
        """Log why a message was not removed, once for as long as the reason is the same; the next owner finds it again."""
        problem = ""
        if error is not None and error.code() != KafkaError._PURGE_QUEUE:
            problem = self._explain(error)
        if problem and problem != self._removal_problem:
            self.note("warning", "snapshot_removal_refused", {"partition": message.partition(), "why": problem})
        self._removal_problem = problem
