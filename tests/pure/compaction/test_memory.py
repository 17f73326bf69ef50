"""What the job remembers of a log partition survives its JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from holdfast.compaction.spark.fold_processor import Memory, decode_memory, encode_memory
from holdfast.records.fencing import Position
from holdfast.records.snapshot_store.folding import NEW, Mark

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
)


@given(st.builds(Memory, st.just(NEW) | marks, numbers, st.none() | st.text(), st.none() | numbers))
def test_what_is_remembered_survives_its_json(memory: Memory) -> None:
    assert decode_memory(encode_memory(memory)) == memory
