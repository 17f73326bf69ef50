"""The HTTP port of a host with workers, at the address that is set: what probes and Prometheus read there is of all workers together.

The supervisor queries each worker as another node would, over the Kafka protocol, and waits for none longer than it is told: one that is
frozen or gone is named as silent. Share partitions, and the groups that are made of them, are those of all workers, too; what else the
command line tool shows of one node is of the first worker that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from starlette.datastructures import URL
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from holdfast.clock import now_ms
from holdfast.daemon.access.acl_file import AclFileError
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.following import make_audit, make_authorizer
from holdfast.daemon.admin.host_metrics import ANSWER_TIMEOUT_MS
from holdfast.daemon.context import NodeContext
from holdfast.daemon.file_watch import FileWatch
from holdfast.daemon.http.guard import GuardRefused
from holdfast.daemon.http.port import open_http_port
from holdfast.daemon.http.queries import MakeSite
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.partitions.hand_overs import merge
from holdfast.daemon.server.admin import Admin, AdminCommand, NodeStarting
from holdfast.daemon.server.other_nodes import NodeSilent, workers_of
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.tenant import Tables
from holdfast.http_refusals import refusal
from holdfast.metrics.exposition import Exposition, expose
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.merging import merge_texts
from holdfast.metrics.registry import Registry
from holdfast.workers.plan import Worker
from holdfast.workers.state_pages import join_pages

#: How often the workers say whether they are ready: a probe gets an answer that is no older, and costs them nothing.
_LOOK_INTERVAL_S: Final = 1.0

#: The query whose answer is of the workers together, because each has share partitions of its own.
_STATES: Final = "share-partitions"
#: So are the hand-overs that each remembers.
_HAND_OVERS: Final = "hand-overs"

#: Returns what the worker at an address answers to a command with arguments. It raises NodeSilent.
Query: TypeAlias = Callable[..., Awaitable[Any]]


class WorkerPages:
    """Leads a reader to the page of a worker, which shows the share groups of all of them.

    It is answered there and not fetched from there: by access rules a reader is who has its certificate and its address.

    Args:
        find_port: returns the HTTP port of a worker that is ready; None: none is.
    """

    def __init__(self, find_port: Callable[[], int | None]) -> None:
        self._find_port = find_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        port = self._find_port()
        answer: Response
        if port is None:
            text = "No worker is ready to show the page; /ready says why."
            answer = refusal(scope, 503, text, {"Retry-After": "2"})
        else:
            answer = RedirectResponse(str(URL(scope=scope).replace(port=port)), 307, {"Cache-Control": "no-store"})
        await answer(scope, receive, send)

    def describe(self) -> Mapping[str, Any]:
        """Return none: the description at the port of a worker has them."""
        return {}


class HostView:
    """All workers of a host, as the HTTP port shows them (`daemon.http.app.NodeView`)."""

    def __init__(
        self, settings: Settings, tables: Tables, workers: Sequence[Worker], query: Query | None = None
    ) -> None:
        """Know nothing of the workers yet; `query` replaces connections to them."""
        registry = Registry()
        bugs = InternalErrors(
            registry.counter("supervisor_internal_errors", "Bugs in the supervisor of workers; its log has them.")
        )
        self.context = NodeContext(now_ms, registry, bugs, LineLimiter(now_ms))
        self._silent = registry.gauge(
            "workers_silent", "Workers whose metrics are missing, because they did not answer in time; 0 is healthy."
        )
        self._workers = workers
        self.make_site: MakeSite | None = lambda _: WorkerPages(lambda: self._page_port)
        self._page_port: int | None = None
        self.authorizer: Authorizer | None = None
        self._timeout_ms = ANSWER_TIMEOUT_MS
        self._query = query or workers_of(settings, self.context.limiter).query
        #: By node id, why a worker is not ready; empty: it is.
        self._problems = {worker.node_id: "the worker starts" for worker in workers}
        commands: dict[str, AdminCommand] = {name: partial(self._forward, name) for name in tables.queries}
        commands[_STATES], commands[_HAND_OVERS] = self._list_states, self._list_hand_overs
        self.admin = Admin(commands, tables.needs, settings.log.request_timeout_ms, bugs)

    @property
    def host_metrics(self) -> HostView:
        """See `daemon.http.app.NodeView`."""
        return self

    def why_not_ready(self) -> str:
        """Return which workers are not ready, and of the first one why; empty if all are."""
        problems = [f"worker {node_id}: {why}" for node_id, why in self._problems.items() if why]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return f"{problems[0]}{more}" if problems else ""

    def status(self) -> dict[str, Any]:
        """Return whether all workers are ready, and why not."""
        why = self.why_not_ready()
        return {
            "is_ready": not why,
            "why_not_ready": why or None,
            "workers": {str(node_id): problem or None for node_id, problem in self._problems.items()},
        }

    def describe_readiness(self) -> list[dict[str, Any]]:
        """Return none: each worker lists its log partitions at its own port."""
        return []

    async def expose(self, accept: str) -> Exposition:
        """Return the metrics of all workers that answer in time, each with its node id as label, and how many did not."""
        answers = await asyncio.gather(*(self._ask(worker, "metrics", accept=accept) for worker in self._workers))
        texts = [
            ({"node": worker.node_id}, answer["text"])
            for worker, answer in zip(self._workers, answers, strict=True)
            if isinstance(answer, dict) and isinstance(answer.get("text"), str)
        ]
        self._silent.value = len(self._workers) - len(texts)
        content_type, pieces = expose(self.context.registry, accept)
        own: list[tuple[dict[str, object], str]] = [({}, b"".join(pieces).decode())]
        return Exposition(content_type, iter([merge_texts([*texts, *own]).encode()]))

    async def look(self) -> None:
        """Query all workers whether they are ready."""

        async def look_at(worker: Worker) -> None:
            try:
                status = await self._query(worker.address, "status", self._timeout_ms)
            except NodeSilent as silence:
                self._problems[worker.node_id] = f"it does not answer at {worker.address} ({silence})"
                return
            if not isinstance(status, dict):
                self._problems[worker.node_id] = f"it does not say at {worker.address} how it is"
            else:
                self._problems[worker.node_id] = "" if status.get("is_ready") else str(status.get("why_not_ready"))
                if status.get("is_ready") and isinstance(port := status.get("http_port"), int):
                    ports[worker.node_id] = port

        ports: dict[int, int] = {}
        await asyncio.gather(*map(look_at, self._workers))
        # The first one, so that a reader is led to the same one again.
        self._page_port = ports[min(ports)] if ports else None

    async def look_for_ever(self) -> None:
        """Look again and again; a bug does not end it."""
        while True:
            try:
                await self.look()
            except Exception as bug:
                self.context.internal_errors.note_bug("workers_look_failed", bug)
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def _ask(self, worker: Worker, command: str, **arguments: object) -> object:
        try:
            return await self._query(worker.address, command, self._timeout_ms, **arguments)
        except NodeSilent:
            return None

    async def _forward(self, command: str, arguments: dict[str, Any]) -> object:
        """Return what the first worker says that is ready, or that answers."""
        for worker in sorted(self._workers, key=lambda each: bool(self._problems[each.node_id])):
            answer = await self._ask(worker, command, **arguments)
            if answer is not None:
                return answer
        raise NodeStarting

    async def _list_states(self, arguments: dict[str, Any]) -> object:
        """Return a page of the share partitions of all workers that answer; the page names the log partitions of the others."""
        answers = await asyncio.gather(*(self._ask(worker, _STATES, **arguments) for worker in self._workers))
        pages = [answer for answer in answers if isinstance(answer, dict)]
        if not pages:
            raise NodeStarting
        return join_pages(pages, arguments.get("limit"))

    async def _list_hand_overs(self, arguments: dict[str, Any]) -> object:
        """Return the hand-overs that the workers remember which answer."""
        answers = await asyncio.gather(*(self._ask(worker, _HAND_OVERS) for worker in self._workers))
        found = [answer for answer in answers if isinstance(answer, list)]
        if not found:
            raise NodeStarting
        return merge(found)


@asynccontextmanager
async def host_port(settings: Settings, tables: Tables, workers: Sequence[Worker]) -> AsyncIterator[Callable[[], None]]:
    """Show the workers at the HTTP port that is set while the context lasts; without one, do nothing.

    It gives what has the files that guard the port read again.

    Raises:
        CannotListenHttp: the address that was set is in use or not ours.
        GuardRefused: a file that guards the port cannot be used.
    """
    view = HostView(settings, tables, workers)
    files = FileWatch(view.context)
    try:
        view.authorizer = make_authorizer(settings, make_audit(view.context, tables.needs), tables.needs, files)
    except AclFileError as error:
        raise GuardRefused(str(error)) from None
    server = await open_http_port(view, settings, files, tables.queries, tables.pages)
    if server is None:
        yield files.reload
        return
    looking = asyncio.create_task(view.look_for_ever(), name="holdfast-workers-look")
    try:
        with files.watched(settings.files.reload_interval_ms):
            yield files.reload
    finally:
        looking.cancel()
        await server.stop()
        await view.admin.close()
