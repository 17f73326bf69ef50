"""Commands at one of several nodes of a group: what the others have is fetched from them, and who is silent is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.console.outcomes import Exit
from holdfast.console.sources.group_nodes import merge_partitions
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from tests.pure.console.conftest import PARTITION, TOPIC_ID, Node, Run, running_node

STATE = ShareState(0, 1, 3, 10, 10, 0, 0, (), 3, 1, 0)
#: Where nobody listens.
NOWHERE = "127.0.0.1:1"


def partition(index: int, state: str, owner: Node | str) -> dict[str, Any]:
    address = owner if isinstance(owner, str) else owner.address
    known = PARTITION if state == "active" else dict.fromkeys(PARTITION)
    return known | {"partition": index, "state": state, "owner_address": address, "is_alarmed": False}


def name_each_other(node: Node, other: Node | str) -> None:
    """Let a node list itself and one other member."""
    address = other if isinstance(other, str) else other.address
    shared = {"member_id": "m", "is_leader": False, "generation": 6, "log_partitions": [0], "duties": []}
    rows = [
        {"node_id": 1, "address": "an address of the inside", "state": "stable", **shared},
        {"node_id": 2, "address": address, "state": "member", **shared},
    ]
    node.answers["members"] = lambda _: rows


@pytest.fixture
def other(node: Node) -> Iterator[Node]:
    """Give a second member; the first one names it."""
    with running_node() as second:
        name_each_other(node, second)
        yield second


def test_log_partitions_are_shown_as_their_owners_have_them(node: Node, other: Node, run: Run) -> None:
    node.answers["partitions"] = lambda _: [partition(0, "active", node), partition(1, "elsewhere", other)]
    other.answers["partitions"] = lambda _: [partition(0, "elsewhere", node), partition(1, "active", other)]
    rows = json.loads(run("partitions", "--json").stdout)
    assert [(row["partition"], row["state"], row["committed"]) for row in rows] == [
        (0, "active", 20),
        (1, "active", 20),
    ]
    assert len(run("partitions", "--why-not-pruned").stdout.splitlines()) == 3


def hand_over(load_ms: int | None, why: str | None, owner_epoch: int = 2) -> dict[str, Any]:
    return {
        "at_ms": 1_790_000_000_000 + owner_epoch,
        "log_partition": 1,
        "from_node": "1",
        "to_node": "2",
        "owner_epoch": owner_epoch,
        "generation": 3,
        "load_ms": load_ms,
        "why": why,
    }


def test_hand_overs_are_those_of_all_members_each_as_the_new_owner_has_it(node: Node, other: Node, run: Run) -> None:
    node.answers["hand-overs"] = lambda _: [hand_over(None, None)]
    other.answers["hand-overs"] = lambda _: [hand_over(70, "node 2 came"), hand_over(9, "node 1 came", 1)]
    rows = json.loads(run("partitions", "hand-overs", "--json").stdout)
    assert [(row["owner_epoch"], row["load_ms"], row["why"]) for row in rows] == [
        (2, 70, "node 2 came"),
        (1, 9, "node 1 came"),
    ]
    printed = run("partitions", "hand-overs")
    assert (printed.exit_code, printed.stderr) == (Exit.DONE, "")
    assert printed.stdout.splitlines()[1].split() == [
        "2026-09-21T14:13:20.002Z",
        "1",
        "1",
        "2",
        "2",
        "3",
        "70",
        "node",
        "2",
        "came",
    ]
    node.answers["hand-overs"] = other.answers["hand-overs"] = lambda _: []
    assert run("partitions", "hand-overs").stderr == "No node remembers a hand-over.\n"


def test_of_a_member_that_does_not_answer_the_map_is_shown_and_it_is_named(node: Node, run: Run) -> None:
    name_each_other(node, NOWHERE)
    node.answers["partitions"] = lambda _: [partition(0, "active", node), partition(1, "elsewhere", NOWHERE)]
    found = run("partitions")
    assert [line.split() for line in found.stdout.splitlines()[1:]] == [
        ["0", "active", "1", node.address],
        ["1", "elsewhere", "-", NOWHERE],
    ]
    first, then = found.stderr.splitlines()
    assert first == "1 of 2 log partitions serves; 1 is elsewhere."
    assert then.startswith(f"The answer of node 2 at {NOWHERE} is missing. ")
    assert found.exit_code == Exit.DONE


def test_the_row_of_who_serves_comes_before_that_of_who_is_to_and_before_the_map() -> None:
    states = ("elsewhere", "loading", "active", "unassigned")
    rows = [[{"partition": 0, "state": state}] for state in states]
    assert merge_partitions(rows) == [{"partition": 0, "state": "active"}]
    assert merge_partitions([rows[0], rows[3], rows[1]]) == [{"partition": 0, "state": "loading"}]


def test_members_say_themselves_whether_they_are_ready(node: Node, other: Node, run: Run) -> None:
    other.readiness = {"is_ready": False, "why_not_ready": "it loads"}
    other.answers["status"] = lambda _: {"version": "0.2.0", **other.readiness}
    rows = json.loads(run("members", "--json").stdout)
    assert [(row["is_ready"], row["version"]) for row in rows] == [(True, "0.1.0"), (False, "0.2.0")]
    name_each_other(node, NOWHERE)
    found = run("members", "--json")
    assert [row["version"] for row in json.loads(found.stdout)] == ["0.1.0", None]
    assert found.stderr.startswith(f"Node 2 at {NOWHERE} does not say how it is. ")
    assert run("members").stderr.splitlines()[0] == "1 of 2 nodes is ready; node 2 does not answer."


def pages(*keys: tuple[str, int], missing: tuple[int, ...] = ()) -> Any:
    """Return an answer with these share partitions, by group and partition, one a page."""
    rows = [
        describe_state(SharePartitionKey(group, TOPIC_ID, number), STATE, number, "1") for group, number in sorted(keys)
    ]

    def page(arguments: dict[str, Any]) -> Any:
        start = arguments["after"] or 0
        return {
            "share_partitions": rows[start : start + 1],
            "next": start + 1 if start + 1 < len(rows) else None,
            "not_listed": [{"log_partition": each, "state": "elsewhere", "why": f"why {each}"} for each in missing],
        }

    return page


def ends(arguments: dict[str, Any]) -> Any:
    return {
        topic_id: {
            "name": "orders",
            "partitions": {str(each): {"first_offset": 0, "end_offset": 30, "problem": None} for each in partitions},
        }
        for topic_id, partitions in arguments["topics"].items()
    }


def test_share_partitions_of_all_members_come_in_one_order_each_once(node: Node, other: Node, run: Run) -> None:
    node.answers["topic-ends"] = ends
    node.answers["share-partitions"] = pages(("a", 0), ("c", 0), missing=(1, 2))
    other.answers["share-partitions"] = pages(("a", 1), ("b", 0), ("c", 0), missing=(0, 2))
    found = run("state", "list", "--json")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [(row["group"], row["partition"]) for row in rows] == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    assert "The state in log partition 2 is missing, because no node serves it (2: why 2)" in found.stderr
    assert found.exit_code == Exit.FAILED
    other.answers["share-partitions"] = pages(("b", 0), missing=(0,))
    found = run("groups", "list", "--json")
    assert [row["group"] for row in json.loads(found.stdout)] == ["a", "b", "c"]
    assert found.exit_code == Exit.DONE


def test_a_member_that_does_not_answer_is_a_gap(node: Node, run: Run) -> None:
    name_each_other(node, NOWHERE)
    node.answers["topic-ends"] = ends
    node.answers["share-partitions"] = pages(("a", 0), missing=(1,))
    found = run("groups", "list")
    assert found.exit_code == Exit.FAILED
    assert f"The state that node 2 at {NOWHERE} holds is missing: " in found.stderr


def test_what_is_decided_at_one_node_names_the_others(node: Node, other: Node, run: Run) -> None:
    for command in (["readers"], ["readers", "drop", "audit", "--reason", "gone", "--dry-run"]):
        assert f"alone; repeat it for those of the others: --address {other.address}.\n" in run(*command).stderr
