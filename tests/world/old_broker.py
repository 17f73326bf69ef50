"""A broker of Apache Kafka 2.3 on a real socket, as far as a member of a group sees one before it joins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import Final

from tests.waiting import PATIENCE_S

METADATA, FIND_COORDINATOR, API_VERSIONS = 3, 10, 18
#: By API key, the versions that it speaks: JoinGroup, SyncGroup, Heartbeat and LeaveGroup came to ours with 3.2.
VERSIONS: Final = {
    METADATA: (0, 8),
    FIND_COORDINATOR: (0, 2),
    11: (0, 5),
    12: (0, 3),
    13: (0, 2),
    14: (0, 3),
    15: (0, 3),
    API_VERSIONS: (0, 2),
}
_UNSUPPORTED_VERSION: Final = 35
#: API key, version, correlation id.
_HEAD: Final = Struct(">hhi")


class OldBroker:
    """What it was sent, and where it listens."""

    def __init__(self) -> None:
        #: API key and version of each request.
        self.requests: list[tuple[int, int]] = []
        #: Of those requests.
        self.client_ids: set[str] = set()
        self.port = 0
        self.serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        if task := asyncio.current_task():
            self.serving.add(task)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                api_key, version, correlation_id = _HEAD.unpack_from(frame)
                self.requests.append((api_key, version))
                length = int.from_bytes(frame[_HEAD.size : _HEAD.size + 2], "big")
                self.client_ids.add(frame[_HEAD.size + 2 :][:length].decode())
                answer = correlation_id.to_bytes(4, "big") + self._answer(api_key, version)
                writer.write(len(answer).to_bytes(4, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass  # the other side closed it
        finally:
            writer.close()
            with suppress(OSError):  # the other side was as quick
                await writer.wait_closed()

    def _answer(self, api_key: int, version: int) -> bytes:
        first, last = VERSIONS[api_key]
        if api_key == API_VERSIONS:
            if version > last:
                return Struct(">hi").pack(_UNSUPPORTED_VERSION, 0)
            rows = b"".join(Struct(">hhh").pack(key, *spoken) for key, spoken in VERSIONS.items())
            throttle_time = b"" if version == 0 else bytes(4)
            return Struct(">hi").pack(0, len(VERSIONS)) + rows + throttle_time
        assert first <= version <= last, "nobody sends what it does not speak"
        text = b"127.0.0.1"
        where = Struct(">ih").pack(0, len(text)) + text + self.port.to_bytes(4, "big")
        if (
            api_key == METADATA
        ):  # as of version 8: itself, without a rack; no cluster id, the controller, no topics, no rights
            assert version == last, "whoever speaks more speaks this"
            return bytes(4) + Struct(">i").pack(1) + where + Struct(">hhiii").pack(-1, -1, 0, 0, 0)
        assert api_key == FIND_COORDINATOR, "nobody joins"
        return bytes(2) + where if version == 0 else bytes(4) + bytes(2) + b"\xff\xff" + where


@asynccontextmanager
async def old_broker() -> AsyncIterator[OldBroker]:
    """Run one on loopback."""
    broker = OldBroker()
    async with await asyncio.start_server(broker.serve, "127.0.0.1", 0) as server:
        broker.port = server.sockets[0].getsockname()[1]
        yield broker
        if broker.serving:
            await asyncio.wait(broker.serving, timeout=PATIENCE_S)
