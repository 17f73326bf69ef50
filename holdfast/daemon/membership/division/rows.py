"""The members of a group as rows for people."""

from __future__ import annotations

from typing import Any

from holdfast.daemon.membership.division.ownership_map import OwnershipMap
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.addresses import format_address


def describe_members(divided: OwnershipMap, leader_id: str, this_node: Node, our_state: str) -> list[dict[str, Any]]:
    """Return a row for each member of a map and each absent node, sorted by node id."""
    rows: list[dict[str, Any]] = [
        {
            "node_id": each.node.node_id,
            "address": format_address(each.node.host, each.node.port),
            "member_id": each.member_id,
            "is_leader": each.member_id == leader_id,
            "generation": divided.generation,
            "log_partitions": list(each.work.tasks),
            "duties": list(each.work.duties),
            "state": our_state if each.node == this_node else "member",
        }
        for each in divided.members
    ]
    rows += [
        {
            "node_id": each.node_id,
            "address": None,
            "member_id": None,
            "is_leader": False,
            "generation": divided.generation,
            "log_partitions": list(each.work.tasks),
            "duties": list(each.work.duties),
            "state": "absent",
        }
        for each in divided.absent
    ]
    return sorted(rows, key=lambda row: (row["node_id"], row["member_id"] or ""))
