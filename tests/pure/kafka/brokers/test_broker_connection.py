"""One connection to a broker: answers in any pieces, each handed to its request; and every way in which none comes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import uvloop

from holdfast.kafka.aiokafka_parts import Opened
from holdfast.kafka.brokers.broker_connection import ANSWER_BYTES_MAX, BrokerConnection
from holdfast.kafka.brokers.busy_poll import BusyPolling
from holdfast.kafka.connection_options import AnswerTimes, ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed, VersionUnsupported
from tests.waiting import in_patience, wait_until

PRODUCE, FETCH = (0, 8), (1, 12)
OPTIONS = ConnectionOptions(bootstrap=(("host", 9092),), client_id="me")


class Socket:
    """Stands in for the transport; keeps what was written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        if self.is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
async def socket() -> Socket:
    return Socket()


def make_connection(socket: Socket, timeout_ms: int = 10_000) -> BrokerConnection:
    versions = {0: (3, 11), 1: (4, 13)}
    return BrokerConnection(Opened(socket, versions, socket.close), ("host", 9092), OPTIONS, timeout_ms)  # type: ignore[arg-type]


@pytest.fixture
async def connection(socket: Socket) -> BrokerConnection:
    return make_connection(socket)


def answer(correlation_id: int, body: bytes, tags: bytes = b"") -> bytes:
    payload = correlation_id.to_bytes(4, "big") + tags + body
    return len(payload).to_bytes(4, "big") + payload


Outcome = bytes | ConnectionFailed


def ask(connection: BrokerConnection, told: list[Outcome], *, is_flexible: bool = False) -> None:
    connection.send(*(FETCH if is_flexible else PRODUCE), b"body", told.append, is_flexible=is_flexible)


async def test_request_has_its_head(connection: BrokerConnection, socket: Socket) -> None:
    connection.send(*PRODUCE, b"body", lambda _: None)
    connection.send(*FETCH, b"body", lambda _: None, is_flexible=True)
    assert socket.written == [
        b"\0\0\0\x10\0\0\0\x08\0\0\0\x01\0\x02mebody",
        b"\0\0\0\x11\0\x01\0\x0c\0\0\0\x02\0\x02me\0body",
    ]


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 17, 18, 1_000])
async def test_answers_in_pieces_of_any_size(connection: BrokerConnection, size: int) -> None:
    reports: list[Outcome] = []
    for is_flexible in (False, True, False, False):
        ask(connection, reports, is_flexible=is_flexible)
    data = answer(1, b"first") + answer(2, b"second" * 20, b"\0") + answer(3, b"") + answer(4, b"last")
    for start in range(0, len(data), size):
        connection.data_received(data[start : start + size])
    assert reports == [b"first", b"second" * 20, b"", b"last"]
    assert connection.is_open


async def test_exchange_returns_the_answer(connection: BrokerConnection) -> None:
    asked = asyncio.ensure_future(connection.exchange(*PRODUCE, b"body"))
    await asyncio.sleep(0)
    connection.data_received(answer(1, b"done"))
    assert await asked == b"done"


async def test_answer_to_whoever_waits_no_more_is_dropped(connection: BrokerConnection) -> None:
    asked = asyncio.ensure_future(connection.exchange(*PRODUCE, b"body"))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    reports: list[Outcome] = []
    ask(connection, reports)
    connection.data_received(answer(1, b"late") + answer(2, b"next"))
    assert reports == [b"next"]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (lambda connection: connection.close(), "the connection was closed"),
        (lambda connection: connection.connection_lost(None), "it closed the connection"),
        (lambda connection: connection.connection_lost(OSError("broken pipe")), "broken pipe"),
        (lambda connection: connection.data_received(answer(7, b"")), "it answered something else"),
        (lambda connection: connection.data_received(b"\0\0\0\0\0\0\0\x01"), "it answered something else"),
        (
            lambda connection: connection.data_received(b"\x7f\xff\xff\xff\0\0\0\x01"),
            "it announced an answer of 2147483647 bytes",
        ),
        (
            lambda connection: connection.data_received((ANSWER_BYTES_MAX + 1).to_bytes(4, "big") + b"\0\0\0\x01"),
            f"it announced an answer of {ANSWER_BYTES_MAX + 1} bytes",
        ),
    ],
    ids=["close", "end", "error", "other answer", "no answer", "huge answer", "answer above the bound"],
)
async def test_whatever_ends_a_connection_fails_what_is_in_flight(
    connection: BrokerConnection, socket: Socket, end: Callable[[BrokerConnection], None], why: str
) -> None:
    reports: list[Outcome] = []
    asked = asyncio.ensure_future(connection.exchange(*PRODUCE, b"body"))
    await asyncio.sleep(0)
    ask(connection, reports)
    end(connection)
    with pytest.raises(ConnectionFailed, match=f"^host:9092 did not answer: {why}$"):
        await asked
    assert [str(outcome) for outcome in reports] == [f"host:9092 did not answer: {why}"]
    assert socket.is_closed
    assert not connection.is_open
    written = len(socket.written)
    ask(connection, reports)
    assert str(reports[1]) == "the connection to host:9092 was closed"
    assert len(socket.written) == written


async def test_answer_too_short_for_its_own_head_fails_all_that_is_in_flight(connection: BrokerConnection) -> None:
    asked = [connection.exchange(*FETCH, b"body", is_flexible=True) for _ in range(2)]
    connection.data_received(answer(1, b"") + answer(2, b""))
    for each in asked:
        with pytest.raises(ConnectionFailed, match="it answered something else"):
            await in_patience(each)


async def test_a_bug_of_one_that_learns_of_no_answer_keeps_it_from_nobody_else(connection: BrokerConnection) -> None:
    def fail(outcome: Outcome) -> None:
        raise ZeroDivisionError(str(outcome))

    bugs: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context["exception"]))
    reports: list[Outcome] = []
    connection.send(*PRODUCE, b"body", fail)
    ask(connection, reports)
    connection.close()
    assert [str(outcome) for outcome in reports] == ["host:9092 did not answer: the connection was closed"]
    assert [type(bug) for bug in bugs] == [ZeroDivisionError]


async def test_answer_that_nobody_waits_for_ends_a_connection(connection: BrokerConnection) -> None:
    connection.data_received(answer(1, b""))
    assert not connection.is_open


async def test_a_connection_on_which_an_answer_does_not_come_is_not_used_again(socket: Socket) -> None:
    """The time of each request counts, though one timer serves them all."""
    connection = make_connection(socket, 20)
    reports: list[Outcome] = []
    ask(connection, reports)
    connection.data_received(answer(1, b"in time"))
    ask(connection, reports)
    await wait_until(lambda: len(reports) == 2)
    assert str(reports[1]) == "host:9092 did not answer: no answer within 20 ms"
    assert not connection.is_open


async def test_version_that_the_broker_does_not_speak_is_not_requested(
    connection: BrokerConnection, socket: Socket
) -> None:
    for api_key in (0, 2):
        with pytest.raises(VersionUnsupported, match=f"does not speak version 12 of API {api_key}"):
            await connection.exchange(api_key, 12, b"")
    assert socket.written == []
    assert connection.is_open


async def test_a_transport_that_is_closed_already_fails_all_that_waits(
    connection: BrokerConnection, socket: Socket
) -> None:
    """uvloop closes first and tells later, and raises in between."""
    reports: list[Outcome] = []
    ask(connection, reports)
    socket.close()
    ask(connection, reports)
    assert [str(outcome) for outcome in reports] == [
        "host:9092 did not answer: unable to perform operation; the handler is closed"
    ] * 2
    assert not connection.is_open


async def test_a_broker_that_reads_nothing_for_a_while_is_waited_for_that_much_longer(socket: Socket) -> None:
    connection = make_connection(socket, 20)
    reports: list[Outcome] = []
    ask(connection, reports)
    connection.wait_longer(60_000)
    loop = asyncio.get_running_loop()
    await wait_until(lambda: connection._watch is not None and connection._watch.when() > loop.time() + 1)
    assert connection.is_open
    connection.data_received(answer(1, b"late"))
    assert reports == [b"late"]


async def test_everything_in_flight_is_waited_for_that_much_longer(socket: Socket) -> None:
    connection = make_connection(socket, 20)
    reports: list[Outcome] = []
    for _ in range(2):
        ask(connection, reports)
    connection.wait_longer(60_000)
    connection.data_received(answer(1, b"late"))
    begun = connection._watch
    await wait_until(lambda: connection._watch is not begun)
    assert connection.is_open
    connection.data_received(answer(2, b"later"))
    assert reports == [b"late", b"later"]


async def test_each_answer_is_noted_with_its_time_and_the_beginning_of_one_is_not(socket: Socket) -> None:
    answers = AnswerTimes()
    connection = BrokerConnection(
        Opened(socket, {0: (3, 11)}, socket.close),  # type: ignore[arg-type]
        ("host", 9092),
        replace(OPTIONS, answers=answers),
        10_000,
    )
    reports: list[Outcome] = []
    ask(connection, reports)
    whole = answer(1, b"body")
    connection.data_received(whole[:-1])
    assert answers.heard_s(("host", 9092)) is None
    before_s = asyncio.get_running_loop().time()
    connection.data_received(whole[-1:])
    heard_s = answers.heard_s(("host", 9092))
    assert heard_s is not None
    assert before_s <= heard_s <= asyncio.get_running_loop().time()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_event_loop_takes_a_connection_for_a_protocol(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
        writer.write(answer(1, bytes(1 << 20)))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        closed.set()

    closed = asyncio.Event()

    async def exchange() -> None:
        server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", port)
        connection = BrokerConnection(Opened(transport, {}, transport.close), ("host", 9092), OPTIONS, 10_000)
        transport.set_protocol(cast("asyncio.Protocol", connection))
        body = bytes(1 << 24)  # more than a socket takes at once
        assert await connection.exchange(*PRODUCE, body) == bytes(1 << 20)
        await wait_until(lambda: not connection.is_open and closed.is_set())
        server.close()
        await server.wait_closed()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(exchange())


@pytest.mark.parametrize("busy_poll_us", [0, 1_000])
async def test_the_loop_polls_behind_a_request_if_it_is_told_to(socket: Socket, busy_poll_us: int) -> None:
    now_s = 100.0
    polling = BusyPolling(busy_poll_us, clock_s=lambda: now_s)
    connection = BrokerConnection(
        Opened(socket, {}, socket.close),  # type: ignore[arg-type]
        ("host", 9092),
        replace(OPTIONS, busy_polling=polling),
        10_000,
    )
    loop = asyncio.get_running_loop()
    reports: list[Outcome] = []
    connection.send(*FETCH, b"body", reports.append)  # whose answer comes when there is something to read
    assert await is_asleep(loop)
    ask(connection, reports)
    ask(connection, reports)
    now_s += 0.000_9
    assert (await is_asleep(loop)) == (busy_poll_us == 0)
    connection.data_received(answer(1, b"fetched"))
    now_s += 0.000_2
    assert await is_asleep(loop)  # an answer that is not polled for makes no difference
    ask(connection, reports)
    now_s += 0.000_9
    connection.data_received(answer(2, b"first") + answer(3, b"second") + answer(4, b"third"))
    assert (await is_asleep(loop)) == (busy_poll_us == 0)
    now_s += 0.000_9
    assert (await is_asleep(loop)) == (busy_poll_us == 0)  # for the request that may follow
    now_s += 0.000_2
    assert await is_asleep(loop)
    assert reports == [b"fetched", b"first", b"second", b"third"]


async def is_asleep(loop: asyncio.AbstractEventLoop) -> bool:
    """Tell whether nothing but this test is due in the next turns of asyncio's loop."""
    for _ in range(3):
        await asyncio.sleep(0)
    return not loop._ready  # type: ignore[attr-defined]
