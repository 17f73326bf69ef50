"""A way to a node that can be cut: every connection through it, at once, and in the middle of an answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from holdfast.kafka.addresses import format_address

_PIECE_BYTES = 65_536


class CuttingProxy:
    """Listens on a port of its own for connections to an address; to be used as a context."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        #: Answers are cut in half from now on.
        self._halves = False
        self.cuts = 0

    @property
    def address(self) -> str:
        """Return the address on which it listens."""
        assert self._server is not None
        return format_address(*self._server.sockets[0].getsockname()[:2])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()

    def cut(self) -> None:
        """End all connections by a reset."""
        for writer in list(self._writers):
            self.cuts += 1
            writer.transport.abort()

    def cut_in_answers(self) -> None:
        """End each connection when half of its next answer has passed."""
        self._halves = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            node_reader, node_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, node_writer}
        self._writers |= pair
        ways = [self._pass(reader, node_writer, is_answer=False), self._pass(node_reader, writer, is_answer=True)]
        tasks = {asyncio.ensure_future(way) for way in ways}
        self._tasks |= tasks
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in pair:
            each.transport.abort()
        self._writers -= pair
        await asyncio.wait(tasks)
        self._tasks -= tasks

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                if is_answer and self._halves and len(data) > 1_000:
                    self._halves = False
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    self.cuts += 1
                    return
                writer.write(data)
                await writer.drain()
