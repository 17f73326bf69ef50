"""Brokers that are functions: each request is answered by the next function that waits, or by the usual one."""

import asyncio
from collections import deque
from collections.abc import Callable

from holdfast.runtime import kafka_frames as frames

WAIT_S = 5.0

Answer = Callable[[bytes], bytes]


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let others run until a condition holds.

    Raises:
        AssertionError: it did not hold in time.
    """
    ends_s = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < ends_s, f"not so within {WAIT_S} s"
        await asyncio.sleep(0.001)


class FakeBrokers:
    """Stands in for `Brokers` and for every connection it gives."""

    def __init__(self, leaders: dict[int, int]) -> None:
        self.topic = "topic"
        self.leaders = {partition: (broker_id, 0) for partition, broker_id in leaders.items()}
        self.requests: list[tuple[int, int, bytes]] = []  #: (broker, API, body)
        self.answers: deque[Answer] = deque()
        self.always: Answer = produced
        self._gate = asyncio.Event()
        self._gate.set()
        self._listeners: list[Callable[[], None]] = []

    def hold(self) -> None:
        """Answer nothing from now on."""
        self._gate.clear()

    def let_go(self) -> None:
        """Answer all that waits, and go on."""
        self._gate.set()

    async def wait_requests(self, count: int) -> None:
        """Wait until so many requests came."""
        await wait_until(lambda: len(self.requests) >= count)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def refresh(self) -> None:
        for listener in self._listeners:
            listener()

    def open_connection(self, broker_id: int, purpose: str) -> "FakeConnection":
        return FakeConnection(self, broker_id)

    async def connection(self, broker_id: int, purpose: str) -> "FakeConnection":
        return FakeConnection(self, broker_id)

    async def answer(self, broker_id: int, api_key: int, body: bytes) -> bytes:
        """Take a request, and answer it once the gate is open."""
        self.requests.append((broker_id, api_key, body))
        await self._gate.wait()
        return (self.answers.popleft() if self.answers else self.always)(body)


class FakeConnection:
    """A connection to one of them."""

    def __init__(self, brokers: FakeBrokers, broker_id: int) -> None:
        self._brokers = brokers
        self._broker_id = broker_id

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """Ask, and wait for the answer."""
        assert (api_key, version) in (frames.PRODUCE, frames.FETCH, frames.LIST_OFFSETS)
        return await self._brokers.answer(self._broker_id, api_key, body)


def produced(body: bytes, error_code: int = 0) -> bytes:
    """Return the answer that gives every partition of a Produce request the same error code."""
    at = body.index(b"\x00\x05topic") + 7
    count = int.from_bytes(body[at : at + 4], "big")
    parts = [(1).to_bytes(4, "big"), b"\x00\x05topic", count.to_bytes(4, "big")]
    at += 4
    for _ in range(count):
        size = int.from_bytes(body[at + 4 : at + 8], "big")
        parts += [body[at : at + 4], error_code.to_bytes(2, "big"), bytes(24), bytes(4), b"\xff\xff"]
        at += 8 + size
    return b"".join(parts) + bytes(4)
