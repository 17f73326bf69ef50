"""What a node counts of the snapshot topic."""

from holdfast.daemon.fast_load import Refusal
from holdfast.runtime.metrics import Registry


class SnapshotMetrics:
    """The instruments of fast loads and of the owner's look at the snapshot topic."""

    def __init__(self, registry: Registry) -> None:
        self.fast_loads = registry.counter("fast-loads-total", "Loads that began with the snapshot topic.")
        self.refusals = {
            refusal: registry.counter(
                "fast-loads-refused-total",
                "Loads that read the whole log although a snapshot topic is set, by the reason.",
                reason=refusal.value,
            )
            for refusal in Refusal
        }
