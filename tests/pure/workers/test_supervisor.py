"""The supervisor and its processes, with a small script in place of `holdfast serve --worker`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.children.child import Child
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.server.sockets import listen
from holdfast.daemon.settings.components.host import HostSettings
from holdfast.node_settings import SETTINGS
from holdfast.service.notify_socket import ServiceManager
from holdfast.workers.lines import WorkerLines
from holdfast.workers.plan import Worker
from holdfast.workers.supervisor import Supervisor, SupervisorBounds, WorkerStart
from tests.processes import is_alive
from tests.waiting import PATIENCE_MS, wait_until

#: What every worker begins with: it takes its order, and says who it is in two writes, so that lines may mix.
HEAD = """
import json, os, signal, socket, sys
order = json.loads(os.read(0, 65536).partition(b"\\n")[0])
node_id = order["flags"]["node_id"]
def say(event, **fields):
    line = json.dumps({"event": event, "level": "info", "node_id": node_id, "pid": os.getpid(), **fields})
    os.write(2, line[:9].encode())
    os.write(2, line[9:].encode() + b"\\n")
def stop(number, frame):
    say("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
say("began", order=order)
"""
#: Says what it is sent, to its end.
UNTIL_STOPPED = """
while data := os.read(0, 65536):
    for line in data.decode().split():
        say(line)
"""


class World:
    """A supervisor of the nodes 1 and 2, and what their lines say."""

    def __init__(self, directory: Path, script: str, *, manager: ServiceManager | None = None, **settings: Any) -> None:
        (directory / "worker.py").write_text(HEAD + script)
        self.stream = io.StringIO()
        self.sockets = listen("127.0.0.1", 0, 10)
        self.port: int = self.sockets[0].getsockname()[1]
        host = HostSettings(
            **{
                "workers": 2,
                "worker_stop_timeout_ms": PATIENCE_MS,
            }
            | settings
        )
        workers = [Worker(node_id, f"127.0.0.1:{node_id}", {"node_id": node_id}) for node_id in (1, 2)]
        self.supervisor = Supervisor(
            host,
            workers,
            self.sockets,
            WorkerStart(
                None,
                {"node_id": "7", "log_level": "debug"},
                SETTINGS,
                (sys.executable, "-S", str(directory / "worker.py")),
            ),
            WorkerLines(self.stream, None, 100),
            manager,
            SupervisorBounds(PATIENCE_MS, 1, 4),
        )
        #: Of the supervisor's own files.
        self.reloads = 0
        self.running = asyncio.create_task(self.supervisor.run(self._reload))

    def _reload(self) -> None:
        self.reloads += 1

    def lines_of(self, event: str) -> list[dict[str, Any]]:
        """Return the whole lines of an event; a line that is no JSON is a failure."""
        whole = self.stream.getvalue().splitlines()
        return [line for line in map(json.loads, whole) if line["event"] == event]

    async def began(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many processes have begun."""
        await wait_until(lambda: len(self.lines_of("began")) >= count)
        return self.lines_of("began")


@asynccontextmanager
async def supervised(directory: Path, script: str, **settings: Any) -> AsyncIterator[World]:
    world = World(directory, script, **settings)
    try:
        yield world
    finally:
        if not world.running.done():
            os.kill(os.getpid(), signal.SIGTERM)
            await world.running
        assert not [line["pid"] for line in world.lines_of("began") if is_alive(line["pid"])]


async def test_each_worker_gets_its_order_and_a_sigterm_stops_all(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with supervised(tmp_path, UNTIL_STOPPED) as world:
            began = sorted(await world.began(2), key=lambda line: int(line["node_id"]))
            os.kill(os.getpid(), signal.SIGTERM)
            assert await world.running is NodeExit.STOPPED
    [descriptors] = {tuple(line["order"]["descriptors"]) for line in began}
    assert [line["order"] for line in began] == [
        {
            "config": None,
            "flags": {"log_level": "debug", "node_id": node_id},
            "descriptors": list(descriptors),
            "others": {str(other): f"127.0.0.1:{other}"},
            "restarts": 0,
            "report_interval_ms": None,
        }
        for node_id, other in ((1, 2), (2, 1))
    ]
    assert {line["node_id"] for line in world.lines_of("stopped")} == {1, 2}
    assert [line["event"] for line in lines if line["event"].startswith("workers_")] == [
        "workers_starting",
        "workers_stopping",
        "workers_stopped",
    ]


async def test_a_worker_that_is_killed_is_started_again_and_is_told_how_often(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with supervised(tmp_path, UNTIL_STOPPED) as world:
            [killed] = [line["pid"] for line in await world.began(2) if line["node_id"] == 2]
            os.kill(killed, signal.SIGKILL)
            again = (await world.began(3))[2]
    assert (again["node_id"], again["order"]["restarts"]) == (2, 1)
    assert [line["exit_code"] for line in lines if line["event"] == "worker_ended"] == [-signal.SIGKILL]


async def test_the_socket_of_all_is_served_by_the_workers_and_closed_when_they_stop(tmp_path: Path) -> None:
    accept = """
shared = socket.socket(fileno=order["descriptors"][0])
shared.setblocking(True)
while True:
    client, _ = shared.accept()
    client.sendall(str(node_id).encode())
    client.close()
"""
    async with supervised(tmp_path, accept) as world:
        await world.began(2)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        assert await reader.read() in (b"1", b"2")
        writer.close()
    with socket.socket() as late:
        assert late.connect_ex(("127.0.0.1", world.port)) != 0


async def test_a_reload_reaches_every_worker(tmp_path: Path) -> None:
    async with supervised(tmp_path, UNTIL_STOPPED) as world:
        await world.began(2)
        os.kill(os.getpid(), signal.SIGHUP)
        await wait_until(lambda: {line["node_id"] for line in world.lines_of("reload")} == {1, 2})
        assert world.reloads == 1, "what the supervisor reads itself is read again, too"


async def test_the_service_manager_hears_of_all_workers_together(tmp_path: Path) -> None:
    """Both are ready, reload and turn; then one is silent, which is named, and its next process turns again."""
    report = """
import threading
turns = reloads = 0
lock = threading.Lock()
def report():
    global turns
    with lock:
        turns += 1
        condition = {"has_started": True, "is_ready": True, "is_stopping": False, "is_reloading": False,
                     "status": "ready", "progress": 1, "turns": turns}
        line = json.dumps({"condition": condition, "reloads": reloads})
        os.write(1, line.encode() + b"\\n")
silent = threading.Event()
def report_for_ever():
    while not silent.wait(order["report_interval_ms"] / 1_000):
        report()
threading.Thread(target=report_for_ever, daemon=True).start()
signal.signal(signal.SIGUSR1, lambda number, frame: silent.set())
while data := os.read(0, 65536):
    reloads += data.count(b"reload")
    report()
"""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(address)
        server.setblocking(False)
        heard: list[str] = []

        def hears(line: str) -> bool:
            with suppress(BlockingIOError):
                while True:
                    heard.extend(server.recv(10_000).decode().split("\n"))
            return line in heard

        async with supervised(tmp_path, report, manager=ServiceManager(address, 1_000)) as world:
            await wait_until(lambda: hears("READY=1"))
            assert heard[0].startswith("EXTEND_TIMEOUT_USEC=")
            await wait_until(lambda: hears("STATUS=ready: 2 workers"))
            heard.clear()
            os.kill(os.getpid(), signal.SIGHUP)
            await wait_until(lambda: hears("READY=1"))
            assert "RELOADING=1" in heard
            await wait_until(lambda: hears("WATCHDOG=1"))
            [pid] = [line["pid"] for line in world.lines_of("began") if line["node_id"] == 2]
            os.kill(pid, signal.SIGUSR1)
            await wait_until(lambda: hears("STATUS=worker 2: its loop does not turn"))
            heard.clear()
            os.kill(pid, signal.SIGKILL)
            await wait_until(lambda: hears("STATUS=ready: 2 workers") and hears("WATCHDOG=1"))
            os.kill(os.getpid(), signal.SIGTERM)
            await world.running
            assert hears("STOPPING=1")


async def test_workers_that_end_with_a_wrong_setting_end_all_with_its_code(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with supervised(tmp_path, "sys.exit(2)") as world:
            assert await world.running is NodeExit.WRONG_USAGE
    assert [line["event"] for line in lines].count("worker_given_up") == 2


async def test_what_does_not_stop_is_killed_and_what_it_has_started_too(tmp_path: Path) -> None:
    stubborn = """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1_000)"])
say("child", pid=child.pid)
while True:
    signal.pause()
"""
    async with supervised(tmp_path, stubborn, worker_stop_timeout_ms=1) as world:
        await wait_until(lambda: len(world.lines_of("child")) == 2)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await world.running is NodeExit.FAILED_TO_STOP
        await wait_until(lambda: not any(is_alive(line["pid"]) for line in world.lines_of("child")))


async def test_a_stop_reaches_a_worker_that_is_just_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, slow = Child.start, asyncio.Event()

    async def start_slowly(*arguments: Any) -> Child:
        child = await start(*arguments)
        await slow.wait()
        return child

    monkeypatch.setattr(Child, "start", start_slowly)
    with capture_logs() as lines:
        async with supervised(tmp_path, UNTIL_STOPPED) as world:
            await wait_until(lambda: "workers_starting" in {line["event"] for line in lines})
            os.kill(os.getpid(), signal.SIGTERM)
            await wait_until(lambda: "workers_stopping" in {line["event"] for line in lines})
            slow.set()
            assert await world.running is NodeExit.STOPPED


async def test_a_program_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path, UNTIL_STOPPED)
    world.supervisor._start_with = world.supervisor._start_with._replace(command=("/no/such/program",))
    with capture_logs() as lines:
        await wait_until(lambda: [line["event"] for line in lines].count("worker_start_failed") >= 6)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await world.running is NodeExit.STOPPED


async def test_the_lines_of_many_workers_are_whole(tmp_path: Path) -> None:
    chatter = "for number in range(500): say('spoke', text='x' * 5_000)\n" + UNTIL_STOPPED
    async with supervised(tmp_path, chatter) as world:
        await wait_until(lambda: len(world.lines_of("spoke")) == 1_000)
    assert {len(line["text"]) for line in world.lines_of("spoke")} == {5_000}
