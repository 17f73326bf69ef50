"""One log partition of the cluster as its true leader has it, with what leaders of the past still believe."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]
from aiokafka.record.util import calc_crc32c  # type: ignore[import-untyped]

from holdfast.records.log.header import HEADER_NAME
from holdfast.runtime.log_protocol import LogRecord
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.memory_log import Append, MemoryPartition

if TYPE_CHECKING:
    from tests.simulated.cluster.process import Origins

HEAD_BYTES = 61


class Batch(NamedTuple):
    """A record batch in the log."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    data: bytes


class Past(NamedTuple):
    """What a leader knew when it stopped to lead."""

    high_watermark: int
    end_offset: int
    log_start: int


class Partition(MemoryPartition):
    """The records for whoever judges, and the batches for whoever reads."""

    __slots__ = ("batches", "damaged", "epoch", "index", "leader", "may_answer_s", "pasts", "starts")

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.leader = -1  #: nobody leads
        self.epoch = -1
        self.batches: list[Batch] = []
        self.pasts: dict[int, Past] = {}  #: by leader epoch
        self.starts: dict[int, int] = {}  #: by leader epoch, the offset at which it began
        self.may_answer_s = 0.0  #: until then a new leader does not know its high watermark
        self.damaged: set[int] = set()  #: base offsets of batches that do not match their checksum

    @property
    def end_offset(self) -> int:
        """Return the offset behind the last record, committed or not."""
        return len(self.records)

    def append(self, data: bytes, origins: Origins, process: str, *, rewrites: bool) -> int:
        """Append a batch under the leader epoch of now; returns its base offset."""
        base_offset = len(self.records)
        records = read_batch(data)
        for offset_in_batch, record in enumerate(records):
            if record.offset != offset_in_batch:
                violate(Invariant.SENT_IS_APPENDED, f"{process} sends a batch without its record {offset_in_batch}")
            self.add(origins.find(process, self.index, record))
        if rewrites:
            data = _rewrite(records)
        self._add_batch(data, base_offset)
        return base_offset

    def append_control(self) -> None:
        """Append a batch that holds no record for a reader."""
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000)
        builder.append(0, 1_000, b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00", [])
        data = bytearray(builder.build())
        data[22] |= 0x20
        data[17:21] = calc_crc32c(bytes(data[21:])).to_bytes(4, "big")
        self.holes.add(len(self.records))
        base_offset = len(self.records)
        self.add(Append(self.index, None, None, None))
        self._add_batch(bytes(data), base_offset)

    def append_foreign(self, key: bytes | None, value: bytes | None, header: bytes | None) -> None:
        """Append a record of another program."""
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 100_000)
        builder.append(0, 1_000, key, value, [] if header is None else [(HEADER_NAME, header)])
        base_offset = len(self.records)
        self.add(Append(self.index, key, value, header))
        self._add_batch(bytes(builder.build()), base_offset)

    def _add_batch(self, data: bytes, base_offset: int) -> None:
        data = b"".join((base_offset.to_bytes(8, "big"), data[8:12], self.epoch.to_bytes(4, "big"), data[16:]))
        self.batches.append(Batch(base_offset, len(self.records), self.epoch, data))

    def truncate(self, end_offset: int) -> None:
        """Lose everything from an offset on, which is the end of a batch."""
        del self.records[end_offset:], self.origins[end_offset:]
        self.holes = {offset for offset in self.holes if offset < end_offset}
        while self.batches and self.batches[-1].next_offset > end_offset:
            self.batches.pop()
        self.high_watermark = min(self.high_watermark, end_offset)

    def ends(self, first: int) -> list[int]:
        """Return the offsets from `first` on where a batch ends, `first` included unless it lies within a batch."""
        is_within = any(batch.base_offset < first < batch.next_offset for batch in self.batches)
        behind = [batch.next_offset for batch in self.batches if batch.next_offset > first]
        return behind if is_within else [first, *behind]

    def end_of_epoch(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return the highest leader epoch up to `epoch` that has records, and the offset behind it."""
        # Both only rise, and who fetches asks each time.
        stop = bisect_left(self.batches, end_offset, key=attrgetter("base_offset"))
        behind = bisect_right(self.batches, epoch, hi=stop, key=attrgetter("leader_epoch"))
        found = self.batches[behind - 1].leader_epoch if behind else -1
        return found, self.batches[behind].base_offset if behind < stop else end_offset

    def read(self, offset: int, end_offset: int, bytes_max: int) -> bytes:
        """Return whole batches from the one that holds `offset` on, as far as they end below `end_offset`."""
        found: list[bytes] = []
        size = 0
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].next_offset <= offset:
                low = middle + 1
            else:
                high = middle
        for batch in self.batches[low:]:
            if batch.next_offset > end_offset or (found and size + len(batch.data) > bytes_max):
                break
            data = batch.data
            if batch.base_offset in self.damaged:
                data = flip(data)
            found.append(data)
            size += len(data)
        return b"".join(found)


def flip(batch: bytes) -> bytes:
    """Return a batch with one bit that is wrong."""
    at = HEAD_BYTES + (len(batch) - HEAD_BYTES) // 2
    return batch[:at] + bytes((batch[at] ^ 4,)) + batch[at + 1 :]


def read_batch(data: bytes) -> list[LogRecord]:
    """Return the records of one batch."""
    batch = MemoryRecords(data).next_batch()
    assert batch.validate_crc()
    return [
        LogRecord(record.offset, record.key, record.value, dict(record.headers).get(HEADER_NAME)) for record in batch
    ]


def _rewrite(records: list[LogRecord]) -> bytes:
    """Return the batch as a broker writes it whose topic has a compression of its own."""
    builder = DefaultRecordBatchBuilder(2, 1, 0, -1, -1, -1, 10_000_000)
    for record in records:
        builder.append(record.offset, 1_000, record.key, record.value, [(HEADER_NAME, record.header)])
    return bytes(builder.build())
