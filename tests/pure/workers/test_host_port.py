"""The HTTP port of all workers of a host: what it says of them, and of one that is frozen or gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.daemon.admin.host_metrics import HostMetrics
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.http.port import open_http_port
from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.daemon.settings.file_env_flags import load_settings
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.worker_place import WorkerPlace
from holdfast.metrics.exposition import expose
from holdfast.metrics.registry import Registry
from holdfast.workers.host_port import HostView, host_port
from holdfast.workers.plan import Worker
from tests.waiting import PATIENCE_MS
from tests.world.http import Answer, get
from tests.world.serving import serve

WORKERS = (Worker(10, "127.0.0.1:1", {}), Worker(11, "127.0.0.1:2", {}))


def settings(**flags: object) -> Settings:
    given = {"kafka.bootstrap.servers": "a:1", "http.listen": "127.0.0.1:0"} | {
        name.replace("__", "."): str(value) for name, value in flags.items()
    }
    return load_settings(flags=given).settings


class Host:
    """Two workers, each of which answers, or does not."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.why: dict[str, str] = {}
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        self.view = HostView(settings(), WORKERS, self.query)

    async def query(self, address: str, command: str, timeout_ms: int, **arguments: object) -> Any:
        self.asked.append((address, command, arguments))
        if address in self.silent:
            raise NodeSilent("no answer in time")
        if command == "status":
            why = self.why.get(address)
            return {"is_ready": not why, "why_not_ready": why}
        if command == "metrics" and "accept" in arguments:
            registry = Registry()
            registry.counter("writes", "Writes.").value = int(address[-1])
            return {"text": b"".join(expose(registry, str(arguments["accept"])).pieces).decode()}
        return {"of": address}

    async def ask(self, *paths: str) -> list[Answer]:
        server = await open_http_port(self.view, settings(), FileWatch(self.view.registry, self.view.internal_errors))
        assert server is not None
        try:
            return [await get(server.port, path) for path in paths]
        finally:
            await server.stop(PATIENCE_MS)
            await self.view.admin.close()


@pytest.fixture
async def host() -> Host:
    return Host()


async def test_the_host_is_ready_when_all_workers_are(host: Host) -> None:
    live, ready = await host.ask("/live", "/ready")
    assert (live.status, ready.status) == (200, 503)
    assert ready.json()["why_not_ready"] == "worker 10: the worker starts (and 1 more)"
    host.why = {"127.0.0.1:2": "no broker answers"}
    await host.view.look()
    [ready] = await host.ask("/ready")
    assert (ready.status, ready.json()["why_not_ready"]) == (503, "worker 11: no broker answers")
    host.why = {}
    await host.view.look()
    ready, health = await host.ask("/ready", "/health")
    assert (ready.status, ready.json()["is_ready"], health.status) == (200, True, 200)
    assert health.json()["workers"] == {"10": None, "11": None}


async def test_a_worker_that_does_not_answer_is_named_and_the_rest_is_shown(host: Host) -> None:
    await host.view.look()
    host.silent = {"127.0.0.1:1"}
    await host.view.look()
    live, ready, metrics = await host.ask("/live", "/ready", "/metrics")
    assert live.status == 200
    assert (ready.status, ready.json()["why_not_ready"]) == (503, "worker 10: it does not answer at 127.0.0.1:1")
    families = {each.name: each for each in text_string_to_metric_families(metrics.body.decode())}
    assert [(each.labels, each.value) for each in families["holdfast_writes"].samples] == [({"node": "11"}, 2)]
    assert [(each.labels, each.value) for each in families["holdfast_workers_silent"].samples] == [({}, 1)]


async def test_metrics_are_those_of_all_workers_by_node(host: Host) -> None:
    [metrics] = await host.ask("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    families = {each.name: each for each in text_string_to_metric_families(metrics.body.decode())}
    found = [(each.labels["node"], each.value) for each in families["holdfast_writes"].samples]
    assert found == [("10", 1), ("11", 2)]
    assert [each.value for each in families["holdfast_workers_silent"].samples] == [0]


async def test_a_query_is_answered_by_a_worker_that_is_ready_or_answers(host: Host) -> None:
    host.why = {"127.0.0.1:1": "no broker answers"}
    await host.view.look()
    [answer] = await host.ask("/api/v1/partitions")
    assert answer.json() == {"of": "127.0.0.1:2"}
    host.silent = {"127.0.0.1:2"}
    [answer] = await host.ask("/api/v1/share-partitions?group=g")
    assert answer.json() == {"of": "127.0.0.1:1"}
    assert host.asked[-1] == ("127.0.0.1:1", "share-partitions", {"group": "g"})
    host.silent = {"127.0.0.1:1", "127.0.0.1:2"}
    [answer] = await host.ask("/api/v1/members")
    assert answer.status == 503


async def test_a_host_without_the_port_has_none() -> None:
    async with host_port(settings(http__listen=""), WORKERS):
        assert [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-workers-look"] == []


async def test_a_worker_takes_what_it_is_asked() -> None:
    """The whole way, over a connection and through the admin call of a worker."""
    registry = Registry()
    registry.counter("writes", "Writes.").value = 3
    worker = HostMetrics(settings(), registry, WorkerPlace(others={11: "127.0.0.1:2"}))
    commands = {"metrics": worker.read, "status": lambda _: {"is_ready": True, "why_not_ready": None}}
    async with serve(commands=commands) as served:
        view = HostView(settings(), [Worker(10, served.address, {})])
        await view.look()
        assert view.why_not_ready() == ""
        lines = b"".join((await view.expose("")).pieces).decode().splitlines()
    assert 'holdfast_writes_total{node="10"} 3.0' in lines
    silent = [line for line in lines if line.startswith("holdfast_workers_silent")]
    assert silent == ["holdfast_workers_silent 0.0"], "that of the worker says nothing here"


async def test_workers_that_are_gone_are_no_problem_of_the_port() -> None:
    """Real connections, to ports at which nobody listens."""
    view = HostView(settings(), WORKERS)
    await view.look()
    assert view.why_not_ready() == "worker 10: it does not answer at 127.0.0.1:1 (and 1 more)"
    assert b"holdfast_workers_silent 2.0" in b"".join((await view.expose("")).pieces)
    assert view.internal_errors._count.value == 0
