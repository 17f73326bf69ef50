"""The brokers of the settings, and all that they name: reached, old, of one cluster, and with which clock.

Sources: Apache Kafka's `FetchRequest.json` for the releases; `DescribeQuorumResponse.json`, `LeaderState` for the clock of the controller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from kio.schema.describe_quorum.v1.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32

from holdfast.api.admin import ADMIN
from holdfast.console.doctor.findings import Finding, Subject, right, unknown, warning, wrong
from holdfast.kafka.addresses import Address, format_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.exchange import exchange, exchange_with_any
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.requests import DELETE_RECORDS, FETCH, LIST_OFFSETS, PRODUCE

#: Each call that a node cannot do without, to the version that it speaks.
NEEDED: Final[Mapping[int, int]] = dict((PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS)) | {api_keys.METADATA: 12}
#: Highest version of Fetch to the releases that have it.
_RELEASES: Final = {
    12: "2.7 to 3.0",
    13: "3.1 to 3.4",
    14: "3.5 or 3.6",
    15: "3.5 or 3.6",
    16: "3.7 or 3.8",
    17: "3.9 or 4.0",
    18: "4.1 or newer",
}
#: Times in the log are the brokers'; further apart than this, they mislead people who compare them with lines of a node.
_CLOCK_APART_MS: Final = 1_000
_CLOCK_FIX: Final = "synchronize both machines' clocks, as with `timedatectl set-ntp true`"


class Broker(NamedTuple):
    """A broker, as its own answers describe it."""

    address: Address
    cluster_id: str
    #: All brokers that it knows.
    brokers: tuple[Address, ...]
    #: Lowest and highest version of each API.
    versions: Mapping[int, tuple[int, int]]


async def check_brokers(subject: Subject) -> Sequence[Finding]:
    """Reach each broker that the settings or another broker names."""
    options = subject.options()
    first = await _look_at_all(options.bootstrap, options, subject.timeout_ms)
    known = {address for found in first.values() if isinstance(found, Broker) for address in found.brokers}
    further = await _look_at_all(sorted(known - first.keys()), options, subject.timeout_ms)
    return judge_brokers({**first, **further}, options.bootstrap)


def judge_brokers(found: Mapping[Address, Broker | str], bootstrap: Collection[Address]) -> Sequence[Finding]:
    """Judge what each broker has said, or why it said nothing."""
    findings: list[Finding] = []
    cluster_ids: set[str] = set()
    for address, broker in found.items():
        name = format_address(*address)
        if isinstance(broker, Broker) and ADMIN in broker.versions:
            what = f"{name} is a Holdfast node, not a Kafka broker"
            findings.append(wrong(what, "name Kafka's brokers in kafka.bootstrap.servers"))
        elif isinstance(broker, Broker):
            findings.append(_judge_versions(name, broker))
            cluster_ids.add(broker.cluster_id)
        elif address in bootstrap:
            remedy = "see that Kafka runs there and that this machine reaches it, or mend kafka.bootstrap.servers"
            findings.append(wrong(f"{name} does not answer ({broker})", remedy))
        else:
            remedy = "mend advertised.listeners of that broker, or the way from here to it"
            findings.append(wrong(f"the brokers name {name}, and it does not answer ({broker})", remedy))
    clusters = sorted(cluster_ids)
    if len(clusters) == 1:
        findings.append(right(f"all of them are the cluster {clusters[0]}"))
    elif clusters:
        remedy = "name brokers of one cluster in kafka.bootstrap.servers"
        findings.append(wrong(f"they are several clusters: {', '.join(clusters)}", remedy))
    return findings


def _judge_versions(name: str, broker: Broker) -> Finding:
    release = _RELEASES.get(min(broker.versions.get(api_keys.FETCH, (0, 0))[1], max(_RELEASES)), "2.6 or older")
    lacking = [
        f"API {key} version {version}"
        for key, version in NEEDED.items()
        if not broker.versions.get(key, (0, -1))[0] <= version <= broker.versions.get(key, (0, -1))[1]
    ]
    if lacking:
        what = f"{name} is Kafka {release} by its APIs, and lacks {', '.join(lacking)}"
        return wrong(what, "upgrade it: Kafka 3.1 is the oldest that works, 3.2 for several nodes")
    return right(f"{name} answers, and is Kafka {release} by its APIs")


async def check_clock(subject: Subject) -> Sequence[Finding]:
    """Compare the clock here with the one of the brokers' controller, which alone says what time it has."""
    options = subject.options()
    partition = PartitionData(partition_index=i32(0))
    request = DescribeQuorumRequest(
        topics=(TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,)),)
    )
    began_ms = time.time() * 1_000
    answer = await exchange_with_any(options.bootstrap, options, subject.timeout_ms, request, DescribeQuorumResponse)
    return judge_clock(answer, began_ms, time.time() * 1_000)


def judge_clock(answer: DescribeQuorumResponse, began_ms: float, ended_ms: float) -> Sequence[Finding]:
    """Judge the time that the controller has, by the times of day here before and after it was queried."""
    if answer.error_code is ErrorCode.cluster_authorization_failed:
        return [
            unknown(
                "the brokers tell their time to any principal that may Describe the cluster", "compare `date` on both"
            )
        ]
    quorums = [partition for topic in answer.topics for partition in topic.partitions]
    times_ms = [
        voter.last_caught_up_timestamp
        for quorum in quorums
        for voter in quorum.current_voters
        if voter.replica_id == quorum.leader_id and voter.last_caught_up_timestamp > 0
    ]
    if not times_ms:
        return [unknown("the brokers do not say what time they have", "compare `date` on both")]
    apart_ms = times_ms[0] - (began_ms + ended_ms) / 2
    # The answer was made at any moment in between.
    surely_ms = max(0.0, abs(apart_ms) - (ended_ms - began_ms) / 2)
    if surely_ms > _CLOCK_APART_MS:
        where = "ahead of" if apart_ms > 0 else "behind"
        return [warning(f"the brokers' clock is {surely_ms / 1_000:.1f} s {where} the one here", _CLOCK_FIX)]
    return [
        right(
            f"the brokers' clock and the one here are at most {abs(apart_ms) + (ended_ms - began_ms) / 2:.0f} ms apart"
        )
    ]


async def _look_at_all(
    addresses: Collection[Address], options: ConnectionOptions, timeout_ms: int
) -> dict[Address, Broker | str]:
    found = await asyncio.gather(*(_look_at(address, options, timeout_ms) for address in addresses))
    return dict(zip(addresses, found, strict=True))


async def _look_at(address: Address, options: ConnectionOptions, timeout_ms: int) -> Broker | str:
    # Before the check itself is given up, so that one broker that is silent does not hide what the others said.
    third_ms = max(1, timeout_ms // 3)
    try:
        async with asyncio.timeout(third_ms / 1_000):
            with closing(await BrokerConnection.open(address, options, third_ms)) as connection:
                request = MetadataRequest(topics=(), include_topic_authorized_operations=False)
                answer = await exchange(connection, request, MetadataResponse)
    except TimeoutError:
        return "it is silent"
    except ConnectionFailed as failure:
        return str(failure)
    brokers = tuple((broker.host, int(broker.port)) for broker in answer.brokers)
    return Broker(address, answer.cluster_id or "", brokers, connection.versions)
