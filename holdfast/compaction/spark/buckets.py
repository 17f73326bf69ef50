"""The state of the share partitions of one log partition, in buckets.

A call to Spark's state store costs a round trip from Python to the JVM, and a bucket makes one call of many.
A share partition lies in the bucket that its hash names. Their number is a power of two, and doubles when they are full.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, Protocol
from zlib import crc32

from holdfast.records.share.codecs.numbers import decode_numbers, encode_numbers
from holdfast.records.share.snapshot_store.folding import Held

#: Share partitions in a bucket, on average, right after the buckets have become more, and at most.
SIZE_AFTER_GROWTH: Final = 16
SIZE_MAX: Final = 64

_HEAD_SIZE: Final = Struct(">i")
#: In place of the size of an entry: there is none.
_NO_ENTRY: Final = -1

Bucket = dict[bytes, Held]


class BucketState(Protocol):
    """Bytes by the number of a bucket."""

    def read(self, number: int) -> bytes | None:
        """Return the bytes of a bucket, None where there are none."""

    def write(self, number: int, data: bytes) -> None:
        """Replace the bytes of a bucket."""

    def clear(self) -> None:
        """Remove all buckets."""


def encode_bucket(bucket: Bucket) -> bytes:
    """Return a bucket's bytes: size of the head, the head, then keys and entries."""
    numbers: list[int] = []
    parts = []
    for share_key, (covered_offset, entry) in bucket.items():
        numbers += (len(share_key), covered_offset, _NO_ENTRY if entry is None else len(entry))
        parts.append(share_key)
        if entry is not None:
            parts.append(entry)
    head = encode_numbers(numbers)
    return b"".join((_HEAD_SIZE.pack(len(head)), head, *parts))


def decode_bucket(data: bytes) -> Bucket:
    """Return the bucket that `encode_bucket` made the bytes of."""
    (head_size,) = _HEAD_SIZE.unpack_from(data)
    place = _HEAD_SIZE.size + head_size
    numbers = iter(decode_numbers(data[_HEAD_SIZE.size : place]))
    bucket = {}
    for key_size, covered_offset, entry_size in zip(numbers, numbers, numbers, strict=True):
        share_key = data[place : place + key_size]
        place += key_size
        entry = None
        if entry_size != _NO_ENTRY:
            entry = data[place : place + entry_size]
            place += entry_size
        bucket[share_key] = Held(covered_offset, entry)
    assert place == len(data)
    return bucket


class BucketStore:
    """A `folding.Store` that reads a bucket once and writes it once, when it is flushed.

    Args:
        state: where the buckets lie.
        bucket_count: a power of two, as the last flush returned it; 1 at first.
    """

    def __init__(self, state: BucketState, bucket_count: int) -> None:
        self._state = state
        self._bucket_count = bucket_count
        self._buckets: dict[int, Bucket] = {}
        self._changed: set[int] = set()

    def get(self, key: bytes) -> Held | None:
        """Return the state of a share partition, None where there is none."""
        return self._bucket(self._number(key)).get(key)

    def put(self, key: bytes, held: Held) -> None:
        """Set the state of a share partition."""
        number = self._number(key)
        self._bucket(number)[key] = held
        self._changed.add(number)

    def remove(self, key: bytes) -> None:
        """Remove the state of a share partition, which has one."""
        number = self._number(key)
        del self._bucket(number)[key]
        self._changed.add(number)

    def items(self) -> Iterator[tuple[bytes, Held]]:
        """Yield the states of all share partitions."""
        for number in range(self._bucket_count):
            yield from self._bucket(number).items()

    def clear(self) -> None:
        """Remove all states."""
        self._state.clear()
        self._bucket_count = 1
        self._buckets = {0: {}}
        self._changed.clear()

    def flush(self, key_count: int) -> int:
        """Write what has changed, `key_count` being the number of share partitions with state; returns the number of buckets."""
        if key_count > SIZE_MAX * self._bucket_count:
            self._grow(key_count)
        for number in self._changed:
            self._state.write(number, encode_bucket(self._buckets[number]))
        self._changed.clear()
        return self._bucket_count

    def _number(self, key: bytes) -> int:
        return crc32(key) & self._bucket_count - 1

    def _bucket(self, number: int) -> Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            data = self._state.read(number)
            bucket = self._buckets[number] = {} if data is None else decode_bucket(data)
        return bucket

    def _grow(self, key_count: int) -> None:
        old = [self._bucket(number) for number in range(self._bucket_count)]
        while key_count > SIZE_AFTER_GROWTH * self._bucket_count:
            self._bucket_count *= 2
        self._buckets = {number: {} for number in range(self._bucket_count)}
        self._changed = set(self._buckets)
        for bucket in old:
            for key, held in bucket.items():
                self._buckets[self._number(key)][key] = held
