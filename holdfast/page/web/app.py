"""The paths of the page: HTML for people, and the same answers as JSON after `/api/v1/`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from holdfast.page.likeness import likeness
from holdfast.page.source import (
    ClusterView,
    GroupsPage,
    GroupView,
    PageRefused,
    PageSource,
    RecordView,
    TimelineView,
    WindowView,
    to_json,
)
from holdfast.page.web import openapi
from holdfast.page.web.content import present
from holdfast.page.web.events import EventStream
from holdfast.page.web.formats import link
from holdfast.page.web.guard import PageGuard
from holdfast.page.web.render import STATIC_TYPES, Renderer
from holdfast.page.web.shared import SharedAnswers
from holdfast.page.web.strip import RETRIED, Strip, draw_in_steps, urgency

PREFIX: Final = "/api/v1/"
#: Rows of the table of ranges on one page.
RANGES_PER_PAGE: Final = 500
#: Ranges above it that were delivered most often.
_WORST_MAX: Final = 5
#: Ranges of one JSON answer.
_RANGES_MAX: Final = 2_000
#: Characters of a parameter: a name of Kafka's has 249, and one of a group may have more.
_TEXT_MAX: Final = 4_096
_OFFSET_MAX: Final = 2**63 - 1
_IMMUTABLE: Final = "public, max-age=31536000, immutable"

_Answer = Callable[[Request], Awaitable[Response]]
_View = TypeVar("_View")


class Query(NamedTuple):
    """A question to the source, by its path after `PREFIX`."""

    description: str
    parameters: tuple[str, ...]  #: all that it needs
    ask: Callable[[PageSource, Request], Awaitable[Any]]
    view: type  #: of what `ask` returns
    optional: tuple[str, ...] = ()
    shape: Callable[[Any, Request], Any] = lambda view, _: to_json(view)  #: returns the view as JSON has it
    added: Mapping[str, Any] = {}  #: fields that `shape` adds, and their types


async def _groups(source: PageSource, request: Request) -> GroupsPage:
    return await source.groups(_optional_text(request, "after"), _optional_text(request, "name"))


async def _group(source: PageSource, request: Request) -> GroupView:
    return await source.group(_text(request, "group"), _optional_text(request, "after"))


async def _window(source: PageSource, request: Request) -> WindowView:
    return await source.window(_text(request, "group"), _text(request, "topic"), _number(request, "partition"))


def _cut_window(view: WindowView, request: Request) -> Any:  # noqa: ANN401
    """Return a window with a bounded number of ranges, and the offset from which to ask for more."""
    begin = _optional_number(request, "from")
    left = [each for each in view.ranges if begin is None or each.last_offset >= begin]
    answer = to_json(view._replace(ranges=tuple(left[:_RANGES_MAX])))
    more = left[_RANGES_MAX].first_offset if len(left) > _RANGES_MAX else None
    return answer | {"ranges_in_all": len(view.ranges), "next_from": more}


async def _timeline(source: PageSource, request: Request) -> TimelineView:
    group, topic = _text(request, "group"), _text(request, "topic")
    return await source.timeline(group, topic, _number(request, "partition"), _number(request, "offset"))


async def _record(source: PageSource, request: Request) -> RecordView:
    return await source.record(_text(request, "topic"), _number(request, "partition"), _number(request, "offset"))


async def _cluster(source: PageSource, request: Request) -> ClusterView:
    return await source.cluster(_optional_text(request, "after"))


_OF_A_SHARE_PARTITION: Final = ("group", "topic", "partition")
#: None has a name of those that a node answers for the command line, so that a path is the same everywhere.
QUERIES: Final = {
    "group-topics": Query(
        "Groups and their topics, those first that need attention.", (), _groups, GroupsPage, ("after", "name")
    ),
    "group": Query(
        "A group, its topics, those first that need attention, and its share partitions.",
        ("group",),
        _group,
        GroupView,
        ("after",),
    ),
    "window": Query(
        f"A share partition, and at most {_RANGES_MAX} ranges of its offsets.",
        _OF_A_SHARE_PARTITION,
        _window,
        WindowView,
        ("from",),
        _cut_window,
        {"ranges_in_all": int, "next_from": int | None},
    ),
    "timeline": Query(
        "Changes of an offset, oldest first: from the log, and from the history of what it does not have any more.",
        (*_OF_A_SHARE_PARTITION, "offset"),
        _timeline,
        TimelineView,
    ),
    "record": Query("A record: key, value and headers.", ("topic", "partition", "offset"), _record, RecordView),
    "cluster": Query(
        "Nodes, hand-overs, brokers, and how far the state topic is read.", (), _cluster, ClusterView, ("after",)
    ),
}


def make_app(
    source: PageSource,
    names: Collection[str] | None = ("localhost",),
    on_bug: Callable[[Exception, str], None] | None = None,
) -> ASGIApp:
    """Return the application that shows a source.

    Args:
        source: answers all questions.
        names: by which requests may call the page, besides every address; None: any, because TLS says how it is called.
        on_bug: learns of an error that is a mistake of ours, and of the path at which it came about.
    """
    pages = _Pages(source, on_bug)
    shown = {
        "/": pages.groups,
        "/group": pages.group,
        "/window": pages.window,
        "/offset": pages.offset,
        "/record": pages.record,
        "/cluster": pages.cluster,
        "/help": pages.help,
        "/openapi.json": pages.openapi,
        "/static/{name}": pages.static,
    }
    paths = Starlette(
        routes=[
            Route("/events", EventStream(source), methods=["GET"]),
            *(Route(path, answer, methods=["GET"]) for path, answer in shown.items()),
            *(Route(f"{PREFIX}{name}", pages.query(query), methods=["GET"]) for name, query in QUERIES.items()),
        ],
        exception_handlers={PageRefused: pages.refuse, HTTPException: pages.refuse_path, Exception: pages.report_bug},
    )
    return PageGuard(paths, names)


class _Pages:
    """The answers of all paths."""

    def __init__(self, source: PageSource, on_bug: Callable[[Exception, str], None] | None) -> None:
        self._source = source
        self._on_bug = on_bug
        self._renderer = Renderer()
        self._shared = SharedAnswers()
        self._description = openapi.describe(QUERIES)
        #: Those that an address without parameters asks.
        self._simple_queries = [name for name, query in QUERIES.items() if not query.parameters]

    async def groups(self, request: Request) -> Response:
        """Show all groups and topics."""

        async def cut(view: GroupsPage) -> dict[str, object]:
            return {"name": _optional_text(request, "name")}

        return await self._show(request, "groups.html", await _groups(self._source, request), cut)

    async def group(self, request: Request) -> Response:
        """Show a group."""
        return await self._show(request, "group.html", await _group(self._source, request))

    async def window(self, request: Request) -> Response:
        """Show a share partition."""
        begin = _optional_number(request, "from") or 0

        async def cut(view: WindowView) -> dict[str, object]:
            left = [each for each in view.ranges if each.last_offset >= begin]
            tried = [each for each in view.ranges if each.state == "available" and each.delivery_count >= RETRIED]
            return {
                "strip": await _draw(view),
                "ranges": left[:RANGES_PER_PAGE],
                "next_from": left[RANGES_PER_PAGE].first_offset if len(left) > RANGES_PER_PAGE else None,
                "begin": begin,
                "worst": sorted(tried, key=urgency, reverse=True)[:_WORST_MAX],
            }

        return await self._show(request, "window.html", await _window(self._source, request), cut)

    async def offset(self, request: Request) -> Response:
        """Show what became of an offset."""
        return await self._show(request, "offset.html", await _timeline(self._source, request))

    async def record(self, request: Request) -> Response:
        """Show a record."""
        view = await _record(self._source, request)
        return await self._html("record.html", view=view, present=present, group=_optional_text(request, "group"))

    async def cluster(self, request: Request) -> Response:
        """Show the cluster."""
        return await self._show(request, "cluster.html", await _cluster(self._source, request))

    async def help(self, request: Request) -> Response:
        """Tell what each number means."""
        return await self._html("help.html", queries=self._simple_queries)

    async def openapi(self, request: Request) -> Response:
        """Describe the queries."""
        return JSONResponse(self._description)

    async def static(self, request: Request) -> Response:
        """Return a file that the pages need."""
        name = request.path_params["name"]
        if name not in STATIC_TYPES:
            raise HTTPException(404)
        is_named_by_version = request.query_params.get("v") == self._renderer.version_of(name)
        kept = {"Cache-Control": _IMMUTABLE} if is_named_by_version else {}
        return Response(self._renderer.static[name], media_type=STATIC_TYPES[name], headers=kept)

    def query(self, query: Query) -> _Answer:
        """Return what answers a query as JSON."""

        async def answer(request: Request) -> Response:
            view = await query.ask(self._source, request)

            async def make() -> bytes:
                return bytes(JSONResponse(query.shape(view, request)).body)

            made = await self._shared.get(_address(request), view, make)
            return Response(made, media_type=JSONResponse.media_type)

        return answer

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Say why there is no answer, and which names are alike."""
        assert isinstance(error, PageRefused)
        return await self._refusal(request, error.status, error.text, error.nearest)

    async def refuse_path(self, request: Request, error: Exception) -> Response:
        """Answer what no path answers."""
        assert isinstance(error, HTTPException)
        text = "There is no such page; the groups are at the start." if error.status_code == 404 else error.detail
        return await self._refusal(request, error.status_code, text)

    async def report_bug(self, request: Request, error: Exception) -> Response:
        """Answer what a bug of ours kept from its answer."""
        if self._on_bug is not None:
            self._on_bug(error, request.url.path)
        return await self._refusal(
            request, 500, "The page failed at this question, which is a bug of Holdfast; please report it."
        )

    async def _refusal(self, request: Request, status: int, text: str, nearest: tuple[str, ...] = ()) -> Response:
        if request.url.path.startswith(PREFIX):
            return JSONResponse({"error": text, "nearest": nearest}, status)
        given = dict(request.query_params)
        meant = _meant(given, nearest)
        path = request.url.path.rpartition("/")[2]
        # A parameter may have any name, so that they go through no call of a template.
        links = [(name, link(path, **{**given, meant: name})) for name in nearest]
        return await self._html("refused.html", status, text=text, status=status, links=links, path=path)

    async def _show(
        self,
        request: Request,
        template: str,
        view: _View,
        cut: Callable[[_View], Awaitable[Mapping[str, object]]] | None = None,
    ) -> Response:
        """Return the page of a view, which is made once for all who look at it; `cut` returns what else is in it."""

        async def make() -> bytes:
            values = {} if cut is None else await cut(view)
            return (await self._renderer.render_in_turns(template, view=view, **values)).encode()

        return HTMLResponse(await self._shared.get(_address(request), view, make))

    async def _html(self, template: str, code: int = 200, **values: Any) -> Response:  # noqa: ANN401
        return HTMLResponse(await self._renderer.render_in_turns(template, **values), code)


async def _draw(view: WindowView) -> Strip | None:
    """Return the strip of a window, made in turns with what else the loop has to do."""
    steps = draw_in_steps(view)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            strip: Strip | None = end.value
            return strip
        await asyncio.sleep(0)


def _address(request: Request) -> str:
    """Return what tells an answer from all others of this page; two of its spellings may have an answer each."""
    return f"{request.url.path}?{request.url.query}"


def _meant(given: Mapping[str, str], nearest: Collection[str]) -> str:
    """Return which of the names that were given is the one that others are near to."""

    def nearness(parameter: str) -> float:
        return max((likeness(given[parameter], each) for each in nearest), default=0.0)

    return max((each for each in ("group", "topic") if each in given), key=nearness, default="group")


def _text(request: Request, name: str) -> str:
    found = _optional_text(request, name)
    if found is None:
        raise PageRefused(400, f"The address lacks {name}=…; begin with the groups, whose links have it.")
    return found


def _optional_text(request: Request, name: str) -> str | None:
    found = request.query_params.get(name)
    if found is not None and len(found) > _TEXT_MAX:
        raise PageRefused(400, f"{name} has {len(found)} characters; no name has more than {_TEXT_MAX}.")
    return found or None


def _number(request: Request, name: str) -> int:
    found = _optional_number(request, name)
    if found is None:
        raise PageRefused(400, f"The address lacks {name}=…, a number; begin with the groups, whose links have it.")
    return found


def _optional_number(request: Request, name: str) -> int | None:
    found = (request.query_params.get(name) or "").strip()
    if not found:
        return None
    if not (found.isascii() and found.isdigit() and len(found) <= 19 and int(found) <= _OFFSET_MAX):
        raise PageRefused(400, f"{name} must be a number from 0 to {_OFFSET_MAX}.")
    return int(found)
