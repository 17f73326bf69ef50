"""The steps of a node: of its start, which a stop cuts short, and of its shutdown, where none keeps the next from being tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

from holdfast.daemon.node_exit import NodeExit

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Stopped(Exception):
    """The node is to stop before it has started."""


class NodeSteps:
    """The steps of one node."""

    def __init__(self, node_exit: asyncio.Future[NodeExit]) -> None:
        """Watch `node_exit`, which is done from the moment when the node is to stop."""
        self._exit = node_exit
        #: A step of the shutdown failed, or did not end in time.
        self.has_failed = False

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a step of the start, or leave it when the node is to stop.

        Raises:
            Stopped: the node is to stop.
        """
        task = asyncio.ensure_future(work)
        waited: list[asyncio.Future[Any]] = [task, self._exit]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if self._exit.done():
            await cancelled(task)
            raise Stopped
        return task.result()

    async def do(self, name: str, step: Callable[[], Awaitable[object]], timeout_ms: int) -> None:
        """Do one step of the shutdown; whatever becomes of it, the later ones are tried."""
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                outcome = await step()
        except Exception as error:
            self.has_failed = True
            _log.error("shutdown_step_failed", step=name, error=repr(error))
            return
        if outcome is False:
            self.has_failed = True
            _log.error("shutdown_step_expired", step=name)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])
