"""The heads of record batches against aiokafka, which writes and reads them, and heads that lie."""

import pytest
from aiokafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kafka.records.batches import Batch, DamagedRecords, OldFormat, is_abort_marker, iter_batches
from tests.pure.kafka.records.samples import ABORT, COMMIT, make_batch, make_marker, with_head

LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 8, 16, 21, 23, 57


def batches_of(data: bytes, from_offset: int = 0) -> list[Batch]:
    return list(iter_batches(memoryview(data), from_offset))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 5), st.sampled_from([0, 1, 2, 3, 4]), st.integers(0, 9), st.integers(0, 7), st.booleans()
        ),
        min_size=1,
        max_size=5,
    )
)
def test_heads_are_those_that_were_written(parts: list[tuple[int, int, int, int, bool]]) -> None:
    written, offset = [], 5
    for count, compression, gap, epoch, is_transactional in parts:
        offset += gap
        producer = (77, 3) if is_transactional else (-1, -1)
        data = make_batch(
            offset,
            [b"x" * 50] * count,
            compression=compression,
            leader_epoch=epoch,
            producer=producer,
            is_transactional=is_transactional,
        )
        written.append((offset, offset + count - 1, epoch, compression, producer, is_transactional, count, data))
        offset += count
    joined = b"".join(data for *_, data in written)
    found = batches_of(joined, 5)
    assert [
        (
            batch.base_offset,
            batch.last_offset,
            batch.leader_epoch,
            batch.compression,
            (batch.producer_id, batch.producer_epoch),
            batch.is_transactional,
            batch.record_count,
            bytes(batch.data),
        )
        for batch in found
    ] == written
    assert not any(batch.is_control for batch in found)
    # The oracle: what was handed out is what another client reads.
    for batch in found:
        records = list(MemoryRecords(bytes(batch.data)).next_batch())
        assert [record.offset for record in records] == list(range(batch.base_offset, batch.last_offset + 1))


def test_batches_are_views_and_no_copies() -> None:
    answer = bytearray(make_batch(0) + make_batch(1))
    first, second = iter_batches(memoryview(answer), 0)
    answer[-1] ^= 0xFF
    assert (first.data.obj is answer, second.data[-1]) == (True, answer[-1])


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_last_batch_that_is_cut_short_is_left_out(cut: int) -> None:
    data = make_batch(0) + make_batch(1, [b"y" * 100])
    assert [batch.base_offset for batch in batches_of(data[:-cut])] == [0]
    assert [batch.base_offset for batch in batches_of(data + make_batch(2)[:cut])][-1:] != [2]


@pytest.mark.parametrize("size", [1, 17, 60, 61, 70])
def test_first_batch_must_be_whole(size: int) -> None:
    with pytest.raises(DamagedRecords, match=f"offset 7 is cut short: {size} bytes"):
        batches_of(make_batch(7, [b"y" * 100])[:size], 7)


def test_first_batch_may_begin_below_the_offset_and_no_other_may() -> None:
    data = make_batch(0, [b"v"] * 10)
    assert [batch.base_offset for batch in batches_of(data, 9)] == [0]
    with pytest.raises(DamagedRecords, match="offsets 0 to 9, after 9"):
        batches_of(data, 10)
    with pytest.raises(DamagedRecords, match="offsets 5 to 14, after 9"):
        batches_of(data + make_batch(5, [b"v"] * 10), 3)


def test_compacted_batches_may_lack_records() -> None:
    data = with_head(with_head(make_batch(4), LAST_DELTA_AT, 20, 4), COUNT_AT, 0, 4)
    (batch,) = batches_of(data, 15)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (4, 24, 0)


@pytest.mark.parametrize(
    ("at", "number", "size", "message"),
    [
        (LENGTH_AT, 48, 4, "says that it has 60 bytes"),
        (LENGTH_AT, 0, 4, "says that it has 12 bytes"),
        (LENGTH_AT, -1, 4, "says that it has 11 bytes"),
        (LENGTH_AT, -(2**31), 4, "bytes"),
        (LENGTH_AT, 2**31 - 1, 4, "cut short"),
        (LAST_DELTA_AT, -1, 4, "offsets 3 to 2"),
        (0, -5, 8, "offsets -5"),
        (COUNT_AT, -1, 4, "-1 records"),
        (COUNT_AT, 2, 4, "2 records"),
        (ATTRIBUTES_AT, 7, 2, "codec 7"),
        (MAGIC_AT, 3, 1, "format 3, which is not known"),
    ],
)
def test_heads_that_lie_are_told(at: int, number: int, size: int, message: str) -> None:
    with pytest.raises(DamagedRecords, match=message) as caught:
        batches_of(with_head(make_batch(3), at, number, size), 3)
    assert not isinstance(caught.value, OldFormat)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_told_even_where_they_are_short(magic: int) -> None:
    with pytest.raises(OldFormat, match=f"format {magic}"):
        batches_of(bytes(16) + bytes([magic]) + bytes(9))


def test_what_comes_before_damage_is_handed_out() -> None:
    found = iter_batches(memoryview(make_batch(0) + with_head(make_batch(1), MAGIC_AT, 1, 1)), 0)
    assert next(found).base_offset == 0
    with pytest.raises(OldFormat):
        next(found)


@pytest.mark.parametrize(("kind", "is_abort"), [(ABORT, True), (COMMIT, False), (5, False)])
def test_markers_say_how_a_transaction_ended(kind: int, is_abort: bool) -> None:
    (marker,) = batches_of(make_marker(0, (77, 0), kind))
    assert marker.is_control
    assert is_abort_marker(marker) is is_abort
    assert not is_abort_marker(batches_of(make_batch(0, producer=(77, 0), is_transactional=True))[0])


def test_marker_without_its_record_ends_nothing() -> None:
    (marker,) = batches_of(with_head(make_marker(0, (77, 0), ABORT), COUNT_AT, 0, 4))
    assert not is_abort_marker(marker)


def test_markers_that_are_cut_or_lie_are_told() -> None:
    whole = make_marker(0, (77, 0), ABORT)
    for size in range(61, len(whole)):
        (marker,) = batches_of(with_head(whole[:size], LENGTH_AT, size - 12, 4))
        with pytest.raises(DamagedRecords, match="the marker at offset 0"):
            is_abort_marker(marker)
    for wrong in (
        make_marker(0, (77, 0), ABORT, key=b"\x00"),
        with_head(whole, 61, -1, 1),
        with_head(whole, ATTRIBUTES_AT, 0x31, 2),
        whole[:61] + b"\xff" * (len(whole) - 61),
    ):
        with pytest.raises(DamagedRecords, match="the marker at offset 0"):
            is_abort_marker(batches_of(wrong)[0])
