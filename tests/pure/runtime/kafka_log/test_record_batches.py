"""Records are taken out of a batch in C as the library takes them, or left to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kafka.aiokafka_parts import make_batch_builder, read_batch
from holdfast.records.header import HEADER_NAME, find_header
from holdfast.records.native import twins
from holdfast.runtime.build import BUILD
from holdfast.runtime.kafka_log.record_batches import BATCH_HEAD_BYTES
from holdfast.runtime.log_protocol import LogRecord

if twins is None:
    assert BUILD == "pure", "the compiled build lacks what is written in C"
    pytest.skip("the pure build has nothing in C", allow_module_level=True)

NAME = HEADER_NAME.encode()
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.sampled_from([HEADER_NAME, "h", "hfx", ""]), st.binary(max_size=20)), max_size=3)
RECORDS = st.lists(st.tuples(BYTES, BYTES, HEADERS, st.integers(0, 2**48)), min_size=1, max_size=8)


def make_batch(records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]]) -> bytes:
    builder = make_batch_builder(0, 1 << 20)
    for offset, (key, value, headers, timestamp_ms) in enumerate(records):
        assert builder.append(offset, timestamp_ms, key, value, headers=headers)
    return bytes(builder.build())


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


def test_what_is_no_batch_is_refused_or_left_to_the_library() -> None:
    batch = make_batch([(b"key", b"value", [], 0)])
    assert twins.decode_records(LogRecord, NAME, batch, BATCH_HEAD_BYTES, 2, 0, 0) is None
    assert twins.decode_records(LogRecord, NAME, batch, BATCH_HEAD_BYTES, 0, 0, 0) is None
    assert twins.decode_records(LogRecord, NAME, batch, -1, 1, 0, 0) is None
    assert twins.decode_records(LogRecord, NAME, batch, len(batch) + 1, 1, 0, 0) is None
    with pytest.raises(TypeError):
        twins.decode_records(int, NAME, batch, BATCH_HEAD_BYTES, 1, 0, 0)  # type: ignore[type-var]
