"""The Spark job as a process of its own, for tests that kill it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import SPARK_PATIENCE_S


class JobProcess:
    """One `holdfast compact`, in a process group of its own."""

    def __init__(self, directory: Path, settings: dict[str, object]) -> None:
        self._reports_file = directory / "job-reports.jsonl"
        self._log_file = directory / "job.log"
        settings = {"compaction.worker.start.attempts.max": 100} | settings
        flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        self._command = [sys.executable, "-m", "holdfast", "compact", "--json", *flags]
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, *more: str) -> None:
        """Start the process."""
        with self._reports_file.open("ab") as reports, self._log_file.open("ab") as said:
            self._process = subprocess.Popen(
                [*self._command, *more], stdin=subprocess.DEVNULL, stdout=reports, stderr=said, start_new_session=True
            )

    async def run_once(self) -> None:
        """Fold the log to its end as it is now."""
        self.launch("--once")
        assert self._process is not None
        code = await asyncio.to_thread(self._process.wait, SPARK_PATIENCE_S)
        assert code == 0, self.last_words()

    def kill(self) -> None:
        """End its Python by SIGKILL; what it started below is on its own for a moment, as after a real crash."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def is_running(self) -> bool:
        """Tell whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Return the process's id, also when it has ended; None before it was started."""
        return None if self._process is None else self._process.pid

    def exit_code(self) -> int:
        """Return the exit code of a process that has ended; minus the signal's number if that ended it."""
        assert self._process is not None
        code = self._process.poll()
        assert code is not None, "it runs"
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its Python."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill_group(self) -> None:
        """End whatever it started."""
        if self._process is not None:
            self.kill()
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of all batches of all runs so far."""
        if not self._reports_file.exists():
            return []
        return [json.loads(line) for line in self._reports_file.read_text().splitlines() if line.endswith("}")]

    def said(self) -> str:
        """Return the log of all runs so far."""
        if not self._log_file.exists():
            return ""
        return self._log_file.read_text(errors="replace")

    def last_words(self) -> str:
        """Return the end of its log."""
        return "\n".join(self.said().splitlines()[-30:])


@contextmanager
def job_process(directory: Path, settings: dict[str, object]) -> Iterator[JobProcess]:
    """Give a job that does not outlive the context."""
    job = JobProcess(directory, settings)
    try:
        yield job
    finally:
        job.kill_group()
