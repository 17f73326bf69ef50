"""A node that serves every log partition and does every duty, without a group."""

from collections.abc import Callable
from typing import Any

from holdfast.daemon.membership.duties import Duties
from holdfast.daemon.partitions.own_view import OwnView
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.addresses import format_address


class LoneNode:
    """The allotment of a static node (`Allotment`): everything."""

    def __init__(self, this_node: Node, view: OwnView, partitions: Partitions, duties: Duties) -> None:
        self.view = view
        self._this_node = this_node
        self._partitions = partitions
        self._duties = duties

    def start(self, leader_quiet_s: Callable[[int], float]) -> None:
        """Take every log partition, a bounded number at a time, and begin every duty; no other node could reach what this one cannot."""
        self._partitions.load_all()
        self._duties.set(self._duties.offered)

    async def stop(self) -> None:
        """End the duties; nobody waits for the log partitions."""
        await self._duties.stop()

    def why_not_ready(self) -> str:
        """Return nothing: there is nobody to wait for."""
        return ""

    def taken_over(self, index: int, generation: int) -> bool:
        """Return False: nobody has planned that."""
        return False

    def refuse_take(self) -> str:
        """Return nothing: a static node takes what an admin wants it to."""
        return ""

    def describe_elsewhere(self) -> list[dict[str, Any]]:
        """Return nothing: there are no other members."""
        return []

    def describe_membership(self) -> dict[str, Any]:
        """Return nothing that is known: the node is no member."""
        return {"config_offset": None, "group_instance_id": None, "heartbeat_age_ms": None}

    def describe_members(self) -> list[dict[str, Any]]:
        """Return this node."""
        wanted = sorted(self._partitions.wanted)
        return [
            {
                "node_id": self._this_node.node_id,
                "address": format_address(self._this_node.host, self._this_node.port),
                "member_id": None,
                "is_leader": False,
                "generation": None,
                "log_partitions": wanted,
                "duties": list(self._duties.offered),
                "state": "static",
            }
        ]
