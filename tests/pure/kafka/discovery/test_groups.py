"""Calls about groups: one request for each coordinator, split where its version takes one group, and errors of single groups."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from holdfast.kafka.discovery.group_calls import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    DESCRIBE_OTHERS,
    LIST_GROUPS,
    Described,
    Dismissal,
    Member,
)
from holdfast.kafka.discovery.group_offset_calls import OFFSET_COMMIT, OFFSET_FETCH
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.errors import ConnectionFailed
from tests.pure.kafka.discovery.fake_servers import NONE, FakeCluster
from tests.waiting import wait_until

GROUPS = [f"{host}{number}" for number in range(20) for host in "abc"]


def cluster_of_three() -> FakeCluster:
    """Return three brokers, each of which coordinates the groups that begin with its name."""
    cluster = FakeCluster("abc")
    for server in cluster.servers.values():
        server.coordinator = lambda _, group: group[0] if group[0] in "abc" else "a"
    return cluster


def groups_of(cluster: FakeCluster, bootstrap: str = "a", timeout_ms: int = 60_000) -> Groups:
    return Groups(cluster.links(bootstrap), timeout_ms)


async def test_groups_are_described_with_as_many_requests_as_there_are_coordinators() -> None:
    cluster = cluster_of_three()
    described = await groups_of(cluster).describe(GROUPS)
    assert list(described) == GROUPS
    assert {(each.state, each.protocol_type, each.protocol, each.members) for each in described.values()} == {
        ("Stable", "consumer", "range", (Member("m", None, "c", "/h"),))
    }
    assert len(cluster.requests()) == 1
    assert Counter(asked.host for asked in cluster.requests("DescribeGroups")) == {"a": 1, "b": 1, "c": 1}


async def test_groups_are_deleted_with_as_many_requests_as_there_are_coordinators() -> None:
    cluster = cluster_of_three()
    cluster.servers["b"].group_error = lambda group: ErrorCode.non_empty_group if group == "b7" else NONE
    deleted = await groups_of(cluster).delete(GROUPS)
    assert {group: each.error_code for group, each in deleted.items() if each.error_code} == {"b7": 68}
    assert Counter(asked.host for asked in cluster.requests("DeleteGroups")) == {"a": 1, "b": 1, "c": 1}


async def test_members_are_taken_out_with_one_request_for_each_group() -> None:
    cluster = cluster_of_three()
    cluster.servers["b"].group_error = lambda _: ErrorCode.group_authorization_failed
    leavers = [Dismissal(group, name, "why") for group in ("a1", "a2", "b1") for name in ("m", "unknown")]
    dismissed = await groups_of(cluster).dismiss(leavers)
    assert [each.error_code for each in dismissed.values()] == [0, 0, 0, 0, 30, 30]
    requests = [asked.request for asked in cluster.requests("LeaveGroup")]
    assert [[(each.member_id, each.reason) for each in request.members] for request in requests] == [
        [("m", "why"), ("unknown", "why")]
    ] * 3


@pytest.mark.parametrize(("version", "requests_each"), [(8, 1), (7, 20)])
async def test_the_offsets_of_many_groups_are_one_request_to_a_coordinator_that_takes_many_and_one_each_to_another(
    version: int, requests_each: int
) -> None:
    cluster = cluster_of_three()
    cluster.servers["b"].versions[9] = (1, version)
    offsets = await groups_of(cluster).offsets(GROUPS)
    assert {group: each.committed for group, each in offsets.items()} == {
        group: {("topic", 0): len(group)} for group in GROUPS
    }
    assert Counter(asked.host for asked in cluster.requests("OffsetFetch")) == {"a": 1, "b": requests_each, "c": 1}


async def test_a_coordinator_that_cannot_be_reached_fails_its_own_groups_alone() -> None:
    cluster = cluster_of_three()
    cluster.servers["b"].is_gone = True
    described = await groups_of(cluster, timeout_ms=2_000).describe(GROUPS)
    assert {group for group, each in described.items() if each.error_code} == {g for g in GROUPS if g[0] == "b"}
    assert (described["b0"].error_code, described["b0"].reason) == (13, "b cannot be reached")


@pytest.mark.parametrize(
    ("error", "looks_again"),
    [
        (ErrorCode.not_coordinator, True),
        (ErrorCode.coordinator_not_available, True),
        (ErrorCode.coordinator_load_in_progress, False),
    ],
)
async def test_a_group_that_moved_is_looked_up_again_and_one_that_loads_is_not(
    error: ErrorCode, looks_again: bool
) -> None:
    cluster = cluster_of_three()
    left = [error, error]
    cluster.servers["b"].group_error = lambda group: left.pop() if group == "b7" and left else NONE
    described = await groups_of(cluster).describe(GROUPS)
    assert not any(each.error_code for each in described.values())
    again = [asked.request.coordinator_keys for asked in cluster.requests()[1:]]
    assert again == ([("b7",)] * 2 if looks_again else [])
    assert [asked.request.groups for asked in cluster.requests("DescribeGroups")][3:] == [("b7",)] * 2


async def test_a_silent_coordinator_keeps_no_other_group_from_being_tried_again() -> None:
    cluster = cluster_of_three()
    left = [ErrorCode.coordinator_load_in_progress] * 2
    cluster.servers["a"].group_error = lambda _: left.pop() if left else NONE
    cluster.servers["b"].is_silent = True
    describing = asyncio.create_task(groups_of(cluster).describe(["a1", "b1"]))
    await wait_until(lambda: [asked.host for asked in cluster.requests("DescribeGroups")].count("a") == 3)
    assert not describing.done()
    describing.cancel()


async def test_a_group_whose_coordinator_is_refused_fails_alone_and_at_once() -> None:
    cluster = cluster_of_three()
    for server in cluster.servers.values():
        server.coordinator = lambda _, group: ErrorCode.group_authorization_failed if group == "b7" else group[0]
    described = await groups_of(cluster).describe(GROUPS)
    assert [group for group, each in described.items() if each.error_code] == ["b7"]
    assert described["b7"].reason == "no coordinator is named: GROUP_AUTHORIZATION_FAILED no"
    assert len(cluster.requests()) == 1


@pytest.mark.virtual_time
async def test_what_has_no_answer_in_time_is_an_error_of_its_group() -> None:
    cluster = cluster_of_three()
    cluster.servers["b"].is_silent = True
    described = await groups_of(cluster, timeout_ms=100).describe(["a1", "b1"])
    assert (described["b1"].error_code, described["b1"].reason) == (7, "no answer came")
    assert not described["a1"].error_code


@pytest.mark.virtual_time
async def test_all_tries_to_describe_a_group_as_something_have_one_time_out_together() -> None:
    cluster = cluster_of_three()
    server = cluster.servers["a"]

    def answer_nothing_more(_: str) -> str:
        server.is_silent = True
        return "consumer"

    server.group_type = answer_nothing_more
    groups = groups_of(cluster, timeout_ms=1_000)
    loop = asyncio.get_running_loop()
    server.gate = asyncio.Event()
    began_s = loop.time()
    loop.call_at(began_s + 0.6, server.gate.set)
    described = await groups.describe(["a1"])
    assert described["a1"].error_code == ErrorCode.request_timed_out
    assert [asked.api for asked in cluster.asked][-1] == "ConsumerGroupDescribe"
    assert loop.time() - began_s < 1.1


@pytest.mark.parametrize("version", [5, 6])
async def test_a_group_that_does_not_exist_is_an_error_in_each_version(version: int) -> None:
    cluster = cluster_of_three()
    cluster.servers["a"].versions[15] = (0, version)
    cluster.servers["a"].group_type = lambda group: "" if group == "gone" else "classic"
    described = await groups_of(cluster).describe(["gone", "a1"])
    assert [(each.error_code, each.group_type) for each in described.values()] == [(69, ""), (0, "classic")]


@pytest.mark.parametrize(("version", "consumer_version"), [(5, 0), (6, 1)])
async def test_each_group_is_described_as_what_it_is(version: int, consumer_version: int) -> None:
    cluster = cluster_of_three()
    types = {"a1": "classic", "a2": "consumer", "b1": "share", "a3": ""}
    for server in cluster.servers.values():
        server.group_type = types.__getitem__
        server.versions |= {15: (0, version), 69: (0, consumer_version)}
    described = await groups_of(cluster).describe(list(types))
    assert [(group, each.group_type, each.protocol, each.error_code) for group, each in described.items()] == [
        ("a1", "classic", "range", 0),
        ("a2", "consumer", "simple", 0),
        ("b1", "share", "simple", 0),
        ("a3", "", "range", 69),
    ]
    assert described["a2"].members == described["b1"].members == (Member("m", None, "c", "/h"),)
    asked = [
        (asked.api, asked.host, asked.request.group_ids)
        for asked in cluster.asked
        if asked.api.endswith("GroupDescribe")
    ]
    assert sorted(asked) == [
        ("ConsumerGroupDescribe", "a", ("a2", "a3")),
        ("ConsumerGroupDescribe", "b", ("b1",)),
        ("ShareGroupDescribe", "a", ("a3",)),
        ("ShareGroupDescribe", "b", ("b1",)),
    ]


async def test_a_broker_without_groups_of_a_type_says_what_it_knows_of_a_group() -> None:
    cluster = cluster_of_three()
    server = cluster.servers["a"]
    server.group_type = lambda _: "consumer"
    del server.versions[77], server.versions[69]
    described = await groups_of(cluster).describe(["a1"])
    assert described["a1"].error_code == ErrorCode.group_id_not_found


@pytest.mark.parametrize(
    ("version", "state", "group_type", "kind"),
    [(5, "Stable", "streams", "a streams group"), (4, "Stable", "", "listed without a type")],
)
async def test_a_group_that_no_call_describes_and_a_broker_lists_is_named(
    version: int, state: str, group_type: str, kind: str
) -> None:
    cluster = cluster_of_three()
    server = cluster.servers["b"]
    server.group_type = lambda group: "classic" if group == "b1" else ""
    server.listed = {"b2": "streams"}
    server.versions[16] = (0, version)
    groups = groups_of(cluster)
    described = await groups.describe_or_name(["b1", "b2", "b3"])
    assert [each.error_code for each in described.values()] == [
        0,
        ErrorCode.unsupported_version,
        ErrorCode.group_id_not_found,
    ]
    assert (described["b2"].state, described["b2"].group_type) == (state, group_type)
    assert described["b2"].reason == f"it is {kind}, and cannot be described here"
    assert not described["b2"].is_empty
    asked = len(cluster.requests("ListGroups"))
    await groups.describe_or_name(["b1"])
    assert len(cluster.requests("ListGroups")) == asked, "nothing is listed where every group is known"
    if version == 5:
        server.listed = {"b2": "share"}
        late = (await groups.describe_or_name(["b2"]))["b2"]
        assert late.reason == "it is a share group, and was not described; try again"


async def test_a_group_that_is_not_listed_is_missing_only_where_its_coordinator_gave_a_list() -> None:
    cluster = cluster_of_three()
    for host in "bc":
        cluster.servers[host].group_type = lambda _: ""
    cluster.servers["b"].listed = {"b2": "streams"}
    cluster.servers["c"].list_error = ErrorCode.coordinator_load_in_progress
    described = await groups_of(cluster).describe_or_name(["a1", "b2", "b3", "c1"])
    assert [each.error_code for each in described.values()] == [
        0,
        ErrorCode.unsupported_version,
        ErrorCode.group_id_not_found,
        ErrorCode.coordinator_not_available,
    ]
    assert described["c1"].reason == "its coordinator does not list its groups: COORDINATOR_LOAD_IN_PROGRESS"


async def test_of_a_group_that_is_missing_no_broker_is_asked_that_does_not_coordinate_it() -> None:
    cluster = cluster_of_three()
    cluster.servers["b"].group_type = lambda _: ""
    cluster.servers["c"].is_silent = True
    described = await groups_of(cluster).describe_or_name(["a1", "b3"])
    assert [each.error_code for each in described.values()] == [0, ErrorCode.group_id_not_found]
    assert [asked.host for asked in cluster.requests("ListGroups")] == ["b"]


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_every_broker_lists_its_groups_and_one_that_fails_is_named(version: int) -> None:
    cluster = cluster_of_three()
    for server in cluster.servers.values():
        server.versions[16] = (0, version)
    state, group_type = "Stable" if version >= 4 else "", "classic" if version >= 5 else ""
    groups = groups_of(cluster)
    found = await groups.list_all()
    assert [tuple(each) for each in found.groups] == [(host, "consumer", state, group_type) for host in "abc"]
    assert (found.failures, len(cluster.requests("ListGroups"))) == ({}, 3)
    cluster.servers["c"].is_gone = True
    found = await groups.list_all()
    assert [each.group for each in found.groups] == ["a", "b"]
    assert found.failures == {("c", 9092): "c did not answer: it closed the connection"}
    groups.close()
    with pytest.raises(ConnectionFailed, match="closed"):
        await groups.list_all()


def test_what_a_row_says_is_how_its_items_are_split() -> None:
    rows: list[Any] = [OFFSET_FETCH, OFFSET_COMMIT, DESCRIBE_GROUPS, *DESCRIBE_OTHERS, DELETE_GROUPS, LIST_GROUPS]
    sizes = {
        row.name: [[len(each) for each in row.split(version, range(5), 3)] for version in row.versions] for row in rows
    }
    ones, threes = [1] * 5, [3, 2]
    assert sizes == {
        "OffsetFetch": [ones, threes],
        "OffsetCommit": [ones, ones],
        "DescribeGroups": [threes, threes],
        "ConsumerGroupDescribe": [threes, threes],
        "ShareGroupDescribe": [threes, threes],
        "DeleteGroups": [threes, threes],
        "ListGroups": [ones, ones],
    }


def test_a_group_is_empty_if_it_is_known_to_have_no_members() -> None:
    member = Member("m", None, "client", "host")
    assert [
        each.is_empty
        for each in (
            Described("Empty"),
            Described(error_code=ErrorCode.group_id_not_found),
            Described("Stable", members=(member,)),
            Described(error_code=ErrorCode.not_coordinator),
        )
    ] == [True, True, False, False]
