"""The series of share groups in the registry: shown with each new set of numbers, and removed with the groups that are gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.daemon.group_metrics.numbers import GroupNumbers, Pair
from holdfast.metrics.registry import Registry
from holdfast.records.deliveries import DELIVERY_COUNT_TOP


class GroupSeries:
    """The series of all pairs of a group and a topic, and what keeps them from being complete."""

    def __init__(self, registry: Registry, wall_ms: Callable[[], int]) -> None:
        """Show no pair yet; `wall_ms` is the time of day, in ms since 1970."""
        self._registry = registry
        self._wall_ms = wall_ms
        self._shown: set[tuple[str, str]] = set()
        self.left_out = registry.gauge(
            "group_metrics_left_out",
            "Share partitions of groups that are to have metrics, and that group_metrics_pairs_max or "
            "group_metrics_share_partitions_max leaves out.",
        )
        self.ages_unknown = registry.gauge(
            "group_metrics_ages_unknown",
            "Share partitions whose oldest unfinished record has an unknown age: group_metrics_ages_max leaves them out, or the "
            "leader does not return the record (the node needs READ on the topic).",
        )

    def show(self, numbers: Mapping[Pair, GroupNumbers]) -> None:
        """Show these pairs, and no others any more."""
        shown = {(pair.group, each.topic) for pair, each in numbers.items()}
        for group, topic in self._shown - shown:
            self._registry.remove(group=group, topic=topic)
        self._shown = shown
        for pair, each in numbers.items():
            self._show_pair({"group": pair.group, "topic": each.topic}, each)

    def _show_pair(self, labels: dict[str, str], numbers: GroupNumbers) -> None:
        def show(name: str, description: str, value: float, **more: int) -> None:
            self._registry.gauge(name, description, None, **labels, **more).value = value

        show("group_share_partitions", "Share partitions of a group and topic on this node.", numbers.share_partitions)
        show(
            "group_records_in_flight",
            "Records that are not finished, up to the last one that a consumer has released or finished.",
            numbers.in_flight,
        )
        show(
            "group_records_archived",
            "Records from the start offset on that were given up: rejected, or delivered too often.",
            numbers.archived,
        )
        for count in range(1, DELIVERY_COUNT_TOP + 1):
            show(
                "group_records_by_deliveries",
                f"Records that are not finished by how often they were delivered; {DELIVERY_COUNT_TOP} stands for more, too.",
                numbers.by_delivery_count.get(count, 0),
                deliveries=count,
            )
        show(
            "group_lag_records",
            "Records from the start offset to the end of the topic that are not finished, where that is known.",
            numbers.lag,
        )
        show("group_lag_unknown", "Share partitions whose lag is not known.", numbers.lag_unknown)
        oldest_ms = numbers.oldest_ms
        self._registry.gauge(
            "group_oldest_record_age_ms",
            "Age of the oldest record that is not finished, by its record batch; 0: there is none, or it is not known.",
            lambda: 0 if oldest_ms is None else max(0, self._wall_ms() - oldest_ms),
            **labels,
        )
