"""The metrics of the snapshot topic."""

from holdfast.metrics.registry import Registry
from holdfast.share.snapshots.restore import Refusal


class SnapshotMetrics:
    """The instruments of restores and of the owner's checks of the snapshot topic."""

    def __init__(self, registry: Registry) -> None:
        self.restores = registry.counter("restores", "Loads that restored from the snapshot topic.")
        self.refusals = {
            refusal: registry.counter(
                "restores_refused",
                "Loads that read the whole log although a snapshot topic is set, by the reason.",
                reason=refusal.value,
            )
            for refusal in Refusal
        }
        self.divergences = registry.counter(
            "snapshot_divergences", "Snapshots that say something else than the state of their owner."
        )
        self.divergence_alarm = registry.gauge(
            "snapshot_divergence_alarm", "1 since the first divergence that this process has seen, else 0."
        )
        self.manifests_verified = registry.counter(
            "snapshot_manifests_verified",
            "Manifests that agreed with their entries when their owner checked them.",
        )
        self.manifests_disagreeing = registry.counter("snapshot_manifests_disagreeing", "Manifests that did not.")
        self.removals = registry.counter(
            "snapshot_removals",
            "Messages of the snapshot topic that an owner removed because no load needs them.",
        )
