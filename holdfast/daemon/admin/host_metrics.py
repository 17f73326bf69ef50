"""The metrics that a node shows: its own, and where it is a worker those of all workers of its host."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final, TypeAlias

import structlog

from holdfast.daemon.context import NodeContext
from holdfast.daemon.server.other_nodes import NodeSilent, OtherNodes, workers_of
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.worker_place import WorkerPlace
from holdfast.metrics.exposition import Exposition, expose
from holdfast.metrics.instruments import Gauge
from holdfast.metrics.registry import Registry, exported_name

_log = structlog.get_logger(__name__)

#: A millisecond's worth.
#: A worker that takes longer is frozen: Prometheus gives up a scrape after ten seconds.
ANSWER_TIMEOUT_MS: Final = 1_000
_NUMBERS_PER_STEP: Final = 200
#: What a worker asks the others for: `metrics` of this one node.
_OWN: Final = {"of": "node"}
_SILENT: Final = "workers_silent"
_SILENT_SERIES: Final = exported_name(_SILENT, Gauge)[0]

#: Returns the metrics of the worker at an address (`host:port`). It raises NodeSilent.
QueryMetrics: TypeAlias = Callable[[str], Awaitable[Any]]

Steps: TypeAlias = Generator[None, None, dict[str, float] | dict[str, str]]


class WorkerMetrics:
    """What a worker knows of itself and the others as workers of one host."""

    def __init__(self, registry: Registry) -> None:
        self.restarts = registry.counter(
            "worker_restarts", "Times that this worker ended by itself and was started again."
        )
        self.silent = registry.gauge(
            _SILENT, "Workers whose metrics are missing, because they did not answer in time; 0 is healthy."
        )


class HostMetrics:
    """The metrics of a node, each under its name with its labels; those of workers have the label `node` in addition."""

    def __init__(
        self,
        settings: Settings,
        context: NodeContext,
        place: WorkerPlace,
        query: QueryMetrics | None = None,
        *,
        answer_timeout_ms: int = ANSWER_TIMEOUT_MS,
    ) -> None:
        """Show those of this node, and those of the other workers in `place`; `query` replaces the query by a connection."""
        self._registry = context.registry
        self._others = place.others
        self._labels = {"node": settings.node_id} if place.others else {}
        self._query = query or _make_query(workers_of(settings, context.limiter), answer_timeout_ms)
        self._metrics = WorkerMetrics(context.registry) if place.others else None
        if self._metrics is not None:
            self._metrics.restarts.value = place.restarts

    async def expose(self, accept: str) -> Exposition:
        """Return those of this node as Prometheus reads them, see `metrics.exposition.expose`."""
        return expose(self._registry, accept)

    def read(self, arguments: Mapping[str, Any]) -> Steps | Awaitable[dict[str, float]]:
        """Return all of them, in steps where they are those of this node alone, as with `of` = `node`.

        With `accept` they are a `text` of Prometheus, those of this node alone, for the supervisor of the workers of a host.
        """
        if "accept" in arguments:
            return self._write_own(str(arguments["accept"]))
        if self._metrics is None:
            return self._read_own()
        if arguments.get("of") == _OWN["of"]:
            # How many were silent when this worker was asked for all of them is no news to another one that is asked now.
            return self._read_own(without=_SILENT_SERIES)
        return self._read_all(self._metrics)

    def _read_own(self, without: str | None = None) -> Steps:
        found: dict[str, float] = {}
        for number, (name, value) in enumerate(self._registry.numbers(**self._labels), 1):
            if without is None or not name.startswith(without):
                found[name] = value
            if number % _NUMBERS_PER_STEP == 0:
                yield
        return found

    def _write_own(self, accept: str) -> Steps:
        pieces = []
        for piece in expose(self._registry, accept).pieces:
            # See `read`; the supervisor has a number of its own.
            if _SILENT_SERIES.encode() not in piece:
                pieces.append(piece)
            yield
        return {"text": b"".join(pieces).decode()}

    async def _read_all(self, metrics: WorkerMetrics) -> dict[str, float]:
        answers = await asyncio.gather(*(self._of(*other) for other in self._others.items()))
        found = [answer for answer in answers if answer is not None]
        metrics.silent.value = len(answers) - len(found)
        steps = self._read_own()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return {name: value for answer in (end.value, *found) for name, value in answer.items()}
            await asyncio.sleep(0)

    async def _of(self, node_id: int, address: str) -> dict[str, float] | None:
        try:
            answer = await self._query(address)
        except NodeSilent as silence:
            _log.debug("worker_unanswered", other=node_id, address=address, why=str(silence))
            return None
        return answer if isinstance(answer, dict) else None


def _make_query(nodes: OtherNodes, timeout_ms: int) -> QueryMetrics:
    async def query(address: str) -> object:
        return await nodes.query(address, "metrics", timeout_ms, **_OWN)

    return query
