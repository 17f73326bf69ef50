"""The part of this node in a topic partition or a group: leader, coordinator, or neither."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final

from holdfast.api.share_consumer import NodeEndpoint
from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.daemon.access.audit import Client
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.server.topics_view import TopicQuery
from holdfast.daemon.tenant import LogParts
from holdfast.delivery.share_group import Topics
from holdfast.gateway.consumers import LeaderPlace
from holdfast.gateway.leaders import GroupKeys, TopicLeaders
from holdfast.gateway.leading.led_partition import Ended
from holdfast.gateway.topics.offered import OfferedTopics
from holdfast.kafka.metadata import NO_TOPIC
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.runtime.errors import NotAvailable

_NO_TOPIC: Final = Ended(
    ErrorCode.UNKNOWN_TOPIC_ID, "TopicId is of no topic that gateway.topics offers; look the topic up again"
)
_NO_PARTITION: Final = Ended(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "PartitionIndex is none of the topic's partitions; look the topic up again"
)
_DENIED: Final = Ended(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the principal may not READ the topic")
_ELSEWHERE: Final = Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads the topic partition")
_LOADING: Final = Ended(ErrorCode.KAFKA_STORAGE_ERROR, "this node is about to lead the topic partition")


class NodePlacement:
    """Leadership of topic partitions and coordination of groups: both are ownership of log partitions."""

    def __init__(
        self,
        topics: OfferedTopics,
        leaders: TopicLeaders,
        log: LogParts,
        groups: GroupKeys,
        authorizer: Authorizer,
    ) -> None:
        self._topics = topics
        self.log_partition = leaders.log_partition
        self._leadership = log.leadership
        self._node_id = log.place.node.node_id
        self._groups = groups
        self._authorizer = authorizer

    def leader_epoch(self, topic_id: bytes, partition: int) -> int | Ended:
        """Return the epoch under which this node leads a topic partition, or why it does not."""
        leader = self._leadership.leader(self.log_partition(topic_id, partition))
        if leader.serves_here:
            return leader.epoch
        is_ours = leader.node is not None and leader.node.node_id == self._node_id
        return _LOADING if is_ours or leader.node is None else _ELSEWHERE

    def has_other_nodes(self, log_partitions: int) -> bool:
        """Tell whether another node owns a log partition."""
        owners = (self._leadership.leader(place).node for place in range(log_partitions))
        return any(node is not None and node.node_id != self._node_id for node in owners)

    def leader(self, topic_id: bytes, partition: int) -> LeaderPlace:
        """Return the leader of a topic partition, -1 where there is none."""
        node, epoch, _ = self._leadership.leader(self.log_partition(topic_id, partition))
        if node is None or epoch < 0:
            return LeaderPlace(-1, -1, None)
        return LeaderPlace(node.node_id, epoch, NodeEndpoint(node.node_id, node.host, node.port))

    def refuse_read(self, caller: Client, topic_id: bytes, partition: int) -> Ended | None:
        """Return why a client gets nothing of a topic partition; None: it may have it."""
        topic = self._topics.topic_by_id(topic_id)
        if topic is None:
            return _NO_TOPIC
        if not 0 <= partition < topic.partition_count:
            return _NO_PARTITION
        assert topic.name is not None
        if not self._authorizer.may(caller, "ShareFetch", Operation.READ, ResourceType.TOPIC, topic.name):
            return _DENIED
        return None

    def rights(self, caller: Client) -> Hashable:
        """Return what `refuse_read` rests on besides the topics; while it is equal, so is what a client may have."""
        return self._authorizer.rules, caller.principal, caller.client_address

    def refuse_group(self, group_id: str) -> int:
        """Return Kafka's error code where another node coordinates a group, or none yet; 0: this one does."""
        try:
            place = self._groups.partition_for(group_id)
        except NotAvailable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        leader = self._leadership.leader(place)
        if leader.serves_here:
            return ErrorCode.NONE
        if leader.node is None or leader.node.node_id == self._node_id:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    def find(self, names: Collection[str]) -> Topics:
        """Return the topics that are offered, of these names; those that are not known are looked up for the next time."""
        found = {}
        for name in names:
            topic = self._topics.topic(name)
            if topic is not None:
                found[name] = (topic.topic_id, topic.partition_count)
        return found

    def when_known(self, names: Sequence[str], caller: str, then: Callable[[], None]) -> None:
        """Call a function once the topics of these names are known, or no broker knows them, or none answers in time; maybe at once.

        Args:
            names: that a client subscribes to.
            caller: address of the client.
            then: called once.
        """
        self._topics.find([TopicQuery(name, NO_TOPIC) for name in names], caller, lambda _: then())
