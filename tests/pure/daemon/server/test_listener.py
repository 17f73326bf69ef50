"""The server on loopback: order, bounds, misbehaving clients, draining."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Iterator

import pytest
import uvloop
from structlog.testing import capture_logs

from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.listener import Server
from holdfast.daemon.server.metrics import ServerMetrics
from holdfast.daemon.server.sockets import CannotListen
from holdfast.daemon.server.wire.connections import Connections
from holdfast.daemon.server.wire.protocol import ClientProtocol
from holdfast.daemon.server.wire.requests import Body, Request, WireBounds
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from holdfast.metrics.instruments import Counter
from holdfast.metrics.registry import Registry
from tests.waiting import in_patience, wait_until
from tests.world.serving import (
    SUCCESS,
    CountingTransport,
    Reports,
    ask,
    clients_of,
    connected,
    is_cut_off,
    is_served,
    open_connection,
    read_answer,
    serve,
    write_body,
    write_frame,
)


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
        assert served.server.connections.requests == 5


async def test_answers_of_one_turn_of_the_loop_leave_in_one_write() -> None:
    async with serve() as served:
        transport = CountingTransport()
        client = await open_connection(served, transport)
        served.service.is_holding = True
        client.data_received(b"".join(write_frame(number) for number in range(6)))
        await wait_until(lambda: len(served.service.held) == 6)
        for _ in range(5):
            served.service.release()
        assert transport.written == []
        await wait_until(lambda: bool(transport.written))
        expected = b"".join(frames.encode_response(number, SUCCESS, has_tags=True) for number in range(5))
        assert transport.written == [expected]
        served.service.release()
        assert len(transport.written) == 2, "where nothing else is carried out, the end of the turn brings nothing"
        client.connection_lost(None)


def test_the_longest_turn_of_the_loop_is_that_of_a_request_or_of_whatever_made_a_tick_late() -> None:
    registry, bugs = Registry(), InternalErrors(Counter())
    connections = Connections(lambda request, respond: None, {}, LimitSettings(), lambda *_: None, bugs)
    metrics = ServerMetrics(registry, connections)
    metrics.ticked(3.0)
    assert metrics.longest_turn_ms == 3.0
    connections.turns.note_work(connections.clock() - 0.5)
    metrics.ticked(1.0)
    assert metrics.longest_turn_ms >= 500
    metrics.ticked(1.0)
    assert dict(registry.numbers())["holdfast_loop_turn_seconds_count"] == 3


async def test_too_many_requests_in_flight_pause_reading_until_half_are_answered() -> None:
    async with serve(bounds=WireBounds(requests_in_flight_max=4)) as served:
        transport = CountingTransport()
        client = await open_connection(served, transport)
        served.service.is_holding = True
        client.data_received(b"".join(write_frame(number) for number in range(8)))
        await wait_until(lambda: len(served.service.held) == 4)
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
        assert served.server.connections.requests == 8
        client.connection_lost(None)


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async with serve(bounds=WireBounds(write_buffer_bytes_max=5_000)) as served:
        transport = CountingTransport()
        client = await open_connection(served, transport)
        assert transport.high == 5_000
        client.pause_writing()
        assert transport.is_reading_paused
        client.resume_writing()
        assert not transport.is_reading_paused
        client.connection_lost(None)


async def test_a_client_that_never_reads_costs_a_bounded_buffer() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        respond(bytes(10_000))

    bounds = WireBounds(write_buffer_bytes_max=20_000)
    async with serve(bounds=bounds, handler=handler) as served, connected(served) as (slow_reader, writer):
        writer.write(write_frame(1) * 5_000)
        await wait_until(lambda: len(served.server.connections) == 1)
        (client,) = clients_of(served.server.connections)
        await wait_until(lambda: client._is_writing_paused)
        assert client._is_reading_paused
        assert served.server.connections.requests < 5_000
        assert client._transport is not None
        # What waited in the socket, what was written at once to it, and one answer more.
        assert client._transport.get_write_buffer_size() <= 20_000 + 20_000 + 10_009
        async with connected(served) as (reader, other_writer):
            other_writer.write(write_frame(7))
            assert await read_answer(reader) == (7, bytes(10_000))
        for _ in range(5_000):
            assert await read_answer(slow_reader) == (1, bytes(10_000))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "frame_size_exceeded"),
        (frames.encode_request(0, 9, 1, b"", b"records"), "unknown_api_requested"),
        (frames.encode_request(85, 7, 1, b"", b""), "unsupported_version_requested"),
        (frames.encode_request(85, 1, 1, b"", write_body()[:-1]), "malformed_request_received"),
        (frames.encode_request(85, 1, 1, b"", write_body() + b"\x00"), "malformed_request_received"),
    ],
)
async def test_a_client_that_breaks_the_protocol_loses_its_connection_alone(data: bytes, kind: str) -> None:
    async with serve() as served, connected(served) as (other_reader, other_writer):
        async with connected(served) as (reader, writer):
            name = writer.get_extra_info("sockname")
            writer.write(data)
            assert await is_cut_off(reader)
        assert [(k, client) for k, client, _ in served.reports] == [(kind, f"{name[0]}:{name[1]}")]
        other_writer.write(write_frame(5))
        assert await read_answer(other_reader) == (5, SUCCESS)
        assert served.server.connections.violations == 1
        await wait_until(lambda: len(served.server.connections) == 1)


async def test_a_thousand_malformed_frames_harm_no_other_client() -> None:
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
            await wait_until(lambda: len(served.server.connections) == 1)
        assert served.server.connections.violations > 300
        assert served.server.connections.buffers.buffered_bytes == 0
        assert await is_served(served)


async def test_connections_are_bounded() -> None:
    async with serve(LimitSettings(connections_max=2)) as served:
        async with connected(served), connected(served):
            await wait_until(lambda: len(served.server.connections) == 2)
            async with connected(served) as (reader, _):
                assert await is_cut_off(reader)
            assert served.reports.kinds == ["connections_exceeded"]
            assert "2 connections are open (connections_max)" in served.reports[0][2]
            assert served.server.connections.refused == 1
        await wait_until(lambda: len(served.server.connections) == 0)
        assert await is_served(served)


async def test_frames_that_only_begin_are_bounded_in_time() -> None:
    now_s = [0.0]
    limits = LimitSettings(connections_max_idle_ms=5_000)
    async with serve(limits, clock=lambda: now_s[0], bounds=WireBounds(frame_timeout_ms=20)) as served:
        async with connected(served) as (slow_reader, slow_writer), connected(served) as (reader, writer):
            slow_writer.write(write_frame(1)[:9])
            await wait_until(lambda: served.server.connections.buffers.buffered_bytes == 9)
            now_s[0] = 0.021
            assert await is_cut_off(slow_reader)
            writer.write(write_frame(2))
            assert await read_answer(reader) == (2, SUCCESS)
            assert served.reports.kinds == ["request_timed_out"]
            now_s[0] = 5.03
            assert await is_cut_off(reader)
        assert served.reports.kinds == ["request_timed_out"]  # silence is no offence
        await wait_until(lambda: served.server.connections.buffers.buffered_bytes == 0)


async def test_where_frames_that_only_begin_take_too_much_the_largest_goes_and_not_the_last() -> None:
    limits = LimitSettings(frame_size_bytes_max=1_024, buffered_bytes_max=8_000)
    async with serve(limits) as served:
        connections = served.server.connections
        streams = []
        for size in (1_000, 1_020, *[1_000] * 5):
            streams.append(await asyncio.open_connection("127.0.0.1", served.server.port))
            streams[-1][1].write((1_024).to_bytes(4, "big") + bytes(size - 4))
        await wait_until(lambda: connections.buffers.buffered_bytes == 7_020)
        async with connected(served) as (reader, writer):
            frame = frames.encode_request(85, 1, 7, b"x" * 930, write_body())
            writer.write(frame[:-2])
            assert await is_cut_off(streams[1][0])
            await wait_until(lambda: connections.buffers.buffered_bytes == 6_000 + len(frame) - 2)
            writer.write(frame[-2:])
            assert await asyncio.wait_for(read_answer(reader), 10) == (7, SUCCESS)
        assert served.reports.kinds == ["buffers_exceeded"]
        assert served.reports[0][1].endswith(str(streams[1][1].get_extra_info("sockname")[1]))
        for _, writer in streams:
            writer.transport.abort()
        await wait_until(lambda: connections.buffers.buffered_bytes == 0)


async def test_a_bug_in_a_handler_ends_that_connection_alone() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        if request.correlation_id == 13:
            raise RuntimeError("a bug")
        respond(SUCCESS)

    async with serve(handler=handler) as served, connected(served) as (other_reader, other_writer):
        async with connected(served) as (reader, writer):
            with capture_logs() as lines:
                writer.write(write_frame(12))
                assert await read_answer(reader) == (12, SUCCESS)
                writer.write(write_frame(13))
                assert await is_cut_off(reader)
        traced = [(line["event"], line["log_level"], repr(line["exc_info"])) for line in lines if "exc_info" in line]
        assert traced == [("request_failure_traced", "error", "RuntimeError('a bug')")]
        other_writer.write(write_frame(5))
        assert await read_answer(other_reader) == (5, SUCCESS)
        assert served.reports.kinds == ["request_failed"]
        assert served.bugs.value == 1
        assert "RuntimeError" in served.reports[0][2]


async def test_an_answer_for_a_client_that_left_is_dropped() -> None:
    async with serve() as served:
        served.service.is_holding = True
        async with connected(served) as (_, writer):
            writer.write(write_frame(1))
            await wait_until(lambda: len(served.service.held) == 1)
        await wait_until(lambda: len(served.server.connections) == 0)
        served.service.release()
        served.service.is_holding = False
        assert await is_served(served)


async def test_draining_answers_what_is_in_flight_and_takes_nothing_new() -> None:
    async with serve() as served, connected(served) as (reader, writer), connected(served) as (idle_reader, _):
        served.service.is_holding = True
        writer.write(write_frame(1))
        await wait_until(lambda: len(served.service.held) == 1 and len(served.server.connections) == 2)
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
        assert len(served.server.connections) == 0


async def test_a_stop_does_not_wait_for_clients_that_do_not_read() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        respond(bytes(2_000_000))

    async with (
        serve(bounds=WireBounds(unread_timeout_ms=20), handler=handler) as served,
        connected(served) as (_, writer),
    ):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can be read, too
        writer.write(write_frame(1) * 20)
        await wait_until(lambda: any(client._is_writing_paused for client in clients_of(served.server.connections)))
        assert await served.server.drain(deadline_ms=3_600_000) == 0
        assert len(served.server.connections) == 0


@pytest.mark.pure_build("it stands in for a method of the connections")
async def test_a_stop_does_not_wait_for_a_connection_that_does_not_tell_of_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve(bounds=WireBounds(unread_timeout_ms=20)) as served, connected(served) as (_, writer):
        served.service.is_holding = True
        writer.write(write_frame(1))
        await wait_until(lambda: len(served.service.held) == 1)
        with monkeypatch.context() as patched:
            patched.setattr(served.server.connections, "abort", lambda: None)
            assert await in_patience(served.server.drain(deadline_ms=5)) == 1
        served.server.connections.abort()


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
        assert (served.reports.kinds, served.bugs.value) == (["request_failed"] * 2, 2)
        memory = served.server.connections.memory
        assert (memory.work_bytes, memory.answer_bytes) == (0, 0)
        assert await asyncio.wait_for(ask(served, 3), 10) == (3, SUCCESS)


async def test_an_address_in_use_is_one_clear_error() -> None:
    async with serve() as served:
        second = Server(
            Connections(lambda request, respond: None, {}, LimitSettings(), Reports(), InternalErrors(Counter()))
        )
        with pytest.raises(
            CannotListen, match=r"Cannot listen on 127\.0\.0\.1:\d+ \(.*\); set another `listen` address"
        ):
            await second.start("127.0.0.1", served.server.port)


def test_it_runs_on_uvloop() -> None:
    async def scenario() -> None:
        async with serve(bounds=WireBounds(requests_in_flight_max=3)) as served, connected(served) as (reader, writer):
            writer.write(b"".join(write_frame(number) for number in range(100)))
            assert [(await read_answer(reader))[0] for _ in range(100)] == list(range(100))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await is_cut_off(reader)

    uvloop.run(scenario())
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, ClientProtocol)], (
        "connections outlive their loop"
    )
