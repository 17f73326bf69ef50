"""A node's log partitions with their maintenance, over the log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.maintenance.log_checks import ClusterAccess, LogChecks
from holdfast.daemon.maintenance.maintenance import Maintenance
from holdfast.daemon.maintenance.reader_offsets import ReaderOffsets
from holdfast.daemon.maintenance.schedule import Schedule
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.topics.cluster_queries import make_cluster_queries
from holdfast.daemon.topics.log_identity import FirstRecords, read_first_records
from holdfast.daemon.topics.metadata_cache import Refresh
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from holdfast.share.commands import ShareCommands
from holdfast.share.deleted_state import RECORDS_PER_SLICE_MAX, DeletedState
from holdfast.share.settings import DeletedTopicSettings
from holdfast.share.tenant import StartingShareCalls
from tests.simulated.memory_log import MemoryTopic
from tests.world.context import make_context
from tests.world.node import CLUSTER, PartitionsWorld, state_topic

GRACE_MS = 1_000
A, B, C = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
ALL = frozenset([A, B, C])
#: Clients of a broker that is not there.
NO_KAFKA = KafkaClients({"bootstrap.servers": "127.0.0.1:1"})


async def no_offsets(group: str) -> dict[int, int]:
    """Return what a group has committed: nothing."""
    return {}


def make_maintenance(
    world: PartitionsWorld,
    renewed: list[StateTopic] | None = None,
    read_first_records: Callable[..., list[FirstRecords]] = read_first_records,
) -> Maintenance:
    """Return the maintenance of a world's partitions; it does nothing by itself."""
    partitions, metrics, settings = world.partitions, world.metrics, world.settings
    cluster = make_cluster_queries(settings, connection_options(settings.kafka.properties), lambda: world.clock.now_ms)
    access = ClusterAccess(NO_KAFKA, world.settings, metrics, cluster.client)
    topics: list[StateTopic] = [] if renewed is None else renewed
    return Maintenance(
        LogChecks(
            access,
            state_topic(world.topic),
            partitions,
            LineLimiter(),
            log_renewed=topics.append,
            read_first_records=read_first_records,
        ),
        world.readers,
        ReaderOffsets(world.readers, no_offsets, partitions.committed_offsets, metrics, LineLimiter()),
        Schedule(world.settings.load.retry_backoff_max_ms, make_context()),
    )


def make_deleted_state(world: PartitionsWorld, records_max: int = RECORDS_PER_SLICE_MAX) -> DeletedState:
    alarm = world.share_metrics.deleted_topics_alarm
    return DeletedState(world.settings.of(DeletedTopicSettings), world.cluster_id, world.partitions, alarm, records_max)


def make_share_commands(world: PartitionsWorld, deleted_state: DeletedState) -> ShareCommands:
    """Return the commands about the share state of a world, to which no calls come."""
    calls = StartingShareCalls(world.share_metrics, lambda: 0.0, InternalErrors(Counter()))
    elsewhere = world.allotment.describe_elsewhere
    return ShareCommands(calls, world.partitions, deleted_state, world.settings.limits, elsewhere)


class World(PartitionsWorld):
    """A node with its maintenance, and a cluster that has the topics it is said to have."""

    def __init__(
        self, topic: MemoryTopic, node_id: int = 1, *, records_max: int = RECORDS_PER_SLICE_MAX, **flags: Any
    ) -> None:
        self._records_max = records_max
        flags = {"deleted_topic_grace_ms": GRACE_MS, "metadata.metadata_refresh_interval_ms": GRACE_MS} | flags
        super().__init__(topic, node_id, **flags)
        self.renewed: list[StateTopic] = []
        self.existing = ALL
        self.version = 0

    def begin(self, image: Any = None) -> Partitions:
        partitions = super().begin(self.image() if image is None else image)
        self.maintenance = make_maintenance(self, self.renewed)
        self.deleted_state = make_deleted_state(self, self._records_max)
        return partitions

    def read_first_records(self, read: Callable[..., list[FirstRecords]]) -> None:
        """Let the first records of log partitions be read by `read`."""
        self.maintenance = make_maintenance(self, self.renewed, read)

    def image(self) -> MetadataImage:
        self.version += 1
        return MetadataImage(self.version, CLUSTER, dict.fromkeys(self.existing, 100))

    def refresh(
        self,
        after_ms: int = 0,
        is_full: bool = True,
        cluster_id: str = CLUSTER,
        asked: Iterable[bytes] | None = None,
        is_log_slow: bool = False,
    ) -> None:
        """Let a refresh come that asks for all topics in use; a slow log commits nothing yet."""
        self.clock.now_ms += after_ms
        ids = frozenset(self.deleted_state.topics_in_use() if asked is None else asked)
        existing = ids & self.existing
        refresh = Refresh(self.clock.now_ms, cluster_id, existing, ids - existing, frozenset(), is_full)
        self.deleted_state.refreshed(self.image(), refresh)
        if not is_log_slow:
            self.settle()

    def fill(self, sizes: dict[bytes, int]) -> None:
        """Initialize so many share partitions of each topic, on both log partitions in turn."""
        for topic_id, size in sizes.items():
            for number in range(size):
                self.initialize(number % len(self.topic.partitions), SharePartitionKey("group", topic_id, number))

    def topics(self) -> set[bytes]:
        return {key.topic_id for key in self.keys()}


async def filled(sizes: dict[bytes, int], **flags: Any) -> World:
    world = await World(MemoryTopic(2), **flags).serve()
    world.fill(sizes)
    world.refresh()
    return world


def states(world: World) -> list[State]:
    """Return the states of the log partitions, by index."""
    return [each.state for each in world.partitions]


def tick_past_the_back_off(world: World) -> None:
    """Let failed log partitions load again."""
    world.tick(world.settings.load.retry_backoff_max_ms // 50 + 1)
