"""Follows log partitions at their end: one incremental fetch session per broker, on the event loop.

A batch that equals, byte for byte, the oldest one we sent and have not met is told as ours without being taken apart.
Everything else is decoded and told record by record.

Source: KIP-227 (fetch sessions), KIP-320 (truncation); record batch format, magic 2.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]  # it ships no types

from holdfast.records.header import HEADER_NAME
from holdfast.runtime import kafka_frames as frames
from holdfast.runtime.appender import BATCH_HEAD_BYTES, SentBatch
from holdfast.runtime.broker_connection import BrokerConnection, ConnectionFailed
from holdfast.runtime.brokers import STALE_LEADER, Brokers
from holdfast.runtime.kafka_frames import Fetched, FetchTarget
from holdfast.runtime.log import LogListener, LogRecord, ReadError

#: base offset, length, leader epoch, magic, crc, attributes, last offset delta, …, record count
_BATCH_HEAD = Struct(">qiibIhiqqqhii")
_LENGTH_OFFSET = 12  # a batch's length does not count its base offset and itself
_CONTROL = 0x20

_OFFSET_OUT_OF_RANGE = 1
_SESSION_EPOCH_MAX = 2**31 - 1
_SESSION_LOST = frozenset({70, 71, 106})


class TailConfig(NamedTuple):
    """Bounds of the tail."""

    wait_ms: int  #: how long a broker may hold an empty fetch
    bytes_max: int
    partition_bytes_max: int
    retry_backoff_ms: int = 50


class _Followed:
    """One partition as the tail follows it."""

    __slots__ = ("asked_offset", "instance", "last_epoch", "offset")

    def __init__(self, instance: int, offset: int) -> None:
        self.instance = instance
        self.offset = offset
        self.last_epoch = -1  #: leader epoch of the batch met last
        self.asked_offset = -1  #: what the broker's session knows; -1: nothing


class Tail:
    """Follows partitions until they are forgotten."""

    def __init__(
        self,
        config: TailConfig,
        brokers: Brokers,
        listener: Callable[[], LogListener],
        sent: Callable[[int], deque[SentBatch]],
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._listener = listener
        self._sent = sent
        self._followed: dict[int, _Followed] = {}
        self._sessions: dict[int, _Session] = {}
        self._search: asyncio.Task[None] | None = None  #: for leaders of partitions that have none now
        brokers.on_change(self._share_out)

    def follow(self, partition: int, instance: int, offset: int) -> None:
        """Tell what lies at and behind an offset, under an instance."""
        self._followed[partition] = _Followed(instance, offset)
        self._share_out()

    def forget(self, partition: int) -> None:
        """Follow a partition no more."""
        if self._followed.pop(partition, None) is not None:
            self._share_out()

    async def close(self) -> None:
        """Stop every session."""
        self._followed.clear()
        tasks = [session.task for session in self._sessions.values()]
        if self._search is not None:
            tasks.append(self._search)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _share_out(self) -> None:
        """Give each partition to the session of its leader."""
        by_broker: dict[int, dict[int, _Followed]] = {}
        for partition, followed in self._followed.items():
            leader = self._brokers.leaders.get(partition)
            if leader is not None:
                by_broker.setdefault(leader[0], {})[partition] = followed
            elif self._search is None or self._search.done():
                self._search = asyncio.get_running_loop().create_task(
                    self._search_leaders(), name="holdfast-tail-search"
                )
        for broker_id in by_broker.keys() - self._sessions.keys():
            self._sessions[broker_id] = _Session(self, broker_id)
        for broker_id, session in self._sessions.items():
            session.wanted = by_broker.get(broker_id, {})
            session.changed.set()

    async def _search_leaders(self) -> None:
        while not self._followed.keys() <= self._brokers.leaders.keys():
            await self.ask_leaders()

    async def ask_leaders(self) -> None:
        """Ask anew who leads, after a pause; a failure leaves what was known."""
        pause_s = self._config.retry_backoff_ms / 1_000
        await asyncio.sleep(pause_s)
        try:
            await self._brokers.refresh()
        except Exception:  # nobody answered, or nothing that can be read
            await asyncio.sleep(pause_s)

    def meet(self, partition: int, followed: _Followed, fetched: Fetched) -> bool:
        """Tell what a fetch brought; returns whether the leader should be asked for anew."""
        if self._followed.get(partition) is not followed:
            return False
        listener, code = self._listener(), fetched.error_code
        if code in STALE_LEADER:
            return True
        if code or fetched.is_diverging:
            self.forget(partition)
            listener.read_failed(partition, followed.instance, _read_error(fetched, followed.offset))
            return False
        data, at, end = fetched.records, 0, len(fetched.records)
        while at + BATCH_HEAD_BYTES <= end:
            head = _BATCH_HEAD.unpack_from(data, at)
            stop = at + _LENGTH_OFFSET + head[1]
            if stop > end:
                break
            base_offset, last_offset = head[0], head[0] + head[6]
            sent = self._sent(partition)
            if (
                sent
                and data[at + BATCH_HEAD_BYTES : stop] == sent[0].body
                and base_offset >= followed.offset
                and listener.own_records_read(
                    partition, followed.instance, base_offset, sent[0].record_count, sent[0].first_header
                )
            ):
                sent.popleft()
                followed.offset = last_offset + 1
            else:
                records = _decode(data[at:stop], followed.offset) if not head[5] & _CONTROL else []
                followed.offset = max(followed.offset, last_offset + 1)
                if records:
                    _drop_met(sent, records)
                    listener.records_read(partition, followed.instance, records)
                listener.position_reached(partition, followed.instance, followed.offset)
            if self._followed.get(partition) is not followed:
                return False
            followed.last_epoch = head[2]
            at = stop
        return False


class _Session:
    """The fetches to one broker."""

    def __init__(self, tail: Tail, broker_id: int) -> None:
        self.wanted: dict[int, _Followed] = {}
        self.changed = asyncio.Event()
        self._tail = tail
        self._broker_id = broker_id
        self._session_id = 0
        self._epoch = 0
        self._known: dict[int, _Followed] = {}
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"holdfast-tail-{broker_id}")

    async def _run(self) -> None:
        tail = self._tail
        while True:
            if not self.wanted:
                self.changed.clear()
                await self.changed.wait()
                continue
            try:
                connection = await tail._brokers.connection(self._broker_id, "fetch")
                is_stale = await self._fetch(connection)
            except ConnectionFailed:
                is_stale = True
                self._forget_session()
            except Exception as bug:  # a bug stops the partitions of this session, which load again; never the session
                is_stale = True
                self._forget_session()
                for partition, followed in list(self.wanted.items()):
                    tail.forget(partition)
                    tail._listener().read_failed(partition, followed.instance, ReadError(repr(bug), is_alarm=False))
            if is_stale:
                await tail.ask_leaders()

    async def _fetch(self, connection: BrokerConnection) -> bool:
        """Fetch once and tell what came; returns whether the leaders should be asked for anew."""
        tail, config = self._tail, self._tail._config
        forgotten = [partition for partition in self._known if partition not in self.wanted]
        targets = []
        for partition, followed in self.wanted.items():
            if self._known.get(partition) is not followed or followed.asked_offset != followed.offset:
                leader_epoch = tail._brokers.leaders.get(partition, (-1, -1))[1]
                targets.append(FetchTarget(partition, leader_epoch, followed.offset, followed.last_epoch))
                followed.asked_offset = followed.offset
        asked = self._known = dict(self.wanted)
        api, version = frames.FETCH
        body = frames.encode_fetch(
            tail._brokers.topic,
            (self._session_id, self._epoch),
            config.wait_ms,
            config.bytes_max,
            config.partition_bytes_max,
            targets,
            forgotten,
        )
        error_code, session_id, found = frames.decode_fetched(
            await connection.exchange(api, version, body, is_flexible=True)
        )
        if error_code:
            self._forget_session()
            return error_code not in _SESSION_LOST
        if session_id == 0 or self._epoch == _SESSION_EPOCH_MAX:
            self._forget_session()  # the broker keeps no session for us: ask for everything each time
        else:
            self._session_id = session_id
            self._epoch += 1
        is_stale = False
        for fetched in found:
            met = asked.get(fetched.partition)  # and not of an instance that came while the answer was under way
            if met is not None and tail.meet(fetched.partition, met, fetched):
                met.asked_offset = -1
                is_stale = True
        return is_stale

    def _forget_session(self) -> None:
        self._session_id = self._epoch = 0
        self._known = {}


def _decode(batch: bytes, from_offset: int) -> list[LogRecord]:
    """Return the records of one batch at or behind an offset."""
    decoded = MemoryRecords(batch).next_batch()
    if not decoded.validate_crc():
        raise ConnectionFailed("a record batch arrived broken")
    return [
        LogRecord(
            record.offset,
            record.key,
            record.value,
            next((value for name, value in reversed(record.headers) if name == HEADER_NAME), None),
        )
        for record in decoded
        if record.offset >= from_offset
    ]


def _drop_met(sent: deque[SentBatch], records: list[LogRecord]) -> None:
    """Forget sent batches that were met record by record, because the broker wrote them anew."""
    headers = {record.header for record in records}
    while sent and sent[0].last_header in headers:
        sent.popleft()


def _read_error(fetched: Fetched, offset: int) -> ReadError:
    bounds = f"the log runs from {fetched.log_start_offset} to {fetched.high_watermark}"
    if fetched.is_diverging:
        return ReadError(f"the log was truncated below offset {offset}; {bounds}", is_alarm=True)
    if fetched.error_code == _OFFSET_OUT_OF_RANGE:
        is_beyond_end = offset > fetched.high_watermark >= 0
        return ReadError(f"offset {offset} is out of range; {bounds}", is_alarm=is_beyond_end)
    return ReadError(f"the broker answered error {fetched.error_code}", is_alarm=False)
