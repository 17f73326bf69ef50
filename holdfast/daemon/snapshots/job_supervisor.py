"""The compaction job as a child process of a node: started, read from, started again when it ends, and stopped with the node.

The child's standard input carries the settings, one line, and stays open: when it ends, the node is gone, and so is the child.
Its standard output carries a JSON object a line, a report of each batch; its standard error lines for people, ours and Spark's.
All that the job does bears repetition, so it may be killed at any time.
"""

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
from holdfast.clock import now_ms
from holdfast.compaction.child_lines import ChildLines
from holdfast.compaction.progress import RunProgress, from_json
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.settings.file_env_flags import to_flags
from holdfast.daemon.settings.models import KafkaSettings, Settings
from holdfast.daemon.snapshots.job_metrics import JobMetrics

_log = structlog.get_logger(__name__)

COMMAND: Final = (sys.executable, "-m", "holdfast", "compact", "--supervised")

#: Lines of standard error that are logged when the child ends.
_STDERR_TAIL_LINES: Final = 5
#: How long what the child started, Java above all, may keep its pipes open when it has ended itself.
_PIPES_TIMEOUT_S: Final = 10.0
#: How long a killed child may take to be gone.
_KILL_TIMEOUT_S: Final = 5.0


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
    ) -> None:
        """Run nothing yet; each process gets the settings, with how Kafka is reached by then from `read_kafka`."""
        self._settings = settings
        self._read_kafka = read_kafka
        self._metrics = metrics
        self._internal_errors = internal_errors
        self._command = command
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

    async def _run(self) -> None:
        compaction = self._settings.compaction
        backoff = Backoff(compaction.restart_backoff_ms, compaction.restart_backoff_max_ms, self._jitter)
        while True:
            progress, stderr_tail = RunProgress(), deque[str](maxlen=_STDERR_TAIL_LINES)
            try:
                code = await self._run_once(progress, stderr_tail)
            except OSError as error:
                code = None
                stderr_tail.append(str(error))
            except Exception as bug:  # it ends this job, and not the ones that follow
                code = None
                # A bug may come back, so the restart is delayed like that of a job without progress.
                progress = RunProgress()
                self._internal_errors.note_bug("compaction_supervision_failed", bug)
            if self._is_stopping:
                return
            if progress.totals.batches:
                backoff.reset()
            pause_ms = backoff.fail(now_ms())
            _log.error("compaction_ended", exit_code=code, stderr_tail=list(stderr_tail), again_in_ms=pause_ms)
            await asyncio.sleep(pause_ms / 1_000)
            self._metrics.restarts.value += 1

    async def _run_once(self, progress: RunProgress, stderr_tail: deque[str]) -> int:
        child = self._child = await Child.start(self._command)
        _log.info("compaction_started", pid=child.pid, master=self._settings.compaction.master)
        self._metrics.running.value = 1
        try:
            settings = self._settings.model_copy(update={"kafka": self._read_kafka()})
            child.stdin.write(json.dumps(to_flags(settings)).encode() + b"\n")
            async with asyncio.TaskGroup() as group:
                readers = [
                    group.create_task(self._take_reports(child.stdout, progress)),
                    group.create_task(_forward(child.stderr, stderr_tail)),
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
                _log.warning("compaction_report_rejected", line=line[:300], why=repr(error))
                continue
            progress.take(report)
            self._metrics.take(report, progress)


async def _forward(stream: asyncio.StreamReader, stderr_tail: deque[str]) -> None:
    forward = ChildLines(_log.bind(source="compaction"))
    async for line in lines(stream):
        stderr_tail.append(line[:300])
        forward(line)
