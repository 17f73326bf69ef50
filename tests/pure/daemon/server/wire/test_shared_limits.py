"""What connections share: turns, memory for requests, room for answers; what one takes harms no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from holdfast.daemon.server.wire.requests import Body, Request, WireBounds
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from tests.waiting import wait_until
from tests.world.serving import (
    SUCCESS,
    CountingTransport,
    ask,
    clients_of,
    connected,
    open_connection,
    read_answer,
    serve,
    write_body,
    write_frame,
)


async def test_requests_of_a_client_that_left_are_not_begun() -> None:
    begun: list[int] = []

    def handler(request: Request, respond: Callable[[Body], None]) -> Iterator[bool]:
        begun.append(request.correlation_id)
        while request.is_wanted:
            yield True
        respond(b"")

    async with serve(handler=handler) as served:
        async with connected(served) as (_, writer):
            writer.write(b"".join(write_frame(number) for number in range(50)))
            await wait_until(lambda: begun == [0])
        await wait_until(
            lambda: len(served.server.connections) == 0 and served.server.connections.memory.work_bytes == 0
        )
        assert begun == [0]


async def test_a_short_request_is_answered_between_the_steps_of_a_long_one() -> None:
    """A step takes a millisecond of a clock that only steps move: no connection pauses because the machine was busy."""
    steps = 0
    is_over = False

    def handler(request: Request, respond: Callable[[Body], None]) -> Iterator[bool] | None:
        if request.correlation_id != 1:
            respond(SUCCESS)
            return None
        return work(respond)

    def work(respond: Callable[[Body], None]) -> Iterator[bool]:
        nonlocal steps
        while not is_over and steps < 1_000_000:
            steps += 1
            yield True
        respond(SUCCESS)

    async with (
        serve(handler=handler, clock=lambda: steps / 1_000) as served,
        connected(served) as (reader, writer),
    ):
        writer.write(write_frame(1) + write_frame(2))
        await wait_until(lambda: steps > 10)
        for number in range(3, 20):
            before = steps
            assert await ask(served, number) == (number, SUCCESS)
            assert before < steps < 1_000_000, "the long one goes on meanwhile, and is not what had to end first"
        is_over = True
        assert [(await read_answer(reader))[0] for _ in range(2)] == [1, 2]


async def test_a_large_answer_is_encoded_only_when_the_client_takes_the_one_before() -> None:
    made: list[int] = []

    def pieces(number: int) -> Iterator[bytes]:
        for _ in range(100):
            made.append(number)
            yield bytes(10_000)

    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        request.reserve(1_000_000)
        respond(pieces(request.correlation_id))

    bounds = WireBounds(write_buffer_bytes_max=100_000)
    async with serve(bounds=bounds, handler=handler) as served, connected(served) as (reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can be read, too
        writer.write(b"".join(write_frame(number) for number in range(200)))
        connections = served.server.connections
        await wait_until(
            lambda: (
                any(client._is_writing_paused for client in clients_of(connections)) and not connections.turns.waiting
            )
        )
        count = connections.requests
        assert count < 50  # what sockets hold, and no more
        assert connections.buffers.count_unsent_bytes() <= 2_200_000
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(200):
            assert await asyncio.wait_for(read_answer(reader), 30) == (number, bytes(1_000_000))
        assert (connections.memory.answer_bytes, connections.memory.work_bytes) == (0, 0)


async def test_nothing_of_an_answer_is_encoded_while_its_client_takes_nothing() -> None:
    made: list[int] = []
    responds: list[Callable[[Body], None]] = []

    def pieces() -> Iterator[bytes]:
        for number in range(100):
            made.append(number)
            yield bytes(100)

    async with serve(handler=lambda _, respond: responds.append(respond)) as served:
        client = await open_connection(served, CountingTransport())
        client.data_received(write_frame(1))
        await asyncio.sleep(0)
        client.pause_writing()
        responds[0](pieces())
        for _ in range(10):
            await asyncio.sleep(0)
        assert made == []
        client.resume_writing()
        await wait_until(lambda: len(made) == 100)


async def test_where_answers_take_too_much_on_all_connections_the_largest_holder_goes() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        respond(bytes(request.correlation_id))

    async with serve(LimitSettings(unsent_bytes_max=3_000_000), handler=handler) as served:
        transports = []
        for size in (900_000, 1_200_000, 950_000):
            transport = CountingTransport()
            transport.unsent_bytes = size
            transports.append(transport)
            client = await open_connection(served, transport)
            client.data_received(write_frame(size))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [transport.is_closed for transport in transports] == [False, True, False]
        assert served.reports.kinds == ["buffers_exceeded"]
        assert await asyncio.wait_for(ask(served, 60_000), 10) == (60_000, bytes(60_000))


async def test_large_requests_wait_where_memory_is_short_and_small_ones_have_their_share() -> None:
    limits = LimitSettings(requests_in_flight_bytes_max=1_000_000, connections_max=10)
    async with serve(limits) as served:
        served.service.is_holding = True
        large = frames.encode_request(85, 1, 1, b"x" * 30_000, write_body())
        async with (
            connected(served) as (_, first),
            connected(served) as (reader, second),
            connected(served) as (_, third),
            connected(served) as (_, fourth),
        ):
            for writer in (first, second, third):
                writer.write(large)
            await wait_until(lambda: len(served.service.held) == 3)
            second.write(large)
            fourth.write(write_frame(5))
            await wait_until(lambda: len(served.service.held) == 4)
            assert served.server.connections.memory.work_bytes > 1_000_000
            await wait_until(lambda: len(served.server.connections._waiting_for_memory) == 1)
            served.service.release(0)
            await wait_until(lambda: len(served.service.held) == 4)
            while served.service.held:
                served.service.release()
            assert [(await read_answer(reader))[0] for _ in range(2)] == [1, 1]
        await wait_until(lambda: served.server.connections.memory.work_bytes == 0)


async def test_a_connection_that_waits_for_memory_does_so_once_and_only_while_it_is_open() -> None:
    async with serve(LimitSettings(requests_in_flight_bytes_max=100_000, connections_max=10)) as served:
        served.service.is_holding = True
        large = frames.encode_request(85, 1, 1, b"x" * 30_000, write_body())
        first, second = [await open_connection(served, CountingTransport()) for _ in range(2)]
        first.data_received(large)
        await wait_until(lambda: len(served.service.held) == 1)
        second.data_received(large)
        await wait_until(lambda: served.server.connections._waiting_for_memory)
        for _ in range(20):
            second.data_received(b"\x00")
            await wait_until(lambda: not served.server.connections.turns.waiting)
        assert len(served.server.connections._waiting_for_memory) == 1
        second.connection_lost(None)
        assert not served.server.connections._waiting_for_memory
        served.service.release()


async def test_a_client_that_takes_no_answers_is_idle_after_a_time_though_requests_of_it_wait() -> None:
    now_s = 100.0
    async with serve(LimitSettings(connections_max_idle_ms=5_000), clock=lambda: now_s) as served:
        transports = [CountingTransport(), CountingTransport()]
        silent, reading = [await open_connection(served, transport) for transport in transports]
        for client in (silent, reading):
            client.pause_writing()
            client.data_received(write_frame(1))
        now_s += 4
        reading.resume_writing()
        reading.pause_writing()
        now_s += 2
        served.server.connections.close_overdue()
        assert [transport.is_closed for transport in transports] == [True, False]
        assert served.reports.kinds == []


class FailingTransport(CountingTransport):
    """Raises when it is used."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        raise RuntimeError("a bug")

    def pause_reading(self) -> None:
        raise RuntimeError("a bug")


async def test_a_connection_that_cannot_write_its_answer_costs_the_others_nothing() -> None:
    async with serve() as served:
        served.service.is_holding = True
        transports = [CountingTransport(), FailingTransport(), CountingTransport()]
        for number, transport in enumerate(transports):
            client = await open_connection(served, transport)
            client.data_received(write_frame(number))
        await wait_until(lambda: len(served.service.held) == 3)
        for _ in transports:
            served.service.release()
        await wait_until(lambda: all(transport.written or transport.is_closed for transport in transports))
        assert [len(transport.written) for transport in transports] == [1, 0, 1]
        assert [transport.is_closed for transport in transports] == [False, True, False]
        assert (served.reports.kinds, served.bugs.value) == (["request_failed"], 1)


async def test_a_connection_that_fails_in_its_turn_costs_the_others_of_its_client_nothing() -> None:
    async with serve(bounds=WireBounds(requests_in_flight_max=4)) as served:
        served.service.is_holding = True
        transports = [FailingTransport(), CountingTransport()]
        failing, other = [await open_connection(served, transport) for transport in transports]
        failing.data_received(b"".join(write_frame(number) for number in range(10)))
        await wait_until(lambda: transports[0].is_closed)
        assert (served.reports.kinds, served.bugs.value) == (["request_failed"], 1)
        served.service.release()
        served.service.is_holding = False
        other.data_received(write_frame(1))
        await wait_until(lambda: bool(transports[1].written))
