"""Connections to the servers of a cluster: one each, those learned from Metadata included."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.kafka.addresses import Address
from holdfast.kafka.discovery.calls import Sender
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed
from tests.pure.kafka.discovery.fake_servers import Connection, FakeCluster
from tests.waiting import wait_until

A, B, C = ((host, 9092) for host in "abc")


async def test_callers_that_need_the_same_server_at_once_open_one_connection() -> None:
    cluster = FakeCluster()
    links = cluster.links()
    opened = await asyncio.gather(*(links.to(A) for _ in range(5)))
    assert len(set(map(id, opened))) == len(cluster.opened) == 1
    opened[0].close()
    assert (await links.to(A)).is_open
    assert len(cluster.opened) == 2


@pytest.mark.parametrize("version", range(1, 14))
async def test_the_servers_are_learned_in_each_version_of_metadata(version: int) -> None:
    cluster = FakeCluster("ab")
    cluster.servers["a"].versions[3] = (0, version)
    links = cluster.links("a")
    await links.to(A)
    assert links.learned == (A, B)
    assert [asked.version for asked in cluster.asked] == [version]


async def test_the_servers_are_looked_up_again_when_what_is_known_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster("ab")
    links = Links([A], cluster.open_one, Sender(), max_age_ms=60_000)
    for _ in range(3):
        await links.to(A)
    assert len(cluster.requests("Metadata")) == 1
    cluster.named_hosts = "bc"
    loop = asyncio.get_running_loop()
    time_s = loop.time
    monkeypatch.setattr(loop, "time", lambda: time_s() + 61)
    await asyncio.gather(links.to(A), links.to(A))
    assert (links.learned, len(cluster.requests("Metadata"))) == ((B, C), 2)
    assert links.in_turn() == [A, B, C]


async def test_a_server_that_serves_no_metadata_is_used_all_the_same() -> None:
    cluster = FakeCluster()
    del cluster.servers["a"].versions[3]
    links = cluster.links()
    assert (await links.to(A)).is_open
    assert (links.learned, cluster.asked) == ((), [])


async def test_any_server_will_do_for_a_caller_that_does_not_care() -> None:
    cluster = FakeCluster("abc")
    links = cluster.links("a")
    first = await links.any()
    assert await links.any() is first
    cluster.servers["a"].is_gone = True
    first.close()
    assert (await links.any()).is_open
    assert cluster.opened[-1][0] == "b"
    for server in cluster.servers.values():
        server.is_gone = True
    links.keep(())
    with pytest.raises(ConnectionFailed, match=r"^a cannot be reached; b cannot be reached; c cannot be reached$"):
        await links.any()


def links_to(open_one: Callable[[Address], Awaitable[Connection]]) -> Links[Connection]:
    return Links([A, B, C], open_one, Sender())


@pytest.mark.virtual_time
async def test_servers_that_are_silent_are_waited_for_side_by_side_and_the_first_that_answers_will_do() -> None:
    cluster = FakeCluster("abc")
    let_go = asyncio.Event()

    async def open_one(address: Address) -> Connection:
        if address != C:
            await let_go.wait()
        return await cluster.open_one(address)

    links = links_to(open_one)
    async with asyncio.timeout(60):
        reached = await links.any()
        assert cluster.opened == [("c", reached)]
        # What was begun goes on, for whoever needs that server next.
        let_go.set()
        await links.to(A)
    assert sorted(each for each, _ in cluster.opened) == ["a", "b", "c"]


@pytest.mark.virtual_time
async def test_all_servers_that_are_silent_take_no_longer_than_one() -> None:
    async def open_one(address: Address) -> Connection:
        await asyncio.sleep(50)
        raise ConnectionFailed(f"{address[0]} is silent.")

    links = links_to(open_one)
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionFailed, match=r"^a is silent\. b is silent\. c is silent\.$"):
            await links.any()


async def test_what_opens_while_all_is_closed_is_closed_too() -> None:
    cluster = FakeCluster("abc")
    is_open = asyncio.Event()

    async def open_one(address: Address) -> Connection:
        is_open.set()
        return await cluster.open_one(address)

    links = links_to(open_one)
    wanted = asyncio.create_task(links.to(A), name="wanted")
    # Whoever waits for this is woken before those who are told that the opening is done.
    await is_open.wait()
    links.close()
    await asyncio.gather(wanted, return_exceptions=True)
    assert [connection.is_open for _, connection in cluster.opened] == [False]


async def test_who_knows_no_server_reaches_none() -> None:
    with pytest.raises(ConnectionFailed):
        await FakeCluster().links("").any()


async def test_what_is_no_failed_connection_ends_the_search_for_one() -> None:
    """As where the console finds a node in the place of a broker."""

    async def open_one(address: Address) -> Connection:
        raise LookupError(f"{address[0]} is none of them")

    with pytest.raises(LookupError, match="a is none of them"):
        await links_to(open_one).any()


async def test_the_order_is_connected_first_and_doubted_last() -> None:
    cluster = FakeCluster("abc")
    links = cluster.links("ab")
    await links.to(B)
    assert links.in_turn() == [B, A, C]
    links.put_last(B)
    links.put_last(A)
    assert links.in_turn() == [C, B, A]
    for number in range(100):
        links.put_last((f"stranger-{number}", 1))
    assert len(links._doubted) <= 6
    assert set(links.in_turn()) == {A, B, C}


async def test_other_connections_than_those_to_be_kept_are_closed() -> None:
    cluster = FakeCluster("ab")
    links = cluster.links("ab")
    first, second = await links.to(A), await links.to(B)
    links.keep([B])
    assert (first.is_open, second.is_open) == (False, True)


async def test_after_closing_nothing_is_opened_and_who_waits_is_answered() -> None:
    cluster = FakeCluster("ab")
    may_open = asyncio.Event()

    async def open_late(address: tuple[str, int]) -> Connection:
        await may_open.wait()
        return await cluster.open_one(address)

    links = Links([A], open_late, Sender())
    waiting = asyncio.create_task(links.to(A))
    await wait_until(lambda: links._opening)
    links.close()
    with pytest.raises(ConnectionFailed, match="The client is closed"):
        await waiting
    with pytest.raises(ConnectionFailed, match="The client is closed"):
        await links.to(B)
    assert cluster.opened == []


async def test_who_is_cancelled_while_the_links_close_is_not_told_of_it() -> None:
    """Nobody would look at that failure, and the loop would print it with a traceback."""

    async def open_never(_: object) -> Connection:
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    links = Links([A], open_never, Sender())
    waiting = asyncio.create_task(links.to(A))
    await wait_until(lambda: links._opening)
    links.close()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
