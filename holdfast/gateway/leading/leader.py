"""The share partitions that this node leads, for all groups.

Leadership is ownership of a log partition: the node that owns the log partition of a topic partition leads it for every group, and the
leader epoch is the owner epoch. So a leader of the past is stopped by the log: its Writes meet FENCED_LEADER_EPOCH.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from holdfast.api.share_state_access import ShareStateAccess
from holdfast.delivery.group_config import GroupConfig, OffsetReset
from holdfast.delivery.sessions import ShareSessions
from holdfast.gateway.leading.deadlines import Deadlines
from holdfast.gateway.leading.failures import Failures
from holdfast.gateway.leading.led_partition import Ended, LedPartition
from holdfast.gateway.leading.starts import NoStart, Starts
from holdfast.gateway.leading.window import OpenReader
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.partition_reader import PartitionReader
from holdfast.records.share.keys import SharePartitionKey

_NOT_HERE: Final = Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads the topic partition")
#: The clock is looked at so often; a look that is later than a broker's session allows may be that of a node that was replaced.
_BEAT_MS: Final = 500
_LATE_MS: Final = 2_500
_NO_TOPIC: Final = Ended(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic")
_STOPPED: Final = Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node stops")
_WRITING: Final = Ended(ErrorCode.KAFKA_STORAGE_ERROR, "what was acknowledged before is on its way to the log")
_TOO_MANY: Final = "this node leads as many share partitions as it may"


class Leadership(Protocol):
    """The topic partitions that this node leads."""

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        """Return the log partition whose owner leads a topic partition."""

    def leader_epoch(self, topic_id: bytes, partition: int) -> int | Ended:
        """Return the epoch under which this node leads a topic partition, or why it does not."""


class Reader(Protocol):
    """Reads topics."""

    def open(self, topic: bytes, partition: int, offset: int, last_epoch: int) -> PartitionReader:
        """See `kafka.records.reader.TopicReader.open`."""


class Leader:
    """Share partitions by name.

    Args:
        access: their states.
        leadership: what this node leads.
        reader: reads records; the argument tells whether only committed ones.
        starts: finds where new groups begin.
        config_of: returns the config of a group.
        share_partitions_max: more are refused.
        metrics: instruments, and lines.
        sessions: of the members that fetch them.
    """

    def __init__(
        self,
        access: ShareStateAccess,
        leadership: Leadership,
        reader: Callable[[bool], Reader],
        starts: Starts,
        config_of: Callable[[str], GroupConfig],
        share_partitions_max: int,
        metrics: GatewayMetrics,
        sessions: ShareSessions,
    ) -> None:
        self.metrics: Final = metrics
        self.sessions: Final = sessions
        #: Those whose log ended below what was acquired when they were led last.
        self._held: set[SharePartitionKey] = set()
        self.access: Final = access
        self._leadership = leadership
        self._reader = reader
        self._starts = starts
        self._config_of = config_of
        self._share_partitions_max = share_partitions_max
        self._failures: Final = Failures()
        #: Those that have ended, and that have Writes on their way.
        self._ending: dict[SharePartitionKey, LedPartition] = {}
        self._clock_s: Final = asyncio.get_running_loop().time
        self._deadlines = Deadlines()
        #: How often the loop was so late that another node may lead by now.
        self.suspicions = 0
        self._beat_ms = self.now_ms()
        self._beat: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._by_group: defaultdict[str, dict[tuple[bytes, int], LedPartition]] = defaultdict(dict)
        self._by_log_partition: defaultdict[int, dict[LedPartition, None]] = defaultdict(dict)
        self._count = 0

    # ---- share partitions --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many share partitions are led."""
        return self._count

    def find(self, key: SharePartitionKey) -> LedPartition | None:
        """Return a share partition that is led already."""
        of_group = self._by_group.get(key.group_id)
        return None if of_group is None else of_group.get((key.topic_id, key.partition))

    def of_group(self, group_id: str) -> list[LedPartition]:
        """Return the share partitions of a group that are led already."""
        return list(self._by_group.get(group_id, {}).values())

    def lead(self, key: SharePartitionKey) -> LedPartition | Ended:
        """Return a share partition, which begins to load if nobody asked for it before, or why it is not led here."""
        led = self.find(key)
        if led is not None:
            return led
        if self._is_closed:
            return _STOPPED
        leader_epoch = self._leadership.leader_epoch(key.topic_id, key.partition)
        if isinstance(leader_epoch, Ended):
            return leader_epoch
        failed = self._failures.find(key, self.now_ms())
        if failed is not None:
            return failed
        if key in self._ending:
            # Under the same leader epoch no fence keeps them out of the log, so a state that was read now might lack them.
            return _WRITING
        if self._count >= self._share_partitions_max:
            return Ended(ErrorCode.KAFKA_STORAGE_ERROR, _TOO_MANY)
        led = LedPartition(key, leader_epoch, self._config_of(key.group_id), self)
        self._by_group[key.group_id][key.topic_id, key.partition] = led
        self._by_log_partition[self._leadership.log_partition(key.topic_id, key.partition)][led] = None
        self._count += 1
        led.load()
        return led

    def is_leader(self, topic_id: bytes, partition: int) -> bool:
        """Tell whether this node leads a topic partition."""
        return not isinstance(self._leadership.leader_epoch(topic_id, partition), Ended)

    def look_at_leadership(self, log_partition: int) -> None:
        """End the share partitions of a log partition that this node leads no more, or under another epoch."""
        for led in list(self._by_log_partition.get(log_partition, ())):
            if self._leadership.leader_epoch(led.key.topic_id, led.key.partition) != led.leader_epoch:
                led.end(_NOT_HERE)

    def unload_group(self, group_id: str) -> None:
        """Forget the share partitions of a group that nobody fetches any more, as soon as their Writes are answered."""
        for led in list(self._by_group.get(group_id, {}).values()):
            led.unload()

    def close(self) -> None:
        """End all share partitions."""
        for of_group in list(self._by_group.values()):
            for led in list(of_group.values()):
                led.end(_STOPPED)
        self._is_closed = True
        if self._beat is not None:
            self._beat.cancel()
        self._deadlines.close()
        self._starts.close()

    def look_at_clock(self) -> None:
        """Suspect that another node leads by now, if this process did nothing for long, as one that was frozen; each try begins so."""
        now_ms = self.now_ms()
        if self._beat is None:
            self._beat_again(now_ms)
        elif now_ms - self._beat_ms > _LATE_MS:
            self.suspicions += 1
            self._beat_ms = now_ms
            for of_group in self._by_group.values():
                for led in of_group.values():
                    led.wake()

    def _on_beat(self) -> None:
        self.look_at_clock()
        self._beat = None
        if self._count:
            self._beat_again(self.now_ms())

    def _beat_again(self, now_ms: float) -> None:
        if not self._is_closed:
            self._beat_ms = now_ms
            self._beat = asyncio.get_running_loop().call_later(_BEAT_MS / 1_000, self._on_beat)

    # ---- what share partitions call ----------------------------------------------------------------------------------------

    def now_ms(self) -> float:
        """See `LeaderParts.now_ms`."""
        return self._clock_s() * 1_000

    def open_reader(self, key: SharePartitionKey) -> OpenReader:
        """See `LeaderParts.open_reader`."""
        reader = self._reader(self._config_of(key.group_id).is_committed)

        def open_at(offset: int, last_epoch: int) -> PartitionReader:
            return reader.open(key.topic_id, key.partition, offset, last_epoch)

        return open_at

    def find_start(self, key: SharePartitionKey, reset: OffsetReset, respond: Callable[[int | NoStart], None]) -> None:
        """See `LeaderParts.find_start`."""
        self._starts.find(key.topic_id, key.partition, reset, respond)

    def deadline_changed(self, led: LedPartition) -> None:
        """See `LeaderParts.deadline_changed`."""
        self._deadlines.look_at(led)

    def written(self, led: LedPartition) -> None:
        """See `LeaderParts.written`."""
        if self._ending.get(led.key) is led:
            del self._ending[led.key]

    def failed(self, led: LedPartition, ended: Ended) -> None:
        """See `LeaderParts.failed`."""
        self._failures.add(led.key, ended, self.now_ms())

    def ended(self, led: LedPartition) -> None:
        """See `LeaderParts.ended`."""
        self._deadlines.forget(led)
        if not led.is_written:
            self._ending[led.key] = led
        group_id, topic_id, partition = led.key
        of_group = self._by_group[group_id]
        if of_group.get((topic_id, partition)) is led:
            del of_group[topic_id, partition]
            self._count -= 1
            log_partition = self._leadership.log_partition(topic_id, partition)
            self._by_log_partition[log_partition].pop(led, None)
            if not self._by_log_partition[log_partition]:
                del self._by_log_partition[log_partition]
        if not of_group:
            del self._by_group[group_id]

    def hold(self, key: SharePartitionKey) -> None:
        """See `LeaderParts.hold`."""
        if len(self._held) < self._share_partitions_max:
            self._held.add(key)
        self.metrics.held.value = len(self._held)

    def forget_topics(self, is_there: Callable[[bytes], bool]) -> None:
        """End the share partitions whose topic is gone, by its id, and hold none of it any more."""
        for of_group in list(self._by_group.values()):
            for led in list(of_group.values()):
                if not is_there(led.key.topic_id):
                    self._failures.add(led.key, _NO_TOPIC, self.now_ms())
                    led.end(_NO_TOPIC)
        self._held = {key for key in self._held if is_there(key.topic_id)}
        self.metrics.held.value = len(self._held)

    def give_again(self, key: SharePartitionKey) -> None:
        """See `LeaderParts.give_again`."""
        self._held.discard(key)
        self.metrics.held.value = len(self._held)
