"""The beginnings of new groups: a silent broker delays those in what it leads alone, and a bug leaves none without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from holdfast.delivery.group_config import EARLIEST, LATEST, OffsetReset
from holdfast.gateway.leading.starts import NoStart, Starts
from holdfast.kafka.connection_options import Address
from holdfast.kafka.protocol.requests import EARLIEST as FIRST
from holdfast.kafka.topics.topic_ends import Answer, Ends, Leaders, Led, Place
from tests.pure.kafka.topics.test_topic_ends import ORDERS, PAYMENTS, Cluster
from tests.waiting import wait_until
from tests.world.samples import TOPIC

ONE, TWO = ("one", 9092), ("two", 9092)


class Brokers:
    """Two brokers, the second of which leads odd partitions (`starts.EndSource`)."""

    def __init__(self) -> None:
        self.queries: list[tuple[Address, int, int]] = []
        self.silent: dict[Address, asyncio.Event] = {}
        self.leaders: dict[int, Address] = {}
        #: Answers about a partition that pass, before the truth.
        self.passing = 0
        self.waiting = 0

    async def find_leaders(self, places: Collection[Place]) -> Leaders:
        await asyncio.sleep(0)
        by_address: dict[Address, dict[Place, Led]] = {}
        for place in places:
            leader = self.leaders.get(place[1], TWO if place[1] % 2 else ONE)
            by_address.setdefault(leader, {})[place] = Led(0, "orders")
        return Leaders(by_address, {})

    async def query_leader(self, address: Address, led: Mapping[Place, Led], first: int) -> dict[Place, Answer]:
        self.queries.append((address, len(led), first))
        if address in self.silent:
            self.waiting += 1
            await self.silent[address].wait()
            self.waiting -= 1
            return {place: Answer(Ends(-1, -1, "silent"), is_passing=True) for place in led}
        if self.passing:
            self.passing -= 1
            return {place: Answer(Ends(-1, -1, "NOT_LEADER"), is_passing=True) for place in led}
        return {place: Answer(Ends(place[1], 100 + place[1]), is_passing=False) for place in led}


class Node:
    """The starts of a node, and what it was told."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.starts = Starts(self.brokers, lambda: 5_000)
        self.told: dict[int, int | NoStart] = {}

    def find(self, partition: int, reset: OffsetReset = LATEST) -> None:
        self.starts.find(TOPIC, partition, reset, lambda start: self.told.update({partition: start}))


@pytest.mark.virtual_time
async def test_silent_broker_delays_no_group_of_another() -> None:
    node = Node()
    node.brokers.silent[TWO] = asyncio.Event()
    for partition in range(4):
        node.find(partition)
    await asyncio.sleep(0.01)
    assert node.told == {0: 100, 2: 102}
    for partition in range(4, 100):
        node.find(partition, EARLIEST)
        await asyncio.sleep(0.01)
    assert set(node.told) == set(range(0, 100, 2))
    assert node.brokers.waiting == 1, "one query of a broker is on its way at a time"
    node.starts.close()


@pytest.mark.virtual_time
async def test_groups_that_waited_for_a_silent_broker_ask_who_leads_now() -> None:
    node = Node()
    silence = node.brokers.silent[TWO] = asyncio.Event()
    node.find(1)
    await asyncio.sleep(0.01)
    node.find(3)
    await asyncio.sleep(0.01)
    node.brokers.leaders = {1: ONE, 3: ONE}
    silence.set()
    await asyncio.sleep(0.01)
    assert node.told == {3: 103}
    await asyncio.sleep(0.2)
    assert node.told == {3: 103, 1: 101}


@pytest.mark.virtual_time
async def test_broker_that_was_silent_for_long_is_told_to_a_fetch() -> None:
    node = Node()
    silence = node.brokers.silent[TWO] = asyncio.Event()
    node.find(1)
    await asyncio.sleep(20)
    silence.set()
    await asyncio.sleep(0.01)
    assert node.told == {1: NoStart("silent")}


@pytest.mark.virtual_time
@pytest.mark.parametrize(("passing", "told"), [(2, 100), (3, NoStart("NOT_LEADER"))])
async def test_election_costs_three_tries_at_most(passing: int, told: int | NoStart) -> None:
    node = Node()
    node.brokers.passing = passing
    node.find(0)
    await asyncio.sleep(1)
    assert node.told == {0: told}


@pytest.mark.virtual_time
async def test_groups_that_come_together_are_one_query_for_each_time() -> None:
    node, since = Node(), EARLIEST._replace(duration_ms=1_000)
    for partition in range(0, 1_000, 2):
        node.find(partition, (EARLIEST, LATEST, since)[partition % 3])
    await asyncio.sleep(0.01)
    assert node.brokers.queries == [(ONE, 333, FIRST), (ONE, 167, 4_000)]
    assert len(node.told) == 500


async def test_silent_broker_of_a_cluster_delays_its_own_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the queries that a node makes."""
    cluster, told = Cluster(monkeypatch), dict[tuple[bytes, int], object]()
    cluster.silent.add("b")
    starts = Starts(cluster.source(), lambda: 0)
    for place in ((ORDERS, 1), (ORDERS, 0)):
        starts.find(*place, EARLIEST, lambda start, place=place: told.update({place: start}))  # type: ignore[misc]
    await wait_until(lambda: len(told) == 1)
    starts.find(PAYMENTS, 0, LATEST, lambda start: told.update({(PAYMENTS, 0): start}))
    await wait_until(lambda: len(told) == 2)
    assert told == {(ORDERS, 0): 5, (PAYMENTS, 0): 7}
    starts.close()


class BrokenBrokers:
    """Brokers of which each question meets a bug (`starts.EndSource`)."""

    def __init__(self, has_leaders: bool) -> None:
        self._has_leaders = has_leaders

    async def find_leaders(self, places: Collection[Place]) -> Leaders:
        assert self._has_leaders
        return Leaders({ONE: {place: Led(0, "orders") for place in places}}, {})

    async def query_leader(self, address: Address, led: Mapping[Place, Led], first: int) -> dict[Place, Answer]:
        raise ZeroDivisionError


@pytest.mark.parametrize("has_leaders", [False, True])
async def test_a_bug_leaves_no_new_group_without_an_answer(has_leaders: bool) -> None:
    bugs = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
    starts, found = Starts(BrokenBrokers(has_leaders), lambda: 0), list[int | NoStart]()
    for count in (2, 4):
        for reset in (EARLIEST, LATEST):
            starts.find(TOPIC, 0, reset, found.append)
        await wait_until(lambda count=count: len(found) == count)  # type: ignore[misc]
    assert all(isinstance(each, NoStart) for each in found)
    assert bugs
