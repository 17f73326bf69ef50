"""Which workers are to run, when one that ended is started again, and how all of it ends.

Without processes, clock and chance: what drives it (`workers.supervisor`) says what happens and when, and carries out what this
decides.

    begin → ended, tick, … → request_stop → ended, tick, … → is_over, exit
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from signal import SIGKILL, SIGTERM, Signals
from typing import Final, Protocol

import structlog

from holdfast.backoff import Backoff
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.components.host import HostSettings

_log = structlog.get_logger(__name__)

#: A worker that ends so would end so again.
_FINAL: Final = frozenset({NodeExit.WRONG_USAGE, NodeExit.SUPERSEDED})
#: The end of a worker by our own signal, which came before it could heed it.
_TERMINATED: Final = -SIGTERM
#: Pauses before a worker that ended by itself is started again. One that ran longer than the longest begins with the first again.
RESTART_BACKOFF_MS: Final = 200
RESTART_BACKOFF_MAX_MS: Final = 30_000


class Processes(Protocol):
    """The processes of the workers, by node id."""

    def start(self, node_id: int, restarts: int) -> None:
        """Start a worker that was started again so often; its end is reported, also if it cannot be started."""

    def send_signal(self, node_id: int, number: Signals) -> None:
        """Send a signal to a worker that runs."""


class _Worker:
    """The state of one worker."""

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.is_running = False
        self.began_ms = 0
        self.starts = 0
        #: When it is started again; None: it runs, or is not started again.
        self.due_ms: int | None = None
        #: Why it is not started again.
        self.given_up: NodeExit | None = None


class Fleet:
    """The workers of a host, from the first start to the last end."""

    def __init__(
        self,
        node_ids: Iterable[int],
        settings: HostSettings,
        processes: Processes,
        jitter: Callable[[], float],
        *,
        restart_backoff_ms: int = RESTART_BACKOFF_MS,
        restart_backoff_max_ms: int = RESTART_BACKOFF_MAX_MS,
    ) -> None:
        first_ms, longest_ms = restart_backoff_ms, restart_backoff_max_ms
        self._lasting_ms = longest_ms
        self._workers = {node_id: _Worker(Backoff(first_ms, longest_ms, jitter)) for node_id in node_ids}
        self._settings = settings
        self._processes = processes
        #: Workers that have never done else than to end with REFUSED, while no worker has ever lasted.
        self._refused: set[int] = set()
        self._has_lasted = False
        #: How it is to end; None: it goes on.
        self._verdict: NodeExit | None = None
        self._has_failed = False
        #: When those that have not stopped are killed; None: they were, or nothing stops.
        self._kill_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether all workers have ended, and none is to be started again."""
        return self._verdict is not None and not self._running()

    @property
    def is_stopping(self) -> bool:
        """Whether the workers are to stop, or have stopped."""
        return self._verdict is not None

    @property
    def given_up(self) -> frozenset[int]:
        """The workers that are not started again, by node id."""
        return frozenset(node_id for node_id, each in self._workers.items() if each.given_up is not None)

    @property
    def exit(self) -> NodeExit:
        """How it has ended, once it is over."""
        assert self._verdict is not None
        return NodeExit.FAILED_TO_STOP if self._verdict is NodeExit.STOPPED and self._has_failed else self._verdict

    def due_ms(self) -> int | None:
        """Return when `tick` has something to do; None: not before something happens."""
        dues = (self._kill_ms, *(worker.due_ms for worker in self._workers.values()))
        return min((due_ms for due_ms in dues if due_ms is not None), default=None)

    def begin(self, now_ms: int) -> None:
        """Start all workers."""
        for node_id in self._workers:
            self._start(node_id, now_ms)

    def ended(self, node_id: int, exit_code: int, now_ms: int) -> None:
        """Take in that a worker has ended; below 0 is the exit code the number of the signal that ended it."""
        worker = self._workers[node_id]
        worker.is_running = False
        if self._verdict is not None:
            if exit_code not in (NodeExit.STOPPED, _TERMINATED):
                self._has_failed = True
                _log.error("worker_stop_failed", node_id=node_id, exit_code=exit_code)
            return
        if self._has_run_long(worker, now_ms):
            self._has_lasted = True
            worker.backoff.reset()
        if exit_code in _FINAL:
            worker.given_up = NodeExit(exit_code)
            _log.error("worker_given_up", node_id=node_id, exit_code=exit_code)
        else:
            pause_ms = worker.backoff.fail(now_ms)
            worker.due_ms = worker.backoff.until_ms()
            _log.error("worker_ended", node_id=node_id, exit_code=exit_code, again_in_ms=pause_ms)
        if exit_code == NodeExit.REFUSED:
            self._refused.add(node_id)
        else:
            self._refused.discard(node_id)
        self._end_what_is_hopeless(now_ms)

    def tick(self, now_ms: int) -> None:
        """Start the workers whose pause is over, and kill those that do not stop."""
        for node_id, worker in self._workers.items():
            if worker.due_ms is not None and now_ms >= worker.due_ms:
                worker.due_ms = None
                self._start(node_id, now_ms)
        if self._kill_ms is not None and now_ms >= self._kill_ms:
            self._kill_ms = None
            for node_id in self._running():
                _log.error("worker_killed", node_id=node_id, stop_timeout_ms=self._settings.worker_stop_timeout_ms)
                self._processes.send_signal(node_id, SIGKILL)

    def request_stop(self, now_ms: int, verdict: NodeExit = NodeExit.STOPPED) -> None:
        """Stop all workers at once, and start none again; the first verdict given is the one that counts."""
        if self._verdict is not None:
            return
        self._verdict = verdict
        self._kill_ms = now_ms + self._settings.worker_stop_timeout_ms
        for worker in self._workers.values():
            worker.due_ms = None
        for node_id in self._running():
            self._processes.send_signal(node_id, SIGTERM)

    def _start(self, node_id: int, now_ms: int) -> None:
        worker = self._workers[node_id]
        worker.is_running, worker.began_ms = True, now_ms
        worker.starts += 1
        self._processes.start(node_id, worker.starts - 1)

    def _running(self) -> list[int]:
        return [node_id for node_id, worker in self._workers.items() if worker.is_running]

    def _has_any_lasted(self, now_ms: int) -> bool:
        running = (worker for worker in self._workers.values() if worker.is_running)
        return self._has_lasted or any(self._has_run_long(worker, now_ms) for worker in running)

    def _has_run_long(self, worker: _Worker, now_ms: int) -> bool:
        return now_ms - worker.began_ms > self._lasting_ms

    def _end_what_is_hopeless(self, now_ms: int) -> None:
        """Stop where no worker is left, or where each was refused by Kafka or the machine from its first start on."""
        given_up = [worker.given_up for worker in self._workers.values() if worker.given_up is not None]
        if len(given_up) == len(self._workers):
            self.request_stop(now_ms, given_up[0])
        elif not self._has_any_lasted(now_ms) and len(self._refused) + len(given_up) == len(self._workers):
            self.request_stop(now_ms, NodeExit.REFUSED)
