"""The bytes that a snapshot takes: bounds that hold for every number its fields can have, exact sizes of its batches, and estimates.

The largest state of a share partition follows from it: a state whose snapshot does not fit into the log can never be pruned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec

#: Key and value of a snapshot beside its group id and its batches, at most.
#: Avro: key 10 + 3 + 16 + 5; value 10, four ints of 5, three longs of 10, the fences' two of 5, count and end of the array 6.
#: Kafka: key 2 + 2 + 16 + 4; value 2, three ints, three longs, count of the batches 5, tags 1 + 6 + 12.
_ROOM_BYTES: Final = {Codec.AVRO: 34 + 76, Codec.KAFKA: 24 + 62}

#: One batch at most: in Avro two longs of 10, a state of 2 and a count of 3; in Kafka's codec always the same.
BATCH_BYTES_MAX: Final = {Codec.AVRO: 25, Codec.KAFKA: 20}

#: Upper estimates of both, which the size of a whole log partition is counted by.
#: In Avro numbers take as much room as they need: here offsets and times 6 (up to 2^41), and all others 2 (up to 2^13), but a state 1.
ESTIMATES_BYTES: Final = {
    Codec.AVRO: (31 + 43, 15),
    Codec.KAFKA: (_ROOM_BYTES[Codec.KAFKA], BATCH_BYTES_MAX[Codec.KAFKA]),
}


def room_bytes(codec: Codec, group_id_bytes: int) -> int:
    """Return what key and value of a snapshot take beside its batches, at most."""
    return _ROOM_BYTES[codec] + group_id_bytes


def widest_batch_bytes(codec: Codec, batches: Iterable[StateBatch]) -> int:
    """Return what each of these batches, or of any that lie between their offsets, takes at most."""
    if codec is Codec.KAFKA:
        return BATCH_BYTES_MAX[codec]
    widest = 0
    for first, last, _, _ in batches:
        widest = max(widest, number_bytes(first), number_bytes(last))
    return BATCH_BYTES_MAX[codec] - 2 * (10 - widest)


def batches_bytes(codec: Codec, batches: Sequence[StateBatch]) -> int:
    """Return what these batches take in a snapshot or an update, to the byte."""
    if codec is Codec.KAFKA:
        return len(batches) * BATCH_BYTES_MAX[codec]
    size = 0
    for first, last, state, count in batches:
        size += number_bytes(first) + number_bytes(last) + number_bytes(state) + number_bytes(count)
    return size


def number_bytes(number: int) -> int:
    """Return what an int or a long takes in Avro."""
    zigzag = number << 1 if number >= 0 else ~number << 1 | 1
    return max(1, (zigzag.bit_length() + 6) // 7)
