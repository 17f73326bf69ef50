"""The metrics of the generic runtime."""

from holdfast.metrics.registry import Registry


class RuntimeMetrics:
    """The instruments of the generic runtime; each is a total of the node, so it outlives partitions."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        gauge, counter, histogram = registry.gauge, registry.counter, registry.histogram
        partitions = "Log partitions this node holds, by state."
        self.partitions_loading = gauge("log_partitions", partitions, state="loading")
        self.partitions_active = gauge("log_partitions", partitions, state="active")
        self.partitions_failed = gauge("log_partitions", partitions, state="failed")
        self.partition_load_time = registry.histogram(
            "partition_load_time_ms", "Time of successful loads, from the request to the end of reading."
        )
        self.loop_busy_ms = registry.counter(
            "loop_busy_ms",
            "Processor time of the event loop but for polling; per second, the share of time in which it was busy.",
        )
        self.busy_poll_ms = registry.counter(
            "busy_poll_ms",
            "Time for which the event loop polled for answers and requests in place of sleeping, by the time of its turns.",
        )
        self.event_queue_time = histogram(
            "event_queue_time_ms",
            "Time an event waits for the loop: how late the node's own tick came, each time.",
        )
        self.event_processing_time = histogram(
            "event_processing_time_ms",
            "Time to decide, replay and hand over an operation; the mean of those that came together, once in 64 of them.",
        )
        self.event_purgatory_time = histogram(
            "event_purgatory_time_ms",
            "Time from a record's hand-over until the tail read it back; of the first record of one batch in eight.",
        )
        self.batch_linger_time = histogram(
            "batch_linger_time_ms",
            "Time from the first record of a batch to its sending; of one batch in eight.",
        )
        self.batch_flush_time = histogram("batch_flush_time_ms", "Time of a Produce request.")
        self.batch_flush = registry.counter("batch_flushes", "Batches sent to brokers.")
        self.parked_writes = gauge("parked_writes", "Answers that wait for the log, in all log partitions.")
        self.records_appended = counter("records_appended", "Records sent to brokers.")
        self.records_committed = counter(
            "records_committed", "Own records that are committed: the tail has read them back, and they count."
        )
        self.records_void = counter("records_void", "Records read that do not count, by any reader of this node.")
        self.read_index_time = histogram(
            "read_index_time_ms", "Time of the request for the latest offsets that a read index rests on."
        )
        self.checkpoints_appended = counter("checkpoints_appended", "Checkpoints handed to the log.")
        self.ownerships_lost = counter("ownerships_lost", "Partitions lost to a checkpoint of another owner.")
        self.appends_refused = counter("appends_refused", "Records the log refused before they left.")
        self.appends_failed = counter(
            "appends_failed", "Records that failed after they had left; they may still be appended."
        )
        self.throttle_time_ms = counter(
            "throttle_time_ms", "Time for which brokers requested to be sent nothing, because of a quota."
        )
        self.loads_failed = counter("loads_failed", "Loads that failed, and will be tried again.")
        self.internal_errors = counter("internal_errors", "Exceptions that no handler expected: bugs of ours.")
