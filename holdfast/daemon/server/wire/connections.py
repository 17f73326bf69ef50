"""The open connections of one server, and what they share: places, turns, memory, buffers, and the end.

Connections take turns (`turns`), and together keep a bounded number of bytes (`buffers`). Answers that become ready in
one turn of the loop leave each connection in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Final, Protocol

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.wire.accounts import Accounts
from holdfast.daemon.server.wire.admission import Admission
from holdfast.daemon.server.wire.buffers import Buffers
from holdfast.daemon.server.wire.open_connection import OpenConnection
from holdfast.daemon.server.wire.request_batch import RequestBatch
from holdfast.daemon.server.wire.requests import (
    Api,
    Request,
    RequestMemory,
    Respond,
    Steps,
    Violation,
    WaitingMemory,
    WireBounds,
)
from holdfast.daemon.server.wire.security import ListenerSecurity, PlaintextSecurity
from holdfast.daemon.server.wire.turns import Turns
from holdfast.daemon.settings.components.listener import LimitSettings

#: The part of the bytes of requests in flight that may be of requests that wait for long: most clients' have some 200.
_WAITING_PART: Final = 1 / 8

#: Answers a request, at once or later. It raises MalformedBody for a body that does
#: not follow its API, and anything else for a bug of ours. Where it returns steps, the request is begun when all are done.
Handler = Callable[[Request, Respond], Steps | None]


class ClientReport(Protocol):
    """Logs what a client did; limited per kind, because clients cause it."""

    def __call__(self, kind: str, client: str, text: str) -> None:
        """Take one event of `kind` caused by the client at address `client`."""


class Connections:
    """All connections of one server, and what they share."""

    def __init__(
        self,
        handler: Handler,
        apis: Mapping[int, Api],
        limits: LimitSettings,
        report: ClientReport,
        internal_errors: InternalErrors,
        clock: Callable[[], float] = monotonic,
        security: ListenerSecurity | None = None,
        bounds: WireBounds | None = None,
    ) -> None:
        """Begin without a connection.

        Args:
            handler: answers requests.
            apis: that it answers, by API key.
            limits: of connections, requests and memory.
            report: logs what clients do.
            internal_errors: where bugs go.
            clock: gives seconds and never goes back.
            security: TLS and logins of the listener; None: neither.
            bounds: of each connection; None: the usual ones.
        """
        self.handler = handler
        self.apis = apis
        self.limits = limits
        self.bounds = bounds or WireBounds()
        self.report = report
        self.internal_errors = internal_errors
        self.clock = clock
        self.security = security or PlaintextSecurity()
        self.turns = Turns(self.bounds.slice_ms, clock)
        self.batch = RequestBatch(self.turns, internal_errors)
        self.is_draining = False
        #: Whether requests that wait are being answered because the server stops: the last of them is looked for after that.
        self._is_told_to_stop = False
        #: Set when the last connection is gone while the server drains.
        self.is_empty = asyncio.Event()
        #: Set when the last request is answered while the server drains.
        self.is_answered = asyncio.Event()
        self._open: dict[OpenConnection, None] = {}
        #: What requests in flight take, on all connections.
        self.memory = RequestMemory()
        #: Memory of the requests that wait for long.
        self.waiting = WaitingMemory(int(limits.requests_in_flight_bytes_max * _WAITING_PART))
        self.accounts = Accounts(limits, self.memory, self.turns, self._resumption_failed)
        self.buffers = Buffers(self._open.keys(), limits, self.memory)
        self._admission = Admission(limits)
        #: Connections with answers to be written in this turn of the loop.
        self._unflushed: list[OpenConnection] = []
        #: Connections with a part of an answer that is to be written in a later turn.
        self._unfinished: deque[OpenConnection] = deque()
        self._is_more_due = False
        #: Connections whose next request waits for memory, each once however often it asks.
        self._waiting_for_memory: dict[OpenConnection, None] = {}
        #: Totals since the start.
        self.accepted = 0
        self.refused = 0
        self.violations = 0
        self.requests = 0

    def reconfigure(self, limits: LimitSettings) -> None:
        """Keep other limits from now on; an open connection keeps what it came with that is about it alone."""
        self.limits = self._admission.limits = limits
        self.waiting.bytes_max = int(limits.requests_in_flight_bytes_max * _WAITING_PART)
        self.buffers.reconfigure(limits)
        self.accounts.reconfigure(limits)

    def __len__(self) -> int:
        return len(self._open)

    def now_ms(self) -> float:
        """Return the time of a clock that never goes back, in ms."""
        return self.clock() * 1_000

    # Connections come and go.

    def admit(self, connection: OpenConnection) -> bool:
        """Return whether a new connection may stay; it may take the place of one that is silent."""
        if not self.is_draining:
            refusal = self._admission.refusal(connection.host)
            if refusal is not None:
                silent = self._find_silent(self._admission.where_to_make_room(connection.host))
                if silent is None:
                    text = f"it is closed at once, because {refusal.why}"
                    if refusal.is_short:
                        self.report("file_descriptors_short", connection.address, text)
                    else:
                        self.report("connections_exceeded", connection.address, text)
                else:
                    text = f"it was silent, and gives its place to a new connection, because {refusal.why}"
                    is_short = refusal.is_short
                    silent.close(
                        Violation("file_descriptors_short", text)
                        if is_short
                        else Violation("connections_exceeded", text)
                    )
                    refusal = None
            if refusal is None:
                self._open[connection] = None
                self._admission.enter(connection.host)
                self.accepted += 1
                return True
        self.refused += 1
        return False

    def remove(self, connection: OpenConnection) -> None:
        """Take note that a connection is gone; again is harmless."""
        if connection in self._open:
            del self._open[connection]
            self._waiting_for_memory.pop(connection, None)
            self._admission.leave(connection.host)
        if self.is_draining:
            self.check_drained()

    def _find_silent(self, host: str | None) -> OpenConnection | None:
        """Return the connection of an address (None: of any) that is silent for longest, if it is so long enough."""
        now_ms, longest_ms, found = self.now_ms(), float(self.bounds.silent_ms), None
        for connection in self._open:
            if host is None or connection.host == host:
                silent_ms = connection.silent_ms(now_ms)
                if silent_ms >= longest_ms:
                    longest_ms, found = silent_ms, connection
        return found

    def close_overdue(self) -> None:
        """Close the connections whose time is up."""
        now_ms = self.now_ms()
        for connection in list(self._open):
            connection.close_if_overdue(now_ms)

    # The end of a server.

    def drain(self) -> None:
        """Take no more connections and requests; each connection closes when its requests in flight are answered."""
        self.is_draining = self.waiting.is_stopping = True
        self._is_told_to_stop = True
        for connection in list(self._open):
            connection.drain()
        self._is_told_to_stop = False
        self.check_drained()

    def check_drained(self) -> None:
        """Set the events of a server that drains."""
        if not self._open:
            self.is_empty.set()
        if not self.is_answered.is_set() and not self._is_told_to_stop and not self.count_unanswered():
            self.is_answered.set()

    def count_unanswered(self) -> int:
        """Return the number of connections with requests that are being carried out."""
        return sum(connection.is_unanswered for connection in self._open)

    def abort(self) -> None:
        """Close all connections without waiting for anything."""
        for connection in list(self._open):
            connection.abort()

    # Memory and quotas come free, and answers leave.

    def wait_for_memory(self, connection: OpenConnection) -> None:
        """Have `connection` work again when requests of others have ended."""
        self._waiting_for_memory[connection] = None

    def share_free_memory(self) -> None:
        """Let the connections work that wait for memory, or for other requests of their client, if there is some."""
        if self._waiting_for_memory and self.memory.work_bytes < self.limits.requests_in_flight_bytes_max:
            waiting, self._waiting_for_memory = self._waiting_for_memory, {}
            for connection in waiting:
                self.turns.wait(connection)
        for worker in self.accounts.take_ready():
            self.turns.wait(worker)

    def _resumption_failed(self, bug: Exception) -> None:
        self.internal_errors.note_bug("request_resumption_failed", bug)

    def flush_soon(self, connection: OpenConnection) -> None:
        """Have `connection` write its answers at the end of this turn of the loop."""
        if not self._unflushed:
            self.turns.call_soon(self._flush)
        self._unflushed.append(connection)

    def flush_next(self, connection: OpenConnection) -> None:
        """Have `connection` write more of its answer in a later turn of the loop; those that have more take turns."""
        self._unfinished.append(connection)
        self._flush_more_soon()

    def _flush_unfinished(self) -> None:
        """Let each connection write once, as far as a slice of time goes."""
        self._is_more_due = False
        ends_s = self.clock() + self.bounds.slice_ms / 1_000
        # Each that has still more stands at the end again, for the next turn.
        for _ in range(len(self._unfinished)):
            self._unfinished.popleft().flush()
            if self.clock() >= ends_s:
                break
        if self._unfinished:
            self._flush_more_soon()

    def _flush_more_soon(self) -> None:
        if not self._is_more_due:
            self._is_more_due = True
            self.turns.call_soon(self._flush_unfinished)

    def run_soon(self, task: Callable[[], None]) -> None:
        """Run a task in the next turn of the loop; a bug of it harms no other."""
        self.turns.call_soon(partial(self._run, task))

    def _run(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as bug:
            self.internal_errors.note_bug("connection_end_failed", bug)

    def _flush(self) -> None:
        connections, self._unflushed = self._unflushed, []
        for connection in connections:
            connection.flush()
