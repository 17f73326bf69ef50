"""The metrics of the log as a node keeps it: its topics, its readers, and what pruning frees."""

from collections.abc import Callable

from holdfast.metrics.registry import Registry


class LogMetrics:
    """The instruments of the log."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.state_topic_warnings = registry.gauge(
            "state_topic_warnings", "Settings of the state topic that put the log at risk; 0 is healthy."
        )
        self.state_topic_partitions = registry.gauge(
            "state_topic_partitions", "Log partitions that there are; a node should serve each."
        )
        self.snapshot_topic_problems = registry.gauge(
            "snapshot_topic_problems", "1 while the snapshot topic exists and is not fit to be used, else 0."
        )
        self.silent_readers = registry.counter(
            "silent_log_readers", "Times that a registered log reader fell silent for too long."
        )
        self.dropped_readers = registry.counter(
            "dropped_log_readers",
            "Times that a registered log reader was dropped, by the setting or by an admin.",
        )
        self.pruning_snapshots = registry.counter("pruning_snapshots", "Snapshots that pruning wrote.")

    def watch_partition(
        self,
        topic: str,
        partition: int,
        log_start: Callable[[], int],
        bytes_dead: Callable[[], tuple[int, int]],
    ) -> None:
        """Show what a log partition holds while it serves.

        Args:
            topic: the state topic.
            partition: the log partition.
            log_start: tells where the log begins.
            bytes_dead: tells how many bytes of its log are dead, and how many there are.
        """
        gauge, labels = self._registry.gauge, {"topic": topic, "partition": partition}
        gauge("last_pruned_offset", "Offset up to which the log was pruned.", log_start, **labels)
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
