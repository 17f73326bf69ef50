"""Answers whose pieces are there leave as they are, a bounded part a turn, and are counted until they have left."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from time import monotonic

import pytest

from holdfast.api import share_state
from holdfast.daemon.server.wire.answer_queue import AnswerQueue
from holdfast.daemon.server.wire.protocol import ClientProtocol
from holdfast.daemon.server.wire.requests import Piece, Request, RequestMemory, Respond, Steps
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from tests.waiting import wait_until
from tests.world.serving import (
    CountingTransport,
    connected,
    open_connection,
    read_answer,
    serve,
    write_frame,
)
from tests.world.tenants import APIS

MIB = 1 << 20


def begin(queue: AnswerQueue, number: int, memory: RequestMemory) -> Request:
    memory.count_work(1, 1)
    request = Request(share_state.WRITE, 1, number, None, b"frame", 0, "c:1", memory, 1)
    queue.begin(request)
    return request


def joined(pieces: Iterable[Piece]) -> bytes:
    return b"".join(pieces)


@pytest.mark.parametrize("bytes_max", [1, 7, 64, 1_000])
def test_answers_of_all_kinds_leave_in_order_whatever_the_bound(bytes_max: int) -> None:
    queue, memory = AnswerQueue(APIS), RequestMemory()
    requests = [begin(queue, number, memory) for number in range(5)]
    source = memoryview(bytes(range(200)))
    bodies: list[bytes | list[Piece]] = [b"one", [b"head", source[:50], source[50:]], [], b"four", [source]]
    expected = joined(
        frames.encode_response(number, body if isinstance(body, bytes) else joined(body), has_tags=True)
        for number, body in enumerate(bodies)
    )
    for number in (4, 2, 1, 0, 3):
        queue.reply(requests[number], bodies[number])
    sent = b""
    while queue.has_output:
        output = queue.take_output(bytes_max)
        assert output, "each time some of it"
        sent += joined(output)
    assert sent == expected
    assert (len(queue), queue.request_bytes, queue.output_bytes) == (0, 0, 0)
    assert (memory.requests, memory.work_bytes, memory.answer_bytes) == (0, 0, 0)


def test_pieces_are_the_same_objects_and_are_let_go_when_they_are_taken() -> None:
    queue, memory = AnswerQueue(APIS), RequestMemory()
    request = begin(queue, 1, memory)
    buffer = bytearray(3 * MIB)
    pieces: list[Piece] = [memoryview(buffer)[n * MIB : (n + 1) * MIB] for n in range(3)]
    first = pieces[0]
    queue.reply(request, pieces)
    assert pieces == [], "the queue alone has them"
    assert 3 * MIB < memory.answer_bytes < 3 * MIB + 20
    assert queue.take_output(0) == []
    output = queue.take_output(2 * MIB)
    assert output[1] is first
    assert sum(map(len, output)) == 2 * MIB
    assert MIB <= memory.answer_bytes < MIB + 20, "what was taken is the socket's"
    assert len(queue) == 1
    del output, first
    with pytest.raises(BufferError):
        buffer.append(0)
    queue.take_output()
    assert memory.answer_bytes == 0
    buffer.append(0)  # no view is left


def test_room_that_was_promised_to_an_answer_is_not_counted_twice() -> None:
    queue, memory = AnswerQueue(APIS), RequestMemory()
    begin(queue, 0, memory)
    request = begin(queue, 1, memory)
    assert request.reserve(500)
    queue.reply(request, [bytes(300)])
    assert memory.answer_bytes == 500


def test_the_end_of_a_connection_lets_all_pieces_go() -> None:
    queue, memory = AnswerQueue(APIS), RequestMemory()
    first, second = begin(queue, 1, memory), begin(queue, 2, memory)
    buffer = bytearray(100)
    queue.reply(first, [memoryview(buffer)])
    queue.reply(second, [memoryview(buffer)])
    queue.take_output(50)
    queue.close()
    assert memory.answer_bytes == 0
    assert first.reply == second.reply == b""
    buffer.append(0)


class Giver:
    """Answers with views of one buffer for partition 9, and at once for all others."""

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(b"x" * size)

    def __call__(self, request: Request, respond: Respond) -> Steps | None:
        if request.frame != write_frame(request.correlation_id, 9)[4:]:
            respond(b"other")
            return None
        view = memoryview(self.buffer)
        respond([b"head", *(view[n : n + 300_000] for n in range(0, len(view), 300_000))])
        return None


class Pausing(CountingTransport):
    """Takes what it gets, and says after each piece that it has no more room, while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.client: ClientProtocol | None = None
        self.is_full = True

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))
        if self.is_full and self.client is not None:
            self.client.pause_writing()


async def test_one_socket_gets_a_mebibyte_a_turn_while_it_has_room() -> None:
    async with serve(handler=Giver(5 * MIB)) as served:
        transport = Pausing()
        client = transport.client = await open_connection(served, transport)
        client.data_received(write_frame(1, 9))
        await wait_until(lambda: bool(transport.written))
        client.data_received(write_frame(2))
        assert list(map(len, transport.written)) == [MIB]
        assert 4 * MIB <= client.count_unsent_bytes() < 5 * MIB
        transport.is_full = False
        client.resume_writing()
        assert len(transport.written) == 1, "not in the same turn"
        for turn in range(3):
            await asyncio.sleep(0)
            assert len(transport.written) <= 2 + turn
        await wait_until(lambda: b"other" in transport.written[-1])
        assert max(map(len, transport.written)) == MIB
        assert served.server.connections.memory.answer_bytes == 0


async def test_client_that_takes_no_piece_is_closed_sooner_than_an_idle_one() -> None:
    now_s = 100.0
    async with serve(handler=Giver(5 * MIB), clock=lambda: now_s) as served:
        transports = [Pausing() for _ in range(3)]
        for transport, partition in zip(transports, (9, 9, 0), strict=True):
            client = transport.client = await open_connection(served, transport)
            client.data_received(write_frame(1, partition))
            if not partition:
                client.pause_writing()
        await wait_until(lambda: all(transport.written for transport in transports))
        slow = transports[1].client
        assert slow is not None
        now_s += 20
        slow.resume_writing()
        await wait_until(lambda: slow._is_writing_paused)
        now_s += 20
        served.server.connections.close_overdue()
        assert [transport.is_closed for transport in transports] == [True, False, False]
        assert served.reports.kinds == []


async def test_a_slow_reader_gets_all_while_others_are_served() -> None:
    size = 20 * MIB
    async with serve(handler=Giver(size)) as served, connected(served) as (reader, writer):
        writer.write(write_frame(1, 9))
        await asyncio.wait_for(reader.readexactly(4), 10)
        received, took_s = 0, []
        async with connected(served) as (other_reader, other_writer):
            while received < size:
                for _ in range(5):
                    began_s = monotonic()
                    other_writer.write(write_frame(2))
                    assert await read_answer(other_reader) == (2, b"other")
                    took_s.append(monotonic() - began_s)
                for client in served.server.connections._open:
                    transport = client._transport  # type: ignore[attr-defined]
                    assert transport.get_write_buffer_size() <= 2 * MIB + 20, "the socket has little of it"
                received += len(await reader.read(MIB))
        assert sorted(took_s)[len(took_s) // 2] < 0.1
        assert served.server.connections.memory.answer_bytes == 0


async def test_a_client_that_never_reads_is_closed() -> None:
    limits = LimitSettings(unsent_bytes_max=8 * MIB)
    async with serve(limits, handler=Giver(6 * MIB)) as served:
        idle = []
        for _ in range(3):
            raw = socket.create_connection(("127.0.0.1", served.server.port))
            raw.setblocking(False)
            raw.send(write_frame(1, 9))
            idle.append(raw)
            await asyncio.sleep(0.05)
        await wait_until(lambda: "buffers_exceeded" in served.reports.kinds)
        async with connected(served) as (reader, writer):
            writer.write(write_frame(2))
            assert await read_answer(reader) == (2, b"other")
        assert served.server.connections.buffers.count_unsent_bytes() <= 8 * MIB
        for raw in idle:
            raw.close()
