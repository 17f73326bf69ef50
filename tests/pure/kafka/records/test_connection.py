"""Answers received into a buffer of their size: in any pieces, over TLS and without, and every way in which none comes."""

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from holdfast.kafka.aiokafka_parts import Opened
from holdfast.kafka.brokers.broker_connection import ANSWER_BYTES_MAX
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.records.connection import RecordConnection
from holdfast.kafka.records.reader import TopicReader
from tests.pure.kafka.records.fake_kafka import fake_kafka
from tests.waiting import PATIENCE_S
from tests.world.identity.certificates import Authority, Pair
from tests.world.identity.guarded import tls_of

OPTIONS = ConnectionOptions(bootstrap=(("host", 9_092),), client_id="me")


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


class Ends:
    """A connection and what a broker does at its other end."""

    def __init__(self) -> None:
        self.socket = Socket()
        self.sizes: list[int] = []
        opened = Opened(self.socket, {1: (4, 17)}, self.socket.close)  # type: ignore[arg-type]
        self.connection = RecordConnection(opened, ("host", 9_092), OPTIONS, self._make)

    def _make(self, size: int) -> bytearray:
        self.sizes.append(size)
        return bytearray(size)

    def ask(self, *, is_flexible: bool = True, timeout_ms: int = 60_000) -> "asyncio.Future[memoryview]":
        """Send a request."""
        asking = self.connection.exchange(1, 12, b"body", timeout_ms=timeout_ms, is_flexible=is_flexible)
        return asyncio.ensure_future(asking)

    def send(self, data: bytes, piece: int | None = None) -> None:
        """Have bytes come in pieces of a size, as a transport writes them; at most as many as there is room for."""
        at = 0
        while at < len(data) and self.connection.is_open:
            room = self.connection.get_buffer(-1)
            part = data[at : at + min(len(room), piece or len(data))]
            room[: len(part)] = part
            at += len(part)
            self.connection.buffer_updated(len(part))


@pytest.fixture
async def ends() -> Ends:
    return Ends()


def answer(correlation_id: int, body: bytes, tags: bytes = b"\x00") -> bytes:
    payload = correlation_id.to_bytes(4, "big") + tags + body
    return len(payload).to_bytes(4, "big") + payload


async def test_request_has_its_head(ends: Ends) -> None:
    asking = ends.ask()
    await asyncio.sleep(0)
    assert ends.socket.written == [b"\0\0\0\x11\0\x01\0\x0c\0\0\0\x01\0\x02me\0body"]
    ends.connection.close()
    with pytest.raises(ConnectionFailed, match="host:9092 did not answer: the connection was closed"):
        await asking


@pytest.mark.parametrize("piece", [1, 7, 8, 9, 4_095, 4_096, 4_097, None])
@pytest.mark.parametrize("size", [0, 1, 4_000, 4_087, 4_088, 20_000])
async def test_answers_in_pieces_of_any_size(ends: Ends, piece: int | None, size: int) -> None:
    for number in (1, 2, 3):
        asking = ends.ask(is_flexible=number != 2)
        await asyncio.sleep(0)
        body = bytes([number]) * size
        ends.send(answer(number, body, b"" if number == 2 else b"\x00"), piece)
        found = await asking
        assert (bytes(found), found.readonly) == (body, True)
    assert ends.sizes == [size + 5, size + 4, size + 5]
    assert ends.connection.is_open


async def test_what_is_handed_out_is_a_view_of_the_one_buffer(ends: Ends) -> None:
    asking = ends.ask()
    await asyncio.sleep(0)
    ends.send(answer(1, b"x" * 50_000))
    found = await asking
    assert isinstance(found.obj, bytearray)
    assert (len(found.obj), len(found)) == (50_005, 50_000)
    asking = ends.ask()
    await asyncio.sleep(0)
    ends.send(answer(2, b"y" * 50_000))
    assert (await asking).obj is not found.obj
    assert found == b"x" * 50_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (answer(2, b"body"), "answered something else"),
        (answer(1, b"body") + b"more", "answered something else"),
        (b"\0\0\0\x04\0\0\0\x01", "answered something else"),
        (b"\xff\xff\xff\xff\0\0\0\x01", "answered something else"),
        (b"\0\0\0\x00\0\0\0\x01", "answered something else"),
        (struct.pack(">ii", ANSWER_BYTES_MAX + 1, 1), f"announced an answer of {ANSWER_BYTES_MAX + 1} bytes"),
    ],
)
async def test_answer_that_cannot_be_right_closes_the_connection(ends: Ends, data: bytes, message: str) -> None:
    asking = ends.ask()
    await asyncio.sleep(0)
    ends.send(data)
    with pytest.raises(ConnectionFailed, match=message):
        await asking
    assert (ends.connection.is_open, ends.socket.is_closed, ends.sizes) == (False, True, [])


async def test_bytes_that_nobody_asked_for_close_the_connection(ends: Ends) -> None:
    ends.send(answer(0, b"body"))
    assert not ends.connection.is_open
    with pytest.raises(ConnectionFailed, match="was closed"):
        await ends.ask()


@pytest.mark.parametrize("begun", [b"", b"\0\0", answer(1, b"x" * 10_000)[:9_000]])
async def test_broker_that_falls_silent_is_given_up(ends: Ends, begun: bytes) -> None:
    asking = ends.ask(timeout_ms=20)
    await asyncio.sleep(0)
    ends.send(begun)
    with pytest.raises(ConnectionFailed, match="no answer within 20 ms"):
        await asking
    assert ends.socket.is_closed


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda ends: ends.connection.connection_lost(None), "it closed the connection"),
        (lambda ends: ends.connection.connection_lost(OSError("reset")), "reset"),
    ],
)
async def test_connection_that_ends_fails_its_request(ends: Ends, end: Callable[[Ends], None], message: str) -> None:
    asking = ends.ask()
    await asyncio.sleep(0)
    ends.send(answer(1, b"x" * 10_000)[:9_000])
    end(ends)
    with pytest.raises(ConnectionFailed, match=message):
        await asking


async def test_transport_that_is_closed_already_fails_the_request(ends: Ends) -> None:
    ends.socket.is_closed = True
    with pytest.raises(ConnectionFailed, match="the handler is closed"):
        await ends.ask()


async def test_request_that_is_cancelled_closes_the_connection(ends: Ends) -> None:
    asking = ends.ask()
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not ends.connection.is_open


def run_on(loop: str, test: Callable[[], Awaitable[None]]) -> None:
    """Run a test on asyncio's own loop, or on the one that nodes have."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test()

    run: Any = asyncio.run if loop == "asyncio" else uvloop.run
    run(bounded())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Pair:
    return authority.sign("broker", "/CN=broker")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("is_secret", [False, True])
def test_records_come_over_sockets(loop: str, is_secret: bool, authority: Authority, broker: Pair) -> None:
    server = None
    if is_secret:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(broker.certificate, broker.key)

    async def read() -> None:
        async with fake_kafka(tls=server) as kafka:
            options = kafka.options
            if is_secret:
                options = replace(options, security_protocol="SSL", ssl_context=tls_of(authority))
            log = kafka.make_topic().partitions[0]
            for size in (1, 3_000, 5_000, 900_000, 10):
                log.append(b"x" * size)
            reader = TopicReader(options, Cluster(options, 60_000))
            reading = reader.open("topic", 0, 0)
            found = list[bytes]()
            while len(found) < len(log.log):
                found += [bytes(batch.data) for batch in (await reading.take()).batches]
            assert found == log.log
            await reader.close()

    run_on(loop, read)
