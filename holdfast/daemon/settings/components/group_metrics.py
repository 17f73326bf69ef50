"""The settings of the metrics of share groups."""

from holdfast.daemon.settings.declarations import Component, Names, count, setting, time_ms


class GroupMetricSettings(Component):
    """The metrics of the share groups that a node serves, by group and topic."""

    group_metrics_groups: Names = setting(
        ("*",), "Share groups with metrics of their own; `*` and `?` stand for any characters. Empty: none has any."
    )
    group_metrics_interval_ms: int = time_ms(
        15_000, "How often their numbers are renewed; as often as they are scraped is enough.", minimum=100
    )
    group_metrics_pairs_max: int = count(
        200,
        "Pairs of a group and a topic that have metrics, the first ones by name; each pair has up to twenty series. "
        "Those that are left out are counted in `holdfast_group_metrics_left_out`.",
        most=10_000,
    )
    group_metrics_ages_max: int = setting(
        1_000,
        "Share partitions whose oldest unfinished record is fetched to see its age, which needs READ on its topic; 0: none.",
        ge=0,
        le=1_000_000,
    )
