"""The brokers of a topic, while they are being reached."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.runtime.broker_connection import BrokerConnection, ConnectionFailed, ConnectionOptions
from holdfast.runtime.brokers import Brokers
from tests.pure.runtime.fake_brokers import wait_until


class SilentServer:
    """Accepts connections and never answers."""

    def __init__(self) -> None:
        self.accepted = 0
        self.open = 0

    async def start(self) -> tuple[str, int]:
        """Listen and return the address."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def stop(self) -> None:
        """Listen no more."""
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        while await reader.read(1_000):
            pass
        self.open -= 1
        writer.close()


@pytest.mark.parametrize("ask", ["refresh", "connection"])
async def test_close_hangs_up_on_what_is_being_reached(ask: str) -> None:
    server = SilentServer()
    address = await server.start()
    brokers = Brokers(ConnectionOptions(bootstrap=(address,)), "topic", 10_000)
    brokers._addresses[1] = address
    asking = asyncio.ensure_future(brokers.refresh() if ask == "refresh" else brokers.connection(1, "fetch"))
    await wait_until(lambda: server.accepted == 1)
    brokers.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await wait_until(lambda: server.open == 0)
    await server.stop()


async def test_broker_that_does_not_answer_in_time_is_hung_up_on() -> None:
    server = SilentServer()
    address = await server.start()
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{address[1]} cannot be reached"):
        await BrokerConnection.open(address, ConnectionOptions(bootstrap=(address,)), 50)
    await wait_until(lambda: server.accepted == 1)
    await wait_until(lambda: server.open == 0)
    await server.stop()


async def test_nobody_is_reached_after_close() -> None:
    brokers = Brokers(ConnectionOptions(bootstrap=(("127.0.0.1", 1),)), "topic", 10_000)
    brokers._addresses[1] = ("127.0.0.1", 1)
    brokers.close()
    with pytest.raises(ConnectionFailed, match="broker 1 is not known"):
        await brokers.connection(1, "fetch")


def metadata(broker_id: int, leader_epoch: int) -> bytes:
    """Return an answer that names one broker, which leads the one partition of the topic."""
    broker = broker_id.to_bytes(4, "big") + b"\x00\x04host" + (9092).to_bytes(4, "big") + b"\xff\xff"
    partition = bytes(6) + broker_id.to_bytes(4, "big") + leader_epoch.to_bytes(4, "big") + bytes(12)
    topic = b"\x00\x00\x00\x05topic\x00" + (1).to_bytes(4, "big") + partition
    one = (1).to_bytes(4, "big")
    return bytes(4) + one + broker + b"\xff\xff" + broker_id.to_bytes(4, "big") + one + topic


class Place:
    """Brokers by address, each a coroutine function that answers a Metadata request or does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Callable[[], Awaitable[bytes]]) -> None:
        self.asked: list[str] = []
        self._answers = answers
        monkeypatch.setattr(BrokerConnection, "open", self._open)
        self.brokers = Brokers(ConnectionOptions(bootstrap=tuple((host, 1) for host in answers)), "topic", 10_000)

    async def _open(self, address: tuple[str, int], options: ConnectionOptions, timeout_ms: int) -> Any:
        self.asked.append(address[0])
        place, host = self, address[0]

        class Connection:
            async def exchange(self, api_key: int, version: int, body: bytes) -> bytes:
                return await place._answers[host]()

            def close(self) -> None:
                place.asked.append(f"{host} closed")

        return Connection()


async def silence() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError("it never answers")


async def answer() -> bytes:
    return metadata(7, 3)


async def nonsense() -> bytes:
    return b"?"


async def test_a_silent_broker_does_not_keep_the_others_from_telling_who_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch, silent=silence, talking=answer, spare=answer)
    async with asyncio.timeout(5):
        await place.brokers.refresh()
    assert place.brokers.leaders == {0: (7, 3)}
    assert place.asked == ["silent", "talking", "talking closed", "silent closed"]


async def test_a_broker_that_talks_nonsense_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch, nonsense=nonsense, talking=answer)
    await place.brokers.refresh()
    assert place.brokers.leaders == {0: (7, 3)}


async def test_when_no_broker_tells_who_leads_each_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused() -> bytes:
        raise ConnectionFailed("refused")

    place = Place(monkeypatch, first=refused, second=nonsense)
    with pytest.raises(ConnectionFailed, match=r"^refused; unpack"):
        await place.brokers.refresh()
    assert place.brokers.leaders == {}
