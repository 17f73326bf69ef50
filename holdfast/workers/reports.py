"""What the workers of a host say of themselves to their supervisor, and what follows for all of them together.

A worker writes a line to its standard output at each look, so that a supervisor which is watched knows that each worker's loop turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, final

from holdfast.service.condition import Condition

_KEY: Final = "condition"


class Report(NamedTuple):
    """What a worker says of itself."""

    condition: Condition
    #: How often it has read its settings again, since it was started.
    reloads: int

    def encode(self) -> str:
        """Return the line that says it, without its end."""
        return json.dumps({_KEY: self.condition._asdict(), "reloads": self.reloads})


def decode_report(line: str) -> Report | None:
    """Return what a line of a worker's standard output reports; None: it is no report."""
    if not line.startswith(f'{{"{_KEY}":'):
        return None
    said = json.loads(line)
    return Report(Condition(**said[_KEY]), said["reloads"])


@final
class Reporter:
    """The reports of this process, a worker (`service.notifier.Watcher`)."""

    def __init__(self, read: Callable[[], Condition], write: Callable[[str], object]) -> None:
        """Report nothing yet; `read` looks at the node, `write` takes a line."""
        self._read = read
        self._write = write
        self._reloads = 0

    def look(self) -> None:
        """Report the condition of the node."""
        self._write(Report(self._read(), self._reloads).encode())

    def reload(self, reload: Callable[[], object]) -> None:
        """Reload, and report that it was done."""
        reload()
        self._reloads += 1
        self.look()


class _Process:
    """A worker that runs, as its reports show it."""

    def __init__(self, now_ms: int) -> None:
        self.report: Report | None = None
        #: When its work was last seen to go on.
        self.turned_ms = now_ms
        #: How often it was sent word to read its settings again.
        self.reloads_sent = 0


@final
class HostCondition:
    """The condition of all workers of a host together."""

    def __init__(self, node_ids: Iterable[int], silence_max_ms: int | None) -> None:
        """Begin with workers that do not run; one that runs and is silent for longer stops the turns of all, if there is a bound."""
        self._node_ids = tuple(node_ids)
        self._silence_max_ms = silence_max_ms
        self._running: dict[int, _Process] = {}
        self._turns = 0

    def started(self, node_id: int, now_ms: int) -> None:
        """Take in that the process of a worker was started."""
        self._running[node_id] = _Process(now_ms)

    def ended(self, node_id: int) -> None:
        """Take in that it has ended, or was never started."""
        self._running.pop(node_id, None)

    def reload_sent(self, node_id: int) -> None:
        """Take in that a worker was sent word to read its settings again."""
        if node_id in self._running:
            self._running[node_id].reloads_sent += 1

    def reported(self, node_id: int, report: Report, now_ms: int) -> None:
        """Take in what a worker says of itself."""
        process = self._running.get(node_id)
        if process is not None:
            if process.report is None or process.report.condition.turns != report.condition.turns:
                process.turned_ms = now_ms
            process.report = report

    def read(self, now_ms: int, *, is_stopping: bool, given_up: Collection[int]) -> Condition:
        """Return the condition of all of them now; those that are given up do not count, but the status names them."""
        silent = {
            node_id
            for node_id, process in self._running.items()
            if self._silence_max_ms is not None and now_ms - process.turned_ms > self._silence_max_ms
        }
        self._turns += not silent
        expected = [node_id for node_id in self._node_ids if node_id not in given_up]
        reports = {node_id: each.report for node_id, each in self._running.items() if each.report is not None}
        conditions = {node_id: report.condition for node_id, report in reports.items()}
        problems = [
            f"worker {node_id}: {problem}"
            for node_id in self._node_ids
            if (problem := self._problem(node_id, node_id in silent, node_id in given_up))
        ]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return Condition(
            has_started=bool(expected)
            and all(each in conditions and conditions[each].has_started for each in expected),
            is_ready=not problems and not is_stopping,
            is_stopping=is_stopping,
            is_reloading=any(
                process.report is None or process.report.reloads < process.reloads_sent
                for process in self._running.values()
                if process.reloads_sent
            ),
            status=f"{problems[0]}{more}" if problems else f"ready: {len(self._node_ids)} workers",
            progress=sum(condition.progress for condition in conditions.values()),
            turns=self._turns,
        )

    def _problem(self, node_id: int, is_silent: bool, is_given_up: bool) -> str:
        """Return why a worker is not ready; empty if it is."""
        process = self._running.get(node_id)
        if is_given_up:
            return "given up; its log says why"
        if process is None:
            return "does not run"
        if is_silent:
            return "its loop does not turn"
        if process.report is None:
            return "starting: it has reported nothing yet"
        return "" if process.report.condition.is_ready else process.report.condition.status
