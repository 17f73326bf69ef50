"""A client that sends whatever it is told to, and one that behaves."""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import struct
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Final, NamedTuple, Self

from benchmarks.client import Address
from holdfast.api.admin import ADMIN, AdminRequest, decode_admin_response, encode_admin_request
from holdfast.api.results import (
    InitializePartition,
    PartitionRequest,
    StateRequest,
    WritePartition,
)
from holdfast.api.share_state import INITIALIZE, READ, WRITE
from holdfast.api.state_requests import encode_request
from holdfast.api.state_responses import decode_response
from holdfast.kafka.protocol import frames
from holdfast.kafka.protocol.sasl_calls import (
    AUTHENTICATE_VERSION_MAX,
    HANDSHAKE_VERSION,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    AuthenticateAnswer,
    decode_authenticate_answer,
    encode_authenticate,
    encode_handshake,
)
from holdfast.kafka.protocol.scram import SCRAM_SHA_256, ClientSide
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch

MECHANISM: Final = SCRAM_SHA_256
VERSIONS: Final = {INITIALIZE: 0, READ: 0, WRITE: 1, 86: 0, 87: 1}
#: Above every fence; a Write raises none.
EPOCH_MAX: Final = (1 << 31) - 1
#: Between two Writes of the healthy client.
_PAUSE_S: Final = 0.01
_TIMEOUT_S: Final = 20.0


def share_body(api_key: int, group: str, topics: Sequence[tuple[bytes, Sequence[PartitionRequest]]]) -> bytes:
    """Return the body of a share-state call."""
    return encode_request(api_key, VERSIONS[api_key], StateRequest(group, [(t, list(p)) for t, p in topics]))


def write_one(partition: int, batches: Sequence[tuple[int, int, int, int]], start: int = -1) -> WritePartition:
    """Return a Write of a share partition whose epochs are above every fence."""
    return WritePartition(partition, EPOCH_MAX, EPOCH_MAX, start, -1, tuple(StateBatch(*batch) for batch in batches))


class Way(NamedTuple):
    """How a client gets into a node with TLS and logins."""

    #: File with the authority of the node's certificate.
    authority: str
    user: str
    password: str

    def context(self) -> ssl.SSLContext:
        """Return the TLS of a client."""
        return ssl.create_default_context(cafile=self.authority)


class Caller:
    """One connection, over which anything may be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.number = 0

    @classmethod
    async def open(cls, address: Address, way: Way | None = None) -> Self:
        """Connect, and get in by a way where there is one."""
        caller = await cls.connect(address, None if way is None else way.context())
        if way is not None:
            side = ClientSide(MECHANISM, way.user, way.password)
            await caller.choose(MECHANISM)
            side.check((await caller.say(side.prove((await caller.say(side.begin())).message))).message)
        return caller

    @classmethod
    async def connect(cls, address: Address, context: ssl.SSLContext | None, from_host: str | None = None) -> Self:
        """Connect without a login, from an address of this machine where one is given."""
        local = None if from_host is None else (from_host, 0)
        async with asyncio.timeout(_TIMEOUT_S):
            return cls(*await asyncio.open_connection(*address, limit=1 << 26, ssl=context, local_addr=local))

    async def choose(self, mechanism: str) -> None:
        """Say by which mechanism the login is to be."""
        self.send(SASL_HANDSHAKE, HANDSHAKE_VERSION, encode_handshake(mechanism), has_tags=False)
        await self.receive()

    async def say(self, message: bytes) -> AuthenticateAnswer:
        """Send a message of a login and return the answer to it."""
        self.send(SASL_AUTHENTICATE, AUTHENTICATE_VERSION_MAX, encode_authenticate(AUTHENTICATE_VERSION_MAX, message))
        return decode_authenticate_answer(AUTHENTICATE_VERSION_MAX, await self.receive(), 5)

    def send(self, api_key: int, version: int, body: bytes, *, has_tags: bool = True) -> int:
        """Send a request without waiting; returns the bytes of its frame."""
        self.number += 1
        frame = frames.encode_request(api_key, version, self.number, b"attack", body, has_tags)
        self.writer.write(frame)
        return len(frame)

    def call_share(self, api_key: int, body: bytes) -> int:
        """Send a share-state call."""
        return self.send(api_key, VERSIONS[api_key], body)

    async def receive(self) -> bytes:
        """Return the next answer, correlation id first."""
        async with asyncio.timeout(_TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def admin(self, command: str) -> dict[str, Any]:
        """Give an admin command and return its result."""
        self.send(ADMIN, 0, encode_admin_request(AdminRequest(command, {})))
        result: dict[str, Any] = decode_admin_response(await self.receive(), 5).result
        return result

    def close(self) -> None:
        """End the connection at once."""
        self.writer.transport.abort()


class Healthy:
    """A process of its own that writes one share partition again and again; it reports how long each Write took."""

    def __init__(self, address: Address, topic_id: bytes, way: Way | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = multiprocessing.Pipe()
        self._written = context.Value("q", 0)
        self._process = context.Process(
            target=_be_healthy, args=(address, way, topic_id, child, self._written), daemon=True
        )
        self._process.start()

    @property
    def written(self) -> int:
        """Number of Writes that were answered."""
        return int(self._written.value)

    def stop(self) -> tuple[list[tuple[float, float]], list[str]]:
        """End it; returns (when it began, ms) of each Write, and what went wrong."""
        self._pipe.send(None)
        report: tuple[list[tuple[float, float]], list[str]] = ([], ["the healthy client did not end"])
        if self._pipe.poll(2 * _TIMEOUT_S):
            report = self._pipe.recv()
        self._process.join(_TIMEOUT_S)
        self._process.kill()
        return report


def _be_healthy(address: Address, way: Way | None, topic_id: bytes, pipe: Pipe, written: Synchronized[int]) -> None:
    asyncio.run(_write_on(address, way, topic_id, pipe, written))


async def _write_on(address: Address, way: Way | None, topic_id: bytes, pipe: Pipe, written: Synchronized[int]) -> None:
    times: list[tuple[float, float]] = []
    troubles: list[str] = []
    caller: Caller | None = None
    offset = 0
    while not pipe.poll():
        began_s = time.monotonic()
        try:
            if caller is None:
                caller = await Caller.open(address, way)
                caller.call_share(
                    INITIALIZE, share_body(INITIALIZE, "healthy", [(topic_id, [InitializePartition(0, 0, 0)])])
                )
                await caller.receive()
            offset += 1
            wanted = write_one(0, [(offset, offset, ACKNOWLEDGED, 1)], offset)
            caller.call_share(WRITE, share_body(WRITE, "healthy", [(topic_id, [wanted])]))
            [(_, [(_, result)])] = decode_response(WRITE, 1, await caller.receive(), 5)
            written.value += 1
            if result.error_code:
                troubles.append(f"error {result.error_code}")
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            troubles.append(type(error).__name__)
            if caller is not None:
                caller.close()
            caller = None
            await asyncio.sleep(_PAUSE_S)
        times.append((began_s, (time.monotonic() - began_s) * 1_000))
        await asyncio.sleep(_PAUSE_S)
    pipe.send((times, troubles))
