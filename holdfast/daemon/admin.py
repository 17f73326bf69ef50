"""The admin call: runs a command of the command line tool in the node and answers with JSON.

A command is a plain function of its arguments; where it must wait, it is a coroutine function and has
`admin_timeout_ms`. `AdminError` is for what the person at the tool can mend; anything else it raises is a bug of ours,
logged here and not shown there.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from holdfast.daemon.errors import ErrorCode
from holdfast.records.admin import AdminRequest, AdminResponse, encode_admin_response

_log = structlog.get_logger(__name__)

AdminCommand = Callable[[dict[str, Any]], object | Awaitable[object]]


class AdminError(Exception):
    """Say in one plain sentence why a command was refused, and the next step."""


class Admin:
    """Run admin commands."""

    def __init__(self, commands: Mapping[str, AdminCommand], admin_timeout_ms: int = 60_000) -> None:
        self._commands = commands
        self._admin_timeout_ms = admin_timeout_ms
        #: Commands that wait for something; the loop itself holds tasks only weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: AdminRequest, respond: Callable[[bytes], None]) -> None:
        """Run a command; `respond` takes the body of the answer, once."""
        name = request.command
        command = self._commands.get(name)
        if command is None:
            near = difflib.get_close_matches(name[:100], self._commands, n=1)
            hint = f"did you mean {near[0]}" if near else f"known are {', '.join(sorted(self._commands))}"
            text = f"The admin command {name[:100]!r} is unknown to this node; {hint}."
            respond(encode_admin_response(AdminResponse(ErrorCode.INVALID_REQUEST, text, None)))
            return
        try:
            result = command(request.arguments)
        except Exception as error:
            respond(self._refusal(name, error))
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(self._finish(name, result, respond))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            respond(self._success(name, result))

    async def close(self) -> None:
        """Cancel the commands under way; nobody hears of them any more."""
        # A task that is cancelled before it began would leave its coroutine unawaited.
        await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _finish(self, name: str, result: Awaitable[object], respond: Callable[[bytes], None]) -> None:
        try:
            async with asyncio.timeout(self._admin_timeout_ms / 1_000):
                body = self._success(name, await result)
        except TimeoutError:
            text = f"The command {name} took longer than {self._admin_timeout_ms} ms and was given up."
            body = encode_admin_response(AdminResponse(ErrorCode.UNKNOWN_SERVER_ERROR, text, None))
        except Exception as error:
            body = self._refusal(name, error)
        respond(body)

    def _success(self, name: str, result: object) -> bytes:
        try:
            return encode_admin_response(AdminResponse(ErrorCode.NONE, None, result))
        except (TypeError, ValueError) as error:
            return self._refusal(name, error)

    def _refusal(self, name: str, error: Exception) -> bytes:
        if isinstance(error, AdminError):
            return encode_admin_response(AdminResponse(ErrorCode.INVALID_REQUEST, str(error), None))
        _log.error("An admin command failed.", command=name, exc_info=error)
        text = f"The command {name} failed in the node; its log says why."
        return encode_admin_response(AdminResponse(ErrorCode.UNKNOWN_SERVER_ERROR, text, None))
