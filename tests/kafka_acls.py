"""What a Kafka with ACLs must allow, and to whom: the table that the pages are compared with, and the brokers of the tests are set up by.

Kafka implies Describe by Read, Write and Delete, so a row for Describe stands only where nothing else is needed.

Source: Apache Kafka's `AclEntry.supportedOperations`, `StandardAuthorizerData`, and the operations that `KafkaApis` checks.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.daemon.settings.components.config_topic import config_topic_of
from holdfast.daemon.settings.models import Settings
from holdfast.gateway.settings import GatewaySettings


class Role(StrEnum):
    """Who comes to Kafka with a principal."""

    #: `holdfast serve`, without the job.
    NODE = "node"
    #: A node with `gateway.topics`, in addition.
    GATEWAY = "gateway"
    #: The Spark job, by itself or under a node, which then needs what both need.
    JOB = "job"
    #: Who changes settings of all nodes by `holdfast config`.
    CONFIG = "config"


class Resource(StrEnum):
    """What is allowed to be used, named as settings name it."""

    STATE_TOPIC = "the state topic"
    CONFIG_TOPIC = "the config topic"
    SNAPSHOT_TOPIC = "the snapshot topic"
    USER_TOPICS = "every topic whose share partitions it serves"
    OFFERED_TOPICS = "every topic of `gateway.topics`"
    READER_GROUPS = "the groups named in `log_readers`"
    JOB_GROUP = "the group `compaction.group`"
    NODE_GROUP = "the group of the nodes, `holdfast-` and the name of the state topic"


class Need(NamedTuple):
    """A row of the table: an operation that a role needs."""

    role: Role
    #: As `kafka-acls.sh` has it.
    operation: str
    resource: Resource
    #: What fails without it, as the pages say it.
    purpose: str


NEEDS: Final = (
    Need(Role.NODE, "Read", Resource.STATE_TOPIC, "loading the log and following it"),
    Need(Role.NODE, "Write", Resource.STATE_TOPIC, "appending to the log"),
    Need(Role.NODE, "Delete", Resource.STATE_TOPIC, "pruning the log"),
    Need(Role.NODE, "DescribeConfigs", Resource.STATE_TOPIC, "checking its settings"),
    Need(Role.NODE, "Create", Resource.STATE_TOPIC, "making it; not needed where you make it yourself"),
    Need(Role.NODE, "Read", Resource.CONFIG_TOPIC, "taking the settings of all nodes, where there are any"),
    Need(Role.NODE, "Read", Resource.SNAPSHOT_TOPIC, "beginning loads with it, where a job writes one"),
    Need(Role.NODE, "Write", Resource.SNAPSHOT_TOPIC, "removing from it what no load needs"),
    Need(Role.NODE, "DescribeConfigs", Resource.SNAPSHOT_TOPIC, "checking its settings"),
    Need(Role.NODE, "Describe", Resource.USER_TOPICS, "knowing that they exist"),
    Need(Role.NODE, "Describe", Resource.READER_GROUPS, "knowing how far they are, so as not to prune past them"),
    Need(Role.NODE, "Describe", Resource.JOB_GROUP, "knowing how far the job is, so as not to prune past it"),
    Need(Role.NODE, "Read", Resource.NODE_GROUP, 'dividing the log; not needed with `membership = "static"`'),
    Need(Role.GATEWAY, "Read", Resource.OFFERED_TOPICS, "giving its records to share consumers"),
    Need(Role.JOB, "Read", Resource.STATE_TOPIC, "reading the log"),
    Need(Role.JOB, "DescribeConfigs", Resource.STATE_TOPIC, "making the snapshot topic to fit it"),
    Need(Role.JOB, "Write", Resource.SNAPSHOT_TOPIC, "writing snapshots and manifests"),
    Need(Role.JOB, "DescribeConfigs", Resource.SNAPSHOT_TOPIC, "checking its settings"),
    Need(Role.JOB, "Create", Resource.SNAPSHOT_TOPIC, "making it; not needed where you make it yourself"),
    Need(Role.JOB, "Read", Resource.JOB_GROUP, "its progress"),
    Need(Role.CONFIG, "Read", Resource.CONFIG_TOPIC, "reading what is set"),
    Need(Role.CONFIG, "Write", Resource.CONFIG_TOPIC, "setting"),
    Need(Role.CONFIG, "DescribeConfigs", Resource.CONFIG_TOPIC, "checking its settings"),
    Need(Role.CONFIG, "Create", Resource.CONFIG_TOPIC, "making it, with the first setting"),
    Need(Role.CONFIG, "Describe", Resource.STATE_TOPIC, "giving the config topic as many copies when it is made"),
)


class Acl(NamedTuple):
    """An ACL that allows an operation, as Kafka takes it."""

    operation: str
    #: `topic` or `group`.
    kind: str
    #: Of the resource; `*` is any.
    name: str


def acls_of(need: Need, settings: Settings) -> tuple[Acl, ...]:
    """Return the ACLs that a row stands for, by the names that the settings give; none where they rule it out."""
    return tuple(Acl(need.operation, *place) for place in _places(need.resource, settings))


def _places(resource: Resource, settings: Settings) -> list[tuple[str, str]]:
    match resource:
        case Resource.STATE_TOPIC:
            return [("topic", settings.log.state_topic)]
        case Resource.CONFIG_TOPIC:
            name = settings.config_topic.topic or config_topic_of(settings.log.state_topic)
            return [("topic", name)]
        case Resource.SNAPSHOT_TOPIC:
            return [("topic", settings.snapshots.topic)] if settings.snapshots.topic else []
        case Resource.USER_TOPICS:
            return [("topic", "*")]
        case Resource.OFFERED_TOPICS:
            return [("topic", name) for name in settings.of(GatewaySettings).topics]
        case Resource.READER_GROUPS:
            return [("group", group) for group in settings.pruning.log_readers]
        case Resource.JOB_GROUP:
            return [("group", settings.compaction.group)]
        case Resource.NODE_GROUP:
            group = settings.members.group_of(settings.log.state_topic)
            return [] if group is None else [("group", group)]
