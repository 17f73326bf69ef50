"""Which batches of an answer belong to aborted transactions.

A broker answers a read_committed fetch up to the last stable offset, aborted transactions included. It adds a list of these: producer id
and first offset of each that has a record in the answer, also where it began below the answer. The list is not sorted by first offset,
because brokers keep it by where transactions end. A producer's next transaction may begin in the same answer, after the marker.

Source: Apache Kafka's `CompletedFetch.nextFetchedRecord`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.kafka.records.batches import Batch, is_abort_marker


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted."""

    producer_id: int
    #: Of its first record.
    first_offset: int


def mark_aborted(batches: Iterable[Batch], aborted: Iterable[AbortedTransaction]) -> Iterator[tuple[Batch, bool]]:
    """Yield the batches of one answer in their order, each with whether its records were aborted.

    Markers are not aborted records; `Batch.is_control` tells them.

    Args:
        batches: all of the answer, from its first one on.
        aborted: the list of the same answer, in any order.

    Raises:
        DamagedRecords: a marker cannot be read.
    """
    ahead = deque(sorted(aborted, key=lambda each: each.first_offset))
    open_producers: set[int] = set()
    for batch in batches:
        while ahead and ahead[0].first_offset <= batch.last_offset:
            open_producers.add(ahead.popleft().producer_id)
        if batch.is_control:
            if batch.producer_id in open_producers and is_abort_marker(batch):
                open_producers.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, batch.is_transactional and batch.producer_id in open_producers
