"""One call about many items: what is sent in each version, by which row of the table, and what comes of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from holdfast.kafka.discovery.calls import CallLimits
from holdfast.kafka.discovery.find_coordinator import FIND_COORDINATOR, Found, Key, KeyType, refuse
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer
from tests.pure.kafka.discovery.fake_servers import FakeCluster
from tests.waiting import wait_until

A = ("a", 9092)
GROUPS = [Key(KeyType.GROUP, f"g{number}") for number in range(40)]


async def send(cluster: FakeCluster, keys: list[Key], **limits: int) -> dict[Key, Found]:
    links = cluster.links(limits=CallLimits(**limits))
    return await links.sender.send(A, await links.to(A), FIND_COORDINATOR, keys)


@pytest.mark.parametrize("version", range(7))
async def test_one_call_for_many_keys_is_one_request_from_version_4_on_and_one_for_each_key_below(version: int) -> None:
    cluster = FakeCluster(version=version)
    cluster.servers["a"].coordinator = lambda _, key: ErrorCode.group_authorization_failed if key == "g3" else "b"
    found = await send(cluster, GROUPS)
    assert list(found) == GROUPS
    refused = found.pop(GROUPS[3])
    assert set(found.values()) == {Found(98, "b", 9092, 0, "no" if version >= 1 else None)}
    assert (refused.error_code, refused.error_message) == (30, "no" if version >= 1 else None)
    assert {asked.version for asked in cluster.requests()} == {version}
    if version >= 4:
        (asked,) = cluster.requests()
        assert asked.request.coordinator_keys == tuple(key.text for key in GROUPS)
    else:
        assert [asked.request.key for asked in cluster.requests()] == [key.text for key in GROUPS]


async def test_requests_for_single_keys_are_in_flight_together_and_bounded() -> None:
    cluster = FakeCluster(version=3)
    assert len(await send(cluster, GROUPS, requests_in_flight_max=8)) == 40
    assert cluster.in_flight_max == 8


async def test_more_keys_than_a_request_may_hold_go_into_several_that_leave_together() -> None:
    cluster = FakeCluster()
    assert len(await send(cluster, GROUPS, items_per_request_max=9)) == 40
    assert [len(asked.request.coordinator_keys) for asked in cluster.requests()] == [9, 9, 9, 9, 4]
    assert cluster.in_flight_max == 5


async def test_keys_of_several_types_become_one_request_for_each() -> None:
    cluster = FakeCluster()
    keys = [Key(each, f"{each.name}-{number}") for number in range(3) for each in KeyType]
    found = await send(cluster, [*keys, keys[0]])
    assert list(found) == keys
    assert sorted((asked.request.key_type, len(asked.request.coordinator_keys)) for asked in cluster.requests()) == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]


@pytest.mark.parametrize(("version", "answered"), [(0, {0}), (1, {0, 1}), (5, {0, 1}), (6, {0, 1, 2})])
async def test_a_type_that_the_version_cannot_name_is_not_sent_and_the_others_are_answered(
    version: int, answered: set[int]
) -> None:
    cluster = FakeCluster(version=version)
    found = await send(cluster, [Key(each, "same") for each in KeyType])
    assert {key.type for key, each in found.items() if not each.error_code} == answered
    for key_type in set(KeyType) - answered:
        lowest = {1: 1, 2: 6}[key_type]
        text = f"The server at a:9092 serves FindCoordinator in versions 0 to {version}, and {lowest} to 6 would do."
        assert found[Key(key_type, "same")] == refuse(35, text)
    assert len(cluster.requests()) == len(answered), "version 0 would look up a group of that name"


async def test_a_server_without_the_api_is_sent_nothing() -> None:
    cluster = FakeCluster()
    del cluster.servers["a"].versions[10]
    (found,) = (await send(cluster, GROUPS[:1])).values()
    assert found == refuse(35, "The server at a:9092 does not serve FindCoordinator.")
    assert cluster.requests() == []


def leave_out(version: int, request: Any, make: Callable[[int, Any], Any]) -> Any:
    """Return an answer that lacks the first key, has the others from behind, and one that nobody asked for."""
    answer = make(version, request)
    stranger = type(answer.coordinators[0])
    last = answer.coordinators[-1]
    foreign = stranger(key="stranger", node_id=1, host="x", port=1, error_code=last.error_code, error_message="")
    return type(answer)(coordinators=(foreign, *answer.coordinators[:0:-1]), throttle_time=answer.throttle_time)


async def test_answers_are_taken_by_key_whatever_their_order_and_what_is_left_out_is_an_error_of_that_key() -> None:
    cluster = FakeCluster()
    server = cluster.servers["a"]
    server.coordinator = lambda _, key: "abc"[int(key[1:]) % 3]
    server.answers["FindCoordinator"] = lambda version, request: leave_out(
        version, request, server._answer_find_coordinator
    )
    found = await send(cluster, GROUPS[:5])
    assert list(found) == GROUPS[:5]
    assert [each.host for each in found.values()] == ["", "b", "c", "a", "b"]
    assert found[GROUPS[0]] == refuse(-1, "The server at a:9092 left it out.")


async def test_without_a_list_of_versions_the_newest_is_sent_and_said_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(says_versions=False)
    with caplog.at_level(logging.DEBUG):
        await send(cluster, GROUPS)
    assert [asked.version for asked in cluster.requests()] == [6]
    assert cluster.requests("ApiVersions") == []
    lines = {(record.message, record.__dict__["api"], record.__dict__["version"]) for record in caplog.records}
    assert ("server_version_assumed", "FindCoordinator", 6) in lines


def refuse_newest(cluster: FakeCluster, highest: int) -> None:
    """Have the server refuse what is newer than a version, and say so of each key."""
    server = cluster.servers["a"]
    server.versions[10] = (0, highest)
    answer = server._answer_find_coordinator

    def refuse_or_answer(version: int, request: Any) -> Any:
        server.coordinator = lambda *_: ErrorCode.unsupported_version if version > highest else "b"
        return answer(version, request)

    server.answers["FindCoordinator"] = refuse_or_answer


@pytest.mark.parametrize("says_versions", [True, False])
async def test_a_version_that_is_refused_now_or_later_is_lowered_once(says_versions: bool) -> None:
    cluster = FakeCluster(says_versions=says_versions)
    links = cluster.links()
    connection = await links.to(A)
    refuse_newest(cluster, 2)
    for _ in range(2):
        found = await links.sender.send(A, connection, FIND_COORDINATOR, GROUPS[:3])
        assert {each.host for each in found.values()} == {"b"}
    sent = [(asked.api, asked.version) for asked in cluster.asked if asked.api != "Metadata"]
    lowered = [("FindCoordinator", 2)] * 3
    assert sent == [("FindCoordinator", 6), ("ApiVersions", 0), *lowered, *lowered]


async def test_a_server_that_refuses_what_it_says_it_speaks_is_not_asked_for_ever() -> None:
    cluster = FakeCluster()
    cluster.servers["a"].coordinator = lambda *_: ErrorCode.unsupported_version
    found = await send(cluster, GROUPS[:3])
    assert {each.error_code for each in found.values()} == {35}
    assert [asked.api for asked in cluster.asked] == ["Metadata", "FindCoordinator", "ApiVersions"]


async def test_a_server_that_comes_back_older_gets_the_older_version_on_its_new_connection() -> None:
    cluster = FakeCluster()
    links = cluster.links()
    await links.sender.send(A, await links.to(A), FIND_COORDINATOR, GROUPS[:3])
    cluster.opened[0][1].close()
    cluster.servers["a"].versions[10] = (0, 3)
    await links.sender.send(A, await links.to(A), FIND_COORDINATOR, GROUPS[:3])
    assert [asked.version for asked in cluster.requests()] == [6, 3, 3, 3]


@pytest.mark.virtual_time
async def test_a_pause_that_a_server_asks_for_is_waited_out_bounded_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(wait_s: float) -> None:
        if wait_s:
            waits.append(wait_s)
            loop = asyncio.get_running_loop()
            time_s = loop.time
            monkeypatch.setattr(loop, "time", lambda: time_s() + wait_s)
        await sleep(0)

    cluster = FakeCluster("ab")
    links = cluster.links(limits=CallLimits(throttle_max_ms=5_000))
    connection = await links.to(A)
    cluster.servers["a"].throttles_ms = [2_000, 3_600_000]
    monkeypatch.setattr(asyncio, "sleep", note)
    for expected_s in (None, 2, 5):
        await links.sender.send(A, connection, FIND_COORDINATOR, GROUPS[:2])
        assert waits == ([] if expected_s is None else [pytest.approx(expected_s, abs=0.5)])
        waits.clear()
        # Another server is not left alone for it.
        await links.sender.send(("b", 9092), await links.to(("b", 9092)), FIND_COORDINATOR, GROUPS[:2])
        assert waits == []
    assert cluster.throttle_time_ms.value == 7_000


async def test_a_connection_that_breaks_ends_all_requests_of_the_call() -> None:
    cluster = FakeCluster(version=3)
    links = cluster.links()
    connection = await links.to(A)
    cluster.servers["a"].is_gone = True
    with pytest.raises(ConnectionFailed, match="a did not answer"):
        await links.sender.send(A, connection, FIND_COORDINATOR, GROUPS)
    await wait_until(lambda: cluster.in_flight == 0)


async def test_an_answer_that_cannot_be_read_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    links = cluster.links()
    connection = await links.to(A)

    async def garbled(*_: object, **__: object) -> bytes:
        return b"\x00\x00"

    monkeypatch.setattr(connection, "exchange", garbled)
    with pytest.raises(UnreadableAnswer, match=r"The server at a:9092 breaks the protocol\. The field ThrottleTimeMs"):
        await links.sender.send(A, connection, FIND_COORDINATOR, GROUPS)
