"""Bugs of ours in work that serves many partitions: each is counted and logged, and stops no more than it must."""

import asyncio

from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.instruments import Counter


class BugReports:
    """The receiver of such bugs; it counts them as internal errors and logs them through the event loop's exception handler."""

    def __init__(self, internal_errors: Counter) -> None:
        """Count in `internal_errors`, and report to the running loop."""
        self._internal_errors = internal_errors
        self._loop = asyncio.get_running_loop()

    def report(self, bug: BaseException, message: str) -> None:
        """Count and log a bug; `message` says what failed."""
        self._internal_errors.value += 1
        self._loop.call_exception_handler({"message": message, "exception": bug})

    def report_unheard(self, bug: BaseException, partition: int) -> None:
        """Count and log a bug of a partition's owner while it handled the result of a batch."""
        self.report(bug, f"reporting the result of a batch to partition {partition} failed")

    def explain(self, failure: Exception, message: str) -> str:
        """Return the reason of a failed request; anything but a `ConnectionFailed` is a bug, and is reported."""
        if isinstance(failure, ConnectionFailed):
            return str(failure)
        self.report(failure, message)
        return repr(failure)

    def watch(self, task: "asyncio.Task[None]") -> None:
        """Report the exception of a task that is not awaited, if it has one."""
        bug = None if task.cancelled() else task.exception()
        if bug is not None:
            self.report(bug, f"the task {task.get_name()} failed")
