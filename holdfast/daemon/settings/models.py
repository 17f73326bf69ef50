"""Every setting of the host: one frozen model per component, checked when built. Those of tenants are in their packages.

A setting has one name everywhere, and no two settings share one, so a table of the TOML file only groups.
Where the meaning is Kafka's, the name is Kafka's (`share.coordinator.append.linger.ms`)
and the attribute is ours (`append_linger_ms`).
Each description says what the setting does, how it relates to others and, where that needs saying, a good value.

Sources: Apache Kafka 4.3.1 `ShareCoordinatorConfig`, `SocketServerConfigs`.
"""

from typing import Literal, Self, TypeVar

from pydantic import model_validator

from holdfast.daemon.settings.components.config_topic import ConfigTopicSettings, config_topic_of
from holdfast.daemon.settings.components.host import HostSettings
from holdfast.daemon.settings.components.http import HttpSettings
from holdfast.daemon.settings.components.listener import (
    AccessSettings,
    FileSettings,
    LimitSettings,
    ListenerSettings,
    SecuritySettings,
)
from holdfast.daemon.settings.components.log import LogClientSettings, LogSettings
from holdfast.daemon.settings.components.members import MemberSettings
from holdfast.daemon.settings.components.snapshots import CompactionSettings, SnapshotSettings, SparkSettings
from holdfast.daemon.settings.declarations import (
    MIB,
    MINUTE_MS,
    Component,
    Names,
    Properties,
    count,
    setting,
    time_ms,
)

NODE_ID_MAX = 2**31 - 1

_Component = TypeVar("_Component", bound=Component)


#: Properties of the client that the log protocol fixes, and what to say instead.
OWNED_PROPERTIES = {
    "acks": "it is always all",
    "request.required.acks": "it is always all",
    "enable.idempotence": "the log is appended to without it, and no record counts twice: each has a sequence of its own",
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


class LoadSettings(Component):
    """How log partitions are loaded and taken."""

    load_timeout_ms: int = time_ms(10 * MINUTE_MS, "How long one load may take in all.", minimum=1_000)
    loads_max: int = count(64, "Log partitions that load at the same time; the others wait their turn.", most=10_000)
    tick_ms: int = time_ms(
        50, "How often deadlines and pauses are looked at; while none is due soon, every 250 ms if that is longer."
    )
    retry_backoff_ms: int = time_ms(
        200, "First pause before a failed load or a lost partition is tried again; it doubles."
    )
    retry_backoff_max_ms: int = time_ms(30_000, "Longest such pause. At least retry_backoff_ms.")
    alarm_backoff_ms: int = time_ms(
        5 * MINUTE_MS,
        "Pause after an alarm before the log partition is looked at again, which reads its whole log; the first alarm in a row is "
        "looked at again after retry_backoff_ms, because one wrong answer of a broker may have been all of it; "
        "`holdfast partitions accept` or `take` looks at once.",
    )
    when_superseded: Literal["exit", "wait"] = setting(
        "exit",
        "Reaction of a static node when another took over its partitions, or serves them when it starts: end with an error, or "
        "stay and not be ready.",
    )

    take_over: bool = setting(
        False, "Take log partitions although their owner still serves them; `holdfast serve --take-over` sets it."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.retry_backoff_ms > self.retry_backoff_max_ms:
            raise ValueError("retry_backoff_ms must be at most retry_backoff_max_ms")
        return self


class PruningSettings(Component):
    """When a log partition is pruned: snapshots of its live keys are written, and its log is cut."""

    pruning_dead_share: float = setting(
        0.5,
        "Share of a log partition's bytes that may be dead before it is pruned. Snapshot bytes stay below "
        "1/share − 1 times the update bytes.",
        ge=0.05,
        le=0.95,
    )
    pruning_dead_bytes_min: int = setting(
        64 * MIB, "Dead bytes below which a log partition is left alone.", ge=0, le=2**62
    )
    pruning_bytes_per_second_max: int = setting(
        8 * MIB, "Snapshot bytes per second that pruning writes for one log partition.", ge=1024, le=1024 * MIB
    )
    pruning_check_interval_ms: int = time_ms(5_000, "How often each log partition is looked at, whether to prune it.")
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


class MetadataSettings(Component):
    """How the node queries Kafka for the topics that there are."""

    metadata_refresh_interval_ms: int = time_ms(
        MINUTE_MS,
        "How often all known topic ids are queried again. Lower it to notice deleted topics sooner; raise it where brokers are busy "
        "with metadata.",
        minimum=100,
    )
    metadata_timeout_ms: int = time_ms(
        10_000,
        "How long a broker may take to answer one request for metadata. Raise it where brokers are slow or far away.",
    )
    metadata_topics_max: int = count(
        100_000,
        "Topics without state that are remembered until the next full refresh; and unknown topic ids that may wait for an "
        "answer of Kafka. Beyond, the address that waits for the most of them is refused. Raise it in a cluster of more topics; each "
        "takes some hundred bytes.",
        most=10_000_000,
    )


class ShutdownSettings(Component):
    """How the node stops."""

    drain_timeout_ms: int = time_ms(10_000, "How long requests in flight may take to finish once a stop is requested.")
    shutdown_step_timeout_ms: int = time_ms(5_000, "How long each other step of a shutdown may take.")


class LoggingSettings(Component):
    """The log lines of the node."""

    log_format: Literal["auto", "json", "console"] = setting(
        "auto",
        "One JSON object a line for machines, or text for people; `auto` is text on a terminal, and JSON anywhere else. Text has "
        "colours on a terminal, unless the variable NO_COLOR is set.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info",
        "The least important lines that are written; a running node takes it over at SIGHUP, and at once from the config topic. Libraries "
        "write only warnings and errors.",
    )
    audit_file: str = setting(
        "",
        "File for the lines of the logger `audit`, as JSON: who logged in, who changed what, and who was denied; it is made for its "
        "owner alone. After it was moved away, the node makes a new one. Empty: they are among all others.",
    )


class KafkaSettings(Properties):
    """The Kafka cluster that holds the log; properties of librdkafka, passed to every client."""

    name_prefix = "kafka."

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
    """All settings of the host; `catalogue.settings_with` adds those of tenants."""

    node_id: int = setting(1, "Number of this node, its own among all nodes of one state topic.", ge=0, le=NODE_ID_MAX)
    host: HostSettings = HostSettings()
    listener: ListenerSettings = ListenerSettings()
    security: SecuritySettings = SecuritySettings()
    access: AccessSettings = AccessSettings()
    files: FileSettings = FileSettings()
    limits: LimitSettings = LimitSettings()
    http: HttpSettings = HttpSettings()
    kafka: KafkaSettings
    config_topic: ConfigTopicSettings = ConfigTopicSettings()
    log: LogSettings = LogSettings()
    log_client: LogClientSettings = LogClientSettings()
    members: MemberSettings = MemberSettings()
    load: LoadSettings = LoadSettings()
    pruning: PruningSettings = PruningSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    compaction: CompactionSettings = CompactionSettings()
    spark: SparkSettings = SparkSettings()
    metadata: MetadataSettings = MetadataSettings()
    shutdown: ShutdownSettings = ShutdownSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if why := self.security.why_exposed(self.listener.listen_address[0]):
            raise ValueError(why)
        if self.host.workers > 1 and self.members.membership == "static":
            raise ValueError(
                f"workers is {self.host.workers} and membership static, and a static node serves the whole log; "
                f"set membership to group, in which workers divide the log, or workers to 1"
            )
        if self.snapshots.topic == self.log.state_topic:
            raise ValueError("snapshots.topic is the state topic; the job needs a topic of its own to write to")
        if self.compaction.run and not self.snapshots.topic:
            raise ValueError("compaction.run is true and snapshots.topic is empty; the job needs a topic to write to")
        if self.config_topic_name in (self.log.state_topic, self.snapshots.topic):
            raise ValueError(
                f"config.topic is {self.config_topic_name}, which holds the state or its snapshots; name a topic of its own"
            )
        for name in type(self).model_fields:
            component = getattr(self, name)
            if isinstance(component, Component) and (why := component.find_conflict(self)):
                raise ValueError(why)
        return self

    @property
    def own_topics(self) -> tuple[str, ...]:
        """Names of the topics that the node itself writes, which hold no records of users."""
        return tuple(filter(None, (self.log.state_topic, self.snapshots.topic, self.config_topic_name)))

    @property
    def config_topic_name(self) -> str:
        """Name of the topic with the settings of all nodes."""
        return self.config_topic.topic or config_topic_of(self.log.state_topic)

    def of(self, component: type[_Component]) -> _Component:
        """Return the settings of a tenant's component.

        Raises:
            LookupError: the model has no such component, because the tenant is none of this node's.
        """
        found = (value for name in type(self).model_fields if isinstance(value := getattr(self, name), component))
        for each in found:
            return each
        raise LookupError(f"this node has no settings of {component.__name__}")
