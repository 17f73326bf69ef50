"""Requests that wait for long are no work in flight, and a call learns of the end of a connection once."""

from __future__ import annotations

import asyncio
from time import monotonic

from holdfast.api import share_state
from holdfast.daemon.server.wire.requests import ClientConnection, Request, RequestMemory, Respond, Steps, WaitingMemory
from holdfast.daemon.settings.components.listener import LimitSettings
from tests.waiting import wait_until
from tests.world.serving import connected, read_answer, serve, write_frame


class Waiters:
    """Keeps the requests of partition 9 waiting, and answers all others at once."""

    def __init__(self) -> None:
        self.waiting: dict[Request, Respond] = {}
        self.ended: list[ClientConnection] = []
        self.known: set[ClientConnection] = set()
        self.refused = 0
        self.is_failing = False

    def __call__(self, request: Request, respond: Respond) -> Steps | None:
        connection = request.connection
        assert connection is not None
        if connection not in self.known:
            self.known.add(connection)
            connection.on_close(lambda: self._end(connection))
        if request.frame == write_frame(request.correlation_id, 9)[4:]:
            self.waiting[request] = respond
            if not request.wait(lambda: self.answer(request, b"stop")):
                self.refused += 1
                self.answer(request, b"at once")
        else:
            respond(b"other")
        return None

    def answer(self, request: Request, body: bytes) -> None:
        self.waiting.pop(request)(body)

    def _end(self, connection: ClientConnection) -> None:
        self.ended.append(connection)
        if self.is_failing:
            raise RuntimeError("a bug of a tenant")


def request_of(connection: ClientConnection, memory: RequestMemory, size: int = 100) -> Request:
    memory.count_work(1, size)
    return Request(share_state.WRITE, 1, 0, None, bytes(size), 0, "c:1", memory, size, connection=connection)


def test_a_request_that_waits_gives_back_its_work_and_counts_by_its_bytes() -> None:
    memory, waiting = RequestMemory(), WaitingMemory(1_000)
    connection = ClientConnection("c:1", "c", waiting)
    request = request_of(connection, memory)
    assert request.wait(lambda: None)
    assert (memory.requests, memory.work_bytes, waiting.taken_bytes, connection.waiting) == (0, 0, 100, 1)
    request.end_wait()
    request.end_wait()
    request.release()
    assert (memory.requests, memory.work_bytes, waiting.taken_bytes, connection.waiting) == (0, 0, 0, 0)


def test_few_wait_on_one_connection_and_their_bytes_are_bounded_over_all() -> None:
    memory, waiting = RequestMemory(), WaitingMemory(1_000)
    one, other = ClientConnection("c:1", "c", waiting), ClientConnection("c:2", "c", waiting)
    assert [request_of(one, memory).wait(lambda: None) for _ in range(10)] == [True] * 8 + [False] * 2
    assert request_of(other, memory, 200).wait(lambda: None)
    assert not request_of(other, memory, 1).wait(lambda: None), "all bytes are taken"
    assert memory.requests == 3, "who does not wait is carried out"
    one.close()
    assert waiting.taken_bytes == 200
    assert request_of(other, memory, 1).wait(lambda: None)


def test_none_waits_once_the_connection_has_ended_or_the_server_stops() -> None:
    memory, waiting = RequestMemory(), WaitingMemory(1_000)
    connection = ClientConnection("c:1", "c", waiting)
    told = []
    first, second = request_of(connection, memory), request_of(connection, memory)
    for request in (first, second):
        assert request.wait(lambda request=request: told.append(request))  # type: ignore[misc]
    waiting.is_stopping = True
    connection.answer_waiting()
    connection.answer_waiting()
    assert told == [first, second]
    assert not first.wait(lambda: None)
    waiting.is_stopping = False
    connection.close()
    assert not first.wait(lambda: None)


def test_the_end_of_a_connection_is_told_once_however_late_one_asks() -> None:
    ended = []
    connection = ClientConnection("c:1", "c", WaitingMemory(1))
    connection.on_close(lambda: ended.append("a"))
    assert ended == []
    connection.close()
    connection.close()
    assert ended == ["a"]
    late = ClientConnection("c:2", "c", WaitingMemory(1))
    late.close()
    late.on_close(lambda: ended.append("b"))
    assert ended == ["a", "b"]
    assert len({connection, late}) == 2


async def test_a_request_that_waits_holds_up_nobody_and_is_answered_in_its_order() -> None:
    waiters = Waiters()
    # One request a client may be carried out: those that wait are none.
    limits = LimitSettings(requests_in_flight_per_principal_max=1)
    async with serve(limits, handler=waiters) as served, connected(served) as (reader, writer):
        writer.write(write_frame(1, 9) + write_frame(2))
        await wait_until(lambda: len(waiters.waiting) == 1)
        memory = served.server.connections.memory
        assert (memory.requests, memory.work_bytes) == (0, 0)
        for number in range(10):
            async with connected(served) as (other_reader, other_writer):
                other_writer.write(write_frame(number))
                assert await read_answer(other_reader) == (number, b"other")
        (request,) = waiters.waiting
        waiters.answer(request, b"late")
        assert [await read_answer(reader), await read_answer(reader)] == [(1, b"late"), (2, b"other")]
        assert served.server.connections.waiting.taken_bytes == 0


async def test_a_client_that_is_gone_ends_its_wait_in_the_next_turn() -> None:
    waiters = Waiters()
    async with serve(handler=waiters) as served:
        async with connected(served) as (_, writer):
            writer.write(write_frame(1, 9))
            await wait_until(lambda: len(waiters.waiting) == 1)
            (request,) = waiters.waiting
            assert waiters.ended == []
        await wait_until(lambda: not len(served.server.connections))
        await asyncio.sleep(0)
        assert waiters.ended == [request.connection]
        assert not request.is_wanted
        waiters.answer(request, b"nobody hears it")
        memory = served.server.connections.memory
        assert (memory.requests, memory.work_bytes, memory.answer_bytes) == (0, 0, 0)
        assert served.server.connections.waiting.taken_bytes == 0


async def test_a_call_that_fails_at_the_end_of_a_connection_harms_no_other() -> None:
    waiters = Waiters()
    waiters.is_failing = True
    async with serve(handler=waiters) as served:
        for number in range(2):
            async with connected(served) as (reader, writer):
                writer.write(write_frame(number))
                await read_answer(reader)
        await wait_until(lambda: len(waiters.ended) == 2)
        assert served.bugs.value == 2


async def test_a_stop_has_all_answered_that_wait_and_tells_each_connection_s_end() -> None:
    waiters = Waiters()
    async with serve(handler=waiters) as served, connected(served) as one, connected(served) as other:
        for _, writer in (one, other):
            writer.write(write_frame(1, 9) + write_frame(2, 9))
        await wait_until(lambda: len(waiters.waiting) == 4)
        began_s = monotonic()
        assert await served.server.drain(60_000) == 0
        assert monotonic() - began_s < 30
        assert len(waiters.ended) == 2
        for reader, _ in (one, other):
            assert [await read_answer(reader), await read_answer(reader)] == [(1, b"stop"), (2, b"stop")]
        assert waiters.refused == 0
