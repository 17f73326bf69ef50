"""Every setting of a node: one frozen model per component, checked when built.

A setting has one name everywhere, and no two settings share one, so a table of the TOML file only groups.
Where the meaning is Kafka's, the name is Kafka's (`share.coordinator.write.timeout.ms`)
and the attribute is ours (`write_timeout_ms`).
Each description says what the setting does, how it relates to others and, where that needs saying, a good value.

Sources: Apache Kafka 4.3.1 `ShareCoordinatorConfig`, `SocketServerConfigs`.
"""

from typing import Literal, Self

from pydantic import model_validator

from holdfast.daemon.declarations import (
    DEFAULT_PORT,
    MIB,
    MINUTE_MS,
    Address,
    Component,
    Names,
    Properties,
    count,
    parse_address,
    setting,
    time_ms,
)
from holdfast.daemon.snapshot_settings import SnapshotSettings, SparkSettings

#: Properties of the client that the log protocol fixes, and what to say instead.
OWNED_PROPERTIES = {
    "acks": "it is always all",
    "request.required.acks": "it is always all",
    "enable.idempotence": "it is always true",
    "enable.gapless.guarantee": "it is always false",
    "transactional.id": "the log uses no transactions",
    "isolation.level": "it is always read_uncommitted",
    "auto.offset.reset": "it is always error",
    "enable.auto.commit": "it is always false",
    "group.id": "log partitions are assigned by hand",
    "message.timeout.ms": "use message_timeout_ms",
    "delivery.timeout.ms": "use message_timeout_ms",
    "linger.ms": "use share.coordinator.append.linger.ms",
    "queue.buffering.max.ms": "use share.coordinator.append.linger.ms",
    "compression.type": "use share.coordinator.state.topic.compression.codec",
    "compression.codec": "use share.coordinator.state.topic.compression.codec",
}


class ListenerSettings(Component):
    """Where the node listens, and how clients reach it."""

    listen: Address = setting(
        f"127.0.0.1:{DEFAULT_PORT}",
        "Address to listen on, as host:port. `0.0.0.0` listens everywhere and then needs "
        "`advertised_listener`; port 0 takes a free one.",
        min_length=1,
    )
    advertised_listener: Address = setting(
        "", "Address that clients and other nodes are told, as host:port. Empty: the same as `listen`."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        host, _ = parse_address(self.listen)
        if self.advertised_listener:
            advertised, port = parse_address(self.advertised_listener)
            if advertised in ("0.0.0.0", "::") or port == 0:  # noqa: S104
                raise ValueError("advertised_listener must be an address that clients can connect to, host and port")
        elif host in ("0.0.0.0", "::"):  # noqa: S104
            raise ValueError(
                f"listen is {self.listen}, which no client can connect to; set advertised_listener as well"
            )
        return self

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port to bind."""
        return parse_address(self.listen)

    @property
    def advertised_address(self) -> tuple[str, int]:
        """Host and port to tell; where no `advertised_listener` is set and `listen` has port 0, the port is 0."""
        return parse_address(self.advertised_listener or self.listen)


class LimitSettings(Component):
    """What one client may cost."""

    frame_size_bytes_max: int = setting(
        8 * MIB,
        "Largest request. A write of 100,000 state batches has 2.3 MiB; Kafka's default of 100 MiB is for "
        "records, which nobody sends here.",
        kafka="socket.request.max.bytes",
        ge=1024,
        le=100 * MIB,
    )
    connections_max: int = count(1_000, "Open connections; further ones are closed at once.", kafka="max.connections")
    connections_max_idle_ms: int = time_ms(
        10 * MINUTE_MS, "A connection without a request for so long is closed.", kafka="connections.max.idle.ms"
    )
    frame_timeout_ms: int = time_ms(30_000, "A request that has begun to arrive must be complete within this time.")
    requests_in_flight_max: int = count(
        64, "Requests of one connection that may wait for an answer; then no more are read from it.", most=100_000
    )
    write_buffer_bytes_max: int = setting(
        MIB,
        "Answers that may wait for a slow client, in bytes; then no more requests are read from it.",
        ge=1024,
        le=1024 * MIB,
    )
    share_partitions_per_request_max: int = count(
        20_000, "Share partitions that one request may name; a request with more is refused.", most=1_000_000
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
        "How long a record waits for company before it is sent. -1 sends it at once to a broker that is idle; "
        "append_gather_max_ms bounds how long it waits for one that is not.",
        kafka="share.coordinator.append.linger.ms",
        ge=-1,
        le=1_000,
    )
    append_gather_max_ms: int = setting(
        100,
        "Longest time that a record waits for company because its broker has not answered the request before; as a rule "
        "it waits for that answer. 0 sends it as soon as one of produce_requests_in_flight_max connections is free.",
        ge=0,
        le=1_000,
    )
    codec: Literal["avro", "kafka"] = setting(
        "avro",
        "Format of new records: Avro, or byte for byte that of Apache Kafka's share coordinator. A log may hold both.",
    )
    message_timeout_ms: int = time_ms(
        30_000, "How long the producer tries to deliver a record before the shard fails and loads again.", minimum=1_000
    )
    max_parked_writes: int = count(
        10_000,
        "Writes of one shard that may wait for the log; further ones answer COORDINATOR_NOT_AVAILABLE.",
        most=1_000_000,
    )
    read_batch_records_max: int = count(
        200,
        "Records that a load takes in at a time, before other shards have their turn: about a millisecond's worth.",
        most=100_000,
    )
    fetch_bytes_max: int = setting(
        4 * MIB, "Largest answer to one fetch of the log, for loads and for tails each.", ge=64 * 1024, le=1024 * MIB
    )
    fetch_partition_bytes_max: int = setting(
        MIB, "What one fetch brings of one log partition. At most fetch_bytes_max.", ge=16 * 1024, le=1024 * MIB
    )
    fetch_wait_ms: int = time_ms(
        100,
        "How long a broker may hold a fetch of the log that finds nothing new; the longest time between two fetches.",
    )
    produce_requests_in_flight_max: int = count(
        4, "Produce requests under way to one broker, each on a connection of its own.", most=100
    )
    producer_queue_records_max: int = count(
        100_000,
        "Records of all shards that may wait to be sent; further writes answer COORDINATOR_NOT_AVAILABLE.",
        most=10_000_000,
    )
    admin_timeout_ms: int = time_ms(
        10_000,
        "How long one request to a broker may take. A batch of records without an answer is then sent again, to "
        "whoever leads its log partition now; so keep it well below message_timeout_ms.",
    )
    state_topic_create_timeout_ms: int = time_ms(
        30_000, "How long to wait until a state topic just made is known everywhere."
    )
    state_topic_check_interval_ms: int = time_ms(
        60 * MINUTE_MS, "How often the settings of the state topic are looked at again.", minimum=1_000
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.state_topic_min_isr > self.state_topic_replication_factor:
            raise ValueError(
                f"share.coordinator.state.topic.min.isr is {self.state_topic_min_isr} and the replication factor "
                f"{self.state_topic_replication_factor}; min.isr must be at most the replication factor, or no write would count"
            )
        if self.state_topic in ("__share_group_state", "__consumer_offsets", "__transaction_state"):
            raise ValueError(
                f"state_topic is {self.state_topic}, which a broker writes itself; name a topic of our own"
            )
        return self


class ShareSettings(Component):
    """The share coordinator proper."""

    write_timeout_ms: int = time_ms(
        5_000,
        "How long an operation may take in all; then COORDINATOR_NOT_AVAILABLE.",
        kafka="share.coordinator.write.timeout.ms",
    )
    snapshot_update_records_per_snapshot: int = setting(
        500,
        "Updates of a share partition after which a write puts down a snapshot in place of one more update.",
        kafka="share.coordinator.snapshot.update.records.per.snapshot",
        ge=0,
        le=500,
    )
    cached_keys_max: int = count(
        100_000,
        "Share partitions whose log partition is remembered, because Kafka's hash is slow to compute.",
        most=10_000_000,
    )


class LoadSettings(Component):
    """How log partitions are loaded and taken."""

    load_timeout_ms: int = time_ms(10 * MINUTE_MS, "How long one load may take in all.", minimum=1_000)
    loads_max: int = count(64, "Log partitions that load at the same time; the others wait their turn.", most=10_000)
    load_stall_ms: int = time_ms(
        30_000, "A load that has read nothing new for so long says where it stands and why. At most load_timeout_ms."
    )
    slice_ms: int = time_ms(
        5, "How long loads, clean-ups and compaction may hold the event loop before other shards get their turn."
    )
    tick_ms: int = time_ms(50, "How often deadlines and pauses are looked at.")
    retry_backoff_ms: int = time_ms(
        200, "First pause before a failed load or a lost partition is tried again; it doubles."
    )
    retry_backoff_max_ms: int = time_ms(
        30_000, "Longest such pause, and the one after an alarm. At least retry_backoff_ms."
    )
    when_superseded: Literal["exit", "wait"] = setting(
        "exit",
        "What a static node does when another took over its partitions: end with an error, or stay and not be ready.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.load_stall_ms > self.load_timeout_ms:
            raise ValueError("load_stall_ms must be at most load_timeout_ms, or it would never be met")
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise ValueError("retry_backoff_ms must be at most retry_backoff_max_ms")
        return self


class CompactionSettings(Component):
    """When a shard writes snapshots of its live keys and prunes its log."""

    compaction_dead_share: float = setting(
        0.5,
        "Share of a log partition's bytes that may be dead before it is compacted. Snapshot bytes stay below "
        "1/share − 1 times the update bytes.",
        ge=0.05,
        le=0.95,
    )
    compaction_dead_bytes_min: int = setting(
        64 * MIB, "Dead bytes below which a log partition is left alone.", ge=0, le=2**62
    )
    compaction_bytes_per_second_max: int = setting(
        8 * MIB, "Snapshot bytes per second that compaction writes for one log partition.", ge=1024, le=1024 * MIB
    )
    compaction_records_per_slice_max: int = count(200, "Snapshots that compaction writes in one go.", most=10_000)
    compaction_check_interval_ms: int = time_ms(5_000, "How often a shard looks whether to compact.")
    compaction_timeout_ms: int = time_ms(
        60 * MINUTE_MS,
        "A compaction that has written nothing for so long is given up; the next one waits until as much has changed again.",
        minimum=1_000,
    )
    log_readers: Names = setting(
        (), "Consumer groups that read the state topic; the log is not pruned past the offsets they have committed."
    )
    reader_timeout_ms: int = time_ms(
        60 * MINUTE_MS,
        "A reader that stays silent for so long raises an alarm; it keeps holding the log.",
    )
    reader_drop_after_ms: int = setting(
        0,
        "A reader that stays silent for so long is dropped: the log is pruned past it until it commits again. "
        "0: never; an admin can, with `holdfast readers drop`.",
        ge=0,
        le=30 * 24 * 60 * MINUTE_MS,
    )


class DeletedTopicSettings(Component):
    """When the state of a deleted topic is removed."""

    deleted_topic_grace_ms: int = time_ms(
        10 * MINUTE_MS,
        "A topic counts as deleted when every metadata refresh for so long says that its id is unknown. At "
        "least metadata_refresh_interval_ms.",
    )
    deleted_topic_max_share: float = setting(
        0.5,
        "Share of all live keys above which a clean-up stops and asks an admin: more looks like the wrong cluster.",
        ge=0,
        le=1,
    )
    deleted_topic_keys_per_slice_max: int = count(500, "Keys that a clean-up removes in one go.", most=100_000)


class MetadataSettings(Component):
    """How the node asks Kafka which topics there are."""

    metadata_refresh_interval_ms: int = time_ms(
        MINUTE_MS, "How often all known topic ids are asked for again.", minimum=100
    )
    metadata_refresh_backoff_ms: int = time_ms(
        100, "Shortest time between two refreshes, however many unknown ids ask for one."
    )
    metadata_timeout_ms: int = time_ms(10_000, "How long a broker may take to answer one request for metadata.")
    metadata_topics_per_request_max: int = count(
        100, "Topic ids that one request for metadata names; its answer is read in one go.", most=10_000
    )
    metadata_topics_max: int = count(
        100_000, "Topic ids whose existence is remembered; the oldest of those without state go first.", most=10_000_000
    )
    metadata_reconnect_backoff_max_ms: int = time_ms(
        10_000, "Longest pause between attempts to reach a broker for metadata."
    )


class ShutdownSettings(Component):
    """How the node stops."""

    drain_timeout_ms: int = time_ms(10_000, "How long requests in flight may take to finish once a stop is asked for.")
    shutdown_step_timeout_ms: int = time_ms(5_000, "How long each other step of a shutdown may take.")


class LoggingSettings(Component):
    """What the node says about itself."""

    log_format: Literal["json", "console"] = setting("json", "One JSON object a line for machines, or text for people.")
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The least important lines that are written."
    )
    client_lines_per_minute_max: int = count(
        10,
        "Lines per minute of one kind that clients can cause; what was left out is counted in the next one.",
        most=100_000,
    )


class KafkaSettings(Properties):
    """The Kafka cluster that holds the log; properties of librdkafka, passed to every client."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in self.properties:
            if name in OWNED_PROPERTIES:
                raise ValueError(f"kafka.{name} cannot be set: {OWNED_PROPERTIES[name]}; remove it")
        if not self.properties.get("bootstrap.servers"):
            raise ValueError(
                "kafka.bootstrap.servers is not set; give the brokers to begin with, as host:port,host:port"
            )
        return self


class Settings(Component):
    """All settings of a node."""

    node_id: int = setting(1, "Number of this node, its own among all nodes of one state topic.", ge=0, le=2**31 - 1)
    listener: ListenerSettings = ListenerSettings()
    limits: LimitSettings = LimitSettings()
    kafka: KafkaSettings
    log: LogSettings = LogSettings()
    share: ShareSettings = ShareSettings()
    load: LoadSettings = LoadSettings()
    compaction: CompactionSettings = CompactionSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    spark: SparkSettings = SparkSettings()
    deleted_topics: DeletedTopicSettings = DeletedTopicSettings()
    metadata: MetadataSettings = MetadataSettings()
    shutdown: ShutdownSettings = ShutdownSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.deleted_topics.deleted_topic_grace_ms < self.metadata.metadata_refresh_interval_ms:
            raise ValueError(
                "deleted_topic_grace_ms must be at least metadata_refresh_interval_ms, or one answer would decide"
            )
        if self.snapshots.topic == self.log.state_topic:
            raise ValueError("snapshots.topic is the state topic; the job needs a topic of its own to write to")
        return self
