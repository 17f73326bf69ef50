"""Batches are built in C as by the library, byte for byte; records are decoded in C as by the library, or left to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.record.util import calc_crc32c  # type: ignore[import-untyped]  # it ships no types
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.aiokafka_parts import make_batch_builder, read_batch
from holdfast.records.log.header import HEADER_NAME, find_header
from holdfast.records.native import twins
from holdfast.runtime.build import BUILD
from holdfast.runtime.kafka_log import record_batches
from holdfast.runtime.kafka_log.record_batches import (
    BATCH_HEAD_BYTES,
    RECORD_FIELDS_BYTES,
    DamagedBatch,
    Record,
    decode,
    encode,
    encode_in_python,
    take,
)
from holdfast.runtime.log_protocol import LogRecord

if twins is None:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

NAME = HEADER_NAME.encode()
CRC_AT = 17
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.sampled_from([HEADER_NAME, "h", "hfx", ""]), st.binary(max_size=20)), max_size=3)
RECORDS = st.lists(st.tuples(BYTES, BYTES, HEADERS, st.integers(0, 2**48)), min_size=1, max_size=8)

#: Sizes at which a varint gets another byte, and around the step of the checksum.
SIZES = st.sampled_from((0, 1, 7, 8, 9, 62, 63, 64, 65, 8_190, 8_191, 8_192, 8_193)) | st.integers(0, 300)
SENT_BYTES = st.builds(lambda size, byte: bytes(((byte + at) & 0xFF) for at in range(size)), SIZES, st.integers(0, 255))
SENT = st.lists(st.tuples(SENT_BYTES, st.none() | SENT_BYTES, st.binary(max_size=13)), min_size=1, max_size=12)


def make_batch(records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]]) -> bytes:
    builder = make_batch_builder(0, 1 << 20)
    for offset, (key, value, headers, timestamp_ms) in enumerate(records):
        assert builder.append(offset, timestamp_ms, key, value, headers=headers)
    return bytes(builder.build())


def with_checksum(batch: bytes) -> bytes:
    checksum: int = calc_crc32c(batch[CRC_AT + 4 :])
    return batch[:CRC_AT] + checksum.to_bytes(4, "big") + batch[CRC_AT + 4 :]


def taken_by_the_library(batch: bytes, from_offset: int) -> list[LogRecord]:
    return [
        LogRecord(each.offset, each.key, each.value, find_header(each.headers))
        for each in read_batch(batch)
        if each.offset >= from_offset
    ]


@given(RECORDS, st.integers(0, 9))
def test_records_are_taken_as_by_the_library(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]], from_offset: int
) -> None:
    batch = make_batch(records)
    taken = twins.decode_records(LogRecord, NAME, batch, BATCH_HEAD_BYTES, len(records), 0, from_offset)
    assert taken == taken_by_the_library(batch, from_offset)
    assert {type(each) for each in taken} <= {LogRecord}


@given(RECORDS, st.data())
def test_damaged_records_are_taken_as_by_the_library_or_left_to_it(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]], data: st.DataObject
) -> None:
    damaged = bytearray(make_batch(records))
    for place in data.draw(st.lists(st.integers(BATCH_HEAD_BYTES, len(damaged) - 1), min_size=1, max_size=3)):
        damaged[place] = data.draw(st.integers(0, 255))
    batch = bytes(damaged[: data.draw(st.integers(BATCH_HEAD_BYTES, len(damaged)))])
    taken = twins.decode_records(LogRecord, NAME, batch, BATCH_HEAD_BYTES, len(records), 0, 0)
    if taken is not None and len(batch) == len(damaged):
        assert taken == taken_by_the_library(batch, 0)


def test_malformed_batch_is_refused_or_left_to_the_library() -> None:
    batch = make_batch([(b"key", b"value", [], 0)])
    assert twins.decode_records(LogRecord, NAME, batch, BATCH_HEAD_BYTES, 2, 0, 0) is None
    assert twins.decode_records(LogRecord, NAME, batch, BATCH_HEAD_BYTES, 0, 0, 0) is None
    assert twins.decode_records(LogRecord, NAME, batch, -1, 1, 0, 0) is None
    assert twins.decode_records(LogRecord, NAME, batch, len(batch) + 1, 1, 0, 0) is None
    longer = bytearray(batch)
    longer[BATCH_HEAD_BYTES + 1] = 0x80  # attributes, of which the library reads a varint
    assert twins.decode_records(LogRecord, NAME, bytes(longer), BATCH_HEAD_BYTES, 1, 0, 0) is None
    with pytest.raises(TypeError):
        twins.decode_records(int, NAME, batch, BATCH_HEAD_BYTES, 1, 0, 0)  # type: ignore[type-var]


@given(SENT, st.integers(0, 2**48), st.integers(0, 4_000) | st.integers(0, 200_000))
def test_batches_are_built_as_by_the_library(records: list[Record], timestamp_ms: int, bytes_max: int) -> None:
    built = encode(records, timestamp_ms, 0, bytes_max)
    assert built == encode_in_python(records, timestamp_ms, 0, bytes_max)
    decoded = read_batch(built[0])
    assert decoded.validate_crc()
    assert len(list(decoded)) == built[1]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 8_192, 8_193, 8_194])
def test_batches_of_many_records_are_built_as_by_the_library(count: int) -> None:
    records: list[Record] = [(b"key", None if number % 3 else b"value", b"h" * 13) for number in range(count)]
    built = encode(records, 1, 0, 1 << 20)
    assert built == encode_in_python(records, 1, 0, 1 << 20)
    assert built[1] == count


@pytest.mark.parametrize("size", [0, 1, 1_048_574, 1_048_575, 1_048_576])
def test_batch_ends_at_its_limit_but_holds_at_least_one_record(size: int) -> None:
    large: Record = (b"", bytes(size), b"h" * 13)
    # The second record just fits, or just does not; the first one alone may take more.
    for more, count in ((1, 2), (0, 2), (-1, 1)):
        bytes_max = BATCH_HEAD_BYTES + 2 * (size + RECORD_FIELDS_BYTES) + more
        built = encode([large] * 3, 1, 0, bytes_max)
        assert built == encode_in_python([large] * 3, 1, 0, bytes_max)
        assert built[1:] == (count, count * size)
    assert encode([large] * 3, 1, 0, 0) == encode_in_python([large] * 3, 1, 0, 0)
    assert encode([large] * 3, 1, 0, 0)[1] == 1


def test_compressed_batch_is_built_by_the_library() -> None:
    records: list[Record] = [(b"key", b"value" * 50, b"h" * 13)] * 5
    batch, count, size = encode(records, 1, 1, 10_000)
    assert (count, size) == (5, 5 * 253)
    assert len(batch) < size
    assert [each.value for each in read_batch(batch)] == [b"value" * 50] * 5


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TypeError, lambda: twins.encode_records([("text", b"", b"")], NAME, 1, 100, 42)),  # type: ignore[list-item]
        (TypeError, lambda: twins.encode_records([(b"", "text", b"")], NAME, 1, 100, 42)),  # type: ignore[list-item]
        (TypeError, lambda: twins.encode_records([(b"", b"", None)], NAME, 1, 100, 42)),  # type: ignore[list-item]
        (TypeError, lambda: twins.encode_records([(b"", b"")], NAME, 1, 100, 42)),  # type: ignore[list-item]
        (TypeError, lambda: twins.encode_records(((b"", b"", b""),), NAME, 1, 100, 42)),  # type: ignore[arg-type]
        (TypeError, lambda: twins.encode_records([(b"", b"", b"")], "hf", 1, 100, 42)),  # type: ignore[arg-type]
        (TypeError, lambda: twins.encode_records([(b"", b"", b"")], NAME, 1, 100, None)),  # type: ignore[arg-type]
        (TypeError, lambda: twins.encode_records([(b"", b"", b"")], NAME, 1)),  # type: ignore[call-arg]
        (ValueError, lambda: twins.encode_records([], NAME, 1, 100, 42)),
        (ValueError, lambda: twins.encode_records([(b"", b"", b"")], NAME, 1, 2**31, 42)),
        (ValueError, lambda: twins.encode_records([(b"", b"", b"")], NAME, 1, 100, -1)),
        (OverflowError, lambda: twins.encode_records([(b"", b"", b"")], NAME, 2**63, 100, 42)),
    ],
)
def test_malformed_record_is_refused(error: type[Exception], call: Callable[[], object]) -> None:
    with pytest.raises(error):
        call()


@given(RECORDS, st.integers(0, 9), st.integers(1, 9))
def test_records_are_the_same_however_few_are_decoded_at_a_time(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]], from_offset: int, records_max: int
) -> None:
    batch = make_batch(records)
    taken = take(decode(batch, from_offset, 1 << 20, records_max), len(records), len(records) - 1)
    assert taken == taken_by_the_library(batch, from_offset)


def test_no_more_than_a_slice_is_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    class Noting:
        @staticmethod
        def decode_records(*arguments: Any) -> list[LogRecord] | None:
            found = twins.decode_records(*arguments)
            decoded.append(len(found or []))
            return found

    monkeypatch.setattr(record_batches, "twins", Noting)
    records = decode(make_batch([(b"key", b"value", [], 0)] * 1_000), 0, 1 << 20, 300)
    assert [len(take(records, 300, 999)), decoded] == [300, [300]]
    assert [len(take(records, 1_000, 999)), decoded] == [700, [300, 300, 300, 100]]


def test_batch_left_to_the_library_is_decoded_by_few_too() -> None:
    batch = make_batch([(b"key", b"value", [("name of \u00e4", b"")], 0)] * 1_000)
    asked_for = []

    def decoded() -> Iterator[Any]:
        for record in read_batch(batch):
            asked_for.append(record.offset)
            yield record

    few = record_batches._decode_by_few(batch, decoded(), 0, 1_000, 0, 300)
    assert [len(list(next(few))), len(asked_for)] == [300, 300]
    assert [len(list(each)) for each in few] == [300, 300, 100]


@given(RECORDS, st.integers(1, 4), st.data())
def test_damage_is_found_as_by_the_library_for_any_slice_size(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]],
    records_max: int,
    data: st.DataObject,
) -> None:
    damaged = bytearray(make_batch(records))
    for place in data.draw(st.lists(st.integers(BATCH_HEAD_BYTES, len(damaged) - 1), min_size=1, max_size=3)):
        damaged[place] = data.draw(st.integers(0, 255))
    batch = with_checksum(bytes(damaged))
    try:
        expected = taken_by_the_library(batch, 0)
    except Exception:  # the library raises many classes
        with pytest.raises(DamagedBatch):
            take(decode(batch, 0, 1 << 20, records_max), 1_000, 1 << 62)
    else:
        assert take(decode(batch, 0, 1 << 20, records_max), 1_000, 1 << 62) == expected
