"""Connections of the client: addresses, settings, and servers that speak something else."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.api import share_state, state_responses
from holdfast.api.results import (
    DeleteResult,
    WriteResult,
)
from holdfast.client import (
    ClientSettings,
    Disconnected,
    ShareStateError,
    Unsupported,
    connect,
)
from holdfast.client.client import parse_address
from holdfast.client.connection import Address, NodeConnection, open_connection
from holdfast.kafka.protocol import frames
from holdfast.kafka.protocol.primitives import encode_string
from tests.pure.client.client_world import world
from tests.waiting import in_patience, wait_until
from tests.world.samples import TOPIC
from tests.world.serving import CountingTransport, serve


async def test_connect_needs_a_node_that_can_be_reached() -> None:
    async with serve() as served:
        address = served.address
        async with connect(["127.0.0.1:1", address]) as client:
            assert await client.delete("g", TOPIC, 1) == DeleteResult()
    with pytest.raises(
        Disconnected, match=f"No server can be reached at 127.0.0.1:1 .* No server can be reached at {address}"
    ):
        async with connect(["127.0.0.1:1", address]):
            pass
    with pytest.raises(Disconnected, match="The client is closed"):
        await client.admin("echo")


@pytest.mark.parametrize(
    "text", ["localhost", "", ":9492", "::1:9492", "host:0", "host:65536", "host:-1", "host:x", "host:９"]
)
async def test_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port, as in 127"):
        async with connect(text):
            pass


def test_addresses_that_are_fine() -> None:
    assert parse_address("[::1]:9492") == Address("::1", 9492)
    assert str(parse_address("host:1")) == "host:1"


@pytest.mark.parametrize(
    ("setting", "value"), [("attempts_max", 0), ("request_timeout_ms", 1.5), ("retry_backoff_max_ms", 50)]
)
def test_settings_are_checked(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"The client setting {setting} is {value}; it must"):
        ClientSettings(**{setting: value})


async def test_connect_with_no_address() -> None:
    with pytest.raises(ValueError, match="needs the address of one node at least"):
        async with connect([]):
            pass


# Servers that misbehave.


API_VERSIONS = frames.encode_response(
    1, bytes.fromhex("0000 03 000a00000006 00 0055 00000001 00 00000000 00".replace(" ", "")), has_tags=False
)
OLD_SERVER = frames.encode_response(1, bytes.fromhex("0023 00000001 000a 0000 0002".replace(" ", "")), has_tags=False)


class Script(asyncio.Protocol):
    """Says the next of `answers` at each chunk it gets, and then nothing more."""

    def __init__(self, answers: Sequence[bytes], talks: list[Script]) -> None:
        self._answers = iter(answers)
        self.is_over = False
        #: None before the connection is made, which is some turns of the loop later.
        self.transport: asyncio.Transport | None = None
        talks.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(next(self._answers, b""))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True


@asynccontextmanager
async def scripted(*answers: bytes | Callable[[Address], bytes]) -> AsyncIterator[Address]:
    """Run a server that says `answers` to each client; some may depend on its address."""
    talks: list[Script] = []
    said: list[bytes] = []
    server = await asyncio.get_running_loop().create_server(lambda: Script(said, talks), "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    said += [answer if isinstance(answer, bytes) else answer(address) for answer in answers]
    try:
        yield address
    finally:
        server.close()
        await wait_until(lambda: all(talk.transport is not None for talk in talks))
        for talk in talks:
            if talk.transport is not None:
                talk.transport.abort()
        await wait_until(lambda: all(talk.is_over for talk in talks))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (frames.encode_response(2, b"", has_tags=True), "It answers request 2 where 1 is next"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an answer of 1213486160 bytes; does it speak Kafka's protocol"),
        (frames.encode_response(1, b"\x00", has_tags=False), "breaks the protocol. The field ErrorCode"),
        (API_VERSIONS + API_VERSIONS, "answered a request that was not sent"),
        ((3).to_bytes(4, "big") + b"abc", "an answer of 3 bytes"),
    ],
)
async def test_a_server_that_speaks_something_else(answer: bytes, text: str) -> None:
    async with scripted(answer) as address:
        with pytest.raises(Disconnected, match=text):
            await (await open_connection(address, ClientSettings())).request(18, 0, b"")


async def test_a_server_without_tls_is_told_from_one_that_is_not_there() -> None:
    async with serve() as served:
        with pytest.raises(Disconnected) as refused:
            await open_connection(parse_address(served.address), ClientSettings(), ssl.create_default_context())
        assert str(refused.value) == (
            f"No server can be reached at {served.address} (it closed the connection, as one without TLS does; see "
            "security.protocol)."
        )


async def test_a_server_that_says_nothing() -> None:
    async with scripted() as address:
        with pytest.raises(Disconnected, match="did not open a connection in 20 ms"):
            await open_connection(address, ClientSettings(connect_timeout_ms=20))


async def test_a_server_that_is_too_old_for_share_keys() -> None:
    async with scripted(OLD_SERVER) as address, connect(str(address)) as client:
        with pytest.raises(Unsupported, match="serves FindCoordinator in versions 0 to 2, and 6 to 6 would do"):
            await client.read("g", TOPIC, 1, 0)
        with pytest.raises(Unsupported, match="does not serve HoldfastAdmin; is it a Holdfast node"):
            await client.admin("echo")


@pytest.mark.parametrize("piece_size", [1, 3, 7, 1_000])
async def test_answers_in_pieces_and_all_at_once(piece_size: int) -> None:
    connection = NodeConnection(Address("node", 1), ClientSettings())
    transport = CountingTransport()
    connection.connection_made(transport)
    calls = [asyncio.create_task(connection.request(85, 1, b"ask %d" % number)) for number in range(3)]
    await wait_until(lambda: len(transport.written) == 3)
    assert transport.written == [frames.encode_request(85, 1, n + 1, b"holdfast", b"ask %d" % n) for n in range(3)]
    answers = b"".join(frames.encode_response(n, b"body %d" % n, has_tags=True) for n in (1, 2, 3))
    for position in range(0, len(answers), piece_size):
        connection.data_received(answers[position : position + piece_size])
    assert [frame[offset:] for frame, offset in await asyncio.gather(*calls)] == [b"body 1", b"body 2", b"body 3"]
    connection.close()
    assert transport.is_closed
    with pytest.raises(Disconnected, match="is closed"):
        await connection.request(85, 1, b"ask")


async def test_a_connection_that_ends_fails_every_request_in_flight() -> None:
    connection = NodeConnection(Address("node", 1), ClientSettings())
    transport = CountingTransport()
    connection.connection_made(transport)
    calls = [asyncio.create_task(connection.request(85, 1, b"ask")) for _ in range(2)]
    await wait_until(lambda: len(transport.written) == 2)
    connection.connection_lost(None)
    for call in calls:
        with pytest.raises(Disconnected, match="The server at node:1 closed the connection"):
            await in_patience(call)


async def test_a_share_partition_that_the_answer_leaves_out_is_an_error() -> None:
    def look_up(address: Address) -> bytes:
        key, host = encode_string("g:AAECAwQFBgcICQoLDA0ODw:1"), encode_string(address.host)
        node = b"\x00\x00\x00\x01" + host + address.port.to_bytes(4, "big") + b"\x00\x00\x01\x00"
        return frames.encode_response(2, b"\x00\x00\x00\x00\x02" + key + node + b"\x00", has_tags=True)

    nothing = frames.encode_response(3, state_responses.encode_response(share_state.WRITE, 1, []), has_tags=True)
    async with scripted(API_VERSIONS, look_up, nothing) as address, connect(str(address)) as client:
        with pytest.raises(ShareStateError, match=r"UNKNOWN_SERVER_ERROR \(-1\): The server at .* left it out"):
            await client.write("g", TOPIC, 1, 1, 1, -1, [])


async def test_requests_to_a_node_that_went_away_fail_without_a_word_of_asyncios(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A write that fails closes the transport, of which its protocol is told only in the next turn of the loop."""
    async with serve() as served:
        connection = await open_connection(Address("127.0.0.1", served.server.port), ClientSettings())
        assert connection._transport is not None
        connection._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        requests = (connection.request(18, 3, b"") for _ in range(32))
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Disconnected}
        assert not connection.is_open
        assert caplog.messages == []


async def test_ids_of_requests_begin_again_behind_the_largest() -> None:
    async with world() as w:
        await w.client.write("g", TOPIC, 0, 1, 1, -1, [])
        (connection,) = w.client._nodes.links._connections.values()
        connection._correlation_id = 0x7FFF_FFFE
        for _ in range(3):
            assert await w.client.write("g", TOPIC, 0, 1, 1, -1, []) == WriteResult()
        assert connection._correlation_id == 1
