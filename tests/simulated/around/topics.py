"""Topics that exist, are deleted and come back; and what a node makes of that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from structlog.testing import capture_logs

from holdfast.api.results import StateRequest, StateResponse
from holdfast.daemon.topics.metadata_cache import Refresh
from holdfast.metrics.instruments import Gauge
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.states import State
from holdfast.runtime.state_machine import Operation
from holdfast.share.deleted_state import DeletedState, TopicCleanUp
from holdfast.share.settings import DeletedTopicSettings
from holdfast.share.shard_kind import serving
from holdfast.share.topic_gate import TopicGate
from tests.simulated.checks.invariants import Invariant, violate

if TYPE_CHECKING:
    from tests.simulated.parts.node import Node
    from tests.simulated.parts.world import World

TOPIC_ID = bytes(range(16))
OTHER_TOPIC_ID = bytes(range(16, 32))
TOPIC_IDS = (TOPIC_ID, OTHER_TOPIC_ID)
PARTITION_COUNT = 64
CLUSTER_ID = "memory"
GRACE_MS = 2_000
MAX_SHARE = 0.6


class Image:
    """Cluster metadata; what is refused for want of a topic is told elsewhere, so every topic has partitions here."""

    def __init__(self, topics: Mapping[bytes, int] | None = None) -> None:
        self.topics: Any = topics if topics is not None else dict.fromkeys(TOPIC_IDS, PARTITION_COUNT)

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return the same number for each topic."""
        return PARTITION_COUNT


class Topics:
    """What the cluster says about the topics whose state is kept."""

    def __init__(self, world: World) -> None:
        self._random = world.random
        self.deleted: set[bytes] = set()
        self.unclear: set[bytes] = set()
        self.is_other_cluster = False

    def delete(self) -> bool:
        """Delete a topic, or let it come back."""
        self.deleted ^= {self._random.choice(TOPIC_IDS)}
        return bool(self.deleted)

    def blur(self) -> bool:
        """Let the cluster say nothing clear of a topic, or say it again."""
        self.unclear ^= {self._random.choice(TOPIC_IDS)}
        return bool(self.unclear)

    def answer_elsewhere(self) -> bool:
        """Let another cluster answer, or the right one again."""
        self.is_other_cluster = not self.is_other_cluster
        return self.is_other_cluster

    def refresh(self, now_ms: int, *, is_full: bool) -> Refresh:
        """Return what is told now."""
        unclear = frozenset(self.unclear)
        deleted = frozenset(self.deleted) - unclear
        cluster_id = "another" if self.is_other_cluster else CLUSTER_ID
        return Refresh(now_ms, cluster_id, frozenset(TOPIC_IDS) - deleted - unclear, deleted, unclear, is_full)

    def calm_down(self) -> None:
        """Let the cluster answer, and of the topics at most one be gone."""
        self.deleted -= {TOPIC_ID}
        self.unclear.clear()
        self.is_other_cluster = False


class NodeTopics:
    """The real clean-up of deleted topics of one process, and its gate."""

    def __init__(self, node: Node) -> None:
        self._node = node
        settings = DeletedTopicSettings(
            deleted_topic_grace_ms=GRACE_MS,
            deleted_topic_max_share=MAX_SHARE,
        )
        own: Any = self
        self.deleted_state = DeletedState(settings, CLUSTER_ID, own, Gauge(), records_max=1)
        self.runtime = self
        self._next_ms = 0
        self._missing_since_ms: dict[bytes, int] = {}
        self._gone: set[bytes] = (
            set()
        )  #: topics with state that were missing for the whole time of grace, by the last refresh
        self._counts: dict[bytes, int] = {}  #: share partitions by topic, at the last refresh
        self._may_go: set[bytes] = (
            set()
        )  #: topics whose removal has begun, and that were missing in the refresh before last
        # ---- the gate
        self.gate = TopicGate(own, own, node.runtime.write_timeout_ms, node.world.clock_ms)
        self._wanted: list[Callable[[], None]] = []
        self._asked: set[bytes] = set()  #: topics that were looked up for the request at hand

    # ---- what the clean-up asks of the shards -------------------------------------------------------------------------

    def new_metadata_image(self, image: Any) -> None:
        """Let every shard learn of an image."""
        self._node.image = image
        self._node.runtime.new_metadata_image(image)

    def active(self) -> Iterator[Partition]:
        """Yield the partitions that serve."""
        return (each for each in self._node.runtime.partitions.values() if each.state is State.ACTIVE)

    def write(self, index: int, operation: Operation) -> None:
        """Take a clean-up, if it may be."""
        assert isinstance(operation, TopicCleanUp)
        self._node.world.count("clean-up of a deleted topic")
        if begun := operation._topic_ids - self._may_go:
            count = sum(self._counts[topic_id] for topic_id in begun)
            is_too_much = count > MAX_SHARE * sum(self._counts.values()) and not self._node.world.is_calm
            if is_too_much or not begun <= self._gone:
                text = f"{self._node.name}/{index} removes {begun}; {self._missing_since_ms}, {self._counts}"
                violate(Invariant.TOPICS_KEEP_THEIR_STATE, text)
            self._may_go |= begun
        self._node.write(index, operation)

    def tick(self, now_ms: int) -> None:
        """Ask which topics exist."""
        while self._wanted:
            self._wanted.pop(0)()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + self._node.world.topics_interval_ms
        refresh = self._node.world.topics.refresh(now_ms, is_full=self._node.world.random.random() < 0.9)
        self._learn(refresh)
        topics = dict.fromkeys(refresh.existing_ids, PARTITION_COUNT)
        with capture_logs():
            self.deleted_state.refreshed(Image(topics), refresh)  # type: ignore[arg-type]  # it is handed on only
        if self.deleted_state.alarm is not None:
            self._node.world.count("clean-up stopped")

    def _learn(self, refresh: Refresh) -> None:
        before = set(self._missing_since_ms)
        if refresh.cluster_id != CLUSTER_ID:
            self._missing_since_ms.clear()
        else:
            for topic_id in refresh.unknown_ids:
                self._missing_since_ms.setdefault(topic_id, refresh.at_ms)
            for topic_id in refresh.existing_ids | refresh.unclear_ids:
                self._missing_since_ms.pop(topic_id, None)
        self._may_go &= before
        self._counts = dict.fromkeys(TOPIC_IDS, 0)
        for _, shard in serving(self.active()):
            for topic_id, count in shard.state.topic_sizes().items():
                self._counts[topic_id] += count
        self._gone = {
            topic_id
            for topic_id, since_ms in self._missing_since_ms.items()
            if refresh.at_ms - since_ms >= GRACE_MS and self._counts[topic_id]
        }

    def accept(self) -> None:
        """Let an admin agree to a clean-up that was stopped."""
        alarm, deleted = self.deleted_state.alarm, self.deleted_state.deleted
        if alarm is not None:
            deleted.accept(alarm.topic_ids)

    def left_behind(self) -> list[bytes]:
        """Return deleted topics that still have state here, but for logs that an admin accepted: those topics must be seen first."""
        deleted = self._node.world.topics.deleted
        shards = [shard for _, shard in serving(self.active()) if not shard.load.is_accepted]
        return [topic_id for shard in shards for topic_id in shard.state.topic_sizes() if topic_id in deleted]

    # ---- what the gate asks ----------------------------------------------------------------------------------------

    @property
    def image(self) -> Image | None:
        """Return the newest image."""
        return self._node.image

    def look_up(
        self, topic_ids: Collection[bytes], caller: str, then: Callable[[Collection[bytes]], None], timeout_ms: int
    ) -> None:
        """Look topics up; the answer comes with the next tick."""
        self._node.world.count("topic looked up")
        if timeout_ms * 2 > self._node.runtime.write_timeout_ms:
            violate(Invariant.GATE_ASKS_FIRST, f"a look-up takes {timeout_ms} ms of a request's time")

        def answered() -> None:
            self._asked = set(topic_ids)
            then(())
            self._asked = set()

        self._wanted.append(answered)

    @property
    def is_active(self) -> bool:
        """Tell whether calls are taken."""
        return self._node.service.is_active

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the log partition of a key."""
        return self._node.service.partition_for(key)

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], waited_ms: int = 0
    ) -> None:
        """Take what the gate lets through."""
        unknown = [topic_id for topic_id, _ in request.topics if topic_id not in self._node.image.topics]
        if self.is_active and unknown and not self._asked & set(unknown):
            violate(Invariant.GATE_ASKS_FIRST, f"a request about {unknown} is let through at once")
        self._node.service.handle(api_key, request, respond, waited_ms)

    def let_in(self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None]) -> None:
        """Take a request, and see that one about known topics does not wait."""
        wanted = len(self._wanted)
        self.gate.handle(api_key, request, respond, "client")
        if len(self._wanted) > wanted and all(topic_id in self._node.image.topics for topic_id, _ in request.topics):
            violate(Invariant.GATE_ASKS_FIRST, "a request about known topics waits")

    def close(self) -> None:
        """Answer all that waits for a look-up."""
        while self._wanted:
            self._wanted.pop(0)()
