"""The brokers of a topic, while they are being reached."""

import asyncio

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
