"""The HTTP port of all workers of a host: what it says of them, and of one that is frozen or gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.daemon.admin.host_metrics import HostMetrics
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.http.port import open_http_port
from holdfast.daemon.server.other_nodes import NodeSilent
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.worker_place import WorkerPlace
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.metrics.exposition import expose
from holdfast.metrics.registry import Registry
from holdfast.node_settings import load_settings
from holdfast.tenants import TABLES
from holdfast.workers.host_port import HostView, host_port
from holdfast.workers.plan import Worker
from tests.waiting import PATIENCE_MS
from tests.world.context import make_context
from tests.world.http import BROWSER, Answer, get
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
        self.hand_overs: dict[str, list[dict[str, Any]]] = {}
        self.pages: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        self.view = HostView(settings(), TABLES, WORKERS, self.query)

    async def query(self, address: str, command: str, timeout_ms: int, **arguments: object) -> Any:
        self.asked.append((address, command, arguments))
        if address in self.silent:
            raise NodeSilent("no answer in time")
        if command == "status":
            why = self.why.get(address)
            return {"is_ready": not why, "why_not_ready": why, "http_port": 7_000 + int(address[-1])}
        if command == "metrics" and "accept" in arguments:
            registry = Registry()
            registry.counter("writes", "Writes.").value = int(address[-1])
            return {"text": b"".join(expose(registry, str(arguments["accept"])).pieces).decode()}
        if command == "hand-overs":
            return self.hand_overs[address]
        if command == "share-partitions" and address in self.pages:
            return self.pages[address](arguments)
        return {"of": address}

    async def ask(self, *paths: str, accept: str = "*/*") -> list[Answer]:
        files = FileWatch(self.view.context)
        server = await open_http_port(self.view, settings(), files, TABLES.queries)
        assert server is not None
        try:
            return [await get(server.port, path, Accept=accept) for path in paths]
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
    why = "worker 10: it does not answer at 127.0.0.1:1 (no answer in time)"
    assert (ready.status, ready.json()["why_not_ready"]) == (503, why)
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
    [answer] = await host.ask("/api/v1/resolve-topic?name=orders")
    assert answer.json() == {"of": "127.0.0.1:1"}
    assert host.asked[-1] == ("127.0.0.1:1", "resolve-topic", {"name": "orders"})
    host.silent = {"127.0.0.1:1", "127.0.0.1:2"}
    [answer] = await host.ask("/api/v1/members")
    assert answer.status == 503


async def test_hand_overs_are_those_that_the_workers_remember(host: Host) -> None:
    row = {"at_ms": 5, "log_partition": 0, "owner_epoch": 2, "load_ms": 7}
    host.hand_overs = {"127.0.0.1:1": [row | {"load_ms": None}], "127.0.0.1:2": [row]}
    [answer] = await host.ask("/api/v1/hand-overs")
    assert answer.json() == [row]
    host.silent = {"127.0.0.1:2"}
    [answer] = await host.ask("/api/v1/hand-overs")
    assert answer.json() == [row | {"load_ms": None}]
    host.silent = {"127.0.0.1:1", "127.0.0.1:2"}
    [answer] = await host.ask("/api/v1/hand-overs")
    assert answer.status == 503


async def test_the_page_is_at_the_port_of_a_worker_that_is_ready(host: Host) -> None:
    [none] = await host.ask("/")
    assert (none.status, none.json()["error"]) == (503, "No worker is ready to show the page; /ready says why.")
    [page] = await host.ask("/", accept=BROWSER)
    assert (page.status, page.body[:15]) == (503, b"<!doctype html>")
    await host.view.look()
    first, window, query, style = await host.ask(
        "/", "/window?group=a%2Fb&topic=t", "/api/v1/group-topics", "/static/a"
    )
    assert [each.status for each in (first, window, query, style)] == [307] * 4
    assert first.headers["location"] == "http://localhost:7001/"
    assert window.headers["location"] == "http://localhost:7001/window?group=a%2Fb&topic=t"
    assert query.headers["location"] == "http://localhost:7001/api/v1/group-topics"
    host.silent = {"127.0.0.1:1"}
    await host.view.look()
    [other] = await host.ask("/")
    assert other.headers["location"] == "http://localhost:7002/"
    host.silent, host.why = set(), {"127.0.0.1:1": "it stops", "127.0.0.1:2": "it starts"}
    await host.view.look()
    [none] = await host.ask("/")
    assert none.status == 503


KEYS = [[f"g{number % 3}", format_topic_id(bytes([number]) * 16), number] for number in range(20)]


def worker_of(numbers: range, others: range, page_rows: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return how a worker lists the share partitions with these numbers; each is in the log partition of its number."""

    def page(arguments: dict[str, Any]) -> dict[str, Any]:
        after, group = arguments.get("after"), arguments.get("group")
        keys = sorted(KEYS[number] for number in numbers)
        keys = [key for key in keys if (after is None or key > after) and group in (None, key[0])]
        limit = min(page_rows, int(arguments.get("limit", page_rows)))
        return {
            "share_partitions": [
                dict(zip(("group", "topic_id", "partition"), key, strict=True)) for key in keys[:limit]
            ],
            "next": keys[:limit][-1] if len(keys) > limit else None,
            "not_listed": [
                {"log_partition": number, "state": "elsewhere", "why": "another has it"} for number in others
            ],
        }

    return page


@pytest.mark.parametrize("limit", [None, 1, 3, 100])
@pytest.mark.parametrize("rows", [(3, 3), (1, 7), (100, 2), (100, 100)])
async def test_pages_of_share_partitions_are_those_of_all_workers(
    host: Host, rows: tuple[int, int], limit: int | None
) -> None:
    """A cursor of one page means the same to both workers: each share partition is listed once, in one order."""
    ours, theirs = range(0, 20, 2), range(1, 20, 2)
    host.pages = {
        "127.0.0.1:1": worker_of(ours, theirs, rows[0]),
        "127.0.0.1:2": worker_of(theirs, ours, rows[1]),
    }
    listed: list[list[Any]] = []
    at_most, after = "" if limit is None else f"&limit={limit}", "null"
    while True:
        [answer] = await host.ask(f"/api/v1/share-partitions?after={quote(after)}{at_most}")
        page = answer.json()
        assert page["not_listed"] == []
        assert len(page["share_partitions"]) <= (limit or sum(rows))
        listed += [list(row.values()) for row in page["share_partitions"]]
        if page["next"] is None:
            break
        after = json.dumps(page["next"])
    assert listed == sorted(KEYS)


async def test_log_partitions_of_a_silent_worker_are_named_as_left_out(host: Host) -> None:
    ours, theirs = range(0, 20, 2), range(1, 20, 2)
    host.pages = {"127.0.0.1:1": worker_of(ours, theirs, 100)}
    host.silent = {"127.0.0.1:2"}
    [answer] = await host.ask("/api/v1/share-partitions")
    assert [row["partition"] for row in answer.json()["share_partitions"]] == [key[2] for key in sorted(KEYS[::2])]
    assert [row["log_partition"] for row in answer.json()["not_listed"]] == list(theirs)
    host.silent = {"127.0.0.1:1", "127.0.0.1:2"}
    [answer] = await host.ask("/api/v1/share-partitions")
    assert answer.status == 503


async def test_a_log_partition_that_loads_is_left_out_with_the_word_of_its_worker(host: Host) -> None:
    loading = {"log_partition": 4, "state": "loading", "why": None}
    elsewhere = {"log_partition": 4, "state": "elsewhere", "why": "node 11 has it"}
    empty: dict[str, Any] = {"share_partitions": [], "next": None}
    host.pages = {
        "127.0.0.1:1": lambda _: empty | {"not_listed": [elsewhere]},
        "127.0.0.1:2": lambda _: empty | {"not_listed": [loading]},
    }
    [answer] = await host.ask("/api/v1/share-partitions")
    assert answer.json()["not_listed"] == [loading]


async def test_a_host_without_the_port_has_none() -> None:
    async with host_port(settings(http__listen=""), TABLES, WORKERS):
        assert [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-workers-look"] == []


async def test_a_worker_takes_what_it_is_asked() -> None:
    """The whole way, over a connection and through the admin call of a worker."""
    registry = Registry()
    registry.counter("writes", "Writes.").value = 3
    worker = HostMetrics(settings(), make_context(registry=registry), WorkerPlace(others={11: "127.0.0.1:2"}))
    commands = {"metrics": worker.read, "status": lambda _: {"is_ready": True, "why_not_ready": None}}
    async with serve(commands=commands) as served:
        view = HostView(settings(), TABLES, [Worker(10, served.address, {})])
        await view.look()
        assert view.why_not_ready() == ""
        lines = b"".join((await view.expose("")).pieces).decode().splitlines()
    assert 'holdfast_writes_total{node="10"} 3.0' in lines
    silent = [line for line in lines if line.startswith("holdfast_workers_silent")]
    assert silent == ["holdfast_workers_silent 0.0"], "that of the worker says nothing here"


async def test_workers_that_are_gone_are_no_problem_of_the_port() -> None:
    """Real connections, to ports at which nobody listens."""
    view = HostView(settings(), TABLES, WORKERS)
    await view.look()
    why = view.why_not_ready()
    assert why.startswith("worker 10: it does not answer at 127.0.0.1:1 (127.0.0.1:1 cannot be reached: ")
    assert why.endswith(") (and 1 more)")
    assert b"holdfast_workers_silent 2.0" in b"".join((await view.expose("")).pieces)
    assert view.context.internal_errors._count.value == 0
