"""The supervised child, with a small script in place of the job."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.compaction.progress import to_json
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.settings.logging import configure_logging
from holdfast.daemon.settings.models import LoggingSettings
from holdfast.daemon.snapshots import job_supervisor
from holdfast.daemon.snapshots.job_metrics import JobMetrics
from holdfast.daemon.snapshots.job_supervisor import Supervisor
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from holdfast.node_settings import load_settings
from tests.pure.compaction.reports import batch
from tests.waiting import wait_until

#: What every child begins with: it takes its settings, and says that it lives.
HEAD = """
import json, os, signal, sys, time
settings = json.loads(sys.stdin.readline())
life = open(sys.argv[1], "a")
print(os.getpid(), settings["compaction.checkpoint.dir"], file=life, flush=True)
"""
REPORT = f"print({json.dumps(json.dumps(to_json(batch())))}, flush=True)\n"
#: What Java says when it ends.
NOISE = "for _ in range(18): print('at java.base/' + 'x' * 999, file=sys.stderr)\nsys.exit(1)"
UNTIL_STOPPED = "sys.stdin.read()\n"


class World:
    def __init__(self, directory: Path, script: str, **flags: Any) -> None:
        self.registry = Registry()
        self.lives = directory / "lives"
        flags = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.sasl.password": "moon sesame",
            "compaction.checkpoint.dir": "/checkpoint",
        } | {name.replace("__", "."): value for name, value in flags.items()}
        (directory / "child.py").write_text(HEAD + script)
        command = (sys.executable, str(directory / "child.py"), str(self.lives))
        settings = load_settings(flags=flags).settings
        #: That a child is given when it is started.
        self.kafka = settings.kafka
        self.bugs = Counter()
        self.supervisor = Supervisor(
            settings,
            lambda: self.kafka,
            JobMetrics(self.registry),
            InternalErrors(self.bugs),
            lambda: 1.0,
            command,
            (1, 4),
        )

    def metric(self, name: str) -> float:
        return dict(self.registry.numbers())[f"holdfast_compaction_{name}"]

    def pids(self) -> list[int]:
        lines = self.lives.read_text().splitlines() if self.lives.exists() else []
        return [int(line.split()[0]) for line in lines]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def supervised(directory: Path, script: str, **flags: Any) -> AsyncIterator[World]:
    world = World(directory, script, **flags)
    world.supervisor.start()
    try:
        yield world
    finally:
        await world.supervisor.stop()


async def test_a_child_gets_the_settings_and_its_reports_are_counted(tmp_path: Path) -> None:
    async with supervised(tmp_path, REPORT + "print('nonsense', flush=True)\n" + REPORT + UNTIL_STOPPED) as world:
        with capture_logs() as lines:
            await wait_until(lambda: world.metric("records_total") == 200)
        assert [line["line"] for line in lines if line["event"] == "compaction_report_rejected"] == ["nonsense"]
        assert world.metric("running") == 1
        assert world.metric("ratio") > 0
        assert world.lives.read_text().endswith(" /checkpoint\n")
    assert world.metric("running") == 0
    assert world.metric("ratio") == 0, "another node may run the job now"
    assert world.metric("restarts_total") == 0


async def test_a_child_that_ends_is_started_again_and_the_end_of_its_stderr_is_logged(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with supervised(tmp_path, "sys.exit('Error: no Java')") as world:
            await wait_until(lambda: len(world.pids()) >= 5)
    ends = [line for line in lines if line["event"] == "compaction_ended"]
    assert [end["again_in_ms"] for end in ends[:4]] == [1, 2, 4, 4]
    assert {end["exit_code"] for end in ends} == {1}
    assert (ends[0]["why"], ends[0]["stderr_tail"]) == ("no Java", ["Error: no Java"])
    assert world.metric("restarts_total") >= 3


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('Error: no login with moon sesame', file=sys.stderr)\n" + NOISE, "no login with (hidden)"),
        ("print('Error: ' + 'x' * 287 + 'moon sesame', file=sys.stderr)", "x" * 287 + "(hidd"),
        ("print('Killed', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)", "SIGKILL ended it, as the system"),
        ("print('Error: survived', file=sys.stderr, flush=True); os.kill(os.getpid(), 15)", "SIGTERM ended it"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 1)", f"signal {signal.SIGRTMIN + 1} ended it"),
        ("print('Error: survived', file=sys.stderr)\n" + NOISE.replace("18", "20"), "at java.base/"),
        ("raise RuntimeError('a bug')", "RuntimeError: a bug"),
        ("os._exit(3)", "it has said nothing"),
    ],
)
async def test_why_a_child_ended_is_said_whatever_came_after_it_and_without_secrets(
    tmp_path: Path, script: str, why: str
) -> None:
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, secrets=["moon sesame"])
    async with supervised(tmp_path, script) as world:
        await wait_until(lambda: world.metric("restarts_total") >= 1)
    ended = next(
        line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "compaction_ended"
    )
    assert ended["why"].startswith(why)
    assert len(ended["stderr_tail"]) <= 20
    assert max(map(len, ended["stderr_tail"]), default=0) <= 300
    assert "sesame" not in stream.getvalue()
    assert "moon" not in stream.getvalue()


async def test_a_bug_in_looking_after_a_child_ends_that_child_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, bugs = JobMetrics.take, [RuntimeError("bug"), RuntimeError("bug")]

    def raise_bug(self: JobMetrics, *arguments: Any) -> None:
        if bugs:
            raise bugs.pop()
        take(self, *arguments)

    monkeypatch.setattr(JobMetrics, "take", raise_bug)
    with capture_logs() as lines:
        async with supervised(tmp_path, REPORT + UNTIL_STOPPED) as world:
            await wait_until(lambda: world.metric("records_total") == 100)
            first, second, _ = world.pids()
            await wait_until(lambda: not is_alive(first) and not is_alive(second))
    assert [line["event"] for line in lines].count("compaction_supervision_failed") == 2
    assert world.bugs.value == 2
    ends = [line for line in lines if line["event"] == "compaction_ended"]
    assert [end["again_in_ms"] for end in ends] == [1, 2], "a bug that comes back is no progress"


async def test_a_child_that_came_forward_is_started_again_at_once(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with supervised(tmp_path, REPORT + "sys.exit(1)") as world:
            await wait_until(lambda: len(world.pids()) >= 4)
    assert {line["again_in_ms"] for line in lines if line["event"] == "compaction_ended"} == {1}


async def test_a_command_that_does_not_exist_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path, "")
    world.supervisor._command = ("/no/such/command",)
    with capture_logs() as lines:
        world.supervisor.start()
        await wait_until(lambda: len(lines) >= 2)
        await world.supervisor.stop()
    assert "No such file" in lines[0]["stderr_tail"][0]


async def test_a_stop_lets_the_child_finish(tmp_path: Path) -> None:
    script = (
        "signal.signal(signal.SIGTERM, lambda *_: (print('finished', file=life, flush=True), sys.exit(0)))\n" + REPORT
    )
    world = World(tmp_path, script + "while True: time.sleep(0.01)\n")
    with capture_logs() as lines:
        world.supervisor.start()
        await wait_until(lambda: world.metric("records_total") == 100)
        await world.supervisor.stop()
        await world.supervisor.stop()  # finds nothing to do
        world.supervisor.start()
        await wait_until(lambda: world.metric("records_total") == 200)
        await world.supervisor.stop()
    assert world.lives.read_text().splitlines()[1::2] == ["finished", "finished"]
    assert [line["event"] for line in lines] == ["compaction_started"] * 2


async def test_a_child_that_does_not_stop_in_time_is_killed_with_what_it_started(tmp_path: Path) -> None:
    script = (
        "import subprocess\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(inner.pid, '-', file=life, flush=True)\n"
    )
    world = World(tmp_path, script + REPORT + "time.sleep(600)\n", compaction__stop__timeout__ms=50)
    with capture_logs() as lines:
        world.supervisor.start()
        await wait_until(lambda: world.metric("records_total") == 100)
        await world.supervisor.stop()
    assert lines[-1]["event"] == "compaction_killed"
    assert len(world.pids()) == 2
    await wait_until(lambda: not any(map(is_alive, world.pids())))


@pytest.mark.parametrize("leaves_the_group", [False, True])
async def test_a_child_whose_pipes_outlive_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves_the_group: bool
) -> None:
    monkeypatch.setattr(job_supervisor, "_PIPES_TIMEOUT_S", 0.05)
    monkeypatch.setattr(job_supervisor, "_KILL_TIMEOUT_S", 0.5)
    script = (
        "import subprocess\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
        f"start_new_session={leaves_the_group})\n"
        "print(inner.pid, '-', file=life, flush=True)\n"
        "print('no memory', file=sys.stderr, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    try:
        with capture_logs() as lines:
            async with supervised(tmp_path, script) as world:
                await wait_until(lambda: len(world.pids()) >= 4)
                assert world.metric("restarts_total") >= 1
        events = [line["event"] for line in lines]
        assert "compaction_children_killed" in events
        end = lines[events.index("compaction_ended")]
        assert (end["exit_code"], end["stderr_tail"]) == (-signal.SIGKILL, ["no memory"])
        if not leaves_the_group:
            await wait_until(lambda: not any(map(is_alive, world.pids())))
    finally:
        for pid in filter(is_alive, world.pids()):
            os.kill(pid, signal.SIGKILL)


async def test_the_childs_lines_are_the_nodes(tmp_path: Path) -> None:
    script = (
        "print(json.dumps({'level': 'warning', 'event': 'careful', 'partition': 3}), file=sys.stderr, flush=True)\n"
    )
    with capture_logs() as lines:
        async with supervised(tmp_path, script + REPORT + UNTIL_STOPPED) as world:
            await wait_until(lambda: world.metric("records_total") == 100 and len(lines) >= 2)
    careful = next(line for line in lines if line["event"] == "careful")
    assert careful["log_level"] == "warning"
    assert careful["partition"] == 3
    assert careful["source"] == "compaction"


async def test_a_report_that_is_rejected_is_cut_after_its_secrets_are_hidden(tmp_path: Path) -> None:
    stream = io.StringIO()
    configure_logging(LoggingSettings(), stream, secrets=["moon sesame"])
    async with supervised(tmp_path, "print('x' * 295 + 'moon sesame', flush=True)\n" + UNTIL_STOPPED):
        await wait_until(lambda: "compaction_report_rejected" in stream.getvalue())
    rejected = next(line for line in map(json.loads, stream.getvalue().splitlines()) if "line" in line)
    assert rejected["line"] == "x" * 295 + "(hidd"
