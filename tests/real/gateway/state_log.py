"""The state topic as it was written during a run, and the end of each offset as it tells it.

A node prunes its log, so what happens is noted while it happens. A Write that moves the start offset leaves no batch below it in
the log: of an offset that was passed, the log tells the state before.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from holdfast.records.errors import UnknownRecordType
from holdfast.records.log.header import decode_header, find_header, is_foreign
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from holdfast.records.share.codecs.codec import decode_record
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.log_protocol import LogRecord
from tests.real.running_node import read_log
from tests.waiting import PATIENCE_S, block_until

#: Higher than any offset of a state.
_AFTER_ALL: Final = 1 << 62


class LogTape:
    """A thread that notes each record of a topic from its beginning, before the records are deleted."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.records: Final[list[list[LogRecord]]] = [[] for _ in range(partitions)]
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._is_stopping = threading.Event()
        self._failure: KafkaError | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "tape",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                # A record that was deleted before it was noted would be missed in the judgement.
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            for message in self._consumer.consume(1_000, timeout=1):
                partition, offset, error = message.partition(), message.offset(), message.error()
                if error is not None:
                    if error.code() == KafkaError._AUTO_OFFSET_RESET:
                        self._failure = error
                        return
                    continue
                assert partition is not None
                assert offset is not None
                record = LogRecord(offset, message.key(), message.value(), find_header(message.headers()))
                self.records[partition].append(record)

    def stop(self) -> None:
        """Note the rest of a topic that nobody writes any more, to its end, which a look that finds nothing does not show."""
        ends = [read_log(self._bootstrap_servers, self._topic, each)[-1:] for each in range(len(self.records))]
        try:
            block_until(
                lambda: self._failure or all(noted[-1:] == end for noted, end in zip(self.records, ends, strict=True)),
                "the end of the topic",
            )
        finally:
            self._is_stopping.set()
            self._thread.join(PATIENCE_S)
            self._consumer.close()
        assert self._failure is None, f"records were deleted before they were noted: {self._failure}"


class Fate(NamedTuple):
    """The end of offsets, as the log tells it."""

    first: int
    #: Inclusive.
    last: int
    #: The last state that the log has; `AVAILABLE` with a count of 0 where it has none.
    state: int
    delivery_count: int
    #: The start offset was moved over them.
    is_passed: bool

    @property
    def is_finished(self) -> bool:
        """Tell whether they are never delivered again."""
        return self.is_passed or self.state in (ACKNOWLEDGED, ARCHIVED)


class StateLog:
    """The states of one group by the records of one log partition."""

    def __init__(self, group: str) -> None:
        self.states: Final[dict[SharePartitionKey, ShareState]] = {}
        #: A line for each start offset, delivery count and state that fell on the way.
        self.faults: list[str] = []
        self._group = group
        self._passed: Final[dict[SharePartitionKey, list[Fate]]] = {}
        self._owner_epoch = -1

    def add(self, record: LogRecord) -> None:
        """Take the next record."""
        if is_foreign(record.header) or record.header is None:
            return
        epoch, _ = decode_header(record.header)
        if epoch < self._owner_epoch:  # a former owner's, which counts no more
            return
        self._owner_epoch = epoch
        try:
            key, value, _ = decode_record(record.key, record.value)
        except UnknownRecordType:
            return
        if key.group_id != self._group:
            return
        before = self.states.get(key)
        after = replay(before, value, 500)  # type: ignore[arg-type]  # no record of ours is a no-op
        if after is None:
            self.faults.append(f"the state of {key} is gone at offset {record.offset}")
            return
        self.states[key] = after
        if before is None:
            return
        assert isinstance(value, Snapshot | Update)
        falls = _find_falls(before, after, value)
        self.faults += [f"{text}, of {key} at offset {record.offset} of the log" for text in falls]
        if after.start_offset > before.start_offset >= 0:
            passed = self._passed.setdefault(key, [])
            passed += _fates(before.state_batches, before.start_offset, after.start_offset - 1, is_passed=True)

    def fates(self, key: SharePartitionKey) -> list[Fate]:
        """Return what became of all offsets from the first start offset on, ascending."""
        state = self.states[key]
        end = state.state_batches[-1].last_offset if state.state_batches else -1
        return [
            *self._passed.get(key, ()),
            *_fates(state.state_batches, state.start_offset, end, is_passed=False),
        ]


def _find_falls(before: ShareState, after: ShareState, value: Snapshot | Update) -> Iterator[str]:
    if after.start_offset < before.start_offset:
        yield f"the start offset fell from {before.start_offset} to {after.start_offset}"
    # A snapshot is the whole state: it may leave nothing out.
    told = _fates(value.state_batches, after.start_offset, _AFTER_ALL, is_passed=False)
    for first, last, state, count, _ in told:
        if type(value) is Update and not (state or count):
            continue
        for known in _overlapping(before.state_batches, first, last):
            where = f"{max(first, known.first_offset)} to {min(last, known.last_offset)}"
            if count < known.delivery_count:
                yield f"the delivery count of {where} fell from {known.delivery_count} to {count}"
            # An acknowledgement whose answer said that it was not written may have been, and an Update after it counts for nothing.
            if type(value) is Snapshot and state == AVAILABLE != known.delivery_state and count == known.delivery_count:
                yield f"offsets {where} were in state {known.delivery_state} and are available again"


def _overlapping(batches: Sequence[StateBatch], first: int, last: int) -> Iterator[StateBatch]:
    index = max(0, bisect_right(batches, first, key=lambda batch: batch.first_offset) - 1)
    while index < len(batches) and batches[index].first_offset <= last:
        if batches[index].last_offset >= first:
            yield batches[index]
        index += 1


def _fates(batches: Sequence[StateBatch], first: int, last: int, *, is_passed: bool) -> Iterable[Fate]:
    """Give the states of a range of offsets, those included of which batches say nothing."""
    for batch in _overlapping(batches, first, last):
        if first < batch.first_offset:
            yield Fate(first, batch.first_offset - 1, AVAILABLE, 0, is_passed)
        end = min(batch.last_offset, last)
        yield Fate(max(first, batch.first_offset), end, batch.delivery_state, batch.delivery_count, is_passed)
        first = end + 1
    if first <= last:
        yield Fate(first, last, AVAILABLE, 0, is_passed)
