"""What the job remembers of a log partition survives its JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from holdfast.compaction.spark.fold_processor import (
    Memory,
    decode_last_read,
    decode_memory,
    encode_last_read,
    encode_memory,
)
from holdfast.records.log.fencing import Position
from holdfast.records.share.snapshot_store.folding import NEW, Mark

numbers = st.integers(-1, 1 << 62)
marks = st.builds(
    Mark,
    st.none() | numbers,
    st.builds(Position, numbers, st.none() | st.binary(min_size=16, max_size=16), numbers),
    st.binary(max_size=40),
    numbers,
    numbers,
    numbers,
    st.integers(0, (1 << 128) - 1),
    numbers,
    numbers,
    numbers,
    st.binary(max_size=16),
)


@given(st.builds(Memory, st.just(NEW) | marks, numbers, st.none() | st.text(), st.none() | numbers))
def test_what_is_remembered_survives_its_json(memory: Memory) -> None:
    assert decode_memory(encode_memory(memory)) == memory


def test_memory_of_an_earlier_version_says_nothing_of_what_was_read_last() -> None:
    fields = json.loads(encode_memory(Memory(NEW._replace(next_offset=7, last_digest=b"digest"), 1, None, None)))
    del fields["mark"]["last_digest"]
    mark = decode_memory(json.dumps(fields)).mark
    assert mark.next_offset == 7
    assert mark.last_read() is None


@given(marks)
def test_what_the_log_must_still_hold_survives_its_json(mark: Mark) -> None:
    last_read = mark.last_read()
    if last_read is not None:
        assert decode_last_read(json.loads(json.dumps(encode_last_read(last_read)))) == last_read
