"""Bugs of ours in work that serves many partitions: they fail what they must, are counted and logged, and stop nothing else."""

import asyncio

from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.instruments import Counter


class BugReports:
    """Where such bugs go: to the count of internal errors, and to the log by way of the event loop."""

    def __init__(self, internal_errors: Counter) -> None:
        """Count in `internal_errors`; the loop that runs now takes the reports."""
        self._internal_errors = internal_errors
        self._loop = asyncio.get_running_loop()

    def report(self, bug: BaseException, message: str) -> None:
        """Count and log a bug; `message` says what failed."""
        self._internal_errors.value += 1
        self._loop.call_exception_handler({"message": message, "exception": bug})

    def report_unheard(self, bug: BaseException, partition: int) -> None:
        """Count and log a bug of the owner of a partition, which heard what became of a batch."""
        self.report(bug, f"reporting to partition {partition} what became of a batch failed")

    def explain(self, failure: Exception, message: str) -> str:
        """Return why something on the wire failed; anything but a `ConnectionFailed` is a bug, and is reported."""
        if isinstance(failure, ConnectionFailed):
            return str(failure)
        self.report(failure, message)
        return repr(failure)

    def watch(self, task: "asyncio.Task[None]") -> None:
        """Report what a task that is not awaited ended with, if that is a bug."""
        bug = None if task.cancelled() else task.exception()
        if bug is not None:
            self.report(bug, f"the task {task.get_name()} failed")
