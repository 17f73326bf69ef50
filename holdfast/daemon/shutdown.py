"""What a node waits for while its parts end."""

import asyncio
from collections.abc import Iterable
from typing import Any

from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.listener import Server


async def close_admins(admins: Iterable[Admin]) -> None:
    """Cancel the admin commands in flight."""
    for admin in admins:
        await admin.close()


async def cancelled(task: "asyncio.Task[Any]") -> None:
    """Cancel a task, and wait for its end."""
    task.cancel()
    await asyncio.wait([task])


async def drained(server: Server, deadline_ms: int) -> bool:
    """Let requests in flight finish; returns whether all of them did."""
    return await server.drain(deadline_ms) == 0
