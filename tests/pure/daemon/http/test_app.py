"""The paths of the HTTP port: what each answers, to whom, and that the description of them is true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from html import escape
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.http.app import make_app
from holdfast.daemon.http.guard import HttpGuard, OpenGuard, ScrapeGuard
from holdfast.daemon.http.openapi import describe
from holdfast.daemon.http.queries import PREFIX, Ask, MakeSite
from holdfast.daemon.http.server import HttpServer
from holdfast.daemon.server.admin import Admin, AdminCommand, AdminError, NodeStarting
from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.http_refusals import PAGE_HEADERS
from holdfast.metrics.exposition import Exposition, expose
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from holdfast.tenants import TABLES
from tests.waiting import wait_until
from tests.world.context import make_context
from tests.world.http import BROWSER, Answer, get
from tests.world.tenants import NEEDS, PAGES

ROWS = [{"partition": 0, "state": "loading", "records_read": 7, "next_offset": 9, "why": None}]
TOKEN = "s3cret"


class TokenOnly:
    """Admits a token."""

    def admits(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == f"Bearer {TOKEN}"

    def admits_scrape(self, headers: Mapping[str, str]) -> bool:
        return self.admits(headers)


#: Each query with the JSON type of its answer, and its parameters: whether each is needed.
QUERIES: Final[dict[str, tuple[str, dict[str, bool]]]] = {
    "status": ("object", {}),
    "partitions": ("array", {}),
    "hand-overs": ("array", {}),
    "members": ("array", {}),
    "readers": ("array", {}),
    "metrics": ("object", {}),
    "settings": ("object", {}),
    "config": ("object", {}),
    "share-partitions": ("object", {"group": False, "topic_id": False, "after": False, "limit": False}),
    "group-members": ("object", {"group": True, "topic_id": False, "partition": False}),
    "resolve-topic": ("object", {"name": True}),
    "topic-ends": ("object", {"topics": True}),
}


class Node:
    """What the port shows."""

    def __init__(self, **commands: AdminCommand) -> None:
        self.registry = Registry()
        self.bugs = Counter()
        self.context = make_context(registry=self.registry, bugs=self.bugs)
        self.registry.counter("writes", "Writes.").value = 5
        self.why = ""
        self.make_site: MakeSite | None = None
        self.authorizer: Authorizer | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        named = {name.replace("_", "-"): command for name, command in commands.items()}
        self.admin = Admin(
            {name: self._answer(name) for name in QUERIES} | named, NEEDS, 1_000, self.context.internal_errors
        )

    def _answer(self, name: str) -> Callable[[dict[str, Any]], object]:
        def answer(arguments: dict[str, Any]) -> object:
            self.asked.append((name, arguments))
            return [{"of": name}] if QUERIES[name][0] == "array" else {"of": name}

        return answer

    @property
    def host_metrics(self) -> Node:
        return self

    async def expose(self, accept: str) -> Exposition:
        return expose(self.registry, accept)

    def why_not_ready(self) -> str:
        return self.why

    def status(self) -> dict[str, Any]:
        return {"is_ready": not self.why, "why_not_ready": self.why or None, "node_id": 1}

    def describe_readiness(self) -> list[dict[str, Any]]:
        return ROWS


@asynccontextmanager
async def serving(node: Node, guard: HttpGuard | None = None) -> AsyncIterator[Callable[..., Any]]:
    server = HttpServer(
        make_app(node, guard or OpenGuard(), TABLES.queries, PAGES), HttpSettings(), node.context.internal_errors
    )
    await server.start("127.0.0.1", 0)

    async def ask(path: str, **given: Any) -> Answer:
        return await get(server.port, path, **given)

    try:
        yield ask
    finally:
        await server.stop(1_000)


async def test_a_node_that_lives_says_so_and_a_node_that_is_not_ready_says_why() -> None:
    node = Node()
    async with serving(node) as ask:
        assert (await ask("/live")).json() == {"is_alive": True}
        ready = await ask("/ready")
        assert (ready.status, ready.json()) == (
            200,
            {"is_ready": True, "why_not_ready": None, "log_partitions": ROWS},
        )
        node.why = "no broker answers"
        ready = await ask("/ready")
        assert (ready.status, ready.json()["why_not_ready"]) == (503, "no broker answers")
        health = await ask("/health")
        assert (health.status, health.json()) == (503, node.status() | {"log_partitions": ROWS})
        assert (await ask("/live")).status == 200


async def test_metrics_come_in_the_format_that_the_client_prefers() -> None:
    async with serving(Node()) as ask:
        text = await ask("/metrics")
        assert text.headers["content-type"].startswith("text/plain; version=")
        (metric,) = text_string_to_metric_families(text.body.decode())
        assert [(sample.name, sample.value) for sample in metric.samples] == [("holdfast_writes_total", 5)]
        openmetrics = await ask("/metrics", Accept="application/openmetrics-text")
        assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
        assert openmetrics.body.endswith(b"# EOF\n")


async def test_the_loop_turns_between_the_pieces_of_a_large_answer() -> None:
    node, turns = Node(), 0
    for partition in range(1_000):
        node.registry.gauge("keys", "Keys.", partition=partition)

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with serving(node) as ask:
        counting = asyncio.create_task(count())
        assert (await ask("/metrics")).body.count(b"holdfast_keys{") == 1_000
        counting.cancel()
    assert turns >= 1_000 / 32


@pytest.mark.parametrize("name", QUERIES)
async def test_each_query_runs_its_command_with_the_parameters_as_arguments(name: str) -> None:
    node = Node()
    given = {
        "share-partitions": (
            "?group=a%20b&topic_id=x&limit=3&after=[%22g%22,%22t%22,0]",
            {"group": "a b", "topic_id": "x", "limit": 3, "after": ["g", "t", 0]},
        ),
        "group-members": (
            "?group=a%20b&topic_id=x&partition=3",
            {"group": "a b", "topic_id": "x", "partition": 3},
        ),
        "resolve-topic": ("?name=orders", {"name": "orders"}),
        "topic-ends": ("?topics={%22t%22:[0]}", {"topics": {"t": [0]}}),
    }
    query, arguments = given.get(name, ("", {}))
    async with serving(node) as ask:
        answer = await ask(f"{PREFIX}{name}{query}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert node.asked == [(name, arguments)]
    assert answer.json() == ([{"of": name}] if QUERIES[name][0] == "array" else {"of": name})


async def test_a_command_that_waits_or_has_many_steps_is_answered_at_its_end() -> None:
    async def wait(arguments: dict[str, Any]) -> object:
        await asyncio.sleep(0)
        return {"id": 1}

    def step(arguments: dict[str, Any]) -> Generator[None, None, object]:
        yield
        yield
        return {"next": None}

    async with serving(Node(resolve_topic=wait, share_partitions=step)) as ask:
        assert (await ask(f"{PREFIX}resolve-topic?name=a")).json() == {"id": 1}
        assert (await ask(f"{PREFIX}share-partitions")).json() == {"next": None}


async def test_a_command_that_waits_for_others_keeps_no_other_answer_waiting() -> None:
    answered, waiting = asyncio.Event(), list[str]()

    async def wait(arguments: dict[str, Any]) -> object:
        waiting.append(arguments["name"])
        await answered.wait()
        return {"id": 1}

    def step(arguments: dict[str, Any]) -> Generator[None, None, object]:
        yield
        return {"next": None}

    async with serving(Node(resolve_topic=wait, share_partitions=step)) as ask:
        silent = [asyncio.create_task(ask(f"{PREFIX}resolve-topic?name=t{number}")) for number in range(5)]
        await wait_until(lambda: len(waiting) == 5)  # all at once, too
        assert (await ask("/metrics")).status == 200
        assert (await ask(f"{PREFIX}share-partitions")).json() == {"next": None}
        assert not any(each.done() for each in silent)
        answered.set()
        assert [(await each).json() for each in silent] == [{"id": 1}] * 5


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("status?of=node", "There is no parameter 'of'; status takes none."),
        ("resolve-topic", "The parameter 'name' is needed."),
        ("share-partitions?limit=x", "The parameter 'limit' must be a whole number."),
        ("share-partitions?after=%7B", "The parameter 'after' must be JSON."),
        ("topic-ends?topics=" + "[" * 5_000, "The parameter 'topics' must be JSON."),
    ],
)
async def test_a_request_that_is_wrong_is_400_and_runs_nothing(path: str, error: str) -> None:
    node = Node()
    async with serving(node) as ask:
        answer = await ask(PREFIX + path)
    assert (answer.status, answer.json(), node.asked) == (400, {"error": error}, [])


async def test_a_refusal_has_its_status_and_a_bug_shows_nothing() -> None:
    def refuse(arguments: dict[str, Any]) -> object:
        raise AdminError("The `limit` is wrong.")

    def start(arguments: dict[str, Any]) -> object:
        raise NodeStarting

    def fail(arguments: dict[str, Any]) -> object:
        raise RuntimeError(TOKEN)

    node = Node(share_partitions=refuse, readers=start, members=fail)
    async with serving(node) as ask:
        with capture_logs() as lines:
            found = {name: await ask(f"{PREFIX}{name}") for name in ("share-partitions", "readers", "members")}
        assert {name: answer.status for name, answer in found.items()} == {
            "share-partitions": 400,
            "readers": 503,
            "members": 500,
        }
        assert found["share-partitions"].json() == {"error": "The `limit` is wrong."}
        assert TOKEN.encode() not in found["members"].body
        assert [line["event"] for line in lines] == ["admin_command_failed"]
        node.describe_readiness = fail  # type: ignore[method-assign,assignment]
        with capture_logs() as lines:
            broken = await ask("/health")
        assert (broken.status, TOKEN.encode() in broken.body) == (500, False)
        assert [line["event"] for line in lines] == ["http_request_failed"]
        assert node.bugs.value == 2, "that of the command, and that of the page"


async def test_without_the_token_nothing_is_said_but_that_it_lives_and_whether_it_is_ready() -> None:
    node = Node()
    guarded = ["/health", "/metrics", "/openapi.json", *(PREFIX + name for name in QUERIES)]
    async with serving(node, TokenOnly()) as ask:
        for path in guarded:
            refused = await ask(path, Authorization="Bearer wrong")
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert node.asked == []
        assert (await ask("/live")).status == 200
        assert (await ask("/ready")).json() == {"is_ready": True}
        assert (await ask("/ready", Authorization=f"Bearer {TOKEN}")).json()["log_partitions"] == ROWS
        assert (await ask(f"{PREFIX}status", Authorization=f"Bearer {TOKEN}")).status == 200


async def test_where_nobody_can_say_who_they_are_metrics_are_shown_and_what_commands_show_is_not() -> None:
    node = Node()
    async with serving(node, ScrapeGuard()) as ask:
        for path in ("/health", "/openapi.json", *(PREFIX + name for name in QUERIES)):
            refused = await ask(path)
            assert (refused.status, refused.json()) == (
                401,
                {"error": "Send the token of http.token.file as `Authorization: Bearer`."},
            )
        assert node.asked == []
        assert (await ask("/metrics")).status == 200
        assert (await ask("/ready")).json() == {"is_ready": True}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_but_get_is_answered(method: str) -> None:
    node = Node()
    async with serving(node) as ask:
        assert (await ask(f"{PREFIX}status", method=method)).status == 405
        assert (await ask("/nowhere", method=method)).status == 404
        assert (await ask(f"{PREFIX}readers-drop")).status == 404, "what changes something has no path"
    assert node.asked == []


class SiteOfTenant:
    """Says of each request that it came."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = await self.ask("status", {})
        await JSONResponse({"path": scope["path"], "asked": status})(scope, receive, send)

    def describe(self) -> Mapping[str, Any]:
        return {"paths": {f"{PREFIX}window": {}}, "components": {"schemas": {"Window": {"type": "object"}}}}


async def test_a_site_of_a_tenant_answers_what_no_other_path_does() -> None:
    node = Node()
    node.make_site = SiteOfTenant
    async with serving(node) as ask:
        assert (await ask("/")).json() == {"path": "/", "asked": {"of": "status"}}
        assert (await ask(f"{PREFIX}window?group=a")).json()["path"] == f"{PREFIX}window"
        assert (await ask("/live")).json() == {"is_alive": True}
        assert (await ask(f"{PREFIX}status", method="POST")).status == 405
        described = (await ask("/openapi.json")).json()
        assert f"{PREFIX}window" in described["paths"]
        assert described["components"]["schemas"].keys() == {"Refusal", "Window"}
        node.make_site = None
        assert (await ask("/")).status == 404
        assert f"{PREFIX}window" not in (await ask("/openapi.json")).json()["paths"]


async def test_a_node_that_starts_has_no_page_yet_and_says_so() -> None:
    node = Node()
    node.why = "the node waits for brokers: 10.0.0.7:9092 is silent"
    async with serving(node) as ask:
        answer = await ask("/")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["error"].startswith(
            "The node is starting, and has no page yet; look again in some seconds."
        )
        node.make_site = SiteOfTenant
        assert (await ask("/")).status == 200
    async with serving(node, TokenOnly()) as ask:
        node.make_site = None
        assert (await ask("/")).status == 401


@pytest.mark.parametrize(("guard", "status"), [(TokenOnly(), 401), (OpenGuard(), 503)])
async def test_a_browser_is_refused_by_a_page_and_a_program_by_json(guard: HttpGuard, status: int) -> None:
    node = Node()
    node.why = "the node waits for brokers"
    async with serving(node, guard) as ask:
        page, api, program = [
            await ask(path, Accept=accept)
            for path, accept in (("/", BROWSER), ("/api/v1/group", BROWSER), ("/", "*/*"))
        ]
    assert [page.status, api.status, program.status] == [status] * 3
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == PAGE_HEADERS["Content-Security-Policy"]
    assert api.json() == program.json()
    assert escape(api.json()["error"]).encode() in page.body
    kept = {"www-authenticate", "retry-after"} & api.headers.keys()
    assert kept
    assert {name: page.headers[name] for name in kept} == {name: api.headers[name] for name in kept}
    assert page.headers.get("refresh") == api.headers.get("retry-after")


async def test_a_site_is_shown_to_those_alone_whom_the_guard_admits() -> None:
    node = Node()
    node.make_site = SiteOfTenant
    async with serving(node, TokenOnly()) as ask:
        assert (await ask("/")).status == 401
        assert (await ask("/", Authorization=f"Bearer {TOKEN}")).status == 200
    async with serving(node, ScrapeGuard()) as ask:
        assert (await ask("/")).status == 401
        assert (await ask("/metrics")).status == 200


async def test_the_description_names_every_path_and_every_parameter_and_no_other() -> None:
    app = make_app(Node(), OpenGuard(), TABLES.queries, PAGES)
    paths = describe(TABLES.queries, PAGES)["paths"]
    assert {route.path.replace(":path", "") for route in app.routes} == paths.keys()  # type: ignore[attr-defined]
    groups = {PREFIX + "groups", PREFIX + "groups/{group}"}
    assert {path for path in paths if path.startswith(PREFIX)} == groups | {PREFIX + name for name in QUERIES}
    for name, (_, parameters) in QUERIES.items():
        listed = paths[PREFIX + name]["get"]["parameters"]
        assert {each["name"]: each["required"] for each in listed} == parameters


async def test_every_path_answers_as_it_is_described() -> None:
    kinds = {"object": dict, "array": list}
    page: dict[str, Any] = {"share_partitions": [], "next": None, "not_listed": []}
    async with serving(Node(share_partitions=lambda _: page)) as ask:
        paths = (await ask("/openapi.json")).json()["paths"]
        assert paths == describe(TABLES.queries, PAGES)["paths"]
        for path, listed in paths.items():
            parameters = listed["get"].get("parameters", ())
            needed = [each["name"] for each in parameters if each["required"] and each["in"] == "query"]
            answer = await ask(path.replace("{group}", "workers") + "".join(f"?{name}=1" for name in needed))
            content = listed["get"]["responses"][str(answer.status)]["content"]
            (media_type, schema) = next(iter(content.items()))
            assert answer.headers["content-type"].startswith(media_type), path
            if media_type == "application/json":
                assert isinstance(answer.json(), kinds[schema["schema"].get("type", "object")]), path
