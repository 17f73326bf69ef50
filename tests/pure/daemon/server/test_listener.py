"""The server on loopback: order, bounds, misbehaving clients, draining."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from holdfast.daemon.server.connection import Body, Request
from holdfast.daemon.server.listener import CannotListen, Server
from holdfast.daemon.server.protocol import Peer, Peers
from holdfast.daemon.settings.listener_models import LimitSettings
from holdfast.kafka.protocol import frames
from tests.pure.daemon.server.serving import (
    CountingTransport,
    Reports,
    Served,
    read_answer,
    serve,
    write_body,
    write_frame,
)
from tests.waiting import PATIENCE_S, wait_until

SUCCESS = bytes.fromhex("02000102030405060708090a0b0c0d0e0f0200000000000000000000")


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


async def test_pipelined_requests_are_answered_in_order_whatever_finishes_first() -> None:
    async with serve() as served, connected(served) as (reader, writer):
        served.service.is_holding = True
        writer.write(b"".join(write_frame(number, partition=number) for number in range(5)))
        await wait_until(lambda: len(served.service.held) == 5)
        for index in (4, 2, 0, 0, 0):  # the fifth, the third, the first, the second, the fourth
            served.service.release(index)
        answers = [await read_answer(reader) for _ in range(5)]
        assert [correlation_id for correlation_id, _ in answers] == [0, 1, 2, 3, 4]
        assert [body[18:22] for _, body in answers] == [number.to_bytes(4, "big") for number in range(5)]
        assert served.server.peers.requests == 5


async def peer_of(served: Served, transport: CountingTransport) -> Peer:
    """Return a connection of the server that writes to `transport`."""
    peer = Peer(served.server.peers)
    peer.connection_made(transport)
    return peer


async def test_answers_of_one_turn_of_the_loop_leave_in_one_write() -> None:
    async with serve() as served:
        transport = CountingTransport()
        peer = await peer_of(served, transport)
        served.service.is_holding = True
        peer.data_received(b"".join(write_frame(number) for number in range(6)))
        for _ in range(5):
            served.service.release()
        assert transport.written == []
        await wait_until(lambda: bool(transport.written))
        expected = b"".join(frames.encode_response(number, SUCCESS, has_tags=True) for number in range(5))
        assert transport.written == [expected]
        served.service.release()
        await wait_until(lambda: len(transport.written) == 2)
        peer.connection_lost(None)


async def test_too_many_requests_in_flight_pause_reading_until_half_are_answered() -> None:
    async with serve(LimitSettings(requests_in_flight_max=4)) as served:
        transport = CountingTransport()
        peer = await peer_of(served, transport)
        served.service.is_holding = True
        peer.data_received(b"".join(write_frame(number) for number in range(8)))
        assert len(served.service.held) == 4
        assert transport.is_reading_paused
        served.service.release()
        await wait_until(lambda: len(transport.written) == 1)
        assert transport.is_reading_paused
        served.service.release()
        await wait_until(lambda: not transport.is_reading_paused or len(served.service.held) == 4)
        assert transport.is_reading_paused  # two of those that were kept fill it again
        while served.service.held:
            served.service.release()
        await wait_until(lambda: not transport.is_reading_paused)
        assert served.server.peers.requests == 8
        peer.connection_lost(None)


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async with serve(LimitSettings(write_buffer_bytes_max=5_000)) as served:
        transport = CountingTransport()
        peer = await peer_of(served, transport)
        assert transport.high == 5_000
        peer.pause_writing()
        assert transport.is_reading_paused
        peer.resume_writing()
        assert not transport.is_reading_paused
        peer.connection_lost(None)


async def test_a_client_that_never_reads_costs_a_bounded_buffer() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        respond(bytes(10_000))

    limits = LimitSettings(write_buffer_bytes_max=20_000)
    async with serve(limits, handler=handler) as served, connected(served) as (slow_reader, writer):
        writer.write(write_frame(1) * 5_000)
        await wait_until(lambda: len(served.server.peers) == 1)
        (peer,) = served.server.peers._open
        await wait_until(lambda: peer._is_writing_paused)
        assert peer._is_reading_paused
        assert served.server.peers.requests < 5_000
        assert peer._transport is not None
        # What waited in the socket, what was written at once to it, and one answer more.
        assert peer._transport.get_write_buffer_size() <= 20_000 + 20_000 + 10_009
        async with connected(served) as (reader, other_writer):
            other_writer.write(write_frame(7))
            assert await read_answer(reader) == (7, bytes(10_000))
        for _ in range(5_000):
            assert await read_answer(slow_reader) == (1, bytes(10_000))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "frame size"),
        (frames.encode_request(0, 9, 1, b"", b"records"), "unknown API"),
        (frames.encode_request(85, 7, 1, b"", b""), "unsupported version"),
        (frames.encode_request(85, 1, 1, b"", write_body()[:-1]), "malformed request"),
        (frames.encode_request(85, 1, 1, b"", write_body() + b"\x00"), "malformed request"),
    ],
)
async def test_a_client_that_breaks_the_protocol_loses_its_connection_alone(data: bytes, kind: str) -> None:
    async with serve() as served, connected(served) as (other_reader, other_writer):
        async with connected(served) as (reader, writer):
            name = writer.get_extra_info("sockname")
            writer.write(data)
            assert await is_cut_off(reader)
        assert [(k, peer) for k, peer, _ in served.reports] == [(kind, f"{name[0]}:{name[1]}")]
        other_writer.write(write_frame(5))
        assert await read_answer(other_reader) == (5, SUCCESS)
        assert served.server.peers.violations == 1
        await wait_until(lambda: len(served.server.peers) == 1)


async def test_a_thousand_malformed_frames_harm_nobody() -> None:
    source = random.Random(11)
    sample = write_frame(1)
    async with serve(LimitSettings(frame_size_bytes_max=65_536)) as served:
        async with connected(served) as (good_reader, good_writer):
            for number in range(1_000):
                data = bytearray(sample)
                position = source.randrange(len(data))
                data[position : position + source.randrange(3)] = source.randbytes(source.randrange(1, 20))
                async with connected(served) as (_, writer):
                    writer.write(bytes(data))
                    if number % 3:
                        await writer.drain()
                    if number % 50 == 0:
                        good_writer.write(write_frame(number))
                        assert await read_answer(good_reader) == (number, SUCCESS)
            await wait_until(lambda: len(served.server.peers) == 1)
        assert served.server.peers.violations > 300
        assert served.server.peers.buffered_bytes == 0
        assert await is_served(served)


async def test_connections_are_bounded() -> None:
    async with serve(LimitSettings(connections_max=2)) as served:
        async with connected(served), connected(served):
            await wait_until(lambda: len(served.server.peers) == 2)
            async with connected(served) as (reader, _):
                assert await is_cut_off(reader)
            assert served.reports.kinds == ["too many connections"]
            assert "2 connections are open (connections_max)" in served.reports[0][2]
            assert served.server.peers.refused_connections == 1
        await wait_until(lambda: len(served.server.peers) == 0)
        assert await is_served(served)


async def test_frames_that_only_begin_are_bounded_in_time() -> None:
    now_s = [0.0]
    limits = LimitSettings(frame_timeout_ms=20, connections_max_idle_ms=5_000)
    async with serve(limits, clock=lambda: now_s[0]) as served:
        async with connected(served) as (slow_reader, slow_writer), connected(served) as (reader, writer):
            slow_writer.write(write_frame(1)[:9])
            await wait_until(lambda: served.server.peers.buffered_bytes == 9)
            now_s[0] = 0.021
            assert await is_cut_off(slow_reader)
            writer.write(write_frame(2))
            assert await read_answer(reader) == (2, SUCCESS)
            assert served.reports.kinds == ["slow request"]
            now_s[0] = 5.03
            assert await is_cut_off(reader)
        assert served.reports.kinds == ["slow request"]  # silence is no offence
        await wait_until(lambda: served.server.peers.buffered_bytes == 0)


async def test_where_frames_that_only_begin_take_too_much_the_largest_goes_and_not_the_last() -> None:
    limits = LimitSettings(frame_size_bytes_max=1_024, buffered_bytes_max=8_000)
    async with serve(limits) as served:
        peers = served.server.peers
        streams = []
        for size in (1_000, 1_020, *[1_000] * 5):
            streams.append(await asyncio.open_connection("127.0.0.1", served.server.port))
            streams[-1][1].write((1_024).to_bytes(4, "big") + bytes(size - 4))
        await wait_until(lambda: peers.buffered_bytes == 7_020)
        async with connected(served) as (reader, writer):
            frame = frames.encode_request(85, 1, 7, b"x" * 930, write_body())
            writer.write(frame[:-2])
            assert await is_cut_off(streams[1][0])
            await wait_until(lambda: peers.buffered_bytes == 6_000 + len(frame) - 2)
            writer.write(frame[-2:])
            assert await asyncio.wait_for(read_answer(reader), 10) == (7, SUCCESS)
        assert served.reports.kinds == ["out of buffers"]
        assert served.reports[0][1].endswith(str(streams[1][1].get_extra_info("sockname")[1]))
        for _, writer in streams:
            writer.transport.abort()
        await wait_until(lambda: peers.buffered_bytes == 0)


async def test_a_bug_in_a_handler_ends_that_connection_alone() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        if request.correlation_id == 13:
            raise RuntimeError("a bug")
        respond(SUCCESS)

    async with serve(handler=handler) as served, connected(served) as (other_reader, other_writer):
        async with connected(served) as (reader, writer):
            writer.write(write_frame(12) + write_frame(13))
            assert await is_cut_off(reader)
        other_writer.write(write_frame(5))
        assert await read_answer(other_reader) == (5, SUCCESS)
        assert served.reports.kinds == ["failed request"]
        assert "RuntimeError" in served.reports[0][2]


async def test_an_answer_for_a_client_that_left_is_dropped() -> None:
    async with serve() as served:
        served.service.is_holding = True
        async with connected(served) as (_, writer):
            writer.write(write_frame(1))
            await wait_until(lambda: len(served.service.held) == 1)
        await wait_until(lambda: len(served.server.peers) == 0)
        served.service.release()
        served.service.is_holding = False
        assert await is_served(served)


async def test_draining_answers_what_is_in_flight_and_takes_nothing_new() -> None:
    async with serve() as served, connected(served) as (reader, writer), connected(served) as (idle_reader, _):
        served.service.is_holding = True
        writer.write(write_frame(1))
        await wait_until(lambda: len(served.service.held) == 1 and len(served.server.peers) == 2)
        port = served.server.port
        draining = asyncio.create_task(served.server.drain(deadline_ms=10_000))
        assert await is_cut_off(idle_reader)
        writer.write(write_frame(2))
        with pytest.raises(OSError):  # noqa: PT011
            await asyncio.open_connection("127.0.0.1", port)
        served.service.release()
        assert await read_answer(reader) == (1, SUCCESS)
        assert await is_cut_off(reader)
        assert await draining == 0
        assert len(served.service.requests) == 1
        assert await served.server.drain(deadline_ms=1) == 0


async def test_draining_cuts_off_at_the_deadline() -> None:
    async with serve() as served, connected(served) as (reader, writer):
        served.service.is_holding = True
        writer.write(write_frame(1))
        await wait_until(lambda: len(served.service.held) == 1)
        assert await served.server.drain(deadline_ms=5) == 1
        assert await is_cut_off(reader)
        assert len(served.server.peers) == 0


async def test_a_stop_does_not_wait_for_clients_that_do_not_read() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        respond(bytes(2_000_000))

    async with serve(LimitSettings(unread_timeout_ms=20), handler=handler) as served, connected(served) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can be read, too
        writer.write(write_frame(1) * 20)
        await wait_until(lambda: any(peer._is_writing_paused for peer in served.server.peers._open))
        assert await served.server.drain(deadline_ms=3_600_000) == 0
        assert len(served.server.peers) == 0


async def test_an_answer_that_cannot_be_handed_back_ends_its_connection() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a piece"
        raise ValueError("a bug of the encoder")

    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        if request.correlation_id == 2:
            request.failure = ValueError("a bug")
        respond(broken() if request.correlation_id == 1 else SUCCESS)

    async with serve(handler=handler) as served:
        for number in (1, 2):
            async with connected(served) as (reader, writer):
                writer.write(write_frame(number))
                assert await is_cut_off(reader)
        assert served.reports.kinds == ["failed request"] * 2
        held = served.server.peers.held
        assert (held.work_bytes, held.answer_bytes) == (0, 0)
        assert await asyncio.wait_for(_ask(served, 3), 10) == (3, SUCCESS)


async def _ask(served: Served, number: int) -> tuple[int, bytes]:
    async with connected(served) as (reader, writer):
        writer.write(write_frame(number))
        return await read_answer(reader)


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
        await wait_until(lambda: len(served.server.peers) == 0 and served.server.peers.held.work_bytes == 0)
        assert begun == [0]


async def test_a_short_request_is_answered_between_the_steps_of_a_long_one() -> None:
    """A step takes a millisecond of a clock that only steps move: nobody pauses because the machine was busy."""
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
            assert await _ask(served, number) == (number, SUCCESS)
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

    limits = LimitSettings(write_buffer_bytes_max=100_000)
    async with serve(limits, handler=handler) as served, connected(served) as (reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can be read, too
        writer.write(b"".join(write_frame(number) for number in range(200)))
        peers = served.server.peers
        await wait_until(lambda: any(peer._is_writing_paused for peer in peers._open) and not peers.turns.waiting)
        count = peers.requests
        assert count < 50  # what sockets hold, and no more
        assert peers.count_unsent_bytes() <= 2_200_000
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(200):
            assert await asyncio.wait_for(read_answer(reader), 30) == (number, bytes(1_000_000))
        assert (peers.held.answer_bytes, peers.held.work_bytes) == (0, 0)


async def test_nothing_of_an_answer_is_encoded_while_its_client_takes_nothing() -> None:
    made: list[int] = []
    responds: list[Callable[[Body], None]] = []

    def pieces() -> Iterator[bytes]:
        for number in range(100):
            made.append(number)
            yield bytes(100)

    async with serve(handler=lambda _, respond: responds.append(respond)) as served:
        peer = await peer_of(served, CountingTransport())
        peer.data_received(write_frame(1))
        peer.pause_writing()
        responds[0](pieces())
        for _ in range(10):
            await asyncio.sleep(0)
        assert made == []
        peer.resume_writing()
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
            peer = await peer_of(served, transport)
            peer.data_received(write_frame(size))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [transport.is_closed for transport in transports] == [False, True, False]
        assert served.reports.kinds == ["out of buffers"]
        assert await asyncio.wait_for(_ask(served, 60_000), 10) == (60_000, bytes(60_000))


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
            assert served.server.peers.held.work_bytes > 1_000_000
            await wait_until(lambda: len(served.server.peers._starved) == 1)
            served.service.release(0)
            await wait_until(lambda: len(served.service.held) == 4)
            while served.service.held:
                served.service.release()
            assert [(await read_answer(reader))[0] for _ in range(2)] == [1, 1]
        await wait_until(lambda: served.server.peers.held.work_bytes == 0)


async def test_a_connection_that_waits_for_memory_does_so_once_and_only_while_it_is_open() -> None:
    async with serve(LimitSettings(requests_in_flight_bytes_max=100_000, connections_max=10)) as served:
        served.service.is_holding = True
        large = frames.encode_request(85, 1, 1, b"x" * 30_000, write_body())
        first, second = [await peer_of(served, CountingTransport()) for _ in range(2)]
        first.data_received(large)
        await wait_until(lambda: len(served.service.held) == 1)
        second.data_received(large)
        await wait_until(lambda: served.server.peers._starved)
        for _ in range(20):
            second.data_received(b"\x00")
            await wait_until(lambda: not served.server.peers.turns.waiting)
        assert len(served.server.peers._starved) == 1
        second.connection_lost(None)
        assert not served.server.peers._starved
        served.service.release()


async def test_a_client_that_takes_no_answers_is_idle_after_a_time_though_requests_of_it_wait() -> None:
    now_s = 100.0
    async with serve(LimitSettings(connections_max_idle_ms=5_000), clock=lambda: now_s) as served:
        transports = [CountingTransport(), CountingTransport()]
        silent, reading = [await peer_of(served, transport) for transport in transports]
        for peer in (silent, reading):
            peer.pause_writing()
            peer.data_received(write_frame(1))
        now_s += 4
        reading.resume_writing()
        reading.pause_writing()
        now_s += 2
        served.server.peers.close_overdue()
        assert [transport.is_closed for transport in transports] == [True, False]
        assert served.reports.kinds == []


async def test_an_address_in_use_is_one_clear_error() -> None:
    async with serve() as served:
        second = Server(Peers(lambda request, respond: None, {}, LimitSettings(), Reports()))
        with pytest.raises(
            CannotListen, match=r"Cannot listen on 127\.0\.0\.1:\d+ \(.*\); set another `listen` address"
        ):
            await second.start("127.0.0.1", served.server.port)


def test_it_runs_on_uvloop() -> None:
    async def scenario() -> None:
        async with serve(LimitSettings(requests_in_flight_max=3)) as served, connected(served) as (reader, writer):
            writer.write(b"".join(write_frame(number) for number in range(100)))
            assert [(await read_answer(reader))[0] for _ in range(100)] == list(range(100))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await is_cut_off(reader)

    uvloop.run(scenario())
    gc.collect()
    assert not [held for held in gc.get_objects() if isinstance(held, Peer)], "connections outlive their loop"
