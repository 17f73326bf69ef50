"""The settings of the log: the state topic, and how this node writes and reads it."""

from typing import ClassVar, Final, Literal, Self

from pydantic import model_validator

from holdfast.daemon.settings.declarations import MIB, MINUTE_MS, Component, count, setting, time_ms

#: A broker that holds fetches is heard of as seldom as they end; so many of them must fit into what counts as silence.
_FETCHES_PER_SILENCE: Final = 10


class LogClientSettings(Component):
    """Through what this node writes and reads records of its topics."""

    name_prefix: ClassVar[str] = "log."

    client: Literal["native", "librdkafka"] = setting(
        "native",
        "Client that writes and reads the records: connections of the node's own, which put the records of all log partitions into one "
        "request, or librdkafka, for brokers that the former do not get on with. See the page Run a node, *Through librdkafka*.",
    )


class LogSettings(Component):
    """The state topic, and how this node writes and reads it."""

    state_topic: str = setting(
        "__holdfast_share_state",
        "Topic that holds the state. A broker's own `__share_group_state` is refused: two writers would destroy it.",
        min_length=1,
        max_length=249,
        pattern=r"^[a-zA-Z0-9._-]+$",
    )
    state_topic_num_partitions: int = count(
        50,
        "Partitions of the state topic when it is made. They must never change later; the real number is what counts.",
        kafka="share.coordinator.state.topic.num.partitions",
        most=10_000,
    )
    state_topic_replication_factor: int = count(
        3,
        "Copies of the state topic when it is made. Needs as many brokers; 1 loses the state with the disk.",
        kafka="share.coordinator.state.topic.replication.factor",
        most=32_767,
    )
    state_topic_min_isr: int = count(
        2,
        "Copies that must have a record before it counts (`min.insync.replicas`), when the topic is made. At "
        "most the replication factor.",
        kafka="share.coordinator.state.topic.min.isr",
        most=32_767,
    )
    state_topic_segment_bytes: int = setting(
        100 * MIB,
        "Segment size of the state topic when it is made. Pruning frees whole segments only.",
        kafka="share.coordinator.state.topic.segment.bytes",
        ge=MIB,
        le=2**31 - 1,
    )
    state_topic_compression_codec: int = setting(
        0,
        "Compression of our batches by Kafka's number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        kafka="share.coordinator.state.topic.compression.codec",
        ge=0,
        le=4,
    )
    append_linger_ms: int = setting(
        -1,
        "How long a record waits for others before it is sent. -1 sends it to an idle broker as soon as no more come, after 5 ms at "
        "most, or, where answers take 2 ms and more, when most of those that are usually outstanding wait, for it or for others; after "
        "15 ms at most. 0 does not wait for the latter. 100 ms bound both, and how long it waits for a broker that is "
        "not idle.",
        kafka="share.coordinator.append.linger.ms",
        ge=-1,
        le=1_000,
    )
    codec: Literal["avro", "kafka"] = setting(
        "avro",
        "Format of new records: Avro, or byte for byte that of Apache Kafka's share coordinator. A log may hold both.",
    )
    message_timeout_ms: int = time_ms(
        30_000,
        "How long the producer tries to deliver a record before its log partition fails and loads again.",
        minimum=1_000,
    )
    parked_writes_max: int = count(
        10_000,
        "Writes of one log partition that may wait for the log; further ones answer COORDINATOR_NOT_AVAILABLE.",
        most=1_000_000,
    )
    fetch_wait_ms: int = time_ms(
        100,
        "How long a broker may hold a fetch of the log that finds nothing new; the longest time between two fetches.",
    )
    producer_queue_bytes_max: int = setting(
        64 * MIB, "The same in bytes of records, with what each takes beside key and value.", ge=MIB, le=1024 * MIB
    )
    busy_poll_us: int = setting(
        0,
        "How long, in microseconds, the event loop polls before it sleeps: after a request to a broker, and again after its answer. 0: it "
        "sleeps at once. Set it, to 1000 as a rule, on a machine that has a processor to spare for each node, where clients wait for one "
        "answer at a time: their p50 falls where waking a thread is slow. It costs up to a whole processor. Never set it next to "
        "CPU-bound processes, nor in a container with a quota of less than two processors.",
        ge=0,
        le=10_000,
    )
    leader_silence_max_ms: int = time_ms(
        3_000,
        "Longest time that a broker may be silent. After it, what it says of the end of a log counts only when another "
        "broker confirms that it still leads. At most a third of the brokers' broker.session.timeout.ms, and at least "
        "ten times fetch_wait_ms, or every read waits for another broker. That one is waited for request_timeout_ms at most.",
        minimum=500,
    )
    request_timeout_ms: int = time_ms(
        10_000,
        "How long one request to a broker may take. A batch of records without an answer is then sent again, to "
        "the broker that leads its log partition now; so keep it well below message_timeout_ms.",
    )
    broker_silence_max_ms: int = time_ms(
        15_000,
        "How long a broker that leads log partitions may give no answer at all before the node is not ready, and says so. "
        "Above the time in which a cluster finds other leaders, so that the loss of one broker of several need not show.",
        minimum=500,
    )
    state_topic_create_timeout_ms: int = time_ms(
        30_000, "How long to wait until all brokers know the state topic, and the same one: it may just have been made."
    )
    new_state_topic: bool = setting(
        False,
        "Make the state topic although one was there before; every share partition is then to be initialized again. "
        "`holdfast serve --new-state-topic` sets it, for one start.",
    )
    state_topic_check_interval_ms: int = time_ms(
        60 * MINUTE_MS, "How often the settings of the state topic are looked at again.", minimum=1_000
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.state_topic_min_isr > self.state_topic_replication_factor:
            raise ValueError(
                f"share.coordinator.state.topic.min.isr is {self.state_topic_min_isr} and share.coordinator.state.topic.replication.factor "
                f"{self.state_topic_replication_factor}; min.isr must be at most the replication factor, or no write would count: "
                f"--set share.coordinator.state.topic.min.isr={self.state_topic_replication_factor}"
            )
        silence_least_ms = _FETCHES_PER_SILENCE * self.fetch_wait_ms
        if self.leader_silence_max_ms < silence_least_ms:
            raise ValueError(
                f"leader_silence_max_ms is {self.leader_silence_max_ms} and fetch_wait_ms {self.fetch_wait_ms}; "
                f"leader_silence_max_ms must be at least {_FETCHES_PER_SILENCE} times fetch_wait_ms, which is {silence_least_ms}, or "
                f"brokers that only hold a fetch would pass for silent"
            )
        if self.state_topic in ("__share_group_state", "__consumer_offsets", "__transaction_state"):
            raise ValueError(
                f"state_topic is {self.state_topic}, which a broker writes itself; name a topic of our own"
            )
        return self
