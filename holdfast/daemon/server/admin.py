"""The admin call: runs a command of the command line tool in the node and answers with JSON.

A command is a plain function of its arguments; where it must wait, it is a coroutine function and has
`request_timeout_ms`; where it has much to do, it is a generator that returns the result, and between its steps others
have their turns (`daemon.server.wire.turns`). `AdminError` is for what the person at the tool can mend; anything else that a command
raises is a bug of ours, counted and logged here and not shown there.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from typing import Any, Final

from holdfast.api.admin import AdminRequest, AdminResponse, encode_admin_response
from holdfast.daemon.access.needs import Needs
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import InvalidTopicId, parse_topic_id

AdminSteps = Generator[None, None, object]
AdminCommand = Callable[[dict[str, Any]], object | Awaitable[object] | AdminSteps]


#: An argument may be anything, and the text of a refusal may repeat it: so much of it is sent.
_REFUSAL_CHARACTERS_MAX: Final = 1_000


def _shown(name: str) -> str:
    return repr(name[:100]).encode("utf-8", "backslashreplace").decode()


class AdminError(Exception):
    """Why a command was refused, in one plain sentence, with the next step."""

    def __init__(self, text: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(text)
        self.code = code


class NodeStarting(AdminError):
    """The node has no parts yet that could carry a command out."""

    def __init__(self) -> None:
        super().__init__("This node is starting; try again when it is ready.", ErrorCode.COORDINATOR_NOT_AVAILABLE)


def topic_id_of(argument: object) -> bytes:
    """Return the topic id that an argument of a command is.

    Raises:
        AdminError: it is none.
    """
    try:
        return parse_topic_id(str(argument))
    except InvalidTopicId as error:
        raise AdminError(str(error)) from None


class Admin:
    """The admin commands of a node, and those in flight."""

    def __init__(
        self, commands: Mapping[str, AdminCommand], needs: Needs, timeout_ms: int, internal_errors: InternalErrors
    ) -> None:
        """Carry out `commands`, by name, each that waits within `timeout_ms`; their bugs go to `internal_errors`."""
        self._commands = commands
        self._needs = needs
        self._timeout_ms = timeout_ms
        self._internal_errors = internal_errors
        #: Commands that wait for something; the loop itself holds tasks only weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(
        self, request: AdminRequest, respond: Callable[[bytes], None], client: str = "unknown"
    ) -> Iterator[bool] | None:
        """Run a command of the client at address `client`; `respond` takes the body of the answer, once.

        Returns:
            the steps that are left of a command that has many, else None; see `connection.Steps`.
        """
        name = request.command
        command = self._commands.get(name)
        if command is None:
            near = difflib.get_close_matches(name[:100], self._commands, n=1)
            hint = f"did you mean {near[0]}" if near else f"known are {', '.join(sorted(self._commands))}"
            text = f"The admin command {name[:100]!r} is unknown to this node; {hint}."
            respond(encode_admin_response(AdminResponse(ErrorCode.INVALID_REQUEST, text, None)))
            return None
        if unknown := self._needs.unknown_arguments(name, request.arguments):
            takes = ", ".join(self._needs.arguments_of(name, ())) or "none"
            text = f"The admin command {name} takes no argument {_shown(unknown[0])}; it takes {takes}."
            respond(encode_admin_response(AdminResponse(ErrorCode.INVALID_REQUEST, text, None)))
            return None
        try:
            result = command(request.arguments)
        except Exception as error:
            respond(self._refusal(name, error, client))
            return None
        if isinstance(result, Generator):
            return self._do_steps(name, result, respond, client)
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(self._finish(name, result, respond, client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            respond(self._success(name, result, client))
        return None

    async def close(self) -> None:
        """Cancel the commands in flight; their answers are not sent."""
        # A task that is cancelled before it began would leave its coroutine unawaited.
        await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _do_steps(self, name: str, steps: AdminSteps, respond: Callable[[bytes], None], client: str) -> Iterator[bool]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                respond(self._success(name, end.value, client))
                return
            except Exception as error:
                respond(self._refusal(name, error, client))
                return
            yield True

    async def _finish(
        self, name: str, result: Awaitable[object], respond: Callable[[bytes], None], client: str
    ) -> None:
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                body = self._success(name, await result, client)
        except TimeoutError:
            text = f"The command {name} took longer than {self._timeout_ms} ms and was given up."
            body = encode_admin_response(AdminResponse(ErrorCode.UNKNOWN_SERVER_ERROR, text, None))
        except Exception as error:
            body = self._refusal(name, error, client)
        respond(body)

    def _success(self, name: str, result: object, client: str) -> bytes:
        try:
            return encode_admin_response(AdminResponse(ErrorCode.NONE, None, result))
        except (TypeError, ValueError) as error:
            return self._refusal(name, error, client)

    def _refusal(self, name: str, error: Exception, client: str) -> bytes:
        if isinstance(error, AdminError):
            text = str(error)[:_REFUSAL_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
            return encode_admin_response(AdminResponse(error.code, text, None))
        self._internal_errors.note_bug("admin_command_failed", error, command=name, client=client)
        text = f"The command {name} failed in the node; its log says why."
        return encode_admin_response(AdminResponse(ErrorCode.UNKNOWN_SERVER_ERROR, text, None))
