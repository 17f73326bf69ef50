"""The values that property tests of the records draw from."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update

int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
#: Any text that UTF-8 can carry.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
topic_ids = st.binary(min_size=16, max_size=16)
keys = st.builds(SharePartitionKey, texts, topic_ids, int32s)

any_batches = st.builds(StateBatch, int64s, int64s, st.integers(-128, 127), int16s)
any_batch_tuples = st.lists(any_batches, max_size=5).map(tuple)
snapshots = st.builds(
    Snapshot, int32s, int32s, int32s, int64s, int32s, int64s, int64s, any_batch_tuples, int32s, int32s
)
updates = st.builds(Update, int32s, int32s, int64s, int32s, any_batch_tuples)
values = snapshots | updates


@st.composite
def close_batches(draw: st.DrawFn) -> StateBatch:
    """Draw a batch of the kind a coordinator persists, close enough to others to meet them often."""
    first = draw(st.integers(0, 24))
    return StateBatch(
        first, first + draw(st.integers(0, 8)), draw(st.sampled_from((0, 2, 3, 4))), draw(st.integers(1, 3))
    )


batch_lists = st.lists(close_batches(), max_size=7)
start_offsets = st.integers(-1, 34)
