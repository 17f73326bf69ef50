"""The topics that a heartbeat names are looked up before it is answered."""

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
from tests.pure.gateway.topics.test_topics import FakeCluster, World, id_of, running
from tests.waiting import wait_until


def placement_of(world: World) -> NodePlacement:
    owners = Owners()
    log: Any = SimpleNamespace(leadership=owners, place=SimpleNamespace(node=SimpleNamespace(node_id=1)))
    return NodePlacement(
        world.topics, TopicLeaders(owners, 3), cast("LogParts", log), GroupKeys(), cast("Authorizer", None)
    )


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
