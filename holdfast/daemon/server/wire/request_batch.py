"""Small requests that came in one turn of the loop take each part of their way together.

A request goes through more code than a processor's first cache holds: done one after the other, each fetches nearly all of it again, and
waits for that. So all are taken off their connections, then all are decoded, then all are decided: each part finds its code at hand
but for the first request (benchmarks/findings/hot-path.md, *What a processor waits for*).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.wire.open_connection import OpenConnection
from holdfast.daemon.server.wire.requests import SMALL_FRAME_BYTES, Request
from holdfast.daemon.server.wire.turns import Turns

#: Of the frames that are gathered: enough for the parts to pay, and about as much work as a slice of the loop's time.
_FRAME_BYTES_MAX: Final = 2 * SMALL_FRAME_BYTES


class RequestBatch:
    """The small requests of one turn of the loop, one of each connection, in the order in which they came."""

    def __init__(self, turns: Turns, internal_errors: InternalErrors) -> None:
        """Begin without a request.

        Args:
            turns: charge the time that a batch takes to its connections, by the bytes of their requests.
            internal_errors: where a bug goes that a connection lets out.
        """
        self._turns = turns
        self._internal_errors = internal_errors
        self._requests: list[tuple[OpenConnection, Request]] = []
        self._frame_bytes = 0
        self._is_at_work = False
        #: Calls of this process that go with those at hand.
        self._calls: list[Callable[[], None]] = []
        #: What is to be done when those at hand are begun.
        self._tasks: list[Callable[[], None]] = []

    def add(self, connection: OpenConnection, request: Request) -> None:
        """Begin a request together with the others of this turn of the loop; where these are enough, they are begun now."""
        if self._frame_bytes + request.size_bytes > _FRAME_BYTES_MAX:
            self.begin()
        connection.is_in_batch = True
        self._requests.append((connection, request))
        self._frame_bytes += request.size_bytes
        if len(self._requests) == 1:
            self._turns.call_soon(self.begin)

    def begin_with(self, call: Callable[[], None]) -> None:
        """Run a call of this process with the requests of this turn of the loop, after them; at once where they are being begun."""
        if self._is_at_work:
            call()
            return
        self._calls.append(call)
        if len(self._calls) == 1 and not self._requests:
            self._turns.call_soon(self.begin)

    def end_with(self, task: Callable[[], None]) -> None:
        """Run a task when all requests at hand are begun; at once where none is being begun."""
        if self._is_at_work:
            self._tasks.append(task)
        else:
            task()

    def begin(self) -> None:
        """Begin the requests and calls that were added; without any it does nothing."""
        if not self._requests and not self._calls:
            return
        turns, frame_bytes = self._turns, self._frame_bytes
        requests, self._requests, self._frame_bytes = self._requests, [], 0
        calls, self._calls = self._calls, []
        began_s = turns.clock()
        self._is_at_work = True
        for connection, request in requests:
            connection.is_in_batch = False
            try:
                connection.begin(request)
            except Exception as bug:  # one connection's failure is not another's
                self._internal_errors.note_bug("request_begin_failed", bug, client=connection.address)
                connection.abort()
                request.release()
        self._run(calls)
        self._is_at_work = False
        tasks, self._tasks = self._tasks, []
        self._run(tasks)
        took_s = turns.note_work(began_s)
        for connection, request in requests:
            turns.charge(connection, took_s * request.size_bytes / frame_bytes)

    def _run(self, tasks: list[Callable[[], None]]) -> None:
        for task in tasks:
            try:
                task()
            except Exception as bug:  # it is of all, and none of them is to pay for it
                self._internal_errors.note_bug("request_batch_end_failed", bug)
