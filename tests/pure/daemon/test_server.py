"""The server on loopback: order, bounds, misbehaving clients, draining."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from holdfast.daemon.connection import Request
from holdfast.daemon.listener_settings import LimitSettings
from holdfast.daemon.peers import Peer, Peers
from holdfast.daemon.server import CannotListen, Server
from holdfast.records import frames
from tests.pure.daemon.serving import (
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
        peer.data_received(b"".join(write_frame(number) for number in range(6)))
        assert len(served.service.held) == 4
        assert transport.is_reading_paused
        served.service.release()
        await wait_until(lambda: len(transport.written) == 1)
        assert transport.is_reading_paused
        served.service.release()
        await wait_until(lambda: not transport.is_reading_paused or len(served.service.held) == 4)
        assert transport.is_reading_paused  # the two that were kept fill it again
        while served.service.held:
            served.service.release()
        await wait_until(lambda: not transport.is_reading_paused)
        assert served.server.peers.requests == 6
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
    def handler(request: Request, respond: Callable[[bytes], None]) -> None:
        respond(bytes(10_000))

    limits = LimitSettings(write_buffer_bytes_max=20_000)
    async with serve(limits, handler=handler) as served, connected(served) as (slow_reader, writer):
        writer.write(write_frame(1) * 5_000)
        (peer,) = served.server.peers._open
        await wait_until(lambda: peer._is_writing_paused)
        assert peer._is_reading_paused
        assert served.server.peers.requests < 5_000
        assert peer._transport is not None
        assert peer._transport.get_write_buffer_size() <= 20_000 + 64 * 10_009
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


async def test_frames_that_only_begin_are_bounded_in_bytes_over_all_connections() -> None:
    limits = LimitSettings(frame_size_bytes_max=1_024)
    async with serve(limits) as served:
        writers = []
        beginning = (1_024).to_bytes(4, "big") + bytes(1_020)
        for _ in range(32):
            _, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
            writer.write(beginning)
            writers.append(writer)
        await wait_until(lambda: served.server.peers.buffered_bytes == served.server.peers.buffered_bytes_max)
        async with connected(served) as (reader, writer):
            writer.write(beginning[:5])
            assert await is_cut_off(reader)
        assert served.reports.kinds == ["out of buffers"]
        assert await is_served(served)
        for writer in writers:
            writer.transport.abort()
        await wait_until(lambda: served.server.peers.buffered_bytes == 0)


async def test_a_bug_in_a_handler_ends_that_connection_alone() -> None:
    def handler(request: Request, respond: Callable[[bytes], None]) -> None:
        if request.correlation_id == 13:
            raise RuntimeError("a bug")
        respond(SUCCESS)

    async with serve(handler=handler) as served, connected(served) as (other_reader, other_writer):
        async with connected(served) as (reader, writer):
            writer.write(write_frame(12) + write_frame(13))
            assert await is_cut_off(reader)
        other_writer.write(write_frame(5))
        assert await read_answer(other_reader) == (5, SUCCESS)
        assert served.reports == []


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
