"""The settings of share state.

Source: Apache Kafka 4.3.1 `ShareCoordinatorConfig`.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.daemon.settings.declarations import MIB, MINUTE_MS, Component, Names, count, setting, time_ms
from holdfast.daemon.settings.models import Settings


class ShareSettings(Component):
    """The share coordinator proper."""

    write_timeout_ms: int = time_ms(
        5_000,
        "How long an operation may take in all; then COORDINATOR_NOT_AVAILABLE.",
        kafka="share.coordinator.write.timeout.ms",
    )
    snapshot_update_records_per_snapshot: int = setting(
        500,
        "Updates of a share partition after which a write puts down a snapshot in place of one more update.",
        kafka="share.coordinator.snapshot.update.records.per.snapshot",
        ge=0,
        le=500,
    )
    share_partitions_max: int = count(
        1_000_000,
        "Share partitions with state that this node may hold; an Initialize of one more is refused. A warning comes at 80 %.",
    )
    share_partitions_per_group_max: int = count(
        100_000, "Share partitions with state that one group may have; an Initialize of one more is refused."
    )
    state_bytes_max: int = setting(
        1024 * MIB,
        "Bytes of state that this node may hold: keys and values, if each share partition had one snapshot in the log. "
        "Growth beyond is refused. A warning comes at 80 %; the node needs up to ten times as much memory.",
        ge=MIB,
        le=2**50,
    )
    group_id_bytes_max: int = setting(
        1_024,
        "Largest group id, in bytes of UTF-8, for which new state is begun; groups with state are served at any length. Raise it "
        "only where groups have longer names already.",
        ge=1,
        le=32_767,
    )


class DeletedTopicSettings(Component):
    """When the state of a deleted topic is removed."""

    deleted_topic_grace_ms: int = time_ms(
        10 * MINUTE_MS,
        "A topic counts as deleted when every metadata refresh for so long says that its id is unknown. At "
        "least metadata_refresh_interval_ms.",
    )
    deleted_topic_max_share: float = setting(
        0.5,
        "Share of all live keys above which a clean-up stops and waits for an admin: more looks like the wrong cluster.",
        ge=0,
        le=1,
    )

    def find_conflict(self, settings: Settings) -> str:
        """Return why one refresh of the metadata could decide; empty if none can."""
        if self.deleted_topic_grace_ms < settings.metadata.metadata_refresh_interval_ms:
            return "deleted_topic_grace_ms must be at least metadata_refresh_interval_ms, or one answer would decide"
        return ""


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


#: The components of share state, by the names of their tables.
COMPONENTS: Final[Mapping[str, type[Component]]] = {
    "share": ShareSettings,
    "deleted_topics": DeletedTopicSettings,
    "group_metrics": GroupMetricSettings,
}
