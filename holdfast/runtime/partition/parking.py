"""Parked operations: records of ours that were not read back yet, and answers without records of their own."""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from holdfast.records.native import maker
from holdfast.runtime.state_machine import Operation


class Parked(NamedTuple):
    """A record of ours that was handed to the log and not read back so far."""

    sequence: int
    header: bytes
    key_bytes: bytes
    value_bytes: bytes | None
    key: Any
    value: Any
    #: Answered when this record counts; None for all but the last record of an operation.
    operation: Operation | None
    response: Any


#: Makes a Parked of its eight values in order; one is made for every record.
make_parked: Final[Callable[[tuple[Any, ...]], Parked]] = maker(Parked)


@final
class Waiter:
    """An answer without records of its own."""

    __slots__ = ("after_sequence", "index_round", "operation", "read_index", "response")

    def __init__(self, operation: Operation, response: object, after_sequence: int, index_round: int) -> None:
        self.operation = operation
        self.response = response
        #: Every record of ours up to it must have counted.
        self.after_sequence = after_sequence
        #: The round of requests to the broker that brings its read index.
        self.index_round = index_round
        #: The tail must have reached this offset; -1: not known yet.
        self.read_index = -1


class Parking:
    """The parked records and answers of one partition, in order of arrival."""

    __slots__ = ("_indexed", "_oldest", "_oldest_since_ms", "_unindexed", "answers", "records")

    def __init__(self) -> None:
        #: Sequences ascend without a gap.
        self.records: deque[Parked] = deque()
        #: Number of answers without records of their own.
        self.answers = 0
        #: Sequence of the oldest record at the last call of `stalled_ms`.
        self._oldest = -1
        self._oldest_since_ms = 0
        self._unindexed: deque[Waiter] = deque()
        self._indexed: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self.records) + self.answers

    def stalled_ms(self, now_ms: int) -> int:
        """Return for how long calls of this method have seen the same oldest record; 0 if there is none."""
        oldest = self.records[0].sequence if self.records else -1
        if oldest != self._oldest or oldest == -1:
            self._oldest, self._oldest_since_ms = oldest, now_ms
        return now_ms - self._oldest_since_ms

    def wait(self, operation: Operation, response: object, after_sequence: int, index_round: int) -> None:
        """Keep an answer until its read index is known and reached."""
        self._unindexed.append(Waiter(operation, response, after_sequence, index_round))
        self.answers += 1

    def set_read_index(self, index_round: int, offset: int) -> None:
        """Set the read index of all answers that requested it in this round or before."""
        waiting = self._unindexed
        while waiting and waiting[0].index_round <= index_round:
            waiter = waiting.popleft()
            waiter.read_index = offset
            self._indexed.append(waiter)

    def release(self, committed_sequence: int, position: int) -> list[Waiter]:
        """Remove the answers that may leave, and return them in order."""
        waiting, released = self._indexed, []
        while waiting and waiting[0].read_index <= position and waiting[0].after_sequence <= committed_sequence:
            released.append(waiting.popleft())
        self.answers -= len(released)
        return released

    def drain(self) -> list[Operation]:
        """Remove everything, and return the operations that waited, those with records first."""
        operations = [parked.operation for parked in self.records if parked.operation is not None]
        operations += [waiter.operation for waiter in (*self._indexed, *self._unindexed)]
        self.records.clear()
        self._indexed.clear()
        self._unindexed.clear()
        self.answers = 0
        return operations
