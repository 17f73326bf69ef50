"""The compaction job as a child process of a node: started, read from, started again when it ends, and stopped with the node.

The child's standard input carries the settings, one line, and stays open: when it ends, the node is gone, and so is the child.
Its standard output carries a JSON object a line, a report of each batch; its standard error lines for people, ours and Spark's.
All that the job does bears repetition, so it may be killed at any time.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from holdfast.backoff import Backoff
from holdfast.children.child import Child, lines
from holdfast.compaction.child_lines import ChildLines
from holdfast.compaction.progress import RunProgress, from_json
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.settings.file_env_flags import to_flags
from holdfast.daemon.settings.models import KafkaSettings, Settings
from holdfast.daemon.snapshots.job_metrics import JobMetrics
from holdfast.hidden_texts import HIDDEN_TEXTS

_log = structlog.get_logger(__name__)

COMMAND: Final = (sys.executable, "-m", "holdfast", "compact", "--supervised")

#: Lines of standard error that are logged when the child ends.
_STDERR_TAIL_LINES: Final = 20
#: Of a longer line of the child's, the beginning is logged.
_LINE_CHARACTERS_MAX: Final = 300
#: With what a command of ours that fails says why; Java may have more to say after it.
_ERROR: Final = "Error: "
#: How long what the child started, Java above all, may keep its pipes open when it has ended itself.
_PIPES_TIMEOUT_S: Final = 10.0
#: How long a killed child may take to be gone.
_KILL_TIMEOUT_S: Final = 5.0

#: The first and the longest pause before a job that ended by itself is started again: Spark takes seconds to start.
RESTART_BACKOFF_MS: Final = (1_000, 60_000)


class Supervisor:
    """The keeper of the job's process, from `start` to `stop`; which node runs one is decided elsewhere."""

    def __init__(
        self,
        settings: Settings,
        read_kafka: Callable[[], KafkaSettings],
        metrics: JobMetrics,
        internal_errors: InternalErrors,
        jitter: Callable[[], float],
        command: Sequence[str] = COMMAND,
        restart_backoff_ms: tuple[int, int] = RESTART_BACKOFF_MS,
    ) -> None:
        """Run nothing yet; each process gets the settings, with how Kafka is reached by then from `read_kafka`."""
        self._settings = settings
        self._read_kafka = read_kafka
        self._metrics = metrics
        self._internal_errors = internal_errors
        self._command = command
        self._restart_backoff_ms = restart_backoff_ms
        self._jitter = jitter
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Begin to run the job."""
        assert self._task is None
        self._is_stopping = False
        self._task = asyncio.create_task(self._run(), name="holdfast-compaction")

    async def stop(self) -> None:
        """Let the job finish its batch, and end it when that takes too long."""
        task, self._task = self._task, None
        if task is None:
            return
        child = self._child
        self._is_stopping = True
        if child is not None and not child.has_ended:
            child.send_signal(signal.SIGTERM)
            await asyncio.wait([task], timeout=self._settings.compaction.stop_timeout_ms / 1_000)
            if not child.has_ended:
                _log.warning("compaction_killed", pid=child.pid)
        task.cancel()
        await asyncio.wait([task])
        self._metrics.forget()

    async def _run(self) -> None:
        backoff = Backoff(*self._restart_backoff_ms, self._jitter)
        while True:
            progress, last_lines = RunProgress(), _LastLines()
            try:
                code = await self._run_once(progress, last_lines)
            except OSError as error:
                code = None
                last_lines.add(f"{_ERROR}{error}")
            except Exception as bug:  # it ends this job, and not the ones that follow
                code = None
                # A bug may come back, so the restart is delayed like that of a job without progress.
                progress = RunProgress()
                self._internal_errors.note_bug("compaction_supervision_failed", bug)
                last_lines.add(f"{_ERROR}a bug of ours: {bug!r}")
            if self._is_stopping:
                return
            if progress.totals.batches:
                backoff.reset()
            pause_ms = backoff.next_pause_ms()
            why, tail = last_lines.why(code), last_lines.tail
            _log.error("compaction_ended", why=why, exit_code=code, stderr_tail=tail, again_in_ms=pause_ms)
            await asyncio.sleep(pause_ms / 1_000)
            self._metrics.restarts.value += 1

    async def _run_once(self, progress: RunProgress, last_lines: _LastLines) -> int:
        child = self._child = await Child.start(self._command)
        _log.info("compaction_started", pid=child.pid, master=self._settings.compaction.master)
        self._metrics.running.value = 1
        try:
            settings = self._settings.model_copy(update={"kafka": self._read_kafka()})
            child.stdin.write(json.dumps(to_flags(settings)).encode() + b"\n")
            async with asyncio.TaskGroup() as group:
                readers = [
                    group.create_task(self._take_reports(child.stdout, progress)),
                    group.create_task(_forward(child.stderr, last_lines)),
                ]
                code = await child.exit_code()
                _, unfinished = await asyncio.wait(readers, timeout=_PIPES_TIMEOUT_S)
                if unfinished:
                    _log.warning("compaction_children_killed", pid=child.pid)
                    await child.kill(_KILL_TIMEOUT_S)
                    await asyncio.wait(readers, timeout=_KILL_TIMEOUT_S)
                for reader in readers:
                    reader.cancel()
            return code
        finally:
            self._metrics.running.value = 0
            try:
                await child.kill(_KILL_TIMEOUT_S)
            finally:
                child.close()

    async def _take_reports(self, stream: asyncio.StreamReader, progress: RunProgress) -> None:
        async for line in lines(stream):
            try:
                report = from_json(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                _log.warning("compaction_report_rejected", line=_beginning(line), why=repr(error))
                continue
            progress.take(report)
            self._metrics.take(report, progress)


def _beginning(line: str) -> str:
    """Return the beginning of a line; secrets are hidden before the cut, which could leave a part of one that nobody recognizes."""
    text: str = HIDDEN_TEXTS.hide(line)[:_LINE_CHARACTERS_MAX]
    return text


class _LastLines:
    """What a child wrote to standard error last."""

    def __init__(self) -> None:
        self._tail = deque[str](maxlen=_STDERR_TAIL_LINES)

    @property
    def tail(self) -> list[str]:
        return list(self._tail)

    def add(self, line: str) -> None:
        if not line.strip():
            return
        self._tail.append(_beginning(line))

    def why(self, exit_code: int | None) -> str:
        """Return why the child ended, as far as it is known."""
        if exit_code is not None and exit_code < 0:
            by = _name_signal(-exit_code)
            return f"{by} ended it" + (", as the system does where memory is short" if by == "SIGKILL" else "")
        # An earlier one was survived.
        errors = [line.removeprefix(_ERROR) for line in self._tail if line.startswith(_ERROR)]
        return (errors or list(self._tail) or ["it has said nothing"])[-1]


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of those for real time, Python names the first and the last
        return f"signal {number}"


async def _forward(stream: asyncio.StreamReader, last_lines: _LastLines) -> None:
    forward = ChildLines(_log.bind(source="compaction"), HIDDEN_TEXTS.hide)
    async for line in lines(stream):
        last_lines.add(line)
        forward(line)
