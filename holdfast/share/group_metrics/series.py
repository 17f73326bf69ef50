"""The series of share groups in the registry: shown with each new set of numbers, and removed with the groups that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from holdfast.metrics.instruments import Gauge
from holdfast.metrics.registry import Registry
from holdfast.records.share.deliveries import DELIVERY_COUNT_TOP
from holdfast.share.group_metrics.numbers import GroupNumbers, Pair

_AGE: Final = "group_oldest_record_age_ms"
#: Each has the labels group and topic.
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "group_share_partitions": "Share partitions of a group and topic on this node.",
    "group_records_in_flight": "Records that are not finished, up to the last one that a consumer has released or finished.",
    "group_records_archived": "Records from the start offset on that were given up: rejected, or delivered too often.",
    "group_records_by_deliveries": "Records that are not finished by how often they were delivered; "
    f"{DELIVERY_COUNT_TOP} stands for more, too.",
    "group_lag_records": "Records from the start offset to the end of the topic that are not finished, where that is known.",
    "group_lag_unknown": "Share partitions whose lag is not known.",
    _AGE: "Age of the oldest record that is not finished, by its record batch; 0: there is none, or it is not known.",
}


class GroupSeries:
    """The series of all pairs of a group and a topic, and what keeps them from being complete."""

    def __init__(self, registry: Registry, wall_ms: Callable[[], int]) -> None:
        """Show no pair yet; `wall_ms` is the time of day, in ms since 1970."""
        self._registry = registry
        self._wall_ms = wall_ms
        self._shown: set[tuple[str, str]] = set()
        self.left_out = registry.gauge(
            "group_metrics_left_out",
            "Share partitions of groups with metrics that group_metrics_pairs_max or the bound of 20,000 share partitions leaves out.",
        )
        self.ages_unknown = registry.gauge(
            "group_metrics_ages_unknown",
            "Share partitions whose oldest unfinished record has an unknown age: group_metrics_ages_max leaves them out, or the "
            "leader does not return the record (the node needs READ on the topic).",
        )

    def show(self, numbers: Mapping[Pair, GroupNumbers]) -> Iterator[None]:
        """Show these pairs, and no others any more: one in each step."""
        shown = {(pair.group, each.topic) for pair, each in numbers.items()}
        gone = self._shown - shown
        self._shown |= shown
        for group, topic in gone:
            for name, more, _ in _values(GroupNumbers(topic)):
                self._registry.discard(name, Gauge, group=group, topic=topic, **more)
            self._shown.discard((group, topic))
            yield
        for pair, each in numbers.items():
            for name, more, value in _values(each):
                source = partial(self._age_ms, each.oldest_ms) if name == _AGE else None
                gauge = self._registry.gauge(
                    name, _DESCRIPTIONS[name], source, group=pair.group, topic=each.topic, **more
                )
                gauge.value = value
            yield

    def _age_ms(self, written_ms: int | None) -> int:
        return 0 if written_ms is None else max(0, self._wall_ms() - written_ms)


def _values(numbers: GroupNumbers) -> Iterator[tuple[str, dict[str, int], int]]:
    """Yield name, labels beside group and topic, and value of each series of a pair; an age depends on when it is read."""
    yield "group_share_partitions", {}, numbers.share_partitions
    yield "group_records_in_flight", {}, numbers.in_flight
    yield "group_records_archived", {}, numbers.archived
    for count in range(1, DELIVERY_COUNT_TOP + 1):
        yield "group_records_by_deliveries", {"deliveries": count}, numbers.by_delivery_count.get(count, 0)
    yield "group_lag_records", {}, numbers.lag
    yield "group_lag_unknown", {}, numbers.lag_unknown
    yield _AGE, {}, 0
