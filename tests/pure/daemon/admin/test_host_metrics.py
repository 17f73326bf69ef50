"""The metrics of a node, and of all workers of a host."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from holdfast.daemon.admin.host_metrics import HostMetrics, Steps
from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.daemon.worker_place import ALONE, WorkerPlace
from holdfast.metrics.registry import Registry
from holdfast.node_settings import load_settings
from tests.waiting import PATIENCE_MS
from tests.world.context import make_context
from tests.world.serving import serve

OTHERS = {2: "127.0.0.1:9494", 3: "127.0.0.1:9495"}


class World:
    """Node 1 of a host, and what the others answer: by address their metrics, None for silence."""

    def __init__(self, place: WorkerPlace) -> None:
        self.registry = registry = Registry()
        registry.counter("writes", "…", topic="orders").value = 5
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        settings = load_settings(flags={"kafka.bootstrap.servers": "a:1"}).settings
        self.metrics = HostMetrics(settings, make_context(registry=registry), place, self.query)

    async def query(self, address: str) -> Any:
        self.asked.append(address)
        if address not in self.answers:
            raise NodeSilent("frozen")
        return self.answers[address]

    async def read(self, **arguments: Any) -> dict[str, float]:
        found = self.metrics.read(arguments)
        return outcome(found) if isinstance(found, Generator) else await found


def outcome(steps: Steps) -> dict[str, float]:
    """Return what comes of all steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: dict[str, float] = end.value
            return found


async def test_a_node_that_is_no_worker_shows_its_own_without_a_label() -> None:
    assert await World(ALONE).read() == {"holdfast_writes_total{topic=orders}": 5}


async def test_many_are_read_in_steps_while_series_come_and_go() -> None:
    world = World(ALONE)
    for number in range(1_000):
        world.registry.gauge("lag", "…", group=number)
    steps = world.metrics.read({})
    assert isinstance(steps, Generator)
    for _ in range(3):
        next(steps)
    world.registry.remove(group=999)
    world.registry.gauge("more", "…", group=1_000)
    assert len(outcome(steps)) >= 1_000


async def test_a_worker_shows_those_of_all_each_with_its_node() -> None:
    world = World(WorkerPlace(others=OTHERS, restarts=2))
    world.answers = {
        "127.0.0.1:9494": {"holdfast_writes_total{node=2,topic=orders}": 7},
        "127.0.0.1:9495": {"holdfast_writes_total{node=3,topic=orders}": 0},
    }
    assert await world.read() == {
        "holdfast_writes_total{node=1,topic=orders}": 5,
        "holdfast_writes_total{node=2,topic=orders}": 7,
        "holdfast_writes_total{node=3,topic=orders}": 0,
        "holdfast_worker_restarts_total{node=1}": 2,
        "holdfast_workers_silent{node=1}": 0,
    }


async def test_a_worker_that_does_not_answer_is_counted_and_the_others_are_shown() -> None:
    world = World(WorkerPlace(others=OTHERS))
    world.answers = {"127.0.0.1:9495": {"holdfast_writes_total{node=3}": 4}}
    found = await world.read()
    assert (
        found["holdfast_writes_total{node=1,topic=orders}"],
        found["holdfast_writes_total{node=3}"],
        found["holdfast_workers_silent{node=1}"],
    ) == (5, 4, 1)
    world.answers["127.0.0.1:9494"] = None  # it refuses the command, as an older version does
    assert (await world.read())["holdfast_workers_silent{node=1}"] == 1


async def test_what_one_worker_asks_another_is_not_passed_on() -> None:
    """Nor what it found out when it was asked for all: the one that asks now finds out for itself."""
    world = World(WorkerPlace(others=OTHERS))
    own = {"holdfast_writes_total{node=1,topic=orders}", "holdfast_worker_restarts_total{node=1}"}
    assert set(await world.read(of="node")) == own
    assert world.asked == []
    assert (await world.read())["holdfast_workers_silent{node=1}"] == 2
    assert set(await world.read(of="node")) == own


async def test_a_query_over_a_connection_asks_for_the_one_node() -> None:
    asked: list[dict[str, Any]] = []

    def answer(arguments: dict[str, Any]) -> dict[str, float]:
        asked.append(arguments)
        return {"holdfast_writes_total{node=2}": 1}

    settings = load_settings(flags={"kafka.bootstrap.servers": "a:1"}).settings
    async with serve(commands={"metrics": answer}) as served:
        place = WorkerPlace(others={2: served.address, 3: "127.0.0.1:1"})
        found = HostMetrics(settings, make_context(), place, answer_timeout_ms=PATIENCE_MS).read({})
        assert not isinstance(found, Generator)
        assert await found == {
            "holdfast_writes_total{node=2}": 1,
            "holdfast_worker_restarts_total{node=1}": 0,
            "holdfast_workers_silent{node=1}": 1,
        }
    assert asked == [{"of": "node"}]
