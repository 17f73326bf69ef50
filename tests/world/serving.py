"""A node's wire side without a node: a share service whose answers a test decides, a cluster view, a running server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from holdfast.api import share_state, state_requests
from holdfast.api.results import (
    DeleteResult,
    InitializeResult,
    PartitionResult,
    ReadResult,
    StateRequest,
    StateResponse,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin, AdminCommand
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.listener import Server
from holdfast.daemon.server.sockets import has_waiting
from holdfast.daemon.server.wire.connections import Connections, Handler
from holdfast.daemon.server.wire.protocol import ClientProtocol
from holdfast.daemon.server.wire.requests import WireBounds
from holdfast.daemon.server.wire.security import ListenerSecurity
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from holdfast.metrics.instruments import Counter
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.runtime.errors import NotAvailable
from tests.waiting import PATIENCE_S, wait_until
from tests.world.identity.access import OPEN
from tests.world.samples import OTHER_TOPIC, TOPIC
from tests.world.tenants import APIS, NEEDS, make_handler

SUCCESS = bytes.fromhex("02000102030405060708090a0b0c0d0e0f0200000000000000000000")
#: More than a loop takes from a connection that it accepts to its transport, or from the end of that to its closed socket.
_TURNS: Final = 10
RESULTS: Mapping[int, Callable[[], PartitionResult]] = {
    share_state.INITIALIZE: InitializeResult,
    share_state.READ: ReadResult,
    share_state.WRITE: WriteResult,
    share_state.DELETE: DeleteResult,
    share_state.SUMMARY: SummaryResult,
}


@dataclass
class Topic:
    name: str = "__holdfast_share_state"
    topic_id: bytes = OTHER_TOPIC
    partition_count: int = 3


@dataclass
class FakeCluster:
    """Node N of `nodes` owns the log partitions that are N modulo their number."""

    cluster_id: str | None = "cluster"
    nodes: list[Node] = field(default_factory=lambda: [Node(1, "127.0.0.1", 9492)])
    state_topic: Topic | None = field(default_factory=Topic)
    owner_epochs: dict[int, int] = field(default_factory=dict)

    def owner(self, partition: int) -> Node | None:
        return self.nodes[partition % len(self.nodes)] if self.nodes else None

    def owner_epoch(self, partition: int) -> int:
        return self.owner_epochs.get(partition, -1)


class FakeService:
    """Answers at once with success, or with what `answer` says; or never, when `is_holding`, until `release`."""

    def __init__(self, partition_count: int = 3) -> None:
        self.partition_count = partition_count
        self.requests: list[tuple[int, StateRequest]] = []
        self.is_holding = False
        self.held: list[Callable[[], None]] = []
        self.answer: Callable[[int, SharePartitionKey, Any], PartitionResult] | None = None

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], caller: str
    ) -> None:
        self.requests.append((api_key, StateRequest(request.group_id, request.topics)))
        response: StateResponse = []
        for topic_id, partitions in request.topics:
            results = []
            for asked in partitions:
                key = SharePartitionKey(request.group_id, topic_id, asked.partition)
                result = self.answer(api_key, key, asked) if self.answer else RESULTS[api_key]()
                results.append((asked.partition, result))
            response.append((topic_id, results))
        if self.is_holding:
            self.held.append(lambda: respond(response))
        else:
            respond(response)

    def release(self, index: int = 0) -> None:
        self.held.pop(index)()

    def partition_for(self, key: SharePartitionKey) -> int:
        if not self.partition_count:
            raise NotAvailable("this node does not serve share state now")
        return log_partition(key, self.partition_count)


class Reports(list[tuple[str, str, str]]):
    def __call__(self, kind: str, client: str, text: str) -> None:
        self.append((kind, client, text))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self]


class CountingTransport(asyncio.Transport):
    """Takes what is written to it."""

    def __init__(self, host: str = "10.0.0.1") -> None:
        super().__init__({"peername": (host, 5)})
        self.written: list[bytes] = []
        self.is_reading_paused = False
        self.is_closed = False
        self.unsent_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def pause_reading(self) -> None:
        assert not self.is_reading_paused
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        assert self.is_reading_paused
        self.is_reading_paused = False

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    abort = close


@dataclass
class Served:
    server: Server
    service: FakeService
    cluster: FakeCluster
    reports: Reports
    #: Counts bugs.
    bugs: Counter

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@asynccontextmanager
async def serve(
    limits: LimitSettings | None = None,
    commands: Mapping[str, AdminCommand] | None = None,
    handler: Handler | None = None,
    clock: Callable[[], float] = monotonic,
    shared: Sequence[socket.socket] = (),
    security: ListenerSecurity | None = None,
    bounds: WireBounds | None = None,
) -> AsyncIterator[Served]:
    """Run a server on loopback, and on sockets of others, whose only node is itself."""
    counted = Counter()
    bugs = InternalErrors(counted)
    service, cluster, reports, admin = (
        FakeService(),
        FakeCluster(),
        Reports(),
        Admin(commands or {}, NEEDS, 60_000, bugs),
    )
    handler = handler or make_handler(service, cluster, admin, OPEN)
    server = Server(
        Connections(handler, APIS, limits or LimitSettings(), reports, bugs, clock, security, bounds), shared
    )
    await server.start("127.0.0.1", 0)
    await server.accept_shared()
    cluster.nodes = [Node(1, "127.0.0.1", server.port)]
    try:
        yield Served(server, service, cluster, reports, counted)
    finally:
        for client in clients_of(server.connections):
            if isinstance(client._transport, CountingTransport):
                client.connection_lost(None)
        if not server.connections.is_draining:
            await wait_until(lambda: not has_waiting(server._accepting))
            await _settle()
        await server.drain(deadline_ms=10_000)
        await _settle()
        await admin.close()


async def _settle() -> None:
    """Let the loop end what it has begun: where a socket was accepted and has no transport yet, nobody would close it.

    asyncio loses it where the server is closed (CPython gh-109564) or `sock_accept` is cancelled (gh-153761) before.
    """
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def clients_of(connections: Connections) -> list[ClientProtocol]:
    """Return the open connections of a server."""
    return [client for client in connections._open if isinstance(client, ClientProtocol)]


def write_body(partition: int = 0, batches: int = 1) -> bytes:
    asked = WritePartition(partition, 1, 1, -1, -1, tuple(StateBatch(n, n, 0, 1) for n in range(batches)))
    return state_requests.encode_request(share_state.WRITE, 1, StateRequest("group", [(TOPIC, [asked])]))


def write_frame(correlation_id: int, partition: int = 0) -> bytes:
    return frames.encode_request(share_state.WRITE, 1, correlation_id, b"test", write_body(partition))


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the correlation id and the body of the next answer, whose header has tags."""
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    correlation_id, offset = frames.read_response_header(frame, has_tags=True)
    return correlation_id, frame[offset:]


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    except ConnectionResetError:
        return True


async def is_served(served: Served) -> bool:
    async with connected(served) as (reader, writer):
        writer.write(write_frame(77))
        return await asyncio.wait_for(read_answer(reader), PATIENCE_S) == (77, SUCCESS)


async def ask(served: Served, number: int) -> tuple[int, bytes]:
    async with connected(served) as (reader, writer):
        writer.write(write_frame(number))
        return await read_answer(reader)


async def open_connection(served: Served, transport: CountingTransport) -> ClientProtocol:
    """Return a connection of the server that writes to `transport`."""
    client = ClientProtocol(served.server.connections)
    client.connection_made(transport)
    return client
