"""Requests that waited for one answer of a broker go on in the turns of their client, and other clients have theirs between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from holdfast.api.results import StateRequest, StateResponse, WriteResult
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.api_table import ApiHandler
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.metrics.instruments import Counter
from holdfast.share.topic_gate import TopicGate
from tests.waiting import wait_until
from tests.world.identity.access import OPEN
from tests.world.samples import OTHER_TOPIC, TOPIC
from tests.world.serving import CountingTransport, FakeCluster, open_connection, serve, write_frame
from tests.world.tenants import NEEDS, make_handler

STEP_MS = 1


class World:
    """A service each call of which takes a millisecond of its own clock, and look-ups that end together."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.is_active = True
        self.handled: list[str] = []
        self.raises_for = ""
        self.image: MetadataImage | None = MetadataImage(1, "cluster", {})
        self._waiting: list[Callable[[Collection[bytes]], None]] = []

    def clock(self) -> float:
        return self.now_ms / 1_000

    def partition_for(self, key: object) -> int:
        return 0

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], waited_ms: int = 0
    ) -> None:
        self.now_ms += STEP_MS
        client = request.caller.client_address.partition(":")[0]  # type: ignore[attr-defined]  # it is the request
        self.handled.append(client)
        if client == self.raises_for:
            raise ZeroDivisionError
        respond([(topic_id, [(each.partition, WriteResult()) for each in asked]) for topic_id, asked in request.topics])

    def look_up(
        self, topic_ids: Collection[bytes], caller: str, then: Callable[[Collection[bytes]], None], timeout_ms: int
    ) -> None:
        self._waiting.append(then)

    @property
    def held(self) -> int:
        return len(self._waiting)

    def answer(self) -> None:
        """End all look-ups, as one answer of a broker does."""
        loop, waiting, self._waiting = asyncio.get_running_loop(), self._waiting, []
        for then in waiting:
            loop.call_soon(then, ())

    def handler(self) -> ApiHandler:
        gate = TopicGate(self, self, write_timeout_ms=5_000, clock_ms=lambda: self.now_ms)
        return make_handler(gate, FakeCluster(), Admin({}, NEEDS, 60_000, InternalErrors(Counter())), OPEN)


@pytest.fixture
def world() -> World:
    return World()


async def test_another_client_has_its_turn_between_requests_that_waited(world: World) -> None:
    async with serve(handler=world.handler(), clock=world.clock) as served:
        greedy = [await open_connection(served, CountingTransport("10.0.0.1")) for _ in range(10)]
        for connection in greedy:
            connection.data_received(b"".join(write_frame(number) for number in range(4)))
        await wait_until(lambda: world.held == 40)
        assert world.image is not None
        world.image = MetadataImage(2, "cluster", {TOPIC: 100, OTHER_TOPIC: 100})
        polite = await open_connection(served, CountingTransport("10.0.0.2"))
        world.answer()
        await asyncio.sleep(0)  # they may go on
        polite.data_received(write_frame(99))
        await wait_until(lambda: len(world.handled) == 41)
        slice_ms = served.server.connections.bounds.slice_ms
        assert world.handled.index("10.0.0.2") <= 2 * slice_ms / STEP_MS
        assert served.bugs.value == 0


async def test_one_that_fails_keeps_no_other_one_waiting(world: World) -> None:
    async with serve(handler=world.handler(), clock=world.clock) as served:
        one = await open_connection(served, CountingTransport("10.0.0.1"))
        two = await open_connection(served, CountingTransport("10.0.0.2"))
        for connection in (one, two):
            connection.data_received(write_frame(1) + write_frame(2))
        await wait_until(lambda: world.held == 4)
        world.raises_for = "10.0.0.1"
        world.answer()
        await wait_until(lambda: len(world.handled) == 4)
        assert served.bugs.value == 2


async def test_room_of_requests_of_a_gone_client_is_given_back(world: World) -> None:
    async with serve(handler=world.handler(), clock=world.clock) as served:
        gone = await open_connection(served, CountingTransport("10.0.0.1"))
        gone.data_received(b"".join(write_frame(number) for number in range(4)))
        await wait_until(lambda: world.held == 4)
        gone.connection_lost(None)
        world.answer()
        await wait_until(lambda: served.server.connections.memory.requests == 0)
        await wait_until(lambda: not served.server.connections.turns.waiting)
