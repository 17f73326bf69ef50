"""`holdfast serve`: one node in this process, or several as its workers, from the settings to the exit code."""

from __future__ import annotations

import asyncio
import errno
import faulthandler
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from holdfast.console.importing import importing
from holdfast.console.outcomes import Exit, Failure, wrong_settings
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.file_env_flags import ConfigError, Loaded, load_settings
from holdfast.daemon.settings.logging import configure_logging, form_for_people, open_audit_file
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.settings.secrets import secrets_of
from holdfast.daemon.worker_place import ALONE, WorkerPlace
from holdfast.service.condition import Condition
from holdfast.service.notices import Bounds
from holdfast.service.notifier import Unwatched, Watcher, looking, notified
from holdfast.service.notify_socket import take_service_manager

_log = structlog.get_logger(__name__)

#: Reads all sources and merges them with what the config topic holds, by name of the setting.
_Load = Callable[[Mapping[str, str]], Loaded]
#: Looks after the program whose condition it can read, until its context ends.
_Watch = Callable[[Callable[[], Condition]], AbstractAsyncContextManager[Watcher]]

#: When Python looks for garbage in cycles, which a node hardly makes: after this number of new containers, in every second look
#: among those that survived one, and hardly ever in the whole state. With its usual 700 it would look several times in each turn of
#: the loop and take a seventh of the time of a write (benchmarks/findings/hot-path.md). A look holds the loop: one through
#: 300,000 containers that a load has made took five times `slice_ms` ("How long a load holds the loop"). In turns in which loads work
#: the first number is a fifth, so the last one, which counts looks, is five times what 130 million containers would want.
COLLECTOR_THRESHOLDS: Final = (10_000, 0, 32_500)

#: Workers end with their supervisor, or, where the system does not see to that, when they notice; the longest is for one that starts.
_ORPHANS_END_S: Final = 10.0
_ORPHANS_LOOK_S: Final = 0.2


def serve_until_stopped(config: Path | None, flags: Mapping[str, object]) -> NodeExit:
    """Run a node, or the workers that the settings name, until a signal stops it, and return how it ended.

    Raises:
        Failure: a setting is wrong.
    """
    load, loaded = _load_all(config, flags)
    settings = loaded.settings
    configure_logging(settings.logging, may_be_coloured=_may_be_coloured(), secrets=secrets_of(settings))
    for warning in loaded.warnings:
        _log.warning("setting_doubted", what=warning)
    if settings.host.workers == 1:
        _open_audit_file(settings)
    return (
        _supervise(settings, config, flags)
        if settings.host.workers > 1
        else _serve_node(settings, load, _notify(settings))
    )


def serve_as_worker() -> NodeExit:
    """Run a node as the worker of a supervisor, which sends its orders on the standard input."""
    from holdfast.children.parent import end_with_parent
    from holdfast.workers.orders import Orders, take_sockets
    from holdfast.workers.reports import Reporter

    end_with_parent()  # one that hangs holds the address of all, and does not notice by itself
    orders = Orders()
    if orders.have_ended():
        return NodeExit.FAILED_TO_STOP
    try:
        order = orders.first()
    except EOFError:
        return NodeExit.FAILED_TO_STOP
    load, loaded = _load_all(order.config, order.flags)
    settings = loaded.settings
    configure_logging(settings.logging, fields={"node_id": settings.node_id}, secrets=secrets_of(settings))
    _open_audit_file(settings)
    place = WorkerPlace(take_sockets(order.descriptors), order.others, order.restarts)

    def follow(reload: Callable[[], object]) -> None:
        # Nobody reads our lines any more, and the next supervisor wants our ports; what was answered is in the log.
        orders.follow(reload, gone=lambda: os._exit(NodeExit.FAILED_TO_STOP))

    @asynccontextmanager
    async def report(read: Callable[[], Condition]) -> AsyncIterator[Watcher]:
        if order.report_interval_ms is None:
            yield Unwatched()
            return
        reporter = Reporter(read, _write_line)
        async with looking(reporter, order.report_interval_ms):
            yield reporter

    return _serve_node(settings, load, report, place, follow)


def _write_line(line: str) -> None:
    with suppress(OSError):  # the supervisor is gone, which `follow` notices
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _load_all(config: Path | None, flags: Mapping[str, object]) -> tuple[_Load, Loaded]:
    from holdfast.tenants import TABLES

    def load(cluster: Mapping[str, str]) -> Loaded:
        return load_settings(config, os.environ, flags, cluster, model=TABLES.settings)

    try:
        return load, load({})
    except ConfigError as error:
        raise wrong_settings(error.problems) from None


def _open_audit_file(settings: Settings) -> None:
    path = settings.logging.audit_file
    if path:
        try:
            open_audit_file(path)
        except OSError as error:
            raise Failure(
                f"audit_file is {path}, which cannot be written ({error.strerror}).", Exit.WRONG_USAGE
            ) from None


def _may_be_coloured() -> bool:
    return not os.environ.get("NO_COLOR")


def _listen_when_free(host: str, port: int, backlog: int) -> tuple[socket.socket, ...]:
    """Listen at the address of all workers; those of a supervisor that was killed hold it until they notice that.

    Raises:
        CannotListen: the address is still in use after the bound, or not ours.
    """
    from holdfast.daemon.server.sockets import CannotListen, listen

    until_s = time.monotonic() + _ORPHANS_END_S
    while True:
        try:
            return listen(host, port, backlog)
        except CannotListen as refusal:
            if refusal.error_number != errno.EADDRINUSE or time.monotonic() >= until_s:
                raise
        time.sleep(_ORPHANS_LOOK_S)


def _supervise(settings: Settings, config: Path | None, flags: Mapping[str, object]) -> NodeExit:
    from holdfast.daemon.http.guard import GuardRefused
    from holdfast.daemon.http.server import CannotListenHttp
    from holdfast.daemon.server.sockets import CannotListen, choose_ports
    from holdfast.tenants import TABLES
    from holdfast.workers.host_port import host_port
    from holdfast.workers.lines import WorkerLines
    from holdfast.workers.plan import PlanRefused, plan_workers
    from holdfast.workers.supervisor import Supervisor, SupervisorBounds, WorkerStart

    try:
        sockets = _listen_when_free(*settings.listener.listen_address, settings.limits.connections_max)
        workers = plan_workers(settings, choose_ports)
    except (CannotListen, PlanRefused) as refusal:
        _log.error("workers_start_failed", why=str(refusal))
        return NodeExit.WRONG_USAGE if isinstance(refusal, PlanRefused) else NodeExit.REFUSED
    people = form_for_people(settings.logging, sys.stderr, may_be_coloured=_may_be_coloured())
    forward = WorkerLines(sys.stderr, people)
    supervisor = Supervisor(
        settings.host,
        workers,
        sockets,
        WorkerStart(config, flags, type(settings)),
        forward,
        take_service_manager(os.environ),
        SupervisorBounds(settings.load.load_timeout_ms),
    )

    async def run() -> NodeExit:
        async with host_port(settings, TABLES, workers) as reload:
            return await supervisor.run(reload)

    try:
        return asyncio.run(run())
    except (CannotListenHttp, GuardRefused) as refusal:
        _log.error("workers_start_failed", why=str(refusal))
        return NodeExit.WRONG_USAGE if isinstance(refusal, GuardRefused) else NodeExit.REFUSED


def _notify(settings: Settings) -> _Watch:
    """Return what notifies the service manager of this process."""
    from holdfast.daemon.node_condition import stop_timeout_ms

    manager = take_service_manager(os.environ)
    watchdog_ms = None if manager is None else manager.watchdog_ms
    return partial(notified, manager, Bounds(settings.load.load_timeout_ms, stop_timeout_ms(settings), watchdog_ms))


def _serve_node(
    settings: Settings,
    load: _Load,
    watch: _Watch,
    place: WorkerPlace = ALONE,
    follow: Callable[[Callable[[], object]], None] | None = None,
) -> NodeExit:
    """Run a node.

    Args:
        settings: of the node.
        load: reads them again.
        watch: looks after the node while it runs.
        place: among the workers of the host.
        follow: is given what reads the settings again, and calls it when a supervisor wants that.
    """
    # The supervisor of workers needs neither, and they take time and memory.
    with importing():
        import uvloop

        from holdfast.daemon.node import Node
        from holdfast.daemon.node_condition import NodeWatch
        from holdfast.tenants import TABLES

    async def serve() -> NodeExit:
        node = Node(settings, TABLES, load, place)
        async with watch(NodeWatch(node).condition) as watcher:
            return await run(node, watcher)

    async def run(node: Node, watcher: Watcher) -> NodeExit:
        def read_again() -> None:
            node.files.reload(but=node.node_settings.reload())

        loop, reload = asyncio.get_running_loop(), partial(watcher.reload, read_again)

        def stop() -> None:
            if follow is None:
                # The second signal finds the default action restored and ends the process at once.
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.remove_signal_handler(number)
            # A worker is ended by its supervisor; who signals a group of processes reaches it twice.
            node.stop()
            watcher.look()

        def reload_soon() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(reload)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGHUP, reload)
        if follow is not None:
            follow(reload_soon)
        return await node.run()

    # A service manager ends a loop that hangs by SIGABRT; then its stack is the last thing in the log.
    faulthandler.enable()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    return uvloop.run(serve())
