"""What a node counts of the Spark job that runs under it."""

from holdfast.compaction.progress import RunProgress
from holdfast.compaction.report import BatchReport
from holdfast.metrics.registry import Registry


class JobMetrics:
    """The instruments of the job."""

    def __init__(self, registry: Registry) -> None:
        counter, gauge = registry.counter, registry.gauge
        self.running = gauge("compaction_running", "1 while the job runs as a child of this node, else 0.")
        self.restarts = counter("compaction_restarts", "Times that the job ended by itself and was started again.")
        self._batch_time = registry.histogram("compaction_batch_time_ms", "Time of a batch.")
        self._records = registry.counter("compaction_records", "Records of the log that the job has read.")
        self._bytes_in = counter("compaction_read_bytes", "Bytes of their keys and values.")
        self._bytes_out = counter(
            "compaction_written_bytes", "Bytes of keys and values that the job wrote to the snapshot topic."
        )
        self._ratio = gauge("compaction_ratio", "Bytes read for each byte written, since the job was last started.")
        self._entries = counter("compaction_entries", "Snapshots and deletions that the job wrote.")
        self._manifests = counter("compaction_manifests", "Manifests that the job wrote.")
        self._history_rows = counter("compaction_history_rows", "Rows that the job added to the history.")
        self._keys = gauge("compaction_share_partitions", "Share partitions with state, as the job knows them.")
        self._waiting = gauge(
            "compaction_share_partitions_waiting",
            "Those that wait for a snapshot, because the log was pruned before it.",
        )
        self._cuts = counter(
            "compaction_cuts",
            "Times that the job found a log partition pruned past it, and began it again at its start.",
        )
        self._stopped = gauge(
            "compaction_partitions_stopped", "Log partitions that the job cannot read on; a log line says why."
        )
        self._state_rows = gauge(
            "compaction_state_rows",
            "Rows of the job's state store: one and some buckets of share partitions for each log partition.",
        )
        self._state_memory = gauge(
            "compaction_state_memory_bytes", "Memory of the job's state store, RocksDB's included."
        )
        self._state_files = gauge("compaction_state_file_bytes", "Files of the job's state store.")
        self._state_commit = gauge(
            "compaction_state_commit_time_ms",
            "Time that the state store took to commit a batch, all log partitions together.",
        )
        self._source = gauge("compaction_source_time_ms", "Time that Spark's source took to look up what it can read.")
        self._registry = registry

    def take(self, report: BatchReport, progress: RunProgress) -> None:
        """Take in the report of a batch, and the run to which it belongs."""
        self._batch_time.record(report.duration_ms)
        self._records.value += report.records
        self._bytes_in.value += report.bytes_in
        self._bytes_out.value += report.bytes_out
        self._entries.value += report.entries
        self._manifests.value += report.manifests
        self._history_rows.value += report.history_rows
        self._cuts.value += sum(partition.cut_at is not None for partition in report.partitions)
        self._ratio.value = progress.compaction_ratio
        self._keys.value = progress.keys
        self._waiting.value = progress.waiting_count
        self._stopped.value = len(progress.stopped)
        self._state_rows.value = report.state_rows
        self._state_memory.value = report.state_memory_bytes
        self._state_files.value = report.state_file_bytes
        self._state_commit.value = report.state_commit_ms
        self._source.value = report.source_ms
        for partition, behind in report.lag.items():
            # Looked up each time: a node that stops serving a log partition removes all series about it.
            self._registry.gauge(
                "compaction_lag_records", "Records of the log that the job has not folded yet.", partition=partition
            ).value = behind
