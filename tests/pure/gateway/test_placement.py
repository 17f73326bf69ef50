"""The topics of groups, by name: known at once, or looked up for the next heartbeat."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.tenant import LogParts
from holdfast.gateway.leaders import GroupKeys, TopicLeaders
from holdfast.gateway.placement import NodePlacement
from holdfast.kafka.metadata import TopicSummary
from tests.pure.gateway.test_leaders import Owners
from tests.pure.gateway.test_topics import FakeCluster, World, id_of, running
from tests.waiting import wait_until


def placement_of(world: World) -> NodePlacement:
    owners = Owners()
    log: Any = SimpleNamespace(leadership=owners, place=SimpleNamespace(node=SimpleNamespace(node_id=1)))
    return NodePlacement(
        world.topics, TopicLeaders(owners, 3), cast("LogParts", log), GroupKeys(), cast("Authorizer", None)
    )


@pytest.mark.virtual_time
async def test_unknown_names_of_a_group_are_looked_up_once_at_a_time() -> None:
    cluster = FakeCluster(orders=1)
    async with running(cluster, "*") as world:
        await world.find_all()
        placement = placement_of(world)
        cluster.topics["late"] = TopicSummary("late", id_of(9), 2, is_internal=False)
        asked = len(cluster.asked)
        for _ in range(3):
            assert placement.find(["orders", "late"]) == {"orders": (id_of(1), 1)}
        await wait_until(lambda: world.topics.topic("late"), "the topic is known")
        assert placement.find(["orders", "late"]) == {"orders": (id_of(1), 1), "late": (id_of(9), 2)}
        assert [list(refs or ()) for refs in cluster.asked[asked:]] == [["late"]]


@pytest.mark.virtual_time
async def test_name_unknown_to_all_brokers_is_looked_up_again_later() -> None:
    cluster = FakeCluster(orders=1)
    async with running(cluster, "*") as world:
        await world.find_all()
        placement = placement_of(world)
        assert placement.find(["late"]) == {}
        assert await world.find("late") != []
        cluster.topics["late"] = TopicSummary("late", id_of(9), 2, is_internal=False)
        assert placement.find(["late"]) == {}
        await wait_until(lambda: world.topics.topic("late"), "the topic is known")


@pytest.mark.virtual_time
async def test_client_waits_for_unknown_names_and_no_others() -> None:
    cluster = FakeCluster(orders=1)
    async with running(cluster, "orders", "late") as world:
        await world.find_all()
        placement = placement_of(world)
        heard: list[str] = []
        placement.when_known(["orders", "never-offered"], "10.0.0.1:5", lambda: heard.append("known"))
        assert heard == ["known"]
        cluster.topics["late"] = TopicSummary("late", id_of(9), 2, is_internal=False)
        placement.when_known(["late"], "10.0.0.1:5", lambda: heard.append("late"))
        assert heard == ["known"]
        await wait_until(lambda: len(heard) == 2, "the client is answered")
        assert placement.find(["late"]) == {"late": (id_of(9), 2)}
