"""The metrics of share state, in addition to those of the generic runtime.

Source: Apache Kafka's metrics group `share-coordinator-metrics`.
"""

from collections.abc import Callable

from holdfast.metrics.registry import Registry


class ShareMetrics:
    """The instruments of the share shards and their service."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._write = registry.counter(
            "writes",
            "Writes of share partitions: one per partition of a Write, valid or not, and one per Read that writes.",
        )
        self._write_latency = registry.histogram(
            "write_latency_ms", "Time of a Write request from its split to the completion of its last partition."
        )
        self.deleted_topics_alarm = registry.gauge(
            "deleted_topics_alarm", "1 while the clean-up of deleted topics waits for an admin, else 0."
        )
        self.state_bytes = registry.gauge(
            "state_bytes",
            "Bytes of the keys and values of all share partitions that are held, those being loaded or freed included, "
            "if each had one snapshot; an upper estimate.",
        )
        self.state_bounds_used = registry.gauge(
            "state_bounds_used_ratio",
            "The largest share of share_partitions_max and state_bytes_max in use; 1 is full.",
        )
        self.state_refusals = registry.counter(
            "state_refusals", "Initializes and Writes of share partitions that were refused because of a bound."
        )

    def write_recorded(self, count: int) -> None:
        """Count `count` writes of share partitions."""
        self._write.value += count

    def write_latency(self, latency_ms: float) -> None:
        """Record the time of one Write request."""
        self._write_latency.record(latency_ms)

    def watch_partition(self, topic: str, partition: int, keys: Callable[[], int]) -> None:
        """Show how many share partitions a log partition holds while it serves."""
        self._registry.gauge(
            "share_partitions",
            "Share partitions with state in the log partition.",
            keys,
            topic=topic,
            partition=partition,
        )
