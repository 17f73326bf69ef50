"""Requests that came in one turn of the loop are begun together, each connection's in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from holdfast.api import share_state
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.wire.open_connection import OpenConnection
from holdfast.daemon.server.wire.request_batch import RequestBatch
from holdfast.daemon.server.wire.requests import SMALL_FRAME_BYTES, Body, Request, RequestMemory
from holdfast.daemon.server.wire.turns import Turns
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import frames
from holdfast.metrics.instruments import Counter
from tests.waiting import wait_until
from tests.world.serving import (
    SUCCESS,
    CountingTransport,
    clients_of,
    connected,
    open_connection,
    read_answer,
    serve,
    write_body,
    write_frame,
)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self) -> None:
        self.now_s += 60


class Recorder(OpenConnection):
    """Takes a millisecond of the clock to begin a request."""

    def __init__(self, name: str, clock: Clock, diary: list[str]) -> None:
        super().__init__()
        self._name, self._clock, self._diary = name, clock, diary
        self.task: Callable[[], None] | None = None

    def begin(self, request: Request) -> None:
        self._clock.now_s += 0.001
        self._diary.append(self._name)
        if self.task is not None:
            self.task()

    def abort(self) -> None:
        self._diary.append(f"{self._name} aborted")


def request_of(size_bytes: int) -> Request:
    memory = RequestMemory()
    memory.count_work(1, 1)
    return Request(share_state.WRITE, 1, 0, None, bytes(size_bytes), 0, "client", memory, 1)


class House:
    def __init__(self) -> None:
        self.clock, self.diary = Clock(), list[str]()
        self.turns = Turns(5, self.clock)
        self.bugs = Counter()
        self.batch = RequestBatch(self.turns, InternalErrors(self.bugs))

    def connect(self, name: str) -> Recorder:
        return Recorder(name, self.clock, self.diary)


async def test_requests_of_one_turn_are_begun_in_order_and_what_they_lead_to_is_done_once_behind_them() -> None:
    house = House()
    clients = [house.connect(name) for name in "abc"]
    # As a service does with the first request that it takes.
    clients[0].task = lambda: house.batch.end_with(lambda: house.diary.append("end"))
    for client in clients:
        house.batch.add(client, request_of(100))
        assert client.is_in_batch
    assert house.diary == [], "none alone"
    await asyncio.sleep(0)
    assert house.diary == ["a", "b", "c", "end"]
    assert not any(client.is_in_batch for client in clients)
    await asyncio.sleep(0)
    house.batch.begin()
    assert house.diary == ["a", "b", "c", "end"]


async def test_what_ends_a_batch_is_done_at_once_where_none_is_begun() -> None:
    house = House()
    house.batch.end_with(lambda: house.diary.append("end"))
    assert house.diary == ["end"]


async def test_calls_of_this_process_go_with_the_requests_of_a_turn() -> None:
    house = House()

    def call(name: str) -> Callable[[], None]:
        def run() -> None:
            house.diary.append(name)
            house.batch.end_with(lambda: house.diary.append(f"end of {name}"))

        return run

    client = house.connect("a")
    client.task = lambda: house.batch.begin_with(call("of a"))
    house.batch.begin_with(call("x"))
    house.batch.add(client, request_of(100))
    house.batch.begin_with(call("y"))
    assert house.diary == [], "none alone"
    await asyncio.sleep(0)
    assert house.diary == ["a", "of a", "x", "y", "end of of a", "end of x", "end of y"]
    await asyncio.sleep(0)
    house.batch.begin_with(call("z"))
    await asyncio.sleep(0)
    assert house.diary[-2:] == ["z", "end of z"]


async def test_a_call_of_this_process_that_raises_harms_no_other() -> None:
    house = House()

    def fail() -> None:
        raise ValueError("a bug")

    house.batch.begin_with(fail)
    house.batch.begin_with(lambda: house.diary.append("x"))
    await asyncio.sleep(0)
    assert (house.diary, house.bugs.value) == (["x"], 1)


async def test_no_more_is_gathered_than_two_small_frames() -> None:
    house = House()
    for name, begun in (("a", ""), ("b", ""), ("c", "ab"), ("d", "ab"), ("e", "abcd")):
        house.batch.add(house.connect(name), request_of(SMALL_FRAME_BYTES))
        assert house.diary == list(begun)
    await asyncio.sleep(0)
    assert house.diary == list("abcde")


async def test_a_connection_that_raises_is_closed_and_the_others_go_on() -> None:
    house = House()
    clients = [house.connect(name) for name in "abc"]

    def fail() -> None:
        raise ValueError("a bug")

    clients[1].task = fail
    clients[0].task = lambda: house.batch.end_with(lambda: house.diary.append("end"))
    requests = [request_of(100) for _ in clients]
    for client, request in zip(clients, requests, strict=True):
        house.batch.add(client, request)
    await asyncio.sleep(0)
    assert house.diary == ["a", "b", "b aborted", "c", "end"]
    assert [request._memory.requests for request in requests] == [1, 0, 1]
    assert house.bugs.value == 1
    house.batch.add(clients[0], request_of(100))
    await asyncio.sleep(0)
    assert house.diary[-2:] == ["a", "end"]


async def test_what_is_done_for_all_requests_may_raise_and_the_rest_is_done() -> None:
    house = House()

    def fail() -> None:
        raise ValueError("a bug")

    def end_with_both() -> None:
        house.batch.end_with(fail)
        house.batch.end_with(lambda: house.diary.append("end"))

    client = house.connect("a")
    client.task = end_with_both
    house.batch.add(client, request_of(100))
    await asyncio.sleep(0)
    assert (house.diary, house.bugs.value) == (["a", "end"], 1)
    assert client.used_s == pytest.approx(0.001), "it pays for its request"


async def test_who_had_a_batch_when_the_process_was_stopped_does_not_pay_for_the_time_that_it_slept() -> None:
    house = House()
    client = house.connect("a")
    client.task = house.clock.sleep
    house.batch.add(client, request_of(100))
    await asyncio.sleep(0)
    assert house.turns.take_longest_ms() == pytest.approx(60_001), "what held the loop is reported as it was"
    assert client.used_s == pytest.approx(0.5), "a hundred slices"


async def test_the_time_of_a_batch_is_paid_by_the_bytes_of_the_requests() -> None:
    house = House()
    small, large = house.connect("s"), house.connect("l")
    house.batch.add(small, request_of(100))
    house.batch.add(large, request_of(300))
    await asyncio.sleep(0)
    assert small.used_s == small.payer.used_s == pytest.approx(0.0005)
    assert large.used_s == large.payer.used_s == pytest.approx(0.0015)
    assert house.turns.take_longest_ms() == pytest.approx(2)


async def test_a_batch_that_is_begun_in_the_turn_of_a_connection_is_not_paid_twice() -> None:
    house = House()
    house.batch.add(house.connect("a"), request_of(100))

    class Worker(Recorder):
        def work(self, ends_s: float) -> bool:
            house.clock.now_s += 0.001
            house.batch.begin()
            return False

    worker = Worker("w", house.clock, house.diary)
    house.turns.offer(worker, house.clock())
    assert worker.used_s == pytest.approx(0.001)
    assert worker.payer.used_s == pytest.approx(0.001)


async def test_a_slice_of_batches_makes_the_next_one_wait() -> None:
    house = House()
    for name in "abcdefgh":
        house.batch.add(house.connect(name), request_of(100))
    await asyncio.sleep(0)
    asked = house.connect("x")
    house.turns.offer(asked, house.clock())
    assert asked.is_waiting


async def test_requests_of_many_connections_are_all_begun_before_what_they_lead_to() -> None:
    diary: list[str] = []

    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        diary.append("begun")

        def answer() -> None:
            diary.append("answered")
            respond(SUCCESS)

        served.server.connections.batch.end_with(answer)

    async with serve(handler=handler) as served:
        transports = [CountingTransport() for _ in range(3)]
        for transport in transports:
            client = await open_connection(served, transport)
            client.data_received(write_frame(1))
        await asyncio.sleep(0)
    assert diary[-6:] == ["begun"] * 3 + ["answered"] * 3


async def test_steps_of_a_small_request_that_came_alone_are_done() -> None:
    def handler(request: Request, respond: Callable[[Body], None]) -> Iterator[bool]:
        yield True
        yield True
        respond(SUCCESS)

    async with serve(handler=handler) as served, connected(served) as (reader, writer):
        writer.write(write_frame(1))
        assert await read_answer(reader) == (1, SUCCESS)


async def test_what_a_request_takes_whose_client_left_before_it_was_begun_goes_to_those_who_wait() -> None:
    async with serve(LimitSettings(requests_in_flight_per_principal_max=2)) as served:
        served.service.is_holding = True
        clients = [await open_connection(served, CountingTransport("10.0.0.1")) for _ in range(3)]
        for client in clients:
            client.data_received(write_frame(1))
        clients[0].connection_lost(None)
        await wait_until(lambda: len(served.service.requests) == 2)
        served.service.release()
        served.service.release()
        assert served.server.connections.memory.requests == 0


async def test_requests_of_one_connection_are_begun_in_order_whatever_their_size() -> None:
    begun: list[int] = []
    steps: list[int] = []

    def handler(request: Request, respond: Callable[[Body], None]) -> Iterator[bool] | None:
        begun.append(request.correlation_id)
        if request.correlation_id % 5:
            respond(SUCCESS)
            return None
        return work(request.correlation_id, respond)

    def work(number: int, respond: Callable[[Body], None]) -> Iterator[bool]:
        for _ in range(3):
            steps.append(number)
            assert begun[-1] == number, "no other one is begun before the last step"
            yield True
        respond(SUCCESS)

    large = write_body(batches=SMALL_FRAME_BYTES // 20 + 1)
    async with serve(handler=handler) as served, connected(served) as (reader, writer):
        writer.write(
            b"".join(
                write_frame(n) if n % 3 else frames.encode_request(share_state.WRITE, 1, n, b"test", large)
                for n in range(31)
            )
        )
        answered = [(await read_answer(reader))[0] for _ in range(31)]
    assert begun == answered == list(range(31))
    assert steps == [number for number in range(0, 31, 5) for _ in range(3)]


async def test_a_request_whose_client_has_left_is_not_begun_and_gives_back_what_it_takes() -> None:
    begun: list[str] = []

    def handler(request: Request, respond: Callable[[Body], None]) -> None:
        begun.append(request.client_address)
        for client in clients_of(served.server.connections):
            if client.address != request.client_address:
                client.abort()
        respond(SUCCESS)

    async with serve(handler=handler) as served, connected(served) as one, connected(served) as other:
        connections = served.server.connections
        await wait_until(lambda: len(connections) == 2)
        for _, writer in (one, other):
            writer.write(write_frame(1))
        received = [await reader.read(4) for reader, _ in (one, other)]
        assert sorted(map(bool, received)) == [False, True]
        assert len(begun) == 1
        assert connections.memory.requests == connections.memory.work_bytes == 0
