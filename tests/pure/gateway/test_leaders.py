"""The leaders of topic partitions and the coordinators of groups: owners of log partitions, by Kafka's hash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.daemon.partitions.leadership import Leader
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.find_coordinator import GROUP, TRANSACTION, KeyRefused
from holdfast.gateway.leaders import GroupKeys, TopicLeaders
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.keys import GROUP_ID_BYTES_MAX, SharePartitionKey, java_string_hash, log_partition
from holdfast.runtime.errors import NotAvailable
from tests.pure.daemon.server.calls import NODES, ApiWorld
from tests.world.samples import TOPIC


@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_topic_partition_is_placed_by_the_hash_of_its_id_and_number(count: int) -> None:
    leaders = TopicLeaders(Owners(), count)
    for partition in (0, 7, 99, 12_345, 2**31 - 1):
        whole = abs(java_string_hash(f"{format_topic_id(TOPIC)}:{partition}"))
        assert leaders.log_partition(TOPIC, partition) == whole % count
        of_state = log_partition(SharePartitionKey("any group", TOPIC, partition), count, Placement.BY_TOPIC_PARTITION)
        assert leaders.log_partition(TOPIC, partition) == of_state, "the leader has the state of all groups"


class Owners:
    """The owners of log partitions (`tenant.Leadership`): each has the epoch of its number."""

    def leader(self, log_partition: int) -> Leader:
        return Leader(NODES[0], log_partition, serves_here=True)

    def watch(self, changed: Callable[[int], None]) -> None:
        raise AssertionError("nobody watches")


def test_the_leader_is_the_owner_and_its_epoch_the_owner_epoch() -> None:
    leaders = TopicLeaders(Owners(), 3)
    assert leaders.leader(TOPIC, 4) == Leader(NODES[0], leaders.log_partition(TOPIC, 4), serves_here=True)


# Text whose hash in Java is -2^31, of which Java's abs is negative.
SMALLEST = "polygenelubricants"


@pytest.mark.parametrize(
    ("group", "partition"), [("", 0), ("a", 97 % 50), ("orders", abs(java_string_hash("orders")) % 50), (SMALLEST, 0)]
)
def test_a_group_is_placed_by_the_hash_of_its_id(group: str, partition: int) -> None:
    keys = GroupKeys(50)
    assert keys.parse(group) == (group, group)
    assert keys.partition_for(group) == partition


def test_a_group_id_that_no_record_could_carry_is_no_key() -> None:
    keys = GroupKeys(3)
    assert keys.parse("g" * GROUP_ID_BYTES_MAX)
    with pytest.raises(KeyRefused, match=f"has more than {GROUP_ID_BYTES_MAX} bytes"):
        keys.parse("g" * (GROUP_ID_BYTES_MAX + 1))


def test_groups_have_no_coordinator_before_start_up_and_after_shutdown() -> None:
    with pytest.raises(NotAvailable):
        GroupKeys().partition_for("g")


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_names_the_owner_in_each_version(version: int) -> None:
    world = ApiWorld(key_types={GROUP: GroupKeys(3)})
    group = "orders"
    partition = abs(java_string_hash(group)) % 3

    def find(key_type: int) -> tuple[int, Node]:
        fields = (
            {"key": group} | ({"key_type": key_type} if version else {})
            if version < 4
            else {"key_type": key_type, "coordinator_keys": (group,)}
        )
        response = world.ask("find_coordinator", version, **fields)
        found = response if version < 4 else response.coordinators[0]
        return found.error_code.value, Node(found.node_id, found.host, found.port)

    assert find(GROUP) == (ErrorCode.NONE, world.cluster.owner(partition))
    if version:
        assert find(TRANSACTION) == (ErrorCode.INVALID_REQUEST, Node(-1, "", -1))
    world.cluster.nodes = []
    assert find(GROUP) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, Node(-1, "", -1))
