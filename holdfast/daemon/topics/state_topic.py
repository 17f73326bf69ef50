"""The state topic: created when it is missing, and checked at every start and every hour.

A setting that would lose state is refused, with the command that mends it; one that weakens the log is a warning.
All functions that are no coroutines block while Kafka answers; run them in a thread.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, ParamSpec, Protocol, TypedDict, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import AsyncRetrying, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from holdfast.daemon.settings.components.log import LogSettings
from holdfast.kafka.addresses import format_address
from holdfast.kafka.errors import ConnectionFailed, SetupRefused
from holdfast.kafka.librdkafka import create_topic, find_topic, who
from holdfast.kafka.librdkafka_types import ConfigResource, NewTopic, ResourceType
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.metadata_client import MetadataClient

_log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: What a state topic is made with, beside the settings of an admin.
FIXED_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "producer",
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
}

#: What goes wrong otherwise; a topic with another value is refused.
_SAFETY: Final = {
    "cleanup.policy": "compaction would drop all but the newest update of a share partition",
    "retention.ms": "state older than that would be deleted",
    "retention.bytes": "state would be deleted when the topic grows",
    "unclean.leader.election.enable": "a leader without the newest records would lose committed state",
}
_ADVICE: Final = {
    "compression.type": "brokers would compress batches again",
    "message.timestamp.type": "times in the log would be those of this node's clock",
}


class StateTopic(NamedTuple):
    """The state topic as it is."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    max_message_bytes: int


class Finding(NamedTuple):
    """Something about the state topic that an admin should mend."""

    #: One sentence without its full stop.
    problem: str
    #: What mends it; empty where no single command does.
    command: str
    is_fatal: bool = False

    def __str__(self) -> str:
        return f"{self.problem}; mend it with: {self.command}" if self.command else f"{self.problem}."


class _Retry(TypedDict):
    """How long, and after what, a look at a topic is tried again."""

    stop: stop_after_delay
    wait: wait_random_exponential
    retry: retry_if_exception_type
    reraise: bool


class StateTopicError(Exception):
    """The state topic cannot be used; the text says why and what mends it."""


class TopicMissing(StateTopicError):
    """There is no such topic."""


_WITHOUT_STATE: Final = (
    "and with it the state of all share groups. Restore it, or begin with an empty log, in which no share partition is "
    "initialized: `holdfast serve --new-state-topic`, once"
)


class TopicDeleted(StateTopicError):
    """There is no such topic any more, and nobody makes it again unasked: another look is in vain."""

    def __init__(self, name: str, remains: str) -> None:
        super().__init__(
            f"The state topic {name} does not exist, and did before: {remains}. It was deleted, {_WITHOUT_STATE}"
        )


class TopicReplaced(StateTopicError):
    """Another topic has the name, without a record: somebody made it again while no node ran, and nobody takes it for the log unasked."""

    def __init__(self, name: str, topic_id: bytes, predecessor: str) -> None:
        super().__init__(
            f"The state topic {name} is empty and has the id {format_topic_id(topic_id)}, and was another one before: "
            f"{predecessor}. That one was deleted, {_WITHOUT_STATE}"
        )


class FormerTopic(Protocol):
    """The remains of a state topic that is not there any more; see `remains`."""

    async def find_remains(self) -> str:
        """Return what tells that there was a state topic where there is none, a clause; empty: nothing does."""

    async def find_predecessor(self, topic: StateTopic) -> str:
        """Return what tells that an empty state topic is not the one that nodes had, a clause; empty: nothing does."""


class NotKnownYet(StateTopicError):
    """The topic was made, but some broker does not know it yet."""


class TopicDisputed(ConnectionFailed):
    """Brokers name different topics by one name, or one of them none: some broker has not heard that a topic was deleted or made."""


def make_state_topic(admin: AdminClient, settings: LogSettings) -> None:
    """Make the state topic; that it exists already is no error.

    Raises:
        StateTopicError: Kafka refused.
    """
    topic = NewTopic(
        settings.state_topic,
        num_partitions=settings.state_topic_num_partitions,
        replication_factor=settings.state_topic_replication_factor,
        config={
            **FIXED_CONFIG,
            "min.insync.replicas": str(settings.state_topic_min_isr),
            "segment.bytes": str(settings.state_topic_segment_bytes),
        },
    )
    refusal = create_topic(admin, topic, settings.request_timeout_ms)
    if refusal is None:
        return
    if refusal.code() == KafkaError.INVALID_REPLICATION_FACTOR:
        brokers = admin.list_topics(timeout=settings.request_timeout_ms / 1_000).brokers
        raise StateTopicError(_too_few_brokers(len(brokers), settings))
    raise StateTopicError(
        f"The state topic {settings.state_topic} cannot be made: {why_not_created(refusal, topic, who(admin))}."
    )


def why_not_created(refusal: KafkaError, topic: NewTopic, principal: str) -> str:
    """Return why Kafka made no topic, with the ACL to add where it is that; without a full stop."""
    return f"{refusal.str().rstrip('.')}{acl_remedy(refusal.code(), 'Create', f'topic {topic.topic}', principal)}"


def flags_to_fit(broker_count: int, settings: LogSettings) -> str:
    """Return the flags that lower what so many brokers cannot hold; empty: they can hold it."""
    lowered = {
        "share.coordinator.state.topic.replication.factor": settings.state_topic_replication_factor,
        "share.coordinator.state.topic.min.isr": settings.state_topic_min_isr,
    }
    return " ".join(f"--set {name}={broker_count}" for name, value in lowered.items() if value > broker_count)


def _too_few_brokers(broker_count: int, settings: LogSettings) -> str:
    flags = flags_to_fit(broker_count, settings)
    copies = (
        f"The state topic {settings.state_topic} cannot be made with {settings.state_topic_replication_factor} copies"
    )
    if not flags:
        return f"{copies}: the cluster knows {broker_count} brokers, and fewer of them are up; start the others"
    return (
        f"{copies} on a cluster of {broker_count} broker{'s' if broker_count > 1 else ''}; "
        f"add brokers, or lower what they cannot hold: {flags}"
    )


def describe_topic(admin: AdminClient, name: str, timeout_ms: int) -> tuple[StateTopic, Mapping[str, str]]:
    """Return a topic as the cluster describes it, with its configuration, broker defaults included.

    Raises:
        TopicMissing: it does not exist.
        ConnectionFailed: no broker would describe it, which says nothing about it.
    """
    timeout_s = timeout_ms / 1_000
    operation = "Describe"
    try:
        described = find_topic(admin, name, timeout_ms)
        if described is None:
            raise TopicMissing(f"There is no topic {name}.")
        operation = "DescribeConfigs"
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result()
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(f"There is no topic {name}.") from None
        remedy = acl_remedy(cause.code(), operation, f"topic {name}", who(admin))
        if cause.code() == KafkaError._UNSUPPORTED_FEATURE:  # every broker has it, however old
            remedy = "; name Kafka's brokers, not a Holdfast node"
        # With a remedy, a broker has answered, and says the same until somebody has done that.
        failure = SetupRefused if remedy else ConnectionFailed
        raise failure(f"the topic {name} cannot be described: {cause.str().rstrip('.')}{remedy}") from None
    config = {key: entry.value for key, entry in entries.items()}
    topic = StateTopic(
        name=name,
        topic_id=described.topic_id,
        partition_count=described.partition_count,
        replication_factor=described.replication_factor,
        max_message_bytes=int(config["max.message.bytes"]),
    )
    return topic, config


def command_to_alter(bootstrap_servers: str, topic: str, key: str, value: object) -> str:
    """Return the command that changes a setting of a topic."""
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {key}={value}"
    )


def find_problems(
    topic: StateTopic, config: Mapping[str, str], settings: LogSettings, bootstrap_servers: str
) -> Iterator[Finding]:
    """Compare the topic as it is with what the log needs (fatal) and with what the settings say (warnings)."""

    def alter(key: str, value: object) -> str:
        return command_to_alter(bootstrap_servers, topic.name, key, value)

    for rules, is_fatal in ((_SAFETY, True), (_ADVICE, False)):
        for key, consequence in rules.items():
            if config[key] != FIXED_CONFIG[key]:
                problem = f"topic {topic.name} has {key}={config[key]}: {consequence}"
                yield Finding(problem, alter(key, FIXED_CONFIG[key]), is_fatal)
    min_isr = int(config["min.insync.replicas"])
    if topic.replication_factor == 1:
        yield Finding(
            f"topic {topic.name} has one copy only: the state is gone with the disk that holds it; give it three "
            "with kafka-reassign-partitions.sh",
            "",
        )
    elif min_isr == 1:
        problem = f"topic {topic.name} has min.insync.replicas=1: an acknowledged record may exist once only"
        yield Finding(problem, alter("min.insync.replicas", 2))
    elif min_isr > topic.replication_factor:
        problem = f"topic {topic.name} has min.insync.replicas={min_isr} and {topic.replication_factor} copies: no write would count"
        yield Finding(problem, alter("min.insync.replicas", topic.replication_factor), is_fatal=True)
    if int(config["segment.bytes"]) != settings.state_topic_segment_bytes:
        problem = (
            f"topic {topic.name} has segment.bytes={config['segment.bytes']} where the setting is "
            f"{settings.state_topic_segment_bytes}: pruning frees whole segments only"
        )
        yield Finding(problem, alter("segment.bytes", settings.state_topic_segment_bytes))
    if topic.partition_count != settings.state_topic_num_partitions:
        yield Finding(
            f"topic {topic.name} has {topic.partition_count} partitions where the setting is "
            f"{settings.state_topic_num_partitions}; if it was made so, set share.coordinator.state.topic.num.partitions "
            f"to {topic.partition_count}; if partitions were added since, the node serves none of them",
            "",
        )


def check_state_topic(
    admin: AdminClient, settings: LogSettings, bootstrap_servers: str
) -> tuple[StateTopic, tuple[Finding, ...]]:
    """Describe the topic and return it with its warnings.

    Raises:
        TopicMissing: it does not exist.
        StateTopicError: it would lose state; names every fatal finding.
        ConnectionFailed: no broker would describe it.
    """
    topic, config = describe_topic(admin, settings.state_topic, settings.request_timeout_ms)
    findings = tuple(find_problems(topic, config, settings, bootstrap_servers))
    if fatal := [finding for finding in findings if finding.is_fatal]:
        raise StateTopicError("\n".join(map(str, fatal)))
    return topic, findings


async def confirm_topic(metadata: MetadataClient, name: str, topic_id: bytes | None) -> None:
    """Check that every broker that answers means the same topic by a name, before what one of them said of it is believed.

    That one may be cut off from the controllers since before the topic was recreated.

    Args:
        metadata: knows the brokers.
        name: of the topic.
        topic_id: which one was described; None: one that is to be refused, or none.

    Raises:
        TopicDisputed: a broker means another one, or knows none.
        ConnectionFailed: no broker said which one confirms `topic_id`.
    """
    meant: dict[bytes | None, list[str]] = {} if topic_id is None else {topic_id: []}
    try:
        ids = await metadata.topic_ids(name)
    except ConnectionFailed:
        if topic_id is None:
            return  # nobody says otherwise
        raise
    for address, found in sorted(ids.items()):
        meant.setdefault(found, []).append(format_address(*address))
    if len(meant) == 1:
        return
    said = "; ".join(
        f"{'no such topic' if found is None else format_topic_id(found)} "
        f"({', '.join(addresses) or 'the broker that described it'})"
        for found, addresses in meant.items()
    )
    raise TopicDisputed(
        f"the brokers do not agree which topic {name} is: {said}; one that lags has not heard that the topic was deleted or "
        "made; see that it reaches the controllers, or stop it"
    )


async def ensure_state_topic(
    admin: AdminClient,
    metadata: MetadataClient,
    settings: LogSettings,
    bootstrap_servers: str,
    former: FormerTopic,
) -> tuple[StateTopic, tuple[Finding, ...]]:
    """Return the checked topic with its warnings; one that never was is made, which is a line.

    One that was made is waited for until every broker knows it, one about which brokers do not agree until they do.

    Args:
        admin: makes and describes it.
        metadata: queries all brokers.
        settings: of the log.
        bootstrap_servers: as commands for people name them.
        former: tells of a topic that was there before.

    Raises:
        TopicDeleted: it is missing, and was there before; an admin may begin with an empty log (`new_state_topic`).
        TopicReplaced: it is empty, and another one was there before; as above.
        StateTopicError: it cannot be made, would lose state, or did not become known in time.
        TopicDisputed: the brokers did not agree in time.
        ConnectionFailed: no broker would describe it.
    """
    is_made = False

    async def see() -> tuple[StateTopic, tuple[Finding, ...]]:
        try:
            topic, findings = await to_thread(check_state_topic, admin, settings, bootstrap_servers)
        except StateTopicError:
            await confirm_topic(metadata, settings.state_topic, None)
            raise
        await confirm_topic(metadata, topic.name, topic.topic_id)
        return topic, findings

    async def look() -> tuple[StateTopic, tuple[Finding, ...]]:
        nonlocal is_made
        try:
            topic, findings = await see()
        except TopicMissing:
            if is_made:
                raise
            remains = "" if settings.new_state_topic else await former.find_remains()
            if not remains:
                await to_thread(make_state_topic, admin, settings)
                is_made = True
                raise
            # They may be those of a node that made the topic since: one joins the group when every broker knows the topic.
            try:
                topic, findings = await see()
            except TopicMissing:
                raise TopicDeleted(settings.state_topic, remains) from None
        if not settings.new_state_topic and not is_made and (predecessor := await former.find_predecessor(topic)):
            raise TopicReplaced(topic.name, topic.topic_id, predecessor)
        if is_made and not await metadata.is_known_everywhere(topic.topic_id, topic.partition_count):
            raise NotKnownYet(f"The state topic {topic.name} was made, but not every broker knows it yet.")
        if is_made:
            topic_id, count = format_topic_id(topic.topic_id), topic.partition_count
            _log.warning("state_topic_made", topic=topic.name, topic_id=topic_id, log_partitions=count)
        return topic, findings

    try:
        return await look()
    except (TopicDisputed, TopicMissing):
        pass  # a broker that lags behind, as a rule for a moment; or one was made
    return await AsyncRetrying(**_until_known(settings.state_topic_create_timeout_ms))(look)


def until_known(timeout_ms: int, look: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return what a look at a topic gives that was just created, tried again while brokers do not know it or do not answer.

    Raises: what the last look raised, when the time is over; anything but TopicMissing and ConnectionFailed at once.
    """
    return Retrying(**_until_known(timeout_ms))(look, *arguments, **named)


def _until_known(timeout_ms: int) -> _Retry:
    return _Retry(
        stop=stop_after_delay(timeout_ms / 1_000),
        wait=wait_random_exponential(multiplier=0.05, max=1),
        retry=retry_if_exception_type((TopicMissing, NotKnownYet, ConnectionFailed)),
        reraise=True,
    )
