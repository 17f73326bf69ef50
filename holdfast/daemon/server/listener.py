"""The wire server: listens, closes connections whose time is up, and drains at the end.

One handler serves all connections, on the loop that owns the log partitions; `daemon.server.wire.protocol` carries the bytes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, cast

import structlog

from holdfast.daemon.server.sockets import has_waiting, listen
from holdfast.daemon.server.wire.connections import Connections, Handler
from holdfast.daemon.server.wire.protocol import ClientProtocol
from holdfast.daemon.server.wire.security import accept_encrypted, accept_plain, keep_accepting

_log = structlog.get_logger(__name__)

#: Longest time between two looks for connections whose time is up.
_SWEEP_INTERVAL_MS_MAX: Final = 1_000
#: When so many looks in a row find a connection that waits at a shared socket, nobody accepts any there.
_LOOKS: Final = 6


class Server:
    """A server of the Kafka protocol on one address, and on sockets that it shares with other processes."""

    def __init__(self, connections: Connections, shared: Sequence[socket.socket] = ()) -> None:
        """Prepare a server whose connections are added to `connections`; the sockets are its own to close."""
        self.connections = connections
        self._shared = shared
        #: Those of the one address, once it listens.
        self._sockets: list[socket.socket] = []
        #: At which connections are accepted.
        self._accepting: set[socket.socket] = set()
        #: What accepts at them.
        self._listeners: list[asyncio.Task[None]] = []
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """Port that is listened on, also when the setting asked for any free one."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    def hand_over(self, handler: Handler) -> None:
        """Give requests to another handler from now on; those in flight are answered by the one before."""
        self.connections.handler = handler

    async def start(self, host: str, port: int) -> None:
        """Listen at the one address, from now on until `drain`.

        Raises:
            CannotListen: the address is in use or not ours.
        """
        self._sockets += listen(host, port, self.connections.limits.connections_max)
        await self._accept(self._sockets)
        self._schedule_sweep()

    async def accept_shared(self) -> None:
        """Accept connections at the shared sockets as well, from now on until `drain`; the others take them before."""
        await self._accept(self._shared)

    def accept_shared_when(self, is_due: asyncio.Event, patience_ms: int) -> None:
        """Accept there once the event is set, or a connection has waited there for so long: then nobody else accepts any."""
        self._keep_accepting(lambda: self._accept_shared_when(is_due, patience_ms), "holdfast-accept-shared")

    async def _accept_shared_when(self, is_due: asyncio.Event, patience_ms: int) -> None:
        waiting = 0
        while waiting < _LOOKS and not await _is_set(is_due, max(1, patience_ms // _LOOKS)):
            waiting = waiting + 1 if has_waiting(self._shared) else 0
        await self.accept_shared()

    def _keep_accepting(self, accept: Callable[[], Awaitable[None]], name: str) -> None:
        """Accept in a task until `drain`."""
        accepting = keep_accepting(accept, self.connections.internal_errors)
        self._listeners.append(asyncio.create_task(accepting, name=name))

    async def _accept(self, sockets: Sequence[socket.socket]) -> None:
        for each in sockets:
            if each in self._accepting:  # it is tried again after another one failed
                continue
            if self.connections.security.ssl_context is None:
                self._keep_accepting(partial(accept_plain, each, self._make_protocol), "holdfast-accept")
            else:
                self._keep_accepting(partial(accept_encrypted, each, self._make_client), "holdfast-accept")
            self._accepting.add(each)

    async def drain(self, deadline_ms: int) -> int:
        """Stop listening, let requests in flight finish until the deadline, close all connections.

        A client whose requests are all answered has `WireBounds.unread_timeout_ms` to take the answers, and no more than that.

        Returns:
            The number of connections that were cut off with requests in flight.
        """
        connections = self.connections
        if connections.is_draining:
            return 0
        for listener in self._listeners:
            listener.cancel()
        for each in (*self._sockets, *self._shared):
            each.close()
        if self._sweep is not None:
            self._sweep.cancel()
        connections.drain()
        cut_off = 0
        if not await _is_set(connections.is_answered, deadline_ms):
            cut_off = connections.count_unanswered()
            _log.warning("connections_cut_off", connections=cut_off)
        elif not await _is_set(connections.is_empty, connections.bounds.unread_timeout_ms):
            _log.info("unread_connections_closed", connections=len(connections))
        connections.abort()
        # After a freeze, a connection that was aborted once did not tell of its end; the rest of the stop does not wait for that.
        await _is_set(connections.is_empty, connections.bounds.unread_timeout_ms)
        await asyncio.sleep(0)  # tenants learn of the ends of connections in the next turn
        return cut_off

    async def drain_all(self, deadline_ms: int) -> bool:
        """Drain, and return whether all requests in flight were answered."""
        return await self.drain(deadline_ms) == 0

    def _make_client(self) -> ClientProtocol:
        return ClientProtocol(self.connections)

    def _make_protocol(self) -> asyncio.Protocol:
        # It has the interface and not the class, which would keep it from being compiled.
        return cast("asyncio.Protocol", self._make_client())

    def _schedule_sweep(self) -> None:
        idle_ms, frame_ms = self.connections.limits.connections_max_idle_ms, self.connections.bounds.frame_timeout_ms
        interval_ms = min(frame_ms, idle_ms, _SWEEP_INTERVAL_MS_MAX)
        self._sweep = asyncio.get_running_loop().call_later(interval_ms / 1_000, self._close_overdue)

    def _close_overdue(self) -> None:
        self.connections.close_overdue()
        self._schedule_sweep()


async def _is_set(event: asyncio.Event, timeout_ms: int) -> bool:
    """Wait for an event; returns whether it came in time."""
    if not event.is_set():
        try:
            await asyncio.wait_for(event.wait(), timeout_ms / 1_000)
        except TimeoutError:
            return False
    return True
