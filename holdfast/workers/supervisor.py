"""The workers of a host as processes: what `workers.fleet` decides is carried out here."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import structlog

from holdfast.children.child import Child, lines
from holdfast.clock import now_ms
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.components.host import HostSettings
from holdfast.daemon.settings.file_env_flags import with_flags
from holdfast.daemon.settings.models import Settings
from holdfast.distribution import VERSION
from holdfast.service.condition import Condition
from holdfast.service.notices import Bounds
from holdfast.service.notifier import Watcher, notified
from holdfast.service.notify_socket import ServiceManager
from holdfast.workers.fleet import RESTART_BACKOFF_MAX_MS, RESTART_BACKOFF_MS, Fleet
from holdfast.workers.lines import WorkerLines
from holdfast.workers.orders import RELOAD, Order
from holdfast.workers.plan import Worker
from holdfast.workers.reports import HostCondition, decode_report

_log = structlog.get_logger(__name__)

#: Starts a worker.
COMMAND: Final = (sys.executable, "-m", "holdfast", "serve", "--worker")

#: How long what a worker has started may keep its pipes open when it has ended itself, and a killed one may take to be gone.
_PIPES_TIMEOUT_S: Final = 10.0
_KILL_TIMEOUT_S: Final = 5.0


class WorkerStart(NamedTuple):
    """The command that starts a worker, and the settings of all."""

    #: File of the settings of all workers, or None.
    config: Path | None
    #: Settings of all.
    flags: Mapping[str, object]
    #: All settings that there are.
    model: type[Settings]
    #: Starts a worker.
    command: Sequence[str] = COMMAND


class SupervisorBounds(NamedTuple):
    """The times that starts of workers may take."""

    #: See `service.notices.Bounds`.
    start_stall_ms: int = 0
    #: The first pause before a worker that ended by itself is started again.
    restart_backoff_ms: int = RESTART_BACKOFF_MS
    #: The longest one.
    restart_backoff_max_ms: int = RESTART_BACKOFF_MAX_MS


class Supervisor:
    """The keeper of the workers, from the first start to the last end."""

    def __init__(
        self,
        settings: HostSettings,
        workers: Sequence[Worker],
        sockets: Sequence[socket.socket],
        start: WorkerStart,
        forward: WorkerLines,
        manager: ServiceManager | None = None,
        bounds: SupervisorBounds = SupervisorBounds(),  # noqa: B008 - immutable
    ) -> None:
        """Start nothing yet.

        Args:
            settings: of the host.
            workers: all of them.
            sockets: listen; they are closed when the workers stop.
            start: how each is started.
            forward: takes the lines of the workers.
            manager: the service manager of all, or None.
            bounds: of starts.
        """
        self._workers = {worker.node_id: worker for worker in workers}
        self._sockets = sockets
        self._start_with = start
        self._forward = forward
        self._manager = manager
        # A killed worker's pipes may outlast it.
        stop_ms = settings.worker_stop_timeout_ms + round(1_000 * (_KILL_TIMEOUT_S + _PIPES_TIMEOUT_S))
        self._bounds = Bounds(bounds.start_stall_ms, stop_ms, None if manager is None else manager.watchdog_ms)
        self._fleet = Fleet(
            self._workers,
            settings,
            self,
            Random().random,
            restart_backoff_ms=bounds.restart_backoff_ms,
            restart_backoff_max_ms=bounds.restart_backoff_max_ms,
        )
        self._condition = HostCondition(self._workers, self._bounds.silence_max_ms)
        self._children: dict[int, Child] = {}
        #: Signals for workers that are being started, by node id.
        self._early_signals: dict[int, signal.Signals] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._reload_own: Callable[[], object] = lambda: None

    async def run(self, reload: Callable[[], object] = lambda: None) -> NodeExit:
        """Run the workers until a signal stops them or none is left to run; returns how it ended.

        SIGHUP has them read their settings again, and is handed on to `reload` for what this process reads itself.
        """
        self._reload_own = reload
        async with notified(self._manager, self._bounds, self._read_condition) as watcher:
            return await self._run_fleet(watcher)

    async def _run_fleet(self, watcher: Watcher) -> NodeExit:
        loop, fleet = asyncio.get_running_loop(), self._fleet

        def stop() -> None:
            # The second signal finds the default action restored and ends this process at once, and so the workers.
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            _log.info("workers_stopping")
            fleet.request_stop(now_ms())
            self._changed.set()
            watcher.look()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, watcher.reload, self._reload)
        address = self._sockets[0].getsockname()
        _log.info("workers_starting", version=VERSION, host=address[0], port=address[1], nodes=list(self._workers))
        fleet.begin(now_ms())
        while not fleet.is_over:
            self._changed.clear()
            due_ms = fleet.due_ms()
            with suppress(TimeoutError):
                wait_s = None if due_ms is None else max(0, due_ms - now_ms()) / 1_000
                await asyncio.wait_for(self._changed.wait(), wait_s)
            fleet.tick(now_ms())
            if fleet.is_stopping:
                for each in self._sockets:  # the last worker to close them refuses clients then
                    each.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        _log.info("workers_stopped", exit_code=int(fleet.exit))
        return fleet.exit

    # ---- what the fleet decides (Processes) ------------------------------------------------------------------------

    def start(self, node_id: int, restarts: int) -> None:
        """See `Processes.start`."""
        task = asyncio.create_task(self._run(self._workers[node_id], restarts), name=f"holdfast-worker-{node_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def send_signal(self, node_id: int, number: signal.Signals) -> None:
        """See `Processes.send_signal`."""
        if node_id in self._children:
            self._children[node_id].send_signal(number)
        else:
            self._early_signals[node_id] = number

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        self._reload_own()
        for node_id, child in self._children.items():
            child.stdin.write(RELOAD)
            self._condition.reload_sent(node_id)

    def _read_condition(self) -> Condition:
        fleet = self._fleet
        return self._condition.read(now_ms(), is_stopping=fleet.is_stopping, given_up=fleet.given_up)

    async def _run(self, worker: Worker, restarts: int) -> None:
        """Run a worker once, and report its end."""
        code = int(NodeExit.FAILED_TO_STOP)
        try:
            code = await self._run_once(worker, restarts)
        except OSError as error:
            _log.error("worker_start_failed", node_id=worker.node_id, error=str(error))
        except Exception:  # a bug of ours costs this one start
            _log.exception("worker_supervision_failed", node_id=worker.node_id)
        finally:
            self._children.pop(worker.node_id, None)
            self._early_signals.pop(worker.node_id, None)
            self._condition.ended(worker.node_id)
            self._fleet.ended(worker.node_id, code, now_ms())
            self._changed.set()

    async def _run_once(self, worker: Worker, restarts: int) -> int:
        if self._fleet.is_stopping:
            return NodeExit.STOPPED
        descriptors = [each.fileno() for each in self._sockets]
        child = self._children[worker.node_id] = await Child.start(self._start_with.command, descriptors)
        self._condition.started(worker.node_id, now_ms())
        if worker.node_id in self._early_signals:
            child.send_signal(self._early_signals.pop(worker.node_id))
        try:
            child.stdin.write(self._order(worker, descriptors, restarts).encode())
            _log.info("worker_started", node_id=worker.node_id, address=worker.address, pid=child.pid)
            readers = [
                asyncio.create_task(self._forward_all(worker.node_id, stream))
                for stream in (child.stdout, child.stderr)
            ]
            code = await child.exit_code()
            await child.kill(_KILL_TIMEOUT_S)
            _, unfinished = await asyncio.wait(readers, timeout=_PIPES_TIMEOUT_S)
            for reader in unfinished:
                reader.cancel()
            return code
        finally:
            try:
                await child.kill(_KILL_TIMEOUT_S)
            finally:
                child.close()

    def _order(self, worker: Worker, descriptors: list[int], restarts: int) -> Order:
        others = {each.node_id: each.address for each in self._workers.values() if each is not worker}
        flags: dict[str, Any] = with_flags(self._start_with.flags, worker.settings, self._start_with.model)
        interval_ms = None if self._manager is None else self._bounds.look_interval_ms
        return Order(self._start_with.config, flags, descriptors, others, restarts, interval_ms)

    async def _forward_all(self, node_id: int, stream: asyncio.StreamReader) -> None:
        async for line in lines(stream):
            report = decode_report(line)
            if report is None:
                self._forward(node_id, line)
            else:
                self._condition.reported(node_id, report, now_ms())
