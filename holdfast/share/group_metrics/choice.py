"""Which pairs of a group and a topic have metrics: the first ones by name, each as a whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import translate
from typing import NamedTuple

from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.group_metrics.numbers import Pair


class Choice(NamedTuple):
    """The pairs that are shown, and the number of share partitions that are not."""

    pairs: frozenset[Pair]
    #: Share partitions of groups that should have metrics, and whose pair has none.
    left_out: int


class PairChooser:
    """Counts the share partitions of the first pairs; what it holds has a bound, however many groups there are."""

    def __init__(self, patterns: Iterable[str], pairs_max: int) -> None:
        """Choose at most `pairs_max` pairs whose groups fit one of the patterns."""
        self._is_wanted = re.compile("|".join(map(translate, patterns))).match
        self._pairs_max = pairs_max
        #: Share partitions so far of the first pairs so far, which `_first` has in their order.
        self._counts: dict[Pair, int] = {}
        self._first: list[Pair] = []
        self._seen = 0

    def count(self, keys: Iterable[SharePartitionKey]) -> None:
        """Take some share partitions in."""
        counts, first = self._counts, self._first
        # A pair after the last one has no chance; one that is dropped never comes back, so those that stay were counted whole.
        last = first[-1] if len(first) == self._pairs_max else None
        # Patterns cost ten times as much as counting, and the share partitions of a pair are many.
        for (group, topic_id), number in Counter([(key.group_id, key.topic_id) for key in keys]).items():
            if not self._is_wanted(group):
                continue
            self._seen += number
            pair = Pair(group, topic_id)
            if pair in counts:
                counts[pair] += number
            elif last is None or pair < last:
                counts[pair] = number
                first.append(pair)
        first.sort()
        for pair in first[self._pairs_max :]:
            del counts[pair]
        del first[self._pairs_max :]

    def choose(self, share_partitions_max: int) -> Choice:
        """Return the first pairs that fit into a number of share partitions; a pair that does not fit is left out as a whole."""
        chosen, room = [], share_partitions_max
        for pair in self._first:
            if self._counts[pair] <= room:
                chosen.append(pair)
                room -= self._counts[pair]
        return Choice(frozenset(chosen), self._seen - (share_partitions_max - room))
