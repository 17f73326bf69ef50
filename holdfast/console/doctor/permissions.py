"""The rights of the node's principal, by the operations that brokers say are authorized; no check tries anything that changes data.

Brokers without an authorizer allow everything.

Source: Apache Kafka's KIP-430; `AclOperation` for the bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kio.schema.describe_cluster.v0.request import DescribeClusterRequest
from kio.schema.describe_cluster.v0.response import DescribeClusterResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8

from holdfast.console.doctor.findings import Finding, Subject, right, unknown, wrong
from holdfast.daemon.settings.models import Settings
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.exchange import exchange_with_any
from holdfast.kafka.metadata import topic_by_name


class Operation(IntEnum):
    """An operation that an ACL can allow, by Kafka's number."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


#: The answer of brokers that say nothing about operations.
_NOT_SAID: Final = -(2**31)


class Resource(NamedTuple):
    """Something that ACLs are about."""

    #: As in `kafka-acls.sh`: topic, group or cluster.
    kind: str
    name: str


#: Operations that are allowed on each; None: it is not there, or the brokers do not say.
Allowed = Mapping[Resource, frozenset[int] | None]


def needed(settings: Settings) -> dict[Resource, tuple[Operation, ...]]:
    """Return what a node with these settings must be allowed to do with what may be there already."""
    describe, configs, read, write = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.READ, Operation.WRITE
    found: dict[Resource, tuple[Operation, ...]] = {}
    found[Resource("topic", settings.log.state_topic)] = (describe, configs, read, write, Operation.DELETE)
    found[Resource("topic", settings.config_topic_name)] = (describe, read)
    if settings.snapshots.topic:
        found[Resource("topic", settings.snapshots.topic)] = (describe, configs, read, write)
    for group in settings.pruning.log_readers:
        found[Resource("group", group)] = (describe,)
    own = settings.members.group_of(settings.log.state_topic)
    if own is not None:
        found[Resource("group", own)] = (describe, read)
    return found


async def check_permissions(subject: Subject) -> Sequence[Finding]:
    """Look at what the node may do with its topics and groups."""
    options, wanted = subject.options(), needed(subject.settings)
    allowed = dict(await _topics(options, subject.timeout_ms, [each.name for each in wanted if each.kind == "topic"]))
    for resource in wanted:
        if resource.kind == "group":
            allowed[resource] = await _group(options, subject.timeout_ms, resource.name)
    may_create = await _may_create(options, subject.timeout_ms)
    principal = subject.settings.kafka.properties.get("sasl.username", "…")
    return judge_permissions(wanted, allowed, may_create, subject.settings.log.state_topic, principal)


def judge_permissions(
    wanted: Mapping[Resource, Iterable[Operation]], allowed: Allowed, may_create: bool | None, log: str, principal: str
) -> Sequence[Finding]:
    """Judge what is allowed by what is wanted.

    Args:
        wanted: of a node.
        allowed: by the brokers.
        may_create: whether any topic may be made; None: the brokers do not say.
        log: name of the state topic.
        principal: as the brokers call the node, for the command.
    """
    findings, enough = [], 0
    for resource, operations in wanted.items():
        found = allowed.get(resource)
        if found is None:
            continue
        lacking = [each for each in operations if each not in found]
        enough += not lacking
        if lacking:
            names = ", ".join(each.name.title().replace("_", "") for each in lacking)
            flags = " ".join(f"--operation {each.name.title().replace('_', '')}" for each in lacking)
            findings.append(
                wrong(
                    f"the node may not {names} the {resource.kind} {resource.name}",
                    f"kafka-acls.sh --add --allow-principal User:{principal} {flags} --{resource.kind} {resource.name}",
                )
            )
    is_log_there = allowed.get(Resource("topic", log)) is not None
    if not is_log_there and may_create is False:
        remedy = f"kafka-acls.sh --add --allow-principal User:{principal} --operation Create --topic {log}, or make the topic yourself"
        findings.append(wrong(f"the topic {log} is not there or not to be seen, and the node may not make it", remedy))
    if not findings and not enough:
        return [unknown("nothing is there yet that ACLs could be looked up of", "start a node, and look again")]
    if not findings:
        findings.append(
            right(f"the brokers allow all that the node needs, of {enough} topics and groups that are there")
        )
    return findings


async def _topics(options: ConnectionOptions, timeout_ms: int, names: list[str]) -> Allowed:
    request = MetadataRequest(
        topics=tuple(map(topic_by_name, names)),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    answer = await exchange_with_any(options.bootstrap, options, timeout_ms, request, MetadataResponse)
    return {
        Resource("topic", topic.name): _operations(topic.error_code, topic.topic_authorized_operations)
        for topic in answer.topics
        if topic.name is not None
    }


async def _group(options: ConnectionOptions, timeout_ms: int, group: str) -> frozenset[int] | None:
    looked_up = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=(group,))
    found = await exchange_with_any(options.bootstrap, options, timeout_ms, looked_up, FindCoordinatorResponse)
    coordinator = found.coordinators[0]
    if coordinator.error_code is not ErrorCode.none:
        return _operations(coordinator.error_code, _NOT_SAID)
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=True)
    address = coordinator.host, int(coordinator.port)
    answer = await exchange_with_any([address], options, timeout_ms, request, DescribeGroupsResponse)
    return _operations(answer.groups[0].error_code, answer.groups[0].authorized_operations)


async def _may_create(options: ConnectionOptions, timeout_ms: int) -> bool | None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await exchange_with_any(options.bootstrap, options, timeout_ms, request, DescribeClusterResponse)
    operations = _operations(answer.error_code, answer.cluster_authorized_operations)
    return None if operations is None else Operation.CREATE in operations


def _operations(error_code: ErrorCode, bits: int) -> frozenset[int] | None:
    """Return the operations that bits of an answer stand for; none where even looking is refused, None where nothing is said."""
    if error_code in (
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
    ):
        return frozenset()
    if error_code is not ErrorCode.none or bits == _NOT_SAID:
        return None
    return frozenset(bit for bit in range(31) if bits >> bit & 1)
