"""Coordinators looked up in every version of FindCoordinator, at Apache Kafka's own broker and at a node, by one and the same test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.consumer_group_heartbeat.v0.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from holdfast.kafka.addresses import Address, parse_address
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.calls import Sender, Versions
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import LOWEST_VERSION, Key, KeyType
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.exchange import broker_links, exchange
from holdfast.kafka.group_offsets import GroupOffsets
from holdfast.kafka.protocol.api_keys import FIND_COORDINATOR
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.real.running_node import make_settings, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.real

SHARE_KEYS = [f"group:AAAAAAAAAAAAAAAAAAAAAg:{partition}" for partition in range(3)]


class Pinned:
    """A connection that hides the versions of FindCoordinator above one, and notes which are sent."""

    def __init__(self, connection: BrokerConnection, version: int, sent: list[int]) -> None:
        self.versions: Versions = {**connection.versions, FIND_COORDINATOR: (0, version)}
        self._connection = connection
        self._sent = sent

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    async def exchange(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        if api_key == FIND_COORDINATOR:
            self._sent.append(version)
        return await self._connection.exchange(api_key, version, body, is_flexible=is_flexible)

    def close(self) -> None:
        self._connection.close()


@asynccontextmanager
async def pinned(address: Address, version: int) -> AsyncIterator[tuple[Coordinators, list[int]]]:
    """Give look-ups at a server that hides the versions above one, and the list of the versions that were sent."""
    sent: list[int] = []

    async def open_one(address: Address) -> Pinned:
        connection = await BrokerConnection.open(address, ConnectionOptions(bootstrap=(address,)), 30_000)
        return Pinned(connection, version, sent)

    links = Links([address], open_one, Sender())
    try:
        yield Coordinators(links), sent
    finally:
        links.close()


async def check_every_version(server: Address, answers: dict[KeyType, ErrorCode]) -> None:
    """Look up keys of all types in one call, in each version; those that a version can name are answered as they are to be."""
    texts = {KeyType.GROUP: ["g1", "g2", "g1"], KeyType.TRANSACTION: ["g1", "t2", "t3"], KeyType.SHARE: SHARE_KEYS}
    keys = [
        Key(key_type, text) for place in range(3) for key_type, of_type in texts.items() for text in [of_type[place]]
    ]
    for version in range(7):
        async with pinned(server, version) as (coordinators, sent):
            found = await coordinators.find_within(keys, PATIENCE_S)
            for key, each in zip(keys, found, strict=True):
                is_named = LOWEST_VERSION[key.type] <= version
                expected = answers[key.type] if is_named else ErrorCode.UNSUPPORTED_VERSION
                assert (version, key, each.error_code) == (version, key, expected)
                assert each.address == (("", -1) if expected else server)
            assert set(sent) == {version}
            sent.clear()
            coordinators.forget(keys)
            await coordinators.find_all(keys)
            named = {key for key in keys if LOWEST_VERSION[key.type] <= version}
            assert len(sent) == len({key.type for key in named} if version >= 4 else named), "as few as it allows"


async def test_kafkas_own_broker_answers_in_every_version(kafka: str) -> None:
    host, port = parse_address(kafka)
    await check_every_version((host, port), dict.fromkeys(KeyType, ErrorCode.NONE))


async def test_a_node_answers_in_every_version(kafka: str, topic: str) -> None:
    async with running(make_settings(kafka, topic)) as node:
        refused = dict.fromkeys((KeyType.GROUP, KeyType.TRANSACTION), ErrorCode.INVALID_REQUEST)
        await check_every_version(parse_address(node.address), {**refused, KeyType.SHARE: ErrorCode.NONE})


async def test_groups_are_listed_described_and_deleted_on_a_real_broker(kafka: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    names = [f"group-{uuid.uuid4()}" for _ in range(3)]
    options = ConnectionOptions(bootstrap=(parse_address(kafka),))
    offsets = GroupOffsets(options, int(PATIENCE_S * 1_000))
    groups = Groups(broker_links(options, int(PATIENCE_S * 1_000)), int(PATIENCE_S * 1_000))
    try:
        for name in names:
            await offsets.commit_offsets(name, topic, {0: 7})
        found = await groups.list_all()
        assert {(each.group, each.state, each.group_type) for each in found.groups if each.group in names} == {
            (name, "Empty", "classic") for name in names
        }
        committed = await groups.offsets([*names, "missing"])
        assert [each.committed for each in committed.values()] == [{(topic, 0): 7}] * 3 + [{}]
        described = await groups.describe([*names, "missing"])
        assert [each.error_code for each in described.values()] == [0, 0, 0, ErrorCode.GROUP_ID_NOT_FOUND]
        deleted = await groups.delete([*names, "missing"])
        assert [each.error_code for each in deleted.values()] == [0, 0, 0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert not {each.group for each in (await groups.list_all()).groups}.intersection(names)
    finally:
        groups.close()
        offsets.close()


async def test_consumer_and_share_groups_are_described_as_what_they_are(kafka: str, topic: str) -> None:
    (address,) = (options := ConnectionOptions(bootstrap=(parse_address(kafka),))).bootstrap
    consumer, share, member = (str(uuid.uuid4()) for _ in range(3))
    groups = Groups(broker_links(options, PATIENCE_MS), PATIENCE_MS)
    connection = await BrokerConnection.open(address, options, PATIENCE_MS)
    try:
        for group_id, make, response_type in (
            (consumer, join_consumers, ConsumerGroupHeartbeatResponse),
            (share, join_sharers, ShareGroupHeartbeatResponse),
        ):
            # The first look-up of a group creates the topic of offsets, and then the broker loads it.
            assert (await groups.describe([group_id]))[group_id].error_code == ErrorCode.GROUP_ID_NOT_FOUND
            for epoch in (0, -1):
                request = make(group_id, member, epoch, topic)
                answer: Any = None
                while answer is None or answer.error_code:
                    answer = await exchange(connection, request, response_type)
                    assert int(answer.error_code) in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                if epoch == 0:
                    [described] = (await groups.describe([group_id])).values()
                    kind = "consumer" if group_id == consumer else "share"
                    assert (described.group_type, described.error_code) == (kind, 0)
                    assert [each.member_id for each in described.members] == [member]
        found = await groups.describe([consumer, share, member])
        assert [(each.group_type, each.state) for each in found.values()] == [
            ("consumer", "Empty"),
            ("share", "Empty"),
            ("", "Dead"),
        ]
        listed = {each.group: each.group_type for each in (await groups.list_all()).groups}
        assert (listed[consumer], listed[share]) == ("consumer", "share")
        deleted = await groups.delete([consumer, share])
        assert [each.error_code for each in deleted.values()] == [0, 0]
    finally:
        connection.close()
        groups.close()


def join_consumers(group_id: str, member_id: str, epoch: int, topic: str) -> ConsumerGroupHeartbeatRequest:
    """Return what joins a consumer group in epoch 0, and leaves it in epoch -1."""
    return ConsumerGroupHeartbeatRequest(
        group_id=GroupId(group_id),
        member_id=member_id,
        member_epoch=i32(epoch),
        rebalance_timeout=i32Timedelta.parse(timedelta(milliseconds=PATIENCE_MS)),
        subscribed_topic_names=(TopicName(topic),),
        topic_partitions=(),
    )


def join_sharers(group_id: str, member_id: str, epoch: int, topic: str) -> ShareGroupHeartbeatRequest:
    """Return what joins a share group in epoch 0, and leaves it in epoch -1."""
    return ShareGroupHeartbeatRequest(
        group_id=GroupId(group_id),
        member_id=member_id,
        member_epoch=i32(epoch),
        subscribed_topic_names=(TopicName(topic),),
    )
