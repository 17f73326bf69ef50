"""The paths of the page: what each answers, to which requests, and that nothing of others is ever markup."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from html import escape
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from starlette.types import Message

from holdfast.http_refusals import PAGE_HEADERS as HEADERS
from holdfast.page.source import PageRefused, StateRange, to_json
from holdfast.page.web import events
from holdfast.page.web.app import QUERIES, RANGES_PER_PAGE, make_app
from holdfast.page.web.events import STREAMS_MAX
from tests.waiting import PATIENCE_S, in_patience, wait_until
from tests.world.http import BROWSER, Answer, get
from tests.world.page_server import PageServer
from tests.world.page_source import LONG, RIGHT_TO_LEFT, SCRIPT, Held, MemorySource, quiet, stuck

ONE = "group=orders&topic=orders.created&partition=1"
PAGES = ("/", "/group?group=orders", f"/window?{ONE}", f"/offset?{ONE}&offset=40118", "/cluster", "/help")
RECORD = "/record?topic=orders.created&partition=1&offset=40118"


@asynccontextmanager
async def serving(source: MemorySource) -> AsyncIterator[int]:
    bugs: list[tuple[Exception, str]] = []
    server = PageServer(make_app(source, on_bug=lambda error, path: bugs.append((error, path))))
    await server.start("127.0.0.1", 0)
    try:
        yield server.port
    finally:
        await server.stop()
    assert bugs == []


async def ask(source: MemorySource, path: str) -> Answer:
    async with serving(source) as port:
        return await get(port, path)


class Markup(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", [*PAGES, RECORD])
async def test_each_page_is_html_that_may_load_nothing_of_others(path: str) -> None:
    answer = await ask(stuck(), path)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert {name: answer.headers[name.lower()] for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == "no-store"
    for tag, attributes in Markup(answer.body).elements:
        assert tag != "style"
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "action"):
            assert "//" not in (attributes.get(name) or "").partition("?")[0]


@pytest.mark.parametrize("name", [SCRIPT, RIGHT_TO_LEFT, LONG])
async def test_a_name_that_others_chose_is_text_on_every_page(name: str) -> None:
    source = MemorySource([Held(name, name, 0, 3, ((3, 3, 0, 4),), None, f"the brokers said {name}")], (name,))
    source.records[name, 0, 3] = stuck().records["orders.created", 1, 40_118]._replace(topic=name)
    given = quote(name, safe="")
    one = f"group={given}&topic={given}&partition=0"
    async with serving(source) as port:
        for path in (
            "/",
            f"/group?group={given}",
            f"/window?{one}",
            f"/offset?{one}&offset=3",
            f"/record?{one}&offset=3",
        ):
            answer = await get(port, path)
            markup = Markup(answer.body)
            assert (answer.status, name in markup.text) == (200, True), path
            assert [tag for tag, _ in markup.elements].count("script") == 1
            assert not [tag for tag, _ in markup.elements if tag in ("img", "b")]


@pytest.mark.parametrize("query", sorted(QUERIES))
async def test_each_query_answers_json_of_its_view(query: str) -> None:
    answer = await ask(stuck(), f"/api/v1/{query}?{ONE}&offset=40118")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["as_of_ms"]


async def test_the_description_names_every_query_and_parameter() -> None:
    paths = (await ask(quiet(), "/openapi.json")).json()["paths"]
    assert set(paths) == {f"/api/v1/{name}" for name in QUERIES}
    offset = paths["/api/v1/timeline"]["get"]["parameters"][3]
    assert (offset["name"], offset["required"], offset["schema"]["type"]) == ("offset", True, "integer")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("window?group=orders&topic=orders.created", "lacks partition="),
        ("window?group=orders&topic=orders.created&partition=-1", "partition must be a number"),
        (f"timeline?{ONE}&offset=9223372036854775808", "offset must be a number"),
        (f"timeline?{ONE}&offset=%D9%A3", "offset must be a number"),
        ("group?group=" + "x" * 5_000, "group has 5000 characters"),
        ("group", "lacks group="),
        ("group-topics?after=sometime", "cursor is of another run"),
    ],
)
async def test_a_wrong_question_is_refused_with_what_to_do(path: str, text: str) -> None:
    answer = await ask(quiet(), f"/api/v1/{path}")
    assert answer.status == 400
    assert text in answer.json()["error"]


async def test_a_misspelled_name_leads_to_those_that_are_alike() -> None:
    async with serving(stuck()) as port:
        group = Markup((await get(port, "/window?group=ordrs&topic=orders.created&partition=1")).body)
        topic = Markup((await get(port, "/window?group=orders&topic=orders.create&partition=1")).body)
        answer = await get(port, "/api/v1/group?group=ordrs")
    links = [attributes["href"] for found in (group, topic) for _, attributes in found.elements if "href" in attributes]
    assert links.count(f"window?{ONE}") == 2
    assert (answer.status, answer.json()["nearest"]) == (404, ["orders"])


async def test_a_parameter_of_any_name_is_no_bug() -> None:
    answer = await ask(stuck(), "/group?group=ordrs&path=x&_Context__obj=y&_Context__self=z")
    assert answer.status == 404
    links = [attributes["href"] for _, attributes in Markup(answer.body).elements if "href" in attributes]
    assert "group?group=orders&path=x&_Context__obj=y&_Context__self=z" in links


@pytest.mark.parametrize("status", [403, 404, 410, 502, 503])
async def test_a_refusal_of_the_source_keeps_its_status_and_text(status: int) -> None:
    source = quiet()
    source.refused = PageRefused(status, "Broker 1 <b>is silent</b>.")
    async with serving(source) as port:
        page, answer = await get(port, "/"), await get(port, "/api/v1/group-topics")
    assert (page.status, "Broker 1 <b>is silent</b>." in Markup(page.body).text) == (status, True)
    assert (answer.status, answer.json()["error"]) == (status, "Broker 1 <b>is silent</b>.")


async def test_a_bug_is_told_to_its_owner_and_to_no_reader() -> None:
    source, told = quiet(), list[str]()
    source.refused = KeyError("secret")  # type: ignore[assignment] # as a mistake in a source would
    server = PageServer(make_app(source, on_bug=lambda error, path: told.append(f"{path} {error!r}")))
    await server.start("127.0.0.1", 0)
    answer = await get(server.port, "/")
    await server.stop()
    assert (answer.status, b"secret" in answer.body) == (500, False)
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert told == ["/ KeyError('secret')"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_no_method_that_could_change_anything_is_answered(method: str) -> None:
    async with serving(quiet()) as port:
        answer = await get(port, "/", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", [*PAGES, "/events", "/api/v1/group-topics"])
async def test_head_has_the_headers_alone(path: str) -> None:
    async with serving(stuck()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await in_patience(reader.read())).partition(b"\r\n\r\n")
        writer.close()
    assert (head.split()[1], body) == (b"200", b"")


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8080", None, 200),
        ("127.0.0.1", None, 200),
        ("[::1]:80", None, 200),
        ("evil.example", None, 421),
        ("localhost.evil.example", None, 421),
        ("localhost:8080", "http://localhost:8080", 200),
        ("localhost:8080", "http://localhost:8081", 403),
        ("localhost:8080", "http://evil.example", 403),
        ("localhost:8080", "null", 403),
        ("localhost:8080", "http://[", 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/v1/group-topics", "/static/live.js"])
async def test_requests_come_by_an_own_name_and_from_the_page(
    path: str, host: str, origin: str | None, status: int
) -> None:
    async with serving(quiet()) as port:
        answer = await get(port, path, host=host if origin is None else f"{host}\r\nOrigin: {origin}")
    assert answer.status == status


@pytest.mark.parametrize(
    ("site", "mode", "destination", "status"),
    [
        ("none", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("cross-site", "navigate", "document", 200),
        ("same-site", "navigate", "document", 200),
        ("cross-site", "no-cors", "image", 403),
        ("cross-site", "no-cors", "script", 403),
        ("cross-site", "cors", "empty", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "object", 403),
        ("same-site", "cors", "empty", 403),
        ("cross-site", "", "", 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/v1/group-topics", "/events", "/static/live.js"])
async def test_another_site_may_lead_to_the_page_and_do_no_more(
    path: str, site: str, mode: str, destination: str, status: int
) -> None:
    fetch = f"Sec-Fetch-Site: {site}\r\nSec-Fetch-Mode: {mode}\r\nSec-Fetch-Dest: {destination}"
    async with serving(quiet()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{fetch}\r\n\r\n".encode())
        line = await in_patience(reader.readline())
        writer.close()
    assert int(line.split()[1]) == status


@pytest.mark.parametrize(
    ("status", "method", "host", "origin"),
    [
        (421, "GET", "evil.example", "http://evil.example"),
        (403, "GET", "localhost", "http://evil.example"),
        (405, "POST", "localhost", "http://localhost"),
    ],
)
async def test_a_browser_whose_request_is_refused_is_shown_a_page(
    status: int, method: str, host: str, origin: str
) -> None:
    async with serving(quiet()) as port:
        page, api = [
            await get(port, path, method=method, host=host, Origin=origin, Accept=BROWSER)
            for path in ("/", "/api/v1/group-topics")
        ]
    assert (page.status, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert {name: page.headers[name.lower()] for name in HEADERS} == HEADERS
    assert page.headers["cache-control"] == "no-store"
    assert api.status == status
    assert escape(api.json()["error"]).encode() in page.body


async def test_an_unknown_path_is_refused_in_the_form_that_was_asked_for() -> None:
    async with serving(quiet()) as port:
        page, answer, static = [
            await get(port, path) for path in ("/nothing", "/api/v1/nothing", "/static/..%2fapp.py")
        ]
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert (answer.status, static.status) == (404, 404)
    assert answer.json()["error"]


async def test_static_files_are_kept_by_browsers_under_their_version_alone() -> None:
    async with serving(quiet()) as port:
        links = [
            attributes.get("src") for tag, attributes in Markup((await get(port, "/")).body).elements if tag == "script"
        ]
        named, unnamed = await get(port, f"/{links[0]}"), await get(port, "/static/live.js")
    assert "immutable" in named.headers["cache-control"]
    assert unnamed.headers["cache-control"] == "no-store"
    assert named.headers["content-type"] == "text/javascript; charset=utf-8"


async def test_a_window_of_fifty_thousand_ranges_is_shown_in_pages() -> None:
    batches = tuple((place, place, 2 if place % 2 else 0, 1) for place in range(50_000))
    source = MemorySource([Held("orders", "orders.created", 1, 0, batches, 50_000)])
    async with serving(source) as port:
        page = await get(port, f"/window?{ONE}")
        answer = (await get(port, f"/api/v1/window?{ONE}")).json()
        last = (await get(port, f"/api/v1/window?{ONE}&from=49990")).json()
    assert page.body.count(b"<tr") == RANGES_PER_PAGE + 1
    assert f"from={RANGES_PER_PAGE}".encode() in page.body
    assert (len(answer["ranges"]), answer["next_from"], answer["ranges_in_all"]) == (2_000, 2_000, 50_000)
    assert (len(last["ranges"]), last["next_from"]) == (10, None)


async def test_ten_thousand_groups_are_shown_in_pages() -> None:
    source = MemorySource([])
    rows = (await quiet().groups()).rows
    source._rows = lambda: [rows[0]._replace(group=f"g{place}") for place in range(10_000)]  # type: ignore[method-assign]
    answer = await ask(source, "/?after=200")
    assert answer.body.count(b"<tr") == 201
    assert b"after=400" in answer.body


async def test_a_cluster_of_many_log_partitions_is_shown_in_pages() -> None:
    source, shown, path = quiet(), list[str](), "/cluster"
    source.log_partitions = 401
    async with serving(source) as port:
        while path:
            page = Markup((await get(port, path)).body)
            shown += [f"{found['data-label']}" for _, found in page.elements if found.get("data-label") == "Partition"]
            assert ("127.0.0.1:9093" in page.text, "these are 200 of 401" in page.text) == (
                path == "/cluster",
                len(shown) < 401,
            )
            links = [f"/{found['href']}" for tag, found in page.elements if tag == "a" and found.get("rel") == "next"]
            path = links[0] if links else ""
        answer = (await get(port, "/api/v1/cluster")).json()
        refused = await get(port, "/api/v1/cluster?after=none")
    assert len(shown) == 401
    assert (len(answer["log_partitions"]), answer["log_partitions_in_all"], answer["brokers_in_all"]) == (200, 401, 2)
    assert (refused.status, "begin with the first page" in refused.json()["error"]) == (400, True)


async def test_groups_are_found_by_a_part_of_a_name_which_is_text() -> None:
    source = MemorySource([Held(f"{SCRIPT}{number:03}", "orders", 0, 0, log_end=0) for number in range(300)])
    asked = f"name={quote(SCRIPT[:20])}"
    async with serving(source) as port:
        first = Markup((await get(port, f"/?{asked}")).body)
        none = Markup((await get(port, f"/?name={quote(SCRIPT + SCRIPT)}")).body)
        rows = (await get(port, f"/api/v1/group-topics?{asked}")).json()
        refused = await get(port, f"/?name={'x' * 5_000}")
    for page in (first, none):
        assert [tag for tag, _ in page.elements].count("script") == 1
    assert [each["value"] for tag, each in first.elements if tag == "input"] == [SCRIPT[:20]]
    assert any(f"{asked}" in str(attributes.get("href")) for _, attributes in first.elements), (
        "the next page is of the same"
    )
    assert "in its name" in none.text
    assert (len(rows["rows"]), rows["rows_in_all"]) == (200, 300)
    assert refused.status == 400


async def test_minutes_that_were_not_read_are_gaps_and_no_zeros() -> None:
    source = MemorySource([])
    [row] = (await MemorySource([Held("orders", "orders.created", 0, 0, log_end=0)]).groups()).rows
    minutes = (*(None,) * 50, 3, 0, None, *(0,) * 5, None, 7)
    source._rows = lambda: [row._replace(rate_per_s=None, finished_by_minute=minutes)]  # type: ignore[method-assign]
    async with serving(source) as port:
        markup = Markup((await get(port, "/")).body)
        [found] = (await get(port, "/api/v1/group-topics")).json()["rows"]
    drawn = [attributes for tag, attributes in markup.elements if tag == "rect" and attributes.get("class") == "gap"]
    assert [(each["x"], each["width"]) for each in drawn] == [("0", "50"), ("52", "1"), ("58", "1")]
    assert "10 records finished in 8 of the last 60 minutes; the others are not known" in [
        attributes.get("aria-label") for _, attributes in markup.elements
    ]
    assert ("td", {"role": "cell", "class": "n", "data-label": "Finished / s"}) in markup.elements
    assert "unknown" in markup.text
    assert (found["rate_per_s"], found["finished_by_minute"]) == (None, list(minutes))


async def test_an_empty_list_that_is_not_whole_says_so() -> None:
    whole, old = await ask(MemorySource([]), "/"), await ask(MemorySource([], ("Log partition 3 is old.",)), "/")
    assert "There is no share group here yet" in Markup(whole.body).text
    assert "There is no share group here yet" not in Markup(old.body).text


# ---- events ----------------------------------------------------------------------------------------------------------


class Reader:
    """A reader of events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stream, self.writer = reader, writer

    async def line(self, begin: str) -> None:
        while not (line := await in_patience(self.stream.readline())).decode().startswith(begin):
            assert line, "the stream has ended"


async def listen(port: int) -> Reader:
    reader = Reader(*await asyncio.open_connection("127.0.0.1", port))
    reader.writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    await reader.line("HTTP/1.1 ")
    return reader


async def test_each_change_is_an_event_of_every_stream() -> None:
    source = quiet()
    async with serving(source) as port:
        readers = [await listen(port) for _ in range(3)]
        for reader in readers:
            await reader.line("retry: ")
        source.turn()
        for reader in readers:
            await reader.line("event: changed")
            reader.writer.close()


async def test_one_stream_too_many_is_refused_until_another_is_gone() -> None:
    source = quiet()
    async with serving(source) as port:
        readers = [await listen(port) for _ in range(STREAMS_MAX)]
        for reader in readers:
            await reader.line("retry: ")
        refused = await get(port, "/events")
        assert (refused.status, refused.headers["retry-after"]) == (503, "30")
        # Its connection is closed by the server, or a thousand of them would keep others out.
        kept = await listen(port)
        await kept.line("connection: close")
        await in_patience(kept.stream.read())
        kept.writer.close()
        readers[0].writer.close()

        async def is_free() -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            free = b" 200 " in await in_patience(reader.readline())
            writer.close()
            return free

        async with asyncio.timeout(PATIENCE_S):
            while not await is_free():
                pass
        for reader in readers[1:]:
            reader.writer.close()


async def test_a_reader_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "UNREAD_S", 0.05)
    source, sent = quiet(), list[str]()
    stream = events.EventStream(source)

    async def send(message: dict[str, object]) -> None:
        sent.append(str(message["type"]))
        if len(sent) > 1:
            await asyncio.Event().wait()

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    await in_patience(stream({"type": "http", "method": "GET"}, receive, send))  # type: ignore[arg-type]
    assert sent == ["http.response.start", "http.response.body"]
    assert not stream._changes


async def test_a_change_is_an_event_for_those_alone_who_are_shown_it() -> None:
    source, audience = quiet(), ContextVar[str]("audience")
    turned = {name: asyncio.Event() for name in ("one", "other")}
    told = dict[str, list[bytes]]()

    async def changed() -> AsyncIterator[None]:
        mine = turned[audience.get()]
        while True:
            await mine.wait()
            mine.clear()
            yield

    source.audience, source.changed = audience.get, changed  # type: ignore[method-assign]
    stream = events.EventStream(source)

    async def listen_as(name: str) -> None:
        audience.set(name)
        bodies = told[name] = []

        async def send(message: Message) -> None:
            bodies.append(message.get("body", b""))

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        await stream({"type": "http", "method": "GET"}, receive, send)

    streams = [asyncio.ensure_future(listen_as(name)) for name in turned]
    await wait_until(lambda: len(told) == 2 and all(len(each) == 2 for each in told.values()))
    turned["one"].set()
    await wait_until(lambda: len(told["one"]) == 3)
    turned["one"].set()
    await wait_until(lambda: len(told["one"]) == 4)
    assert (len(told["other"]), told["one"][2]) == (2, b"event: changed\ndata: {}\n\n")
    for each in streams:
        each.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    assert not stream._changes


async def test_the_source_is_followed_only_while_a_stream_is_open() -> None:
    source = quiet()
    followed: list[str] = []

    async def changed() -> AsyncIterator[None]:
        followed.append("begun")
        try:
            await asyncio.Event().wait()
            yield
        finally:
            followed.append("ended")

    source.changed = changed  # type: ignore[method-assign]
    async with serving(source) as port:
        assert followed == []
        first, second = await listen(port), await listen(port)
        await first.line("retry: ")
        await second.line("retry: ")
        first.writer.close()
        second.writer.close()
        await wait_until(lambda: followed == ["begun", "ended"])


def test_bytes_of_a_view_are_base64_in_json() -> None:
    view = to_json(stuck().records["orders.created", 1, 40_118])
    assert json.loads(json.dumps(view))["key"] == {"base64": "Y3VzdG9tZXItNw==", "size_bytes": 10, "is_whole": True}
    assert to_json(StateRange(1, 2, "available", 3)) == {
        "first_offset": 1,
        "last_offset": 2,
        "state": "available",
        "delivery_count": 3,
    }
