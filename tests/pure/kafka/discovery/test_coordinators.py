"""Look-ups: shared, remembered, at another server when one is silent or knows nothing, and after all that were named are gone."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest
from kio.schema.errors import ErrorCode

from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Key, KeyType
from holdfast.kafka.errors import ConnectionFailed
from tests.pure.kafka.discovery.fake_servers import FakeCluster
from tests.waiting import wait_until

GROUP = KeyType.GROUP


async def hosts(coordinators: Coordinators, *keys: str) -> list[str]:
    return [found.host for found in await coordinators.find(GROUP, keys)]


async def test_results_keep_the_order_and_the_duplicates_of_the_keys() -> None:
    cluster = FakeCluster()
    cluster.servers["a"].coordinator = lambda _, key: key
    coordinators = cluster.coordinators()
    assert await hosts(coordinators, "x", "y", "x", "z") == ["x", "y", "x", "z"]
    assert await hosts(coordinators, "z", "w", "y", "w") == ["z", "w", "y", "w"]
    assert [asked.request.coordinator_keys for asked in cluster.requests()] == [("x", "y", "z"), ("w",)]
    assert await coordinators.find(GROUP, []) == []


async def test_callers_that_miss_the_same_key_share_one_look_up() -> None:
    cluster = FakeCluster()
    coordinators = cluster.coordinators()
    cluster.gate.clear()
    finding = [asyncio.create_task(hosts(coordinators, *keys)) for keys in ("xy", "yx", "yz", "x")]
    await wait_until(lambda: cluster.in_flight == 2)
    finding[0].cancel()
    cluster.gate.set()
    found = await asyncio.gather(*finding, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [["a", "a"], ["a", "a"], ["a"]]
    keys = [key for asked in cluster.requests() for key in asked.request.coordinator_keys]
    assert sorted(keys) == ["x", "y", "z"]
    assert await hosts(coordinators, "x") == ["a"]
    assert len(cluster.requests()) == 2


async def test_one_text_of_two_types_is_two_keys() -> None:
    cluster = FakeCluster()
    cluster.servers["a"].coordinator = lambda key_type, _: "gt"[key_type]
    found = await cluster.coordinators().find_all([Key(KeyType.TRANSACTION, "x"), Key(GROUP, "x")])
    assert [each.host for each in found] == ["t", "g"]


async def test_a_refusal_is_a_result_of_its_key_alone_and_is_not_remembered() -> None:
    cluster = FakeCluster()
    server = cluster.servers["a"]
    server.coordinator = lambda _, key: ErrorCode.group_authorization_failed if key == "x" else "a"
    coordinators = cluster.coordinators()
    assert [found.error_code for found in await coordinators.find(GROUP, "xy")] == [30, 0]
    server.coordinator = lambda *_: "a"
    assert [found.error_code for found in await coordinators.find(GROUP, "xy")] == [0, 0]
    assert [asked.request.coordinator_keys for asked in cluster.requests()] == [("x", "y"), ("x",)]


@pytest.mark.parametrize("error", [ErrorCode.coordinator_not_available, ErrorCode.unsupported_version])
async def test_keys_for_which_a_server_knows_none_go_to_the_next_one(error: ErrorCode) -> None:
    cluster = FakeCluster("ab")
    cluster.servers["a"].coordinator = lambda _, key: error if key == "x" else "a"
    cluster.servers["b"].coordinator = lambda *_: "b"
    assert await hosts(cluster.coordinators("ab"), "x", "y") == ["b", "a"]
    assert [(asked.host, asked.request.coordinator_keys) for asked in cluster.requests()][-1] == ("b", ("x",))


@pytest.mark.virtual_time
async def test_a_silent_server_holds_no_look_up_and_comes_last_from_then_on() -> None:
    cluster = FakeCluster("ab")
    cluster.servers["b"].coordinator = lambda *_: "b"
    coordinators = cluster.coordinators("ab", other_server_after_ms=10)
    await hosts(coordinators, "warm")
    cluster.servers["a"].is_silent = True
    async with asyncio.timeout(20):
        assert await hosts(coordinators, "x") == ["b"]
    asked = len(cluster.requests())
    assert await hosts(coordinators, "y") == ["b"]
    assert [each.host for each in cluster.requests()[asked:]] == ["b"]


async def test_a_server_that_is_gone_is_passed_over_at_once() -> None:
    cluster = FakeCluster("ab")
    coordinators = cluster.coordinators("ab")
    await hosts(coordinators, "warm")
    cluster.servers["a"].is_gone = True
    assert await hosts(coordinators, "x") == ["a"]
    assert cluster.requests()[-1].host == "b"


async def test_a_client_goes_on_when_all_servers_that_it_began_with_are_gone() -> None:
    cluster = FakeCluster("abc")
    coordinators = cluster.coordinators("a")
    await hosts(coordinators, "x")
    cluster.servers["a"].is_gone = True
    cluster.servers["b"].is_gone = True
    coordinators.forget([Key(GROUP, "x")])
    assert await hosts(coordinators, "x") == ["a"]
    assert cluster.requests()[-1].host == "c"


async def test_a_look_up_that_is_cancelled_looks_at_how_its_queries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    querying: asyncio.Queue[asyncio.Task[NoReturn] | None] = asyncio.Queue()

    async def fail_when_cancelled(*_: object) -> NoReturn:
        try:
            querying.put_nowait(asyncio.current_task())
            await asyncio.Event().wait()
        finally:
            raise ConnectionFailed("a cannot be reached")

    coordinators = FakeCluster().coordinators()
    monkeypatch.setattr(coordinators, "_query", fail_when_cancelled)
    finding = asyncio.create_task(coordinators.find(GROUP, "x"))
    query = await querying.get()
    assert query is not None
    for look_up in coordinators._under_way.values():
        look_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finding
    assert query.done()
    assert not query._log_traceback, "asyncio would report that nobody looked"


async def test_where_nobody_answers_each_says_why() -> None:
    cluster = FakeCluster("ab")
    for server in cluster.servers.values():
        server.is_gone = True
    coordinators = cluster.coordinators("ab")
    for _ in range(2):
        with pytest.raises(
            ConnectionFailed, match=r"^a cannot be reached; b cannot be reached$|^b cannot .*; a cannot"
        ):
            await hosts(coordinators, "x")


async def test_a_bug_in_a_look_up_is_raised_to_its_caller() -> None:
    cluster = FakeCluster()
    coordinators = cluster.coordinators()
    await hosts(coordinators, "warm")
    cluster.servers["a"].answers["FindCoordinator"] = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        await hosts(coordinators, "x")
    del cluster.servers["a"].answers["FindCoordinator"]
    assert await hosts(coordinators, "x") == ["a"]


async def test_what_was_forgotten_is_looked_up_at_another_server_than_the_one_that_named_it() -> None:
    cluster = FakeCluster("ab")
    coordinators = cluster.coordinators("ab")
    await hosts(coordinators, "x")
    coordinators.forget([Key(GROUP, "never looked up"), Key(GROUP, "x")])
    assert coordinators.addresses() == set()
    await hosts(coordinators, "x")
    assert [asked.host for asked in cluster.requests()] == ["a", "b"]
    assert coordinators.addresses() == {("a", 9092)}


@pytest.mark.virtual_time
async def test_what_one_server_names_is_kept_where_a_slower_one_refuses_it() -> None:
    cluster = FakeCluster("ab")
    none = ErrorCode.coordinator_not_available
    cluster.servers["a"].coordinator = lambda _, key: "a" if key == "x" else none
    cluster.servers["b"].coordinator = lambda _, key: "b" if key == "y" else none
    gates = {host: asyncio.Event() for host in "ab"}
    for host, gate in gates.items():
        cluster.servers[host].gate = gate
    coordinators = cluster.coordinators("ab", other_server_after_ms=10)
    finding = asyncio.create_task(hosts(coordinators, "x", "y"))
    await wait_until(lambda: cluster.requests())
    gates["a"].set()
    await wait_until(lambda: coordinators._named_by)
    gates["b"].set()
    assert await finding == ["a", "b"]
    assert [asked.request.coordinator_keys for asked in cluster.requests()] == [("x", "y"), ("x", "y")]


async def test_what_is_remembered_is_bounded() -> None:
    cluster = FakeCluster()
    server = cluster.servers["a"]
    server.coordinator = lambda _, key: key
    coordinators = Coordinators(cluster.links(), cached_max=3)
    assert await hosts(coordinators, *"abcdefgh") == list("abcdefgh")
    assert {host for host, _ in coordinators.addresses()} == set("fgh")
    assert len(coordinators._named_by) == 3


async def test_ten_thousand_keys_leave_as_few_requests_together() -> None:
    cluster = FakeCluster()
    coordinators = cluster.coordinators()
    found = await coordinators.find(KeyType.SHARE, map(str, range(10_000)))
    assert {each.host for each in found} == {"a"}
    assert (len(found), len(cluster.requests()), cluster.in_flight_max) == (10_000, 10, 10)
