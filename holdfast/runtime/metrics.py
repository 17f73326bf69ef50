"""What the generic runtime counts and measures."""

from holdfast.metrics.registry import Registry


class RuntimeMetrics:
    """The instruments of the generic runtime, all of them totals of the node, so they outlive partitions."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        gauge, counter, histogram = registry.gauge, registry.counter, registry.histogram
        partitions = "Log partitions this node holds, by state."
        self.partitions_loading = gauge("num-partitions", partitions, state="loading")
        self.partitions_active = gauge("num-partitions", partitions, state="active")
        self.partitions_failed = gauge("num-partitions", partitions, state="failed")
        self.partition_load_time = registry.window(
            "partition-load-time", "Time of successful loads, from the request to the end of reading, in ms."
        )
        self.thread_idle_ratio = registry.idle_ratio(
            "thread-idle-ratio-avg", "Share of time in which the event loop had nothing to do, 0 to 1."
        )
        self.event_queue_time = histogram(
            "event-queue-time-ms",
            "Time an event waits for the loop, in ms: how late the node's own tick came, each time.",
        )
        self.event_processing_time = histogram(
            "event-processing-time-ms",
            "Time to decide, replay and hand over an operation, in ms; taken of one request in 64.",
        )
        self.event_purgatory_time = histogram(
            "event-purgatory-time-ms",
            "Time from a record's hand-over until the tail read it back, in ms; of the first record of one batch in eight.",
        )
        self.batch_linger_time = histogram(
            "batch-linger-time-ms",
            "Time from the first record of a batch to its sending, in ms; of one batch in eight.",
        )
        self.batch_flush_time = histogram("batch-flush-time-ms", "Time of a Produce request, in ms.")
        self.batch_flush = registry.meter("batch-flush", "Batches sent to brokers.")
        self.parked_writes = gauge("parked-writes", "Answers that wait for the log, in all log partitions.")
        self.records_appended = counter("records-appended-total", "Records sent to brokers.")
        self.records_committed = counter(
            "records-committed-total", "Own records that are committed: the tail has read them back, and they count."
        )
        self.records_void = counter("records-void-total", "Records read that do not count, by any reader of this node.")
        self.read_index_time = histogram(
            "read-index-time-ms", "Time of the request for the latest offsets that a read index rests on, in ms."
        )
        self.checkpoints_appended = counter("checkpoints-appended-total", "Checkpoints handed to the log.")
        self.ownerships_lost = counter("ownerships-lost-total", "Partitions lost to a checkpoint of another owner.")
        self.appends_refused = counter("appends-refused-total", "Records the log refused before they left.")
        self.appends_failed = counter(
            "appends-failed-total", "Records that failed after they had left; they may still be appended."
        )
        self.throttle_time_ms = counter(
            "throttle-time-ms-total", "Time for which brokers requested to be sent nothing, because of a quota, in ms."
        )
        self.loads_failed = counter("loads-failed-total", "Loads that failed, and will be tried again.")
        self.internal_errors = counter("internal-errors-total", "Exceptions that no handler expected: bugs of ours.")
