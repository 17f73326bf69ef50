"""Bounds and estimates of the bytes of a snapshot, beside what the codecs write."""

from __future__ import annotations

from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.codecs.sizes import BATCH_BYTES_MAX, ESTIMATES_BYTES, room_bytes
from holdfast.records.share.keys import GROUP_ID_BYTES_MAX, SharePartitionKey
from holdfast.records.share.values import Snapshot
from tests.pure.records.share.codecs.samples import CODECS
from tests.world.records import encode_record

GROUP_ID = "g" * GROUP_ID_BYTES_MAX


@CODECS
def test_the_widest_snapshot_takes_what_the_bounds_say(codec: Codec) -> None:
    batches = 1_000
    size = snapshot_bytes(codec, (1 << 63) - 1, (1 << 31) - 1, 127, batches)
    # The count of the batches has up to five bytes, of which these need two or three.
    assert 0 <= room_bytes(codec, len(GROUP_ID)) + batches * BATCH_BYTES_MAX[codec] - size <= 4


@CODECS
def test_a_snapshot_is_estimated_from_above_and_exactly_at_its_widest(codec: Codec) -> None:
    whole, each = ESTIMATES_BYTES[codec]
    for batches in (0, 1, 50, 1_000):
        size = snapshot_bytes(codec, (1 << 41) - 1, (1 << 13) - 1, ACKNOWLEDGED, batches)
        assert 0 <= whole + len(GROUP_ID) + batches * each - size <= 4


@CODECS
def test_no_estimate_is_above_its_bound(codec: Codec) -> None:
    whole, each = ESTIMATES_BYTES[codec]
    assert whole <= room_bytes(codec, 0)
    assert each <= BATCH_BYTES_MAX[codec]


def snapshot_bytes(codec: Codec, widest_long: int, widest_int: int, delivery_state: int, batch_count: int) -> int:
    """Return the size of key and value of a snapshot whose numbers are all as wide as these; the fences are above the epochs."""
    delivery_count = min(widest_int, (1 << 15) - 1)
    batch = StateBatch(widest_long, widest_long, delivery_state, delivery_count)
    snapshot = Snapshot(
        widest_int,
        widest_int - 1,
        widest_int - 1,
        widest_long,
        widest_int,
        widest_long,
        widest_long,
        (batch,) * batch_count,
        widest_int,
        widest_int,
    )
    key, value = encode_record(codec, SharePartitionKey(GROUP_ID, bytes(16), widest_int), snapshot)
    assert value is not None
    return len(key) + len(value)
