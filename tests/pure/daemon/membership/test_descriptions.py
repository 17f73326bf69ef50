"""What a member shows to people: the members, and the log partitions of others."""

import pytest

from tests.pure.daemon.membership.world import Clock, Config, Group, Member


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def group() -> Group:
    return Group()


async def test_members_for_people(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    assert a.coordinator.describe_members() == []
    await group.rebalance(a, b)
    assert b.coordinator.describe_members() == [
        {
            "node_id": 1,
            "address": "h:9001",
            "member_id": "m-1",
            "is_leader": True,
            "generation": 1,
            "log_partitions": [1, 3],
            "duties": ["compaction"],
            "state": "member",
        },
        {
            "node_id": 2,
            "address": "h:9002",
            "member_id": "m-2",
            "is_leader": False,
            "generation": 1,
            "log_partitions": [0, 2],
            "duties": [],
            "state": "stable",
        },
    ]


async def test_the_log_partitions_of_others_for_people(clock: Clock, group: Group) -> None:
    a, b = Member(1, clock), Member(2, clock)
    assert a.coordinator.describe_elsewhere() == []
    await group.rebalance(a)
    assert a.coordinator.describe_elsewhere() == []
    await group.rebalance(a, b)
    assert a.coordinator.describe_elsewhere() == [], "it serves all of them until they are taken"
    a.taken(2, 2)
    [row] = a.coordinator.describe_elsewhere()
    assert {name: value for name, value in row.items() if value is not None} == {
        "partition": 2,
        "state": "elsewhere",
        "owner": "2",
        "owner_address": "h:9002",
        "generation": 2,
        "is_alarmed": False,
    }
    await b.coordinator.on_lost("a test")
    assert b.coordinator.describe_elsewhere() == [], "of a session that was lost no map is left"


async def test_what_waits_for_an_absent_node_or_for_this_one_has_a_state_of_its_own(clock: Clock, group: Group) -> None:
    a, b = (Member(node_id, clock, rebalance_delay_ms=60_000) for node_id in (1, 2))
    await group.rebalance(a, b)
    await group.rebalance(a)
    rows = a.coordinator.describe_elsewhere()
    assert [(row["partition"], row["state"], row["owner"]) for row in rows] == [
        (task, "unassigned", None) for task in (0, 2)
    ]
    ahead, behind = Member(1, clock, Config(5)), Member(2, clock)
    await Group().rebalance(ahead, behind)
    rows = behind.coordinator.describe_elsewhere()
    assert [(row["partition"], row["state"], row["owner"]) for row in rows] == [
        (0, "waiting", "2"),
        (1, "elsewhere", "1"),
        (2, "waiting", "2"),
        (3, "elsewhere", "1"),
    ]
