"""What a node counts of the Spark job that runs under it."""

from holdfast.compaction.progress import RunProgress
from holdfast.compaction.report import BatchReport
from holdfast.metrics.instruments import Gauge
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
        self._ratio = gauge(
            "compaction_ratio",
            "Bytes read for each byte written, since the job was last started; 0 before the first batch.",
        )
        self._entries = counter("compaction_entries", "Snapshots and deletions that the job wrote.")
        self._manifests = counter("compaction_manifests", "Manifests that the job wrote.")
        self._history_rows = counter("compaction_history_rows", "Rows that the job added to the history.")
        self._keys = gauge(
            "compaction_share_partitions",
            "Share partitions with state, as the job knows them; 0 before the first batch.",
        )
        self._waiting = gauge(
            "compaction_share_partitions_waiting",
            "Those that wait for a snapshot, because the log was pruned before it; 0 before the first batch.",
        )
        self._cuts = counter(
            "compaction_cuts",
            "Times that the job found a log partition pruned past it, and began it again at its start.",
        )
        self._stopped = gauge(
            "compaction_partitions_stopped",
            "Log partitions that the job cannot read on; a log line says why; 0 before the first batch.",
        )
        self._state_rows = gauge(
            "compaction_state_rows",
            "Rows of the job's state store: one and some buckets of share partitions for each log partition; 0 before the first batch.",
        )
        self._state_memory = gauge(
            "compaction_state_memory_bytes",
            "Memory of the job's state store, RocksDB's included; 0 before the first batch.",
        )
        self._state_files = gauge(
            "compaction_state_file_bytes", "Files of the job's state store; 0 before the first batch."
        )
        self._state_commit = gauge(
            "compaction_state_commit_time_ms",
            "Time that the state store took to commit a batch, all log partitions together; 0 before the first batch.",
        )
        self._source = gauge(
            "compaction_source_time_ms",
            "Time that Spark's source took to look up what it can read; 0 before the first batch.",
        )
        self._of_batch = (
            *(self._ratio, self._keys, self._waiting, self._stopped, self._source),
            *(self._state_rows, self._state_memory, self._state_files, self._state_commit),
        )
        self._registry = registry
        #: Log partitions with a lag.
        self._lagging: set[int] = set()

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
        self._lagging |= report.lag.keys()
        for partition, behind in report.lag.items():
            # Looked up each time: a node that stops serving a log partition removes all series about it.
            self._registry.gauge(
                "compaction_lag_records",
                "Records of the log that the job has not folded yet; not there before the first batch.",
                partition=partition,
            ).value = behind

    def forget(self) -> None:
        """Show nothing of a batch any more: the job runs somewhere else, or not at all. Counters stay."""
        for gauge in self._of_batch:
            gauge.value = 0
        for partition in self._lagging:
            self._registry.discard("compaction_lag_records", Gauge, partition=partition)
        self._lagging.clear()
