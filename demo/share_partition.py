"""The delivery state of one topic partition, as the leader of a share partition keeps it in memory (KIP-932).

Only what is settled is ever written down. An acquisition lives in memory: when the leader dies, its records are
available again, and the delivery it had begun does not count.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final, NamedTuple

from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch

#: Kafka's delivery state of a record that was given to a consumer; it is never persisted.
ACQUIRED: Final = 1
_FINISHED: Final = (ACKNOWLEDGED, ARCHIVED)


class Delivery(NamedTuple):
    """What became of one record so far."""

    delivery_state: int
    delivery_count: int


class SharePartition:
    """Which records are available, acquired or finished, from the start offset on."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], deliveries_max: int, stride: int) -> None:
        """Begin with a state read from the coordinator.

        Args:
            start_offset: all records before it are finished.
            batches: what became of those from there on; records in none of them were never delivered.
            deliveries_max: a record released after so many deliveries is archived.
            stride: the start offset moves when so many records behind it are finished.
        """
        self.start_offset = start_offset
        self._deliveries_max = deliveries_max
        self._stride = stride
        self._deliveries = by_offset(batches)

    def acquire(self, offsets: Iterable[int], records_max: int) -> list[tuple[int, int]]:
        """Take the first available ones of `offsets`; returns (offset, delivery count) of each."""
        acquired = []
        for offset in offsets:
            state, deliveries = self._deliveries.get(offset, (AVAILABLE, 0))
            if offset >= self.start_offset and state == AVAILABLE:
                self._deliveries[offset] = Delivery(ACQUIRED, deliveries + 1)
                acquired.append((offset, deliveries + 1))
                if len(acquired) == records_max:
                    break
        return acquired

    def settle(self, succeeded: Mapping[int, bool]) -> list[StateBatch]:
        """Acknowledge or release acquired records by offset; returns what is to be written down."""
        batches: list[StateBatch] = []
        for offset, is_success in sorted(succeeded.items()):
            deliveries = self._deliveries[offset].delivery_count
            released = ARCHIVED if deliveries >= self._deliveries_max else AVAILABLE
            delivery = Delivery(ACKNOWLEDGED if is_success else released, deliveries)
            self._deliveries[offset] = delivery
            if batches and batches[-1][1:] == (offset - 1, *delivery):
                batches[-1] = batches[-1]._replace(last_offset=offset)
            else:
                batches.append(StateBatch(offset, offset, *delivery))
        return batches

    def move_start(self) -> int:
        """Move the start offset behind finished records where enough of them have come together, and return it."""
        end = next(offset for offset in count(self.start_offset) if not self.is_finished(offset))
        if end - self.start_offset >= self._stride:
            for offset in range(self.start_offset, end):
                del self._deliveries[offset]
            self.start_offset = end
        return self.start_offset

    def is_finished(self, offset: int) -> bool:
        """Tell whether a record is acknowledged or archived."""
        return offset < self.start_offset or self._deliveries.get(offset, (AVAILABLE, 0))[0] in _FINISHED

    def finished_behind_start(self) -> int:
        """Return how many records from the start offset on are finished: the delivery complete count of a write."""
        return sum(delivery.delivery_state in _FINISHED for delivery in self._deliveries.values())


def by_offset(batches: Iterable[StateBatch]) -> dict[int, Delivery]:
    """Return what batches say about each single record."""
    return {
        offset: Delivery(batch.delivery_state, batch.delivery_count)
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
