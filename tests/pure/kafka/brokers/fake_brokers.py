"""Brokers that are functions: each request is answered by the next function that waits, or by the usual one."""

import asyncio
import datetime
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from io import BytesIO
from math import inf
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.util import calc_crc32c  # type: ignore[import-untyped]
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchRequest
from kio.serial import entity_reader, entity_writer

from holdfast.kafka.brokers.broker_connection import Answered, BrokerConnection
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.requests import Fetched
from holdfast.records.log.header import HEADER_NAME
from tests.waiting import wait_until

_fetch: Any = import_module("kio.schema.fetch.v12.response")

Answer = Callable[[bytes], bytes]


class FakeBrokers:
    """Stands in for `Brokers` and for every connection it gives."""

    def __init__(self, leaders: dict[int, int]) -> None:
        self.topic, self.who = "topic", lambda: "User:node"
        self.leaders = {partition: (broker_id, 0) for partition, broker_id in leaders.items()}
        self.requests: list[tuple[int, int, bytes]] = []  #: (broker, API, body)
        self.answers: deque[Answer] = deque()
        self.always: Answer = produced
        self.asking: list[asyncio.Task[None]] = []
        self._is_held = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._listeners: list[Callable[[], None]] = []
        self.longer_ms: list[tuple[int, int]] = []  #: (broker, for how much longer its answers are waited for)
        self.confirmed_at_s: dict[int, float] = {}  #: by broker; without an entry, always
        self.witnessed: set[int] = set()  #: brokers that each refresh confirms
        self.refreshes = 0
        self.failures_left = 0  #: refreshes that end with a failure
        self.elected: dict[int, dict[int, tuple[int, int]]] = {}  #: number of a refresh -> leaders from then on

    def withhold_answers(self) -> None:
        """Answer nothing from now on."""
        self._is_held = True

    def release_answers(self) -> None:
        """Answer all that waits, and go on."""
        self._is_held = False
        while self._waiting:
            self.answer_one()

    def answer_one(self) -> None:
        """Answer the request that waits longest."""
        waiting = self._waiting.popleft()
        if not waiting.done():
            waiting.set_result(None)

    async def wait_requests(self, count: int) -> None:
        """Wait until so many requests came."""
        await wait_until(lambda: len(self.requests) >= count)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def refresh(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self.failures_left:
            self.failures_left -= 1
            raise ConnectionFailed("nobody answers")
        self.refreshes += 1
        self.confirmed_at_s |= dict.fromkeys(self.witnessed, now_s)
        self.leaders |= self.elected.get(self.refreshes, {})
        for listener in self._listeners:
            listener()
        await asyncio.sleep(0)  # whoever asks again and again stays in nobody's way

    def confirmed_s(self, broker_id: int) -> float:
        return self.confirmed_at_s.get(broker_id, inf)

    def open_connection(self, broker_id: int, purpose: str) -> "FakeConnection":
        return FakeConnection(self, broker_id)

    async def connection(self, broker_id: int, purpose: str) -> "FakeConnection":
        return FakeConnection(self, broker_id)

    async def answer(self, broker_id: int, api_key: int, body: bytes) -> bytes:
        """Take a request, and answer it once the gate is open."""
        self.requests.append((broker_id, api_key, body))
        if self._is_held:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        else:
            await asyncio.sleep(0)  # whoever asks again and again stays in nobody's way
        return (self.answers.popleft() if self.answers else self.always)(body)


class FakeConnection(BrokerConnection):
    """A connection to one of them; nothing of a real one is left but that it is open."""

    def __init__(self, brokers: FakeBrokers, broker_id: int) -> None:
        self.is_open = True
        self._brokers = brokers
        self._broker_id = broker_id

    def wait_longer(self, by_ms: int) -> None:
        """Wait longer for what is in flight."""
        self._brokers.longer_ms.append((self._broker_id, by_ms))

    def send(self, api_key: int, version: int, body: bytes, on_answer: Answered, *, is_flexible: bool = False) -> None:
        """Ask, and hand over the answer."""

        async def ask() -> None:
            try:
                outcome: bytes | ConnectionFailed = await self.exchange(api_key, version, body)
            except ConnectionFailed as failure:
                outcome = failure
            on_answer(outcome)

        self._brokers.asking.append(asyncio.ensure_future(ask()))

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """Ask, and wait for the answer."""
        assert (api_key, version) in (requests.PRODUCE, requests.FETCH, requests.LIST_OFFSETS)
        return await self._brokers.answer(self._broker_id, api_key, body)


def produced(body: bytes, error_code: int = 0, base_offset: int = 0) -> bytes:
    """Return the answer that gives every partition of a Produce request the same error code and base offset."""
    at = body.index(b"\x00\x05topic") + 7
    count = int.from_bytes(body[at : at + 4], "big")
    parts = [(1).to_bytes(4, "big"), b"\x00\x05topic", count.to_bytes(4, "big")]
    at += 4
    for _ in range(count):
        size = int.from_bytes(body[at + 4 : at + 8], "big")
        parts += [body[at : at + 4], error_code.to_bytes(2, "big"), base_offset.to_bytes(8, "big")]
        parts += [bytes(16), bytes(4), b"\xff\xff"]
        at += 8 + size
    return b"".join(parts) + bytes(4)


def fetched(found: Sequence[Fetched], *, session_id: int = 7, error_code: int = 0) -> bytes:
    """Return the answer to a Fetch."""
    nobody, diverging = _fetch.EpochEndOffset(), _fetch.EpochEndOffset(epoch=1, end_offset=2)
    partitions = tuple(
        _fetch.PartitionData(
            partition_index=each.partition,
            error_code=ErrorCode(each.error_code),
            high_watermark=each.high_watermark,
            log_start_offset=each.log_start_offset,
            diverging_epoch=diverging if each.is_diverging else nobody,
            aborted_transactions=None,
            records=each.records or None,
        )
        for each in found
    )
    responses = (_fetch.FetchableTopicResponse(topic="topic", partitions=partitions),) if found else ()
    buffer = BytesIO()
    entity_writer(_fetch.FetchResponse)(
        buffer,
        _fetch.FetchResponse(
            throttle_time=datetime.timedelta(0),
            error_code=ErrorCode(error_code),
            session_id=session_id,
            responses=responses,
        ),
    )
    return buffer.getvalue()


def targets_of(body: bytes) -> tuple[tuple[int, int], dict[int, int], list[int]]:
    """Return what a Fetch asks: (session id, epoch), offset by partition, partitions to leave out."""
    request, _ = entity_reader(FetchRequest)(body, 0)
    asked: dict[int, int] = {part.partition: part.fetch_offset for topic in request.topics for part in topic.partitions}
    forgotten: list[int] = [index for topic in request.forgotten_topics_data for index in topic.partitions]
    return (request.session_id, request.session_epoch), asked, forgotten


def last_epochs_of(body: bytes) -> dict[int, int]:
    """Return the leader epoch of the batch before, as a Fetch names it, by partition."""
    request, _ = entity_reader(FetchRequest)(body, 0)
    return {part.partition: part.last_fetched_epoch for topic in request.topics for part in topic.partitions}


def wait_ms_of(body: bytes) -> int:
    """Return how long a Fetch may be held."""
    request, _ = entity_reader(FetchRequest)(body, 0)
    return int(request.max_wait.total_seconds() * 1_000)


def batch(base_offset: int, values: Sequence[bytes], *, header: bytes = b"h", attributes: int = 0) -> bytes:
    """Return a record batch as a broker keeps it; each record has the header with its number appended."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for number, value in enumerate(values):
        builder.append(number, 1_000, b"k", value, [(HEADER_NAME, header + b"%d" % number)])
    data = bytearray(builder.build())
    data[0:8] = base_offset.to_bytes(8, "big")
    data[22] |= attributes
    return sealed(data)


def sealed(data: bytearray) -> bytes:
    """Return a batch with the checksum of what it holds."""
    data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)
