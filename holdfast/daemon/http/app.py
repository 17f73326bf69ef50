"""The paths of the HTTP port: health, metrics, and the queries of `daemon.http.queries`.

All of it runs on the loop of the node.
Health is answered at once; of what may be large, one answer is made at a time and in pieces, between which the loop turns.
A command that waits for Kafka or for other nodes keeps no other answer waiting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdfast.api.admin import AdminRequest, AdminResponse, encode_admin_response, split_admin_response
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.context import NodeContext
from holdfast.daemon.http import openapi
from holdfast.daemon.http.guard import HttpGuard
from holdfast.daemon.http.queries import (
    PREFIX,
    Ask,
    CommandRefused,
    MakeSite,
    Page,
    Query,
    QueryRefused,
    Site,
    parse_arguments,
)
from holdfast.daemon.http.readers import Reader, reader_of
from holdfast.daemon.server.admin import Admin
from holdfast.http_refusals import refusal
from holdfast.kafka.addresses import find_host
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.metrics.exposition import Exposition

_JSON: Final = "application/json"
#: The status of a command's refusal; any other error code is a bug of ours.
_STATUSES: Final[Mapping[int, int]] = {
    ErrorCode.NONE: 200,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
}
_LOOK_AGAIN: Final = {"Retry-After": "5"}
_STARTING: Final = (
    "The node is starting, and has no page yet; look again in some seconds. /ready says what it waits for."
)
_WANTS_LOGIN: Final = "Send the token of http.token.file as `Authorization: Bearer`."
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}

_Answer = Callable[[Request], Awaitable[Response]]


class MetricsView(Protocol):
    """What the port shows of the metrics."""

    async def expose(self, accept: str) -> Exposition:
        """Return all of them in the format that a header `Accept` prefers; see `metrics.exposition.expose`."""


class NodeView(Protocol):
    """What the port shows of the node, or of all workers of a host."""

    #: Of the port itself.
    context: NodeContext

    #: Decides what readers may see; None: the guard alone does.
    authorizer: Authorizer | None

    @property
    def host_metrics(self) -> MetricsView:
        """What `/metrics` shows."""

    @property
    def admin(self) -> Admin:
        """The commands of the node, by now."""

    @property
    def make_site(self) -> MakeSite | None:
        """The maker of the site of a tenant, by now; None: none has any, or the node starts."""

    def why_not_ready(self) -> str:
        """Return what keeps the node from serving; empty if it is ready."""

    def status(self) -> dict[str, Any]:
        """Return whether it is ready, and what it serves."""

    def describe_readiness(self) -> list[dict[str, Any]]:
        """Return what it is to serve: each log partition with its state, how far its load is, and why it does not serve."""


def make_app(node: NodeView, guard: HttpGuard, queries: Mapping[str, Query], made: Sequence[Page] = ()) -> Starlette:
    """Return the application that shows a node to whom the guard admits."""
    pages = _Pages(node, guard, openapi.describe(queries, made))
    app = Starlette(
        routes=[
            Route("/live", pages.live, methods=["GET"]),
            Route("/ready", pages.ready, methods=["GET"]),
            Route("/health", pages.guarded(pages.health), methods=["GET"]),
            Route("/metrics", pages.guarded(pages.metrics, guard.admits_scrape), methods=["GET"]),
            Route("/openapi.json", pages.guarded(pages.openapi), methods=["GET"]),
            *(
                Route(f"{PREFIX}{name}", pages.guarded(pages.query(query)), methods=["GET"])
                for name, query in queries.items()
            ),
            *(
                Route(
                    PREFIX + page.query.command.replace("}", ":path}"), pages.guarded(pages.made(page)), methods=["GET"]
                )
                for page in made
            ),
        ],
        exception_handlers={HTTPException: _refuse, Exception: pages.report_bug},
    )
    app.router.default = pages.site
    return app


class _Pages:
    """What each path answers."""

    def __init__(self, node: NodeView, guard: HttpGuard, description: dict[str, Any]) -> None:
        self._node = node
        self._description = description
        self._guard = guard
        #: Held while an answer is made that may be large, and over no wait for anybody else.
        self._turn = asyncio.Lock()
        #: The site, and what made it.
        self._site: tuple[MakeSite, Site] | None = None

    def guarded(self, answer: _Answer, admits: Callable[[Headers], bool] | None = None) -> _Answer:
        """Return what answers whom the guard admits: to all, unless something else is named."""
        admits = admits or self._guard.admits

        async def answer_if_admitted(request: Request) -> Response:
            if not admits(request.headers):
                return _refusal(401, _WANTS_LOGIN, _CHALLENGE)
            return await answer(request)

        return answer_if_admitted

    async def site(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer for all other paths by the site of a tenant."""
        site = self._find_site()
        if not self._guard.admits(Headers(scope=scope)):
            await refusal(scope, 401, _WANTS_LOGIN, _CHALLENGE)(scope, receive, send)
        elif site is None and self._node.why_not_ready():
            await refusal(scope, 503, _STARTING, _LOOK_AGAIN)(scope, receive, send)
        elif site is None:
            raise HTTPException(404)
        else:
            await site(scope, receive, send)

    def _find_site(self) -> Site | None:
        make = self._node.make_site
        if make is None:
            return None
        if self._site is None or self._site[0] is not make:
            self._site = make, make(self._ask_as(None))
        return self._site[1]

    async def live(self, request: Request) -> Response:
        """Answer, which is what a loop that turns can do."""
        return JSONResponse({"is_alive": True})

    async def ready(self, request: Request) -> Response:
        """Say whether the node is ready, and to whom may know it, why not."""
        why = self._node.why_not_ready()
        found: dict[str, Any] = {"is_ready": not why}
        if self._guard.admits(request.headers):
            found |= {"why_not_ready": why or None, "log_partitions": self._node.describe_readiness()}
        return JSONResponse(found, 503 if why else 200)

    async def health(self, request: Request) -> Response:
        """Say what the node says of itself."""
        status = self._node.status()
        return JSONResponse(
            status | {"log_partitions": self._node.describe_readiness()}, 200 if status["is_ready"] else 503
        )

    async def metrics(self, request: Request) -> Response:
        """Write all metrics in the format that the client prefers."""
        accept = ", ".join(request.headers.getlist("accept"))
        content_type, pieces = await self._node.host_metrics.expose(accept)
        async with self._turn:
            text = bytearray()
            for piece in pieces:
                text += piece
                await asyncio.sleep(0)
        return Response(bytes(text), headers={"Content-Type": content_type})

    async def openapi(self, request: Request) -> Response:
        """Describe all paths."""
        site = self._find_site()
        return JSONResponse(openapi.join(self._description, {} if site is None else site.describe()))

    def query(self, query: Query) -> _Answer:
        """Return what answers a query by its command."""

        async def answer(request: Request) -> Response:
            try:
                arguments = parse_arguments(query, dict(request.query_params))
            except QueryRefused as refused:
                return _refusal(400, str(refused))
            body = await self._run(AdminRequest(query.command, arguments), reader_of(request.scope))
            code, message, result = split_admin_response(body)
            if code == ErrorCode.NONE:
                return Response(result, media_type=_JSON)
            return _refusal(_STATUSES.get(code, 500), str(message))

        return answer

    def made(self, page: Page) -> _Answer:
        """Return what answers a page that is made of the answers of several commands."""

        async def answer(request: Request) -> Response:
            try:
                arguments = parse_arguments(page.query, dict(request.query_params))
                return JSONResponse(
                    await page.answer(self._ask_as(reader_of(request.scope)), request.path_params, arguments)
                )
            except QueryRefused as refused:
                return _refusal(400, str(refused))
            except CommandRefused as refused:
                return _refusal(_STATUSES.get(refused.error_code, 500), str(refused))

        return answer

    def _ask_as(self, reader: Reader | None) -> Ask:
        """Return what runs commands of a reader that change nothing; None: those of this process, which may run all."""

        async def ask(command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
            body = await self._run(AdminRequest(command, dict(arguments)), reader)
            code, message, result = split_admin_response(body)
            if code != ErrorCode.NONE:
                raise CommandRefused(code, str(message))
            return json.loads(result)

        return ask

    async def _run(self, request: AdminRequest, reader: Reader | None) -> bytes:
        """Run a command that changes nothing; returns the body of its answer."""
        authorizer = self._node.authorizer
        if reader is not None and authorizer is not None:
            why = authorizer.refuse_command(reader, request.command, request.arguments)
            if why:
                return encode_admin_response(AdminResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, why, None))
        client = "the HTTP port" if reader is None else find_host(reader.client_address)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def respond(body: bytes) -> None:
            if not answered.done():
                answered.set_result(body)

        steps = self._node.admin.handle(request, respond, client)
        if steps is not None:
            async with self._turn:
                for _ in steps:
                    await asyncio.sleep(0)
        return await answered

    async def report_bug(self, request: Request, error: Exception) -> Response:
        """Answer what a bug of ours kept from its answer."""
        self._node.context.internal_errors.note_bug("http_request_failed", error, path=request.url.path)
        return _refusal(500, "The request failed in the node; its log says why.")


def _refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": text}, status, headers)


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer what no path answers."""
    assert isinstance(error, HTTPException)
    texts = {404: "There is no such path; /openapi.json lists them.", 405: "Nothing but GET is answered here."}
    return _refusal(error.status_code, texts.get(error.status_code, error.detail), error.headers)
