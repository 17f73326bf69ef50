"""The condition of a node, as it follows from its parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.node import Node
from holdfast.daemon.node_condition import NodeWatch
from holdfast.daemon.starting import BrokerWait
from holdfast.metrics.instruments import Counter
from holdfast.runtime.partition.states import State
from tests.world.context import make_context


class FakeNode:
    """What `NodeWatch` looks at."""

    def __init__(self) -> None:
        self.why = "the node starts"
        self.brokers_awaited = BrokerWait()
        self.bugs = Counter()
        self.context = make_context(bugs=self.bugs)
        self.why_stopped = ""
        self.parts: Any = None
        self.log_partitions: dict[int, Any] = {}
        self.wanted: dict[int, None] = {}
        self.ticks = 0

    def why_not_ready(self) -> str:
        return self.why

    def find_log(self, count: int) -> None:
        """Let it find its log, of so many partitions."""
        ownership = SimpleNamespace(winner=None, attempt_id=b"ours")
        self.log_partitions = {
            index: SimpleNamespace(index=index, state=State.INITIAL, ownership=ownership, retry_at_ms=None)
            for index in range(count)
        }
        node = self

        class Partitions:
            wanted = node.wanted

            @property
            def ticks(self) -> int:
                return node.ticks

            def __iter__(self) -> Any:
                return iter(node.log_partitions.values())

            def held_count(self) -> int:
                return len(node.wanted)

        self.parts = SimpleNamespace(partitions=Partitions())

    def become(self, index: int, state: State) -> None:
        self.log_partitions[index].state = state


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def watch(node: FakeNode) -> NodeWatch:
    return NodeWatch(cast("Node", node))


def test_a_start_gets_on_with_each_log_partition_and_ends_when_the_node_is_ready(
    node: FakeNode, watch: NodeWatch
) -> None:
    first = watch.condition()
    assert (first.has_started, first.status) == (False, "starting: the node starts")
    node.find_log(2)
    found = watch.condition()
    assert found.progress > first.progress
    node.wanted.update({0: None, 1: None})
    node.become(0, State.LOADING)
    assert watch.condition().progress == found.progress
    node.become(0, State.ACTIVE)
    assert watch.condition().progress == found.progress + 1
    assert not watch.condition().has_started
    node.become(1, State.ACTIVE)
    node.why = ""
    ready = watch.condition()
    assert (ready.has_started, ready.is_ready, ready.status) == (True, True, "ready: 2 log partitions")


def test_a_member_without_work_has_started_when_it_is_ready_and_not_before_it_knows_its_work(
    node: FakeNode, watch: NodeWatch
) -> None:
    node.find_log(2)
    node.why = "the node has no assignment of its group yet"
    assert not watch.condition().has_started
    node.why = ""
    assert watch.condition().has_started


def test_a_log_partition_that_failed_once_is_no_reason_to_go_on_starting_though_it_loads_again(
    node: FakeNode, watch: NodeWatch
) -> None:
    node.find_log(2)
    node.wanted.update({0: None, 1: None})
    node.why = "not every log partition serves (1 failed)"
    node.become(0, State.FAILED)
    assert not watch.condition().has_started
    node.become(0, State.LOADING)
    node.become(1, State.ACTIVE)
    found = watch.condition()
    assert (found.has_started, found.is_ready) == (True, False)
    assert found.status == "not ready: not every log partition serves (1 failed)"


def test_who_waits_for_the_owner_of_its_log_has_started(node: FakeNode, watch: NodeWatch) -> None:
    node.find_log(1)
    node.wanted[0] = None
    node.why = "node 2 serves log partitions 0"
    node.become(0, State.CLOSED)
    assert not watch.condition().has_started
    node.log_partitions[0].ownership.winner = SimpleNamespace(attempt_id=b"theirs")
    assert watch.condition().has_started


def test_what_has_started_stays_so(node: FakeNode, watch: NodeWatch) -> None:
    node.find_log(1)
    node.why = ""
    watch.condition()
    node.wanted[0] = None
    node.why = "no broker answers, for 16 s; queried broker 1"
    found = watch.condition()
    assert (found.has_started, found.is_ready, found.status) == (True, False, f"not ready: {node.why}")


def test_the_turns_are_the_ticks_of_the_log_partitions_and_before_and_after_them_those_of_the_loop(
    node: FakeNode, watch: NodeWatch
) -> None:
    assert watch.condition().turns != watch.condition().turns
    node.find_log(1)
    node.ticks = 7
    assert watch.condition().turns == watch.condition().turns == 7
    node.ticks = 8
    assert watch.condition().turns == 8
    node.why_stopped = "a stop was requested"
    assert watch.condition().turns != watch.condition().turns


def test_a_stop_says_why(node: FakeNode, watch: NodeWatch) -> None:
    node.why_stopped = "node 2 took over"
    found = watch.condition()
    assert (found.is_stopping, found.status) == (True, "stopping: node 2 took over")


def test_a_bug_in_the_look_stops_no_turns_and_is_logged(node: FakeNode, watch: NodeWatch) -> None:
    before = watch.condition()
    del node.why
    with capture_logs() as lines:
        again, third = watch.condition(), watch.condition()
    assert [line["event"] for line in lines] == ["node_condition_failed"] * 2
    assert node.bugs.value == 2
    assert again.status == before.status
    assert len({before.turns, again.turns, third.turns}) == 3
