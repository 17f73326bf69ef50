"""Every link of `holdfast page` on a stock Kafka, and of the page of a node, is answered."""

from __future__ import annotations

import pytest

from tests.real.nodes import topic_id_of
from tests.real.page.opened import answer_when, page_command
from tests.real.page.stuck import Stuck, produce
from tests.real.page.test_node_page import GROUP, STUCK, write_states
from tests.real.running_node import make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.world.http import get
from tests.world.links import Followed, follow_all

pytestmark = pytest.mark.real

PAGES = {"/", "/group", "/window", "/offset", "/record", "/cluster", "/help", "/openapi.json", "/api/v1/cluster"}


def paths_of(followed: list[Followed]) -> set[str]:
    """Return the paths, all of which were answered."""
    assert [each for each in followed if not each.is_good] == []
    return {each.path.partition("?")[0] for each in followed}


async def test_every_link_of_the_page_of_a_stock_cluster_is_answered(kafka: str, stuck: Stuck) -> None:
    with page_command(kafka) as (port, _):
        # Other tests have groups on this cluster, which may come and go: their links are not followed.
        group = f"group={stuck.group}"
        await answer_when(port, f"/group?{group}", lambda answer: answer.status == 200)
        followed = await follow_all(port, follows=lambda path: "group=" not in path or group in path)
    assert paths_of(followed) >= PAGES | {"/api/v1/group-topics"}


async def test_every_link_of_the_page_of_a_node_is_answered(kafka: str, topic: str, new_topic: NewTopicFactory) -> None:
    users = new_topic(2)
    produce(kafka, users)
    async with running(make_settings(kafka, topic)) as node:
        await write_states(node, topic_id_of(kafka, users))
        port = node.node.http_port
        assert port is not None
        followed = await follow_all(port)
        described = (await get(port, "/openapi.json")).json()["paths"]
    paths = paths_of(followed)
    assert paths >= PAGES | {"/api/v1/group-topics"}
    assert {path for path in paths if path.startswith("/api/")} <= described.keys()
    assert any(f"offset={STUCK}" in each.path for each in followed), GROUP
