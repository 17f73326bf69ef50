"""Two maps, and what has changed between them in words."""

from __future__ import annotations

import pytest

from holdfast.daemon.membership.division.ownership_map import (
    AbsentNode,
    MappedMember,
    OwnershipMap,
    Work,
    explain_change,
)
from holdfast.daemon.server.cluster_view import Node

HERE = Node(1, "one", 1)


def divided(*node_ids: int, absent: tuple[int, ...] = ()) -> OwnershipMap:
    members = tuple(MappedMember(f"m{each}", Node(each, f"node-{each}", 1), Work()) for each in node_ids)
    return OwnershipMap(1, members, tuple(AbsentNode(each, 500, Work((0,))) for each in absent))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (None, divided(1, 2), "node 1 came"),
        (divided(1), divided(1), ""),
        (divided(1), divided(1, 3, 2), "node 2 came; node 3 came"),
        (divided(1, 2), divided(1), "node 2 left or was lost"),
        (divided(1, 2), divided(1, absent=(2,)), "node 2 left or was lost, and is waited for"),
        (divided(1, absent=(2,)), divided(1, 2), "node 2 came back"),
        (divided(1, absent=(2,)), divided(1), "node 2 did not come back in time"),
        (divided(1, 2), divided(1, 3), "node 3 came; node 2 left or was lost"),
    ],
)
def test_a_change_names_who_came_and_who_went(before: OwnershipMap | None, after: OwnershipMap, why: str) -> None:
    assert explain_change(before, after, HERE) == why
