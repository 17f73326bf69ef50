"""A gateway says that it is not the only node: what is promised while log partitions move is less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.nodes import NodeProcess, node_processes
from tests.waiting import wait_until

pytestmark = pytest.mark.real

LINE = "gateway_has_other_nodes"


def count(node: NodeProcess) -> int:
    return sum(line["event"] == LINE for line in node.events())


async def test_nodes_of_a_group_say_that_there_are_others_and_one_alone_does_not(
    kafka: str, topic: str, tmp_path: Path
) -> None:
    with node_processes(kafka, topic, tmp_path) as make_node:
        first, second = (make_node(node_id=number, **{"gateway.topics": "orders"}) for number in (1, 2))
        await first.start()
        assert count(first) == 0
        await second.start()
        await wait_until(lambda: count(first) and count(second), "both say so")
        second.kill()
        await second.start()
        await wait_until(lambda: count(second) == 2, "it says so in its second life")
        assert count(first) == 1, "once in a life"
