"""What the share coordinator counts beside the generic runtime.

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
        self.state_topic_warnings = registry.gauge(
            "state_topic_warnings", "Settings of the state topic that put the log at risk; 0 is healthy."
        )
        self.state_topic_partitions = registry.gauge(
            "state_topic_partitions", "Log partitions that there are; some node is to serve each."
        )
        self.snapshot_topic_problems = registry.gauge(
            "snapshot_topic_problems", "1 while the snapshot topic exists and is not fit to be used, else 0."
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
        self.silent_readers = registry.counter(
            "silent_log_readers", "Times that a registered log reader fell silent for too long."
        )
        self.dropped_readers = registry.counter(
            "dropped_log_readers",
            "Times that a registered log reader was dropped, by the setting or by an admin.",
        )
        self.pruning_snapshots = registry.counter("pruning_snapshots", "Snapshots that pruning wrote.")

    def write_recorded(self, count: int) -> None:
        """Count `count` writes of share partitions."""
        self._write.value += count

    def write_latency(self, latency_ms: float) -> None:
        """Take in the time of one Write request."""
        self._write_latency.record(latency_ms)

    def watch_partition(
        self,
        topic: str,
        partition: int,
        log_start: Callable[[], int],
        keys: Callable[[], int],
        bytes_dead: Callable[[], tuple[int, int]],
    ) -> None:
        """Show what a log partition holds while it serves.

        Args:
            topic: the state topic.
            partition: the log partition.
            log_start: tells where the log begins.
            keys: counts its share partitions.
            bytes_dead: tells how many bytes of its log are dead, and how many there are.
        """
        gauge, labels = self._registry.gauge, {"topic": topic, "partition": partition}
        gauge("last_pruned_offset", "Offset up to which the log was pruned.", log_start, **labels)
        gauge("share_partitions", "Share partitions with state in the log partition.", keys, **labels)
        gauge(
            "log_bytes",
            "Bytes of the keys and values that count in the log partition.",
            lambda: bytes_dead()[1],
            **labels,
        )
        gauge("log_dead_bytes", "Those that pruning would free.", lambda: bytes_dead()[0], **labels)

    def forget_partition(self, partition: int) -> None:
        """Remove the series of a log partition that does not serve any more."""
        self._registry.remove(partition=partition)
