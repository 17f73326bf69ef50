"""A member of the nodes' group that says of itself what nothing proves: the nodes go on, and forget it when it has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.membership.division.metadata import (
    COOPERATIVE,
    EAGER,
    PROTOCOL_TYPE,
    MemberMetadata,
    encode_metadata,
    protocol_names,
)
from holdfast.daemon.membership.division.ownership_map import FormerOwner
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.server.cluster_view import Node
from holdfast.membership import JoinedMember
from holdfast.records.log.checkpoint import Placement
from tests.real.membership.member_program import Program, running
from tests.real.membership.member_program import settings as group_settings
from tests.real.membership.test_nodes import LOG_PARTITIONS, member_settings, tasks
from tests.real.running_node import RunningNode
from tests.real.running_node import running as running_node
from tests.waiting import wait_until

pytestmark = pytest.mark.real

SAYS: Final = MemberMetadata(Node(666, "127.0.0.1", 6660), "evil", -1, 0, 0, (), (), (), ())
EVERYTHING: Final = tuple(range(LOG_PARTITIONS))
CLAIMS: Final[dict[str, dict[str, Any]]] = {
    "generation seen": {"generation_seen": 2**63 - 2},
    "last generation": {"generation_seen": 2**63 - 1},
    "generation": {"generation": 2**60, "generation_seen": 2**60, "tasks": EVERYTHING},
    "plausible generation": {"generation": 2**40, "generation_seen": 2**40, "tasks": EVERYTHING},
    "config offset": {"config_offset": 2**62},
    "plausible config offset": {"config_offset": 2**30},
    "host": {"node": Node(666, "x\x1b[31m\nhost" + "h" * 20_000, -1)},
    "former owners": {"may_serve": tuple(FormerOwner(Node(n, "1.2.3.4", 1), EVERYTHING, 2**62) for n in range(2_000))},
    "node id": {"node": Node(1, "10.9.9.9", 1), "generation": 9, "generation_seen": 9, "tasks": EVERYTHING},
}


class Hostile(Program):
    """A member that never leads: it joins where others are."""

    def __init__(self, **claims: Any) -> None:
        data = encode_metadata(SAYS._replace(**claims))
        names = protocol_names(COOPERATIVE, EAGER, placement=Placement.BY_TOPIC_PARTITION)
        super().__init__([(name, data) for name in names], PROTOCOL_TYPE)

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        """Give nobody anything, if it should lead for a moment."""
        return {member.member_id: b"" for member in members}

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        """Take note."""
        self.say("complete")


@pytest.mark.parametrize("claim", CLAIMS)
async def test_nodes_divide_the_log_beside_a_claim_and_after_it(kafka: str, topic: str, claim: str) -> None:
    async with running_node(member_settings(kafka, topic, 1)) as first:
        hostile = running(Hostile(**CLAIMS[claim]), kafka, group_settings(f"holdfast-{topic}"))
        with capture_logs() as lines:
            async with hostile:
                # A rebalance beside the claim: the second node joins, and gets its share.
                second = RunningNode(member_settings(kafka, topic, 2))
                await second.until(lambda: tasks(second), "the second node has log partitions")
            await wait_until(
                lambda: sorted((*tasks(first), *tasks(second))) == list(EVERYTHING) and second.node.is_ready,
                "everything is served after the claim",
            )
        assert not first.exit.done(), "the claim has ended a node"
        assert await second.stop() is NodeExit.STOPPED
        await first.until(lambda: tasks(first) == list(EVERYTHING), "all of it comes back")
        assert [line["event"] for line in lines if line["event"] == "membership_callback_failed"] == []
        assert first.node.context.internal_errors._count.value == 0
