"""The state topic and the snapshot topic, by the checks of the node itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from confluent_kafka.admin import AdminClient

from holdfast.console.doctor.findings import Finding, Subject, right, warning, wrong
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.remains import Remains
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError, check_snapshot_topic
from holdfast.daemon.topics.state_topic import Finding as TopicFinding
from holdfast.daemon.topics.state_topic import (
    StateTopic,
    StateTopicError,
    TopicMissing,
    check_state_topic,
    describe_topic,
    flags_to_fit,
)
from holdfast.kafka.connection_options import LiveProperties
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.topic_ids import format_topic_id

T = TypeVar("T")

_WITH_AN_EMPTY_LOG = "restore it, or begin with an empty log: holdfast serve --new-state-topic, once"
_BY_HAND = 'see the page Alarms and alerts, "The state topic is not fit"'


async def check_log(subject: Subject) -> Sequence[Finding]:
    """Look at the settings and copies of the state topic."""
    settings = _within(subject)
    bootstrap = settings.kafka.properties["bootstrap.servers"]
    name = settings.log.state_topic
    try:
        topic, weak = await _with_admin(settings, lambda admin: check_state_topic(admin, settings.log, bootstrap))
    except TopicMissing:
        if not settings.log.new_state_topic and (clause := await _look_back(settings, Remains.find_remains)):
            return [deleted_log(name, clause)]
        timeout_s = settings.log.request_timeout_ms / 1_000
        brokers = await _with_admin(settings, lambda admin: len(admin.list_topics(timeout=timeout_s).brokers))
        return [missing_log(settings, brokers)]
    except StateTopicError as unsafe:
        return [judge_fatal(line) for line in str(unsafe).splitlines()]
    look = partial(Remains.find_predecessor, topic=topic)
    if not settings.log.new_state_topic and (clause := await _look_back(settings, look)):
        return [replaced_log(topic, clause)]
    return judge_topic(f"{name} has {topic.partition_count} partitions in {topic.replication_factor} copies", weak)


async def check_snapshots(subject: Subject) -> Sequence[Finding]:
    """Look at the settings and copies of the snapshot topic."""
    settings = _within(subject)
    name, bootstrap = settings.snapshots.topic, settings.kafka.properties["bootstrap.servers"]
    if not name:
        return [right("none is set, so loads read the log alone")]

    def check(admin: AdminClient) -> tuple[StateTopic, tuple[TopicFinding, ...]]:
        state, _ = describe_topic(admin, settings.log.state_topic, settings.log.request_timeout_ms)
        return state, check_snapshot_topic(admin, state, settings.snapshots, settings.log, bootstrap)

    try:
        _, weak = await _with_admin(settings, check)
    except TopicMissing:
        return [right(f"there is no topic {name} yet: the compaction job makes it; loads read the log alone")]
    except SnapshotTopicError as unfit:
        return [judge_fatal(line) for line in str(unfit).splitlines()]
    return judge_topic(f"{name} fits the state topic", weak)


async def _look_back(settings: Settings, look: Callable[[Remains], Awaitable[str]]) -> str:
    kafka = LiveProperties(settings.kafka.properties)
    with KafkaClients(kafka).admin() as admin:
        return await look(Remains(admin, settings, kafka))


def deleted_log(name: str, remains: str) -> Finding:
    """Return what is said where there is no state topic any more, which a clause tells."""
    return wrong(
        f"there is no topic {name}, and there was one: {remains}; a node that starts is refused",
        _WITH_AN_EMPTY_LOG,
    )


def replaced_log(topic: StateTopic, predecessor: str) -> Finding:
    """Return what is said where the state topic is empty and another one than before, which a clause tells."""
    topic_id = format_topic_id(topic.topic_id)
    return wrong(
        f"the topic {topic.name} is empty and has the id {topic_id}, and was another one before: {predecessor}; "
        "a node that starts is refused",
        _WITH_AN_EMPTY_LOG,
    )


def missing_log(settings: Settings, broker_count: int) -> Finding:
    """Return the finding for a missing state topic while `broker_count` brokers are up; 0: their number is not known."""
    log = settings.log
    if broker_count and (flags := flags_to_fit(broker_count, log)):
        return warning(
            f"there is no topic {log.state_topic} yet; a node makes it with {log.state_topic_replication_factor} copies, and "
            f"{broker_count} broker{' is' if broker_count == 1 else 's are'} up",
            f"if these are all brokers, add some, or lower what they cannot hold: {flags}",
        )
    return right(
        f"there is no topic {log.state_topic} yet: the first node makes it, with {log.state_topic_num_partitions} partitions in "
        f"{log.state_topic_replication_factor} copies"
    )


def judge_topic(what: str, weak: Iterable[TopicFinding]) -> Sequence[Finding]:
    """Judge a topic by what the node's own checks warn of."""
    return [warning(each.problem, each.command or _BY_HAND) for each in weak] or [right(what)]


def judge_fatal(line: str) -> Finding:
    """Return a finding that prevents a node from starting; the line has the command after its problem."""
    problem, found, command = line.partition("; mend it with: ")
    return wrong(problem.removesuffix("."), command if found else _BY_HAND)


def _within(subject: Subject) -> Settings:
    """Return the settings with no request to a broker that takes longer than the check may."""
    settings = subject.settings
    timeout_ms = min(settings.log.request_timeout_ms, subject.timeout_ms // 2)
    return settings.model_copy(update={"log": settings.log.model_copy(update={"request_timeout_ms": timeout_ms})})


async def _with_admin(settings: Settings, look: Callable[[AdminClient], T]) -> T:
    def looked() -> T:
        with KafkaClients(settings.kafka.properties).admin() as admin:
            return look(admin)

    return await asyncio.to_thread(looked)
