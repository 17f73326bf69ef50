"""A child process: its standard streams, its end, and the end of what it has started."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final, final

#: A longer line is cut.
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_POLL_S: Final = 0.1


@final
class Child:
    """A child process with three pipes: by the end of its standard input it notices that we are gone."""

    def __init__(self, transport: asyncio.SubprocessTransport, process: Process) -> None:
        """See `start`."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self.pid = process.pid
        self._transport = transport
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str], descriptors: Sequence[int] = ()) -> Child:
        """Start a program, which inherits these file descriptors under their numbers.

        It has a session of its own: neither Ctrl-C at our terminal nor our end by a signal to the group reaches it.

        Raises:
            OSError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"start_new_session": True, "pass_fds": tuple(descriptors)}
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(_CHUNK_BYTES, loop), *command, **options
        )
        return cls(transport, Process(transport, protocol, loop))

    @property
    def has_ended(self) -> bool:
        """Tell whether the child itself has ended."""
        return self._process.returncode is not None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing if it has ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def exit_code(self) -> int:
        """Wait for the end of the child itself, and return its exit code, below 0 the number of the signal that ended it.

        `Process.wait` also waits for every other process that holds its pipes.
        """
        while (code := self._process.returncode) is None:  # noqa: ASYNC110 # no event tells of the exit alone
            await asyncio.sleep(_POLL_S)
        return code

    async def kill(self, timeout_s: float) -> None:
        """End the child and what it has started; one that has ended already may have left some.

        Raises:
            TimeoutError: it is still there.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.stdin.close()
        async with asyncio.timeout(timeout_s):
            await self.exit_code()

    def close(self) -> None:
        """Close our ends of the pipes; what has left the child's group may keep the others open for ever."""
        self._transport.close()


async def lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream to its end; what exceeds the longest line is left out."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        rest = rest[:_LINE_BYTES_MAX]
    if rest:
        yield rest.decode(errors="replace")
