"""What the doctor says of brokers, from what they say of themselves."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse, PartitionData, ReplicaState, TopicData
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i64

from holdfast.api.admin import ADMIN
from holdfast.console.doctor.brokers import NEEDED, Broker, check_brokers, judge_brokers, judge_clock
from holdfast.console.doctor.findings import Level, Subject
from holdfast.kafka.addresses import Address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol import api_keys
from holdfast.node_settings import load_settings

A, B = ("kafka-1", 9092), ("kafka-2", 9092)
VERSIONS: Final = {key: (0, version) for key, version in NEEDED.items()}


def broker(fetch: int = 17, cluster: str = "c1") -> Broker:
    return Broker(A, cluster, (A, B), VERSIONS | {api_keys.FETCH: (4, fetch)})


def test_brokers_that_answer_are_named_with_their_release_and_cluster() -> None:
    found = judge_brokers({A: broker(), B: broker(99)}, [A])
    assert [(each.level, each.text) for each in found] == [
        (Level.RIGHT, "kafka-1:9092 answers, and is Kafka 3.9 or 4.0 by its APIs"),
        (Level.RIGHT, "kafka-2:9092 answers, and is Kafka 4.1 or newer by its APIs"),
        (Level.RIGHT, "all of them are the cluster c1"),
    ]


def test_a_broker_that_is_too_old_is_told_what_it_lacks() -> None:
    old = broker(11)._replace(versions=VERSIONS | {api_keys.FETCH: (4, 11), api_keys.METADATA: (0, 9)})
    [found, _] = judge_brokers({A: old}, [A])
    assert found.level is Level.WRONG
    assert found.text == "kafka-1:9092 is Kafka 2.6 or older by its APIs, and lacks API 1 version 12, API 3 version 12"
    assert "Kafka 3.1 is the oldest that works" in found.remedy


def test_a_node_is_not_taken_for_an_old_broker() -> None:
    node = broker()._replace(versions={ADMIN: (0, 0), api_keys.METADATA: (0, 12)})
    [found] = judge_brokers({A: node}, [A])
    assert (found.level, found.text) == (Level.WRONG, "kafka-1:9092 is a Holdfast node, not a Kafka broker")
    assert "kafka.bootstrap.servers" in found.remedy


def test_a_broker_that_is_silent_has_a_remedy_by_who_named_it() -> None:
    [ours, theirs] = judge_brokers({A: "it is silent", B: "it is silent"}, [A])
    assert (ours.level, theirs.level) == (Level.WRONG, Level.WRONG)
    assert "kafka.bootstrap.servers" in ours.remedy
    assert "advertised.listeners" in theirs.remedy


def test_brokers_of_several_clusters_are_wrong() -> None:
    *_, found = judge_brokers({A: broker(), B: broker(cluster="c2")}, [A, B])
    assert (found.level, found.text) == (Level.WRONG, "they are several clusters: c1, c2")


def quorum(time_ms: int, leader: int = 1) -> DescribeQuorumResponse:
    voters = tuple(
        ReplicaState(replica_id=BrokerId(number), log_end_offset=i64(1), last_caught_up_timestamp=i64(caught_up))
        for number, caught_up in ((1, time_ms), (2, 5))
    )
    partition = PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        leader_id=BrokerId(leader),
        leader_epoch=i32(1),
        high_watermark=i64(1),
        current_voters=voters,
        observers=(),
    )
    topics = (TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,)),)
    return DescribeQuorumResponse(error_code=ErrorCode.none, topics=topics)


@pytest.mark.parametrize(
    ("time_ms", "level", "text"),
    [
        (10_050, Level.RIGHT, "the brokers' clock and the one here are at most 50 ms apart"),
        (11_200, Level.WARNING, "the brokers' clock is 1.1 s ahead of the one here"),
        (11_100, Level.RIGHT, "the brokers' clock and the one here are at most 1100 ms apart"),
        (5_000, Level.WARNING, "the brokers' clock is 5.0 s behind the one here"),
    ],
)
def test_clocks_are_compared_by_what_is_sure(time_ms: int, level: Level, text: str) -> None:
    [found] = judge_clock(quorum(time_ms), 10_000, 10_100)
    assert (found.level, found.text) == (level, text)


def test_who_may_not_know_the_time_is_told_so() -> None:
    refused = DescribeQuorumResponse(error_code=ErrorCode.cluster_authorization_failed, topics=())
    assert "Describe the cluster" in judge_clock(refused, 0, 1)[0].text
    assert judge_clock(quorum(1, leader=7), 0, 1)[0].level is Level.UNKNOWN


async def test_a_broker_with_a_silent_address_is_reached_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_by_the_second(address: Address, _: ConnectionOptions, timeout_ms: int) -> None:
        await asyncio.sleep(timeout_ms / 2_000)  # the first one connects and says nothing
        raise ConnectionFailed("the second address was tried")

    monkeypatch.setattr(BrokerConnection, "open", open_by_the_second)
    settings = load_settings(flags={"kafka.bootstrap.servers": "kafka-1:9092"}).settings
    [found] = await check_brokers(Subject(settings, "", 600))
    assert found.text == "kafka-1:9092 does not answer (the second address was tried)"
