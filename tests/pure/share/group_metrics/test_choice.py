"""Which pairs are shown: as a dumb count of all of them says, in any order and any parts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.group_metrics.choice import Choice, PairChooser
from holdfast.share.group_metrics.numbers import Pair
from tests.world.samples import OTHER_TOPIC, TOPIC

KEYS = st.lists(
    st.builds(SharePartitionKey, st.text("abx", max_size=2), st.sampled_from([TOPIC, OTHER_TOPIC]), st.integers(0, 3)),
    unique=True,
)


@given(KEYS, st.integers(1, 5), st.integers(1, 12), st.integers(1, 7))
def test_the_first_pairs_that_fit_as_a_whole_are_chosen(
    keys: list[SharePartitionKey], pairs_max: int, share_partitions_max: int, part: int
) -> None:
    chooser = PairChooser(["a*", "b?"], pairs_max)
    for start in range(0, len(keys), part):
        chooser.count(keys[start : start + part])
        assert len(chooser._counts) == len(chooser._first) <= pairs_max
    wanted = [
        key for key in keys if key.group_id.startswith("a") or (key.group_id[:1] == "b" and len(key.group_id) == 2)
    ]
    sizes = Counter(Pair(key.group_id, key.topic_id) for key in wanted)
    chosen, room = set(), share_partitions_max
    for pair in sorted(sizes)[:pairs_max]:
        if sizes[pair] <= room:
            chosen.add(pair)
            room -= sizes[pair]
    assert chooser.choose(share_partitions_max) == Choice(frozenset(chosen), len(wanted) - share_partitions_max + room)
