"""The values that tests of all rooms use: topics, share partitions, state batches and metadata images."""

from __future__ import annotations

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey

TOPIC = bytes(range(16))
OTHER_TOPIC = bytes(range(16, 32))
UNKNOWN_TOPIC = bytes(16)
KEY = SharePartitionKey("g1", TOPIC, 7)
OTHER_KEY = SharePartitionKey("g2", OTHER_TOPIC, 0)
#: Above every fence; a Write raises none.
EPOCH_MAX = (1 << 31) - 1


def key_of(number: int) -> SharePartitionKey:
    """Return the key of a share partition of one group, by its number."""
    return SharePartitionKey("group", TOPIC, number)


def batch(first: int, last: int, state: int, count: int) -> StateBatch:
    """Return a state batch; `last` is inclusive."""
    return StateBatch(first, last, state, count)


class Image:
    """A metadata image that is a dictionary."""

    def __init__(self, partition_counts: dict[bytes, int]) -> None:
        self.partition_counts = partition_counts

    def partition_count(self, topic_id: bytes) -> int | None:
        return self.partition_counts.get(topic_id)
