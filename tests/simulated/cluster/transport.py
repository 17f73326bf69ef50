"""What stands in for the network: connections that bytes need time to pass, and that break."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

from tests.simulated.cluster import wire
from tests.simulated.cluster.wire import Request

if TYPE_CHECKING:
    from tests.simulated.cluster.broker import Broker
    from tests.simulated.cluster.brokers import Cluster
    from tests.simulated.cluster.process import Process

T = TypeVar("T")

#: Every so many answers arrive in two pieces.
_SPLIT_SHARE = 0.05


class Link:
    """One connection of a process to a broker; it is the transport of the real `BrokerConnection`."""

    def __init__(self, process: Process, broker: Broker) -> None:
        self.process = process
        self.broker = broker
        self.is_open = True
        self.is_mute = False  #: its answers are lost
        self.unanswered = 0  #: requests without an answer
        self.queue: deque[Request] = deque()  #: at the broker, which answers one after the other
        self.is_handling = False
        self._protocol: asyncio.Protocol | None = None
        self._up_s = self._down_s = 0.0  #: when what was sent last arrives
        broker.links[self] = None

    # ---- transport ---------------------------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        """Learn who takes what arrives."""
        self._protocol = protocol

    def is_closing(self) -> bool:
        """Tell whether nothing can be sent any more."""
        return not self.is_open

    def write(self, frame: bytes) -> None:
        """Send a request."""
        request = wire.decode_request(frame)
        self.process.watch.sent(self.broker.broker_id, request)
        if not self.is_open:
            return
        self.unanswered += 1
        timeline = self.broker.cluster.timeline
        self._up_s = max(self._up_s, timeline.now_s + self.broker.latency_s())
        timeline.after(self._up_s - timeline.now_s, partial(self.broker.receive, self, request))

    def close(self) -> None:
        """Hang up; what was sent may still be carried out."""
        self.is_open = False
        self.broker.links.pop(self, None)

    # ---- the broker's side -------------------------------------------------------------------------------------------

    def answer(self, request: Request, body: bytes, arrived: Callable[[], None] | None) -> None:
        """Send an answer, and call when it arrives."""
        timeline = self.broker.cluster.timeline
        self._down_s = max(self._down_s, timeline.now_s + self.broker.latency_s())
        frame = wire.encode_answer(request, body)
        timeline.after(self._down_s - timeline.now_s, partial(self._arrive, request, frame, arrived))

    def _arrive(self, request: Request, frame: bytes, arrived: Callable[[], None] | None) -> None:
        if not self.is_open or self.process.is_dead:
            return
        if self.is_mute:
            self.broker.cluster.disturb()
        else:
            self.process.loop.call_soon(self._take, request, frame, arrived)

    def _take(self, request: Request, frame: bytes, arrived: Callable[[], None] | None) -> None:
        protocol = self._protocol
        if not self.is_open or protocol is None:
            return
        self.unanswered -= 1
        random = self.broker.cluster.random
        if arrived is not None:
            arrived()
        self.process.watch.answered(self.broker.broker_id, request, frame)
        if random.random() < _SPLIT_SHARE:
            at = random.randrange(1, len(frame))
            protocol.data_received(frame[:at])
            protocol.data_received(frame[at:])
        else:
            protocol.data_received(frame)

    def cut(self) -> None:
        """Break, in the middle of whatever it carries."""
        if self.is_open:
            self.close()
            if not self.process.is_dead:
                self.process.loop.call_soon(self._lose)

    def _lose(self) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(ConnectionResetError("the connection broke"))


class _Writer(NamedTuple):
    transport: Link


class _NoSocket:
    """What a link is made over."""

    def close(self) -> None:
        """Hang up nothing."""


async def dial(
    _cluster: Cluster, _host: str, _port: int, timeout_s: float, handshake: Callable[[Any, float], Awaitable[T]]
) -> T:
    """Stand in for `dialing.dial`: a host has one address, and the handshake opens the link."""
    return await handshake(_NoSocket(), timeout_s)


class Connector:
    """Stands in for the connection of `aiokafka_parts`: it opens a link, as far as the broker answers."""

    def __init__(self, cluster: Cluster, host: str, port: int, **options: Any) -> None:
        self._cluster = cluster
        self._broker = cluster.brokers[port]
        self._process = cluster.processes[options["client_id"]]
        self._timeout_s = options["request_timeout_ms"] / 1_000
        self._link: Link | None = None
        self._versions = wire.VERSIONS
        self._loop = asyncio.get_running_loop()

    async def connect(self) -> tuple[None, _Writer]:
        """Open the link."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        broker = self._broker
        self._process.watch.connecting(broker.broker_id)
        self._cluster.timeline.after(broker.latency_s(), partial(broker.let_in, opened))
        try:
            async with asyncio.timeout(self._timeout_s):
                await opened
        except TimeoutError as silence:
            raise KafkaConnectionError("no answer") from silence
        self._link = Link(self._process, broker)
        return None, _Writer(self._link)

    def close(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.close()
