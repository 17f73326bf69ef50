"""Fake brokers for the real `Brokers`: connections are functions, and each request is answered from the state of the cluster."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from struct import Struct

import pytest
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

from holdfast.kafka.brokers.broker_connection import Answered, BrokerConnection
from holdfast.kafka.connection_options import Address, ConnectionOptions
from holdfast.kafka.protocol import requests
from tests.pure.kafka.brokers.fake_brokers import fetched, last_epochs_of, produced, targets_of
from tests.pure.kafka.brokers.metadata_answers import metadata
from tests.waiting import wait_until

_FOUND = Struct(">ihqqi")
_ASKED = Struct(">iiq")
_CUT = Struct(">iqi")
_CUT_TO = Struct(">iqh")


class FakeCluster:
    """Two or more brokers, each named after its host: `host-1` is broker 1."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, leaders: dict[int, tuple[int, int]], broker_count: int = 2
    ) -> None:
        self.leaders = leaders
        self.broker_count = broker_count
        self.offsets: dict[tuple[int, int], tuple[int, int]] = {}  #: (broker, partition) to log start and end
        self.records: dict[tuple[int, int], list[tuple[int, bytes]]] = defaultdict(list)  #: batches by their end
        self.produced: list[tuple[int, int, list[bytes | None]]] = []  #: (broker, partition, values)
        self.base_offset = self.error_code = 0  #: answered to every Produce
        self.cut: list[
            tuple[int, int, int, int]
        ] = []  #: (broker, partition, offset, time-out in ms) of each DeleteRecords
        self.asked: list[tuple[int, int]] = []  #: (broker, API)
        self.held: set[tuple[int, int]] = set()  #: (broker, API) that does not answer
        self.waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        self.sessions: dict[int, dict[int, int]] = defaultdict(dict)
        self.last_epochs: list[dict[int, int]] = []  #: what each Fetch named, by partition
        self.diverging: set[int] = set()  #: partitions that lost what a Fetch names as fetched
        monkeypatch.setattr(BrokerConnection, "open", self._open)

    @property
    def options(self) -> ConnectionOptions:
        return ConnectionOptions(bootstrap=tuple((f"host-{number + 1}", 9092) for number in range(self.broker_count)))

    def release_answers(self, broker_id: int, api_key: int) -> None:
        """Answer the requests that wait at a broker, and continue."""
        self.held.discard((broker_id, api_key))
        for place in [place for place in self.waiting if place[:2] == (broker_id, api_key)]:
            self.waiting.remove(place)
            if not place[2].done():
                place[2].set_result(None)

    async def wait_asked(self, broker_id: int, api_key: int, count: int = 1) -> None:
        """Wait until a broker was asked `count` times."""
        await wait_until(lambda: self.asked.count((broker_id, api_key)) >= count)

    async def answer(self, broker_id: int, api_key: int, body: bytes) -> bytes:
        """Handle a request; its answer has the state at the time when the broker may answer."""
        self.asked.append((broker_id, api_key))
        if api_key == requests.PRODUCE[0]:
            self.produced += [(broker_id, *batch) for batch in batches_in(body)]
        if (broker_id, api_key) in self.held:
            waiting = asyncio.get_running_loop().create_future()
            self.waiting.append((broker_id, api_key, waiting))
            await waiting
        await asyncio.sleep(0)
        answers: dict[int, Callable[[int, bytes], bytes]] = {
            0: self._produce,
            1: self._fetch,
            2: self._list,
            3: self._name,
            21: self._delete,
        }
        return answers[api_key](broker_id, body)

    def _produce(self, _: int, body: bytes) -> bytes:
        return produced(body, self.error_code, self.base_offset)

    def _fetch(self, broker_id: int, body: bytes) -> bytes:
        (_, epoch), asked, forgotten = targets_of(body)
        self.last_epochs.append(last_epochs_of(body))
        held = self.sessions[broker_id]
        if epoch == 0:
            held.clear()
        held |= asked
        for partition in forgotten:
            held.pop(partition, None)
        data = {
            partition: b"".join(batch for end, batch in self.records[broker_id, partition] if end > offset)
            for partition, offset in held.items()
        }
        lost = {partition for partition, last_epoch in self.last_epochs[-1].items() if last_epoch >= 0} & self.diverging
        found = [requests.Fetched(partition, 0, 99, 0, False, data) for partition, data in data.items() if data]
        return fetched(
            [
                *(each for each in found if each.partition not in lost),
                *(requests.Fetched(partition, 0, 99, 0, True, b"") for partition in lost),
            ]
        )

    def _list(self, broker_id: int, body: bytes) -> bytes:
        at = body.index(b"\x00\x05topic") + 7
        count = int.from_bytes(body[at : at + 4], "big")
        parts = [bytes(4), (1).to_bytes(4, "big"), b"\x00\x05topic", count.to_bytes(4, "big")]
        for number in range(count):
            partition, _, which = _ASKED.unpack_from(body, at + 4 + number * _ASKED.size)
            start, end = self.offsets.get((broker_id, partition), (0, 0))
            parts.append(_FOUND.pack(partition, 0, -1, start if which == requests.EARLIEST else end, 0))
        return b"".join(parts)

    def _delete(self, broker_id: int, body: bytes) -> bytes:
        """Cut a log, or answer the error of every Produce."""
        partition, before_offset, timeout_ms = _CUT.unpack_from(body, len(body) - _CUT.size)
        _, end = self.offsets.get((broker_id, partition), (0, 0))
        if not self.error_code:
            self.offsets[broker_id, partition] = before_offset, end
        self.cut.append((broker_id, partition, before_offset, timeout_ms))
        named = bytes(4) + (1).to_bytes(4, "big") + b"\x00\x05topic" + (1).to_bytes(4, "big")
        return named + _CUT_TO.pack(partition, before_offset, self.error_code)

    def _name(self, _: int, __: bytes) -> bytes:
        return metadata(self.leaders, broker_ids=range(1, self.broker_count + 1))

    async def _open(self, address: Address, options: ConnectionOptions, timeout_ms: int) -> "_Connection":
        return _Connection(self, int(address[0].removeprefix("host-")))


class _Connection(BrokerConnection):
    """A connection to one of them; of a real connection it has only whether it is open."""

    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.is_open = True
        self._cluster = cluster
        self._broker_id = broker_id
        self._asking: set[asyncio.Task[None]] = set()

    def send(self, api_key: int, version: int, body: bytes, on_answer: Answered, *, is_flexible: bool = False) -> None:
        async def ask() -> None:
            on_answer(await self.exchange(api_key, version, body))

        task = asyncio.ensure_future(ask())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        return await self._cluster.answer(self._broker_id, api_key, body)

    def wait_longer(self, by_ms: int) -> None:
        """Wait longer."""

    def close(self) -> None:
        self.is_open = False


def batches_in(body: bytes) -> list[tuple[int, list[bytes | None]]]:
    """Return the values that a Produce request carries: (partition, values)."""
    at, found = body.index(b"\x00\x05topic") + 7, []
    count = int.from_bytes(body[at : at + 4], "big")
    at += 4
    for _ in range(count):
        partition, size = int.from_bytes(body[at : at + 4], "big"), int.from_bytes(body[at + 4 : at + 8], "big")
        batch = MemoryRecords(body[at + 8 : at + 8 + size]).next_batch()
        found.append((partition, [record.value for record in batch]))
        at += 8 + size
    return found
