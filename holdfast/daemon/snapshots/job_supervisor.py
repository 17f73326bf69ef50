"""The compaction job as a child process of a node: started, read from, started again when it ends, and stopped with the node.

The child's standard input carries the settings, one line, and stays open: when it ends, the node is gone, and so is the child.
Its standard output carries a JSON object a line, a report of each batch; its standard error lines for people, ours and Spark's.
All that the job does bears repetition, so it may be killed at any time.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

import structlog

from holdfast.compaction.child_lines import ChildLines
from holdfast.compaction.progress import RunProgress, from_json
from holdfast.daemon.settings.file_env_flags import to_flags
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.snapshots.job_metrics import JobMetrics

_log = structlog.get_logger(__name__)

COMMAND: Final = (sys.executable, "-m", "holdfast", "compact", "--supervised")

#: A report has some hundred bytes for each log partition; a longer line is cut.
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
#: Lines of standard error that are logged when the child ends.
_STDERR_TAIL_LINES: Final = 5
#: How long what the child started, Java above all, may keep its pipes open when it has ended itself.
_PIPES_TIMEOUT_S: Final = 10.0
#: How long a killed child may take to be gone.
_KILL_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.1


class Supervisor:
    """The keeper of the job's process, from `start` to `stop`; which node runs one is decided elsewhere."""

    def __init__(self, settings: Settings, metrics: JobMetrics, command: Sequence[str] = COMMAND) -> None:
        self._settings = settings
        self._metrics = metrics
        self._command = command
        self._process: Process | None = None
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
        process = self._process
        self._is_stopping = True
        if process is not None and process.returncode is None:
            process.terminate()
            await asyncio.wait([task], timeout=self._settings.compaction.stop_timeout_ms / 1_000)
            if process.returncode is None:
                _log.warning("compaction_killed", pid=process.pid)
        task.cancel()
        await asyncio.wait([task])

    async def _run(self) -> None:
        compaction = self._settings.compaction
        backoff_ms = compaction.restart_backoff_ms
        while True:
            progress, stderr_tail = RunProgress(), deque[str](maxlen=_STDERR_TAIL_LINES)
            try:
                code = await self._run_once(progress, stderr_tail)
            except OSError as error:
                code = None
                stderr_tail.append(str(error))
            except Exception:  # a bug of ours ends this job, and not the ones that follow
                code = None
                # A bug may come back, so the restart is delayed like that of a job without progress.
                progress = RunProgress()
                _log.exception("compaction_supervision_failed")
            if self._is_stopping:
                return
            if progress.totals.batches:
                backoff_ms = compaction.restart_backoff_ms
            _log.error("compaction_ended", exit_code=code, stderr_tail=list(stderr_tail), again_in_ms=backoff_ms)
            await asyncio.sleep(backoff_ms / 1_000)
            backoff_ms = min(2 * backoff_ms, compaction.restart_backoff_max_ms)
            self._metrics.restarts.value += 1

    async def _run_once(self, progress: RunProgress, stderr_tail: deque[str]) -> int:
        # A session of its own: neither Ctrl-C at the node's terminal nor its end by a signal to the group reaches the job.
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(_CHUNK_BYTES, loop), *self._command, start_new_session=True
        )
        process = self._process = Process(transport, protocol, loop)
        _log.info("compaction_started", pid=process.pid, master=self._settings.compaction.master)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._metrics.running.value = 1
        try:
            process.stdin.write(json.dumps(to_flags(self._settings)).encode() + b"\n")
            async with asyncio.TaskGroup() as group:
                readers = [
                    group.create_task(self._take_reports(process.stdout, progress)),
                    group.create_task(_forward(process.stderr, stderr_tail)),
                ]
                code = await _exit_code(process)
                _, unfinished = await asyncio.wait(readers, timeout=_PIPES_TIMEOUT_S)
                if unfinished:
                    _log.warning("compaction_children_killed", pid=process.pid)
                    await _kill(process)
                    await asyncio.wait(readers, timeout=_KILL_TIMEOUT_S)
                for reader in readers:
                    reader.cancel()
            return code
        finally:
            self._metrics.running.value = 0
            try:
                await _kill(process)
            finally:
                transport.close()  # what has left the child's group may keep its pipes open for ever

    async def _take_reports(self, stream: asyncio.StreamReader, progress: RunProgress) -> None:
        async for line in _lines(stream):
            try:
                report = from_json(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                _log.warning("compaction_report_rejected", line=line[:300], why=repr(error))
                continue
            progress.take(report)
            self._metrics.take(report, progress)


async def _forward(stream: asyncio.StreamReader, stderr_tail: deque[str]) -> None:
    forward = ChildLines(_log.bind(source="compaction"))
    async for line in _lines(stream):
        stderr_tail.append(line[:300])
        forward(line)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream to its end; what exceeds the longest line is left out."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
        rest = rest[:_LINE_BYTES_MAX]
    if rest:
        yield rest.decode(errors="replace")


async def _kill(process: Process) -> None:
    """End a child and what it started; one that has ended already may have left some."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    async with asyncio.timeout(_KILL_TIMEOUT_S):
        await _exit_code(process)


async def _exit_code(process: Process) -> int:
    """Wait for the end of a child itself; `Process.wait` also waits for every other process that holds its pipes."""
    while (code := process.returncode) is None:  # noqa: ASYNC110 # no event tells of the exit alone
        await asyncio.sleep(_POLL_S)
    return code
