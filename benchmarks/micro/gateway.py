"""Microseconds of a processor that a ShareFetch costs the node between its bytes and those of its answer: no socket, no broker, no log.

    python -m benchmarks.micro.gateway
    python -m benchmarks.micro.gateway --profile 50     # by function, with 50 records in each batch

Each fetch acknowledges the 500 records of the one before, whose Write is answered at once, and gets 500 others that were read ahead.
Heads of record batches are read in the same thread, so they are timed, too. A number is the least of several rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import time
from collections.abc import Callable
from struct import Struct
from typing import Final, cast

from holdfast.api import share_fetch
from holdfast.api.results import ReadOrInitializeResult, WritePartition, WriteResult
from holdfast.api.share_consumer import AcknowledgedRange, NamedPartition
from holdfast.api.share_fetch import Piece, ShareFetchRequest
from holdfast.clock import make_wall_clock_ms
from holdfast.daemon.access.audit import Client
from holdfast.delivery.group_config import DEFAULT
from holdfast.delivery.sessions import ShareSessions
from holdfast.gateway.consumers import Caller, ConsumerCalls, LeaderPlace
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import Ended
from holdfast.gateway.leading.starts import Starts
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.kafka.records.batches import HEAD_BYTES, iter_batches
from holdfast.kafka.records.partition_reader import Chunk, PartitionReader
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.records.share.keys import SharePartitionKey

_TOPIC_ID: Final = bytes(range(16))
_PARTITIONS: Final = 4
_RECORD_BYTES: Final = 100
_FETCHED: Final = 500
_FETCHES: Final = 500
_ROUNDS: Final = 4
_CHUNK_BYTES: Final = 1 << 20
_VERSION: Final = 2

_HEAD: Final = Struct(">qiibIhiqqqhii")
_MAGIC: Final = 2
_UNCOUNTED_BYTES: Final = 12


class _EndlessLog:
    """A partition whose next answer is always there (`PartitionReader`)."""

    def __init__(self, offset: int, batch_records: int) -> None:
        self.end_offset = 1 << 40
        self.failure: None = None
        self.problem = ""
        self.ahead_bytes = 1
        #: Spent on what a broker does.
        self.making_s = 0.0
        self._offset = offset
        self._records = batch_records
        self._size = HEAD_BYTES + batch_records * _RECORD_BYTES

    def take_nowait(self) -> Chunk:
        """Return an answer of a broker, whose heads are read here."""
        began_s, count = time.thread_time(), max(1, _CHUNK_BYTES // self._size)
        data = bytearray(self._size * count)
        for number in range(count):
            first, last = self._offset + number * self._records, self._records - 1
            length = self._size - _UNCOUNTED_BYTES
            _HEAD.pack_into(
                data, number * self._size, first, length, 0, _MAGIC, 0, 0, last, 0, 0, -1, -1, -1, self._records
            )
        self.making_s += time.thread_time() - began_s
        batches = tuple(iter_batches(memoryview(data).toreadonly(), self._offset))
        self._offset = batches[-1].last_offset + 1
        return Chunk(batches, (), self.end_offset, self.end_offset, 0)

    def call_when_more(self, callback: Callable[[], None], is_wanted: Callable[[], bool]) -> None:
        """Take a callback that is never called, for there is always more."""

    def close(self) -> None:
        """Read no more."""


class _Topics:
    """One topic, which all may read (`consumers.Topics`); also the reader, the leadership and the states."""

    def __init__(self, batch_records: int) -> None:
        self._batch_records = batch_records
        self.logs: list[_EndlessLog] = []

    def refuse_read(self, caller: Client, topic_id: bytes, partition: int) -> Ended | None:
        return None

    def rights(self, caller: Client) -> str:
        return caller.principal

    def leader(self, topic_id: bytes, partition: int) -> LeaderPlace:
        return LeaderPlace(1, 1, None)

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        return partition

    def leader_epoch(self, topic_id: bytes, partition: int) -> int | Ended:
        return 1

    def open(self, topic: bytes, partition: int, offset: int, last_epoch: int) -> PartitionReader:
        self.logs.append(_EndlessLog(offset, self._batch_records))
        return cast("PartitionReader", self.logs[-1])

    def log_partition_of(self, topic_id: bytes, partition: int) -> int | None:
        return partition

    def read_or_initialize(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        initial_start_offset: int | None,
        respond: Callable[[ReadOrInitializeResult], None],
    ) -> None:
        respond(ReadOrInitializeResult(0, None, 1, 0, (), has_state=True))

    def write(
        self, group_id: str, topic_id: bytes, write: WritePartition, respond: Callable[[WriteResult], None]
    ) -> None:
        respond(WriteResult())


class _Caller:
    """A connection that stays."""

    connection = 1
    principal = "User:micro"

    def wait(self, answer_now: Callable[[], None]) -> bool:
        return True


class _Member:
    """One member that fetches again and again."""

    def __init__(self, batch_records: int) -> None:
        topics = self._topics = _Topics(batch_records)
        now_ms = make_wall_clock_ms()
        metrics = GatewayMetrics(Registry(), LineLimiter(now_ms))
        sessions, starts = ShareSessions(10), cast("Starts", None)
        leader = Leader(topics, topics, lambda _: topics, starts, lambda _: DEFAULT, 100, metrics, sessions)
        self._calls = ConsumerCalls(leader, sessions, topics, lambda _: DEFAULT)
        self._epoch = 0
        self._held: list[tuple[int, AcknowledgedRange]] = []
        self._caller = cast("Caller", _Caller())
        self.taken = 0

    def _next_request(self) -> bytes:
        said: dict[int, list[AcknowledgedRange]] = {} if self._epoch else {each: [] for each in range(_PARTITIONS)}
        for partition, acknowledged in self._held:
            said.setdefault(partition, []).append(acknowledged)
        named = [NamedPartition(partition, tuple(ranges)) for partition, ranges in said.items()]
        request = ShareFetchRequest(
            "group",
            "AAAAAAAAAAAAAAAAAAAAAA",
            self._epoch,
            [(_TOPIC_ID, named)],
            [],
            500,
            1,
            50 << 20,
            _FETCHED,
            _FETCHED,
        )
        self._epoch += 1
        return share_fetch.encode_request(_VERSION, request)

    def _making_s(self) -> float:
        return sum(log.making_s for log in self._topics.logs)

    def fetch(self) -> float:
        """Make one fetch; returns the processor seconds that it took the node."""
        frame, pieces = self._next_request(), list[Piece]()
        began_s = time.thread_time() - self._making_s()
        request = share_fetch.decode_request(_VERSION, frame)
        self._calls.fetch(self._caller, request, pieces.extend)
        took_s = time.thread_time() - self._making_s() - began_s
        answer = share_fetch.decode_response(b"".join(pieces))
        assert not answer.error_code, answer
        self._held = [
            (fetched.partition, AcknowledgedRange(first, last, b"\x01"))
            for _, partitions in answer.topics
            for fetched in partitions
            for first, last, _ in fetched.acquired
        ]
        self.taken += sum(each.last_offset - each.first_offset + 1 for _, each in self._held)
        return took_s


async def measure(batch_records: int) -> tuple[float, float]:
    """Return the µs of a fetch, and the records that it has."""
    rounds, taken = [], 0
    for _ in range(_ROUNDS):
        member = _Member(batch_records)
        rounds.append(sum(member.fetch() for _ in range(_FETCHES)) / _FETCHES * 1e6)
        taken = member.taken
    return min(rounds), taken / _FETCHES


async def profile(batch_records: int) -> None:
    """Print where the time of fetches goes."""
    member, profiler = _Member(batch_records), cProfile.Profile()
    for _ in range(_FETCHES):
        member.fetch()
    profiler.enable()
    for _ in range(_FETCHES):
        member.fetch()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


def main() -> None:
    """Print a line for each size of batches."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.micro.gateway", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--profile", type=int, help="print where the time goes, with so many records in each batch")
    options = parser.parse_args()
    if options.profile:
        asyncio.run(profile(options.profile))
        return
    for batch_records in (1, 10, 50, 500, 2_000):
        took_us, records = asyncio.run(measure(batch_records))
        print(
            f"batches of {batch_records:5}: {took_us:8.1f} µs a fetch, {records:6,.0f} records, {records / took_us:6.2f} a µs"
        )


if __name__ == "__main__":
    main()
