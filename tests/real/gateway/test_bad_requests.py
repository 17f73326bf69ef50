"""Requests that no consumer should send, on the socket of a node: each gets one clear error, nothing is lost and nothing hangs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from holdfast.api import share_acknowledge, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import SettledPartition, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import AcknowledgedRange, NamedPartition
from holdfast.api.share_fetch import FetchedPartition, ShareFetchRequest, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.client import Disconnected
from holdfast.client.client import parse_address
from holdfast.client.connection import NodeConnection, open_connection
from holdfast.kafka.metadata import NO_TOPIC
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.real.gateway.raw_member import raw_member, until_offered
from tests.real.gateway.test_stock_consumers import EARLIEST
from tests.real.nodes import PATIENT_CLIENT, NodeProcess, node_processes, topic_id_of
from tests.real.running_node import make_settings, running
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

VERSION: Final = 2
RECORDS: Final = 20
MEMBER: Final = str(uuid.uuid4())
FETCH: Final = ShareFetchRequest("group", MEMBER, 0, [], [], 100, 1, 50 << 20, 500, 500)
RENEW: Final = FETCH._replace(max_wait_ms=0, min_bytes=0, max_bytes=0, max_records=0, is_renew=True)
ACKNOWLEDGE: Final = ShareAcknowledgeRequest("group", MEMBER, 1, [])
BEAT: Final = HeartbeatRequest("group", MEMBER, 0, None, ["topic"])
MEMBERS_MAX: Final = 2
LONG: Final = "g" * 32_768
INVALID: Final = ErrorCode.INVALID_REQUEST


class Gateway(NamedTuple):
    """A node that offers a topic."""

    node: NodeProcess
    kafka: str
    topic: str
    topic_id: bytes


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gateway(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """Give a node and a topic, shared by all tests; each has a group of its own."""
    topic = f"orders-{uuid.uuid4()}"
    settings = EARLIEST | {"gateway.topics": f"{topic}*", "group.share.max.size": MEMBERS_MAX}
    admin = AdminClient({"bootstrap.servers": kafka})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, 2, 1)])[topic].result, PATIENCE_S)
    producer = Producer({"bootstrap.servers": kafka, "acks": "all", "batch.num.messages": 5})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    with node_processes(kafka, f"states-{topic}", tmp_path_factory.mktemp("node")) as make_node:
        node = make_node(**settings)
        await node.start()
        await until_offered(node.address, topic)
        yield Gateway(node, kafka, topic, topic_id_of(kafka, topic))


class Calls:
    """The calls of a consumer over one connection."""

    def __init__(self, connection: NodeConnection) -> None:
        self.connection = connection

    async def fetch(self, request: ShareFetchRequest) -> ShareFetchResponse:
        body = share_fetch.encode_request(VERSION, request)
        return share_fetch.decode_response(*await self.connection.request(api_keys.SHARE_FETCH, VERSION, body))

    async def acknowledge(self, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
        body = share_acknowledge.encode_request(VERSION, request)
        frame = await self.connection.request(api_keys.SHARE_ACKNOWLEDGE, VERSION, body)
        return share_acknowledge.decode_response(VERSION, *frame)

    async def beat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        body = share_group_heartbeat.encode_request(request)
        return share_group_heartbeat.decode_response(
            *await self.connection.request(api_keys.SHARE_GROUP_HEARTBEAT, 1, body)
        )


@asynccontextmanager
async def calls(gateway: Gateway) -> AsyncIterator[Calls]:
    connection = await open_connection(parse_address(gateway.node.address), PATIENT_CLIENT)
    try:
        yield Calls(connection)
    finally:
        connection.close()


# ---- whole requests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (FETCH._replace(group_id=None), INVALID, "GroupId is null; set the consumer's group.id."),
        (FETCH._replace(group_id=""), INVALID, "GroupId is empty; set the consumer's group.id."),
        (FETCH._replace(group_id=LONG), INVALID, "GroupId has 32768 bytes, at most 32767 are taken; use a shorter"),
        (FETCH._replace(member_id=None), INVALID, "MemberId is null; send the UUID"),
        (FETCH._replace(member_id="m" * 37), INVALID, "MemberId has 37 characters, at most 36 are taken; send a UUID."),
        (
            RENEW._replace(max_bytes=1),
            INVALID,
            "MaxBytes is 1 in a request with IsRenewAck, which fetches nothing; send 0",
        ),
        (FETCH._replace(acquire_mode=7), INVALID, "ShareAcquireMode is 7; send 0 (batch_optimized) or 1"),
        (FETCH._replace(session_epoch=3), ErrorCode.SHARE_SESSION_NOT_FOUND, "has no share session here; begin one"),
        (FETCH._replace(session_epoch=-1), ErrorCode.SHARE_SESSION_NOT_FOUND, "has no share session here; begin one"),
        (FETCH._replace(session_epoch=-7), ErrorCode.SHARE_SESSION_NOT_FOUND, "has no share session here; begin one"),
        (ACKNOWLEDGE._replace(group_id=None), INVALID, "GroupId is null; set the consumer's group.id."),
        (ACKNOWLEDGE._replace(group_id=LONG), INVALID, "GroupId has 32768 bytes, at most 32767 are taken"),
        (ACKNOWLEDGE._replace(member_id="m" * 37), INVALID, "MemberId has 37 characters, at most 36 are taken"),
        (
            ACKNOWLEDGE._replace(session_epoch=0),
            ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            "ShareSessionEpoch is 0, which begins a session; begin it with a ShareFetch.",
        ),
        (ACKNOWLEDGE, ErrorCode.SHARE_SESSION_NOT_FOUND, "has no share session here; begin one with epoch 0"),
        (BEAT._replace(group_id=""), INVALID, "GroupId is empty; set the consumer's group.id."),
        (BEAT._replace(group_id=LONG), INVALID, "GroupId has 32768 bytes, at most 32767 are taken"),
        (BEAT._replace(member_id=""), INVALID, "MemberId is empty; send the UUID"),
        (BEAT._replace(member_id="m" * 37), INVALID, "MemberId has 37 characters, at most 36 are taken"),
        (BEAT._replace(rack_id=" "), INVALID, "RackId is empty; set the consumer's client.rack, or send null."),
        (BEAT._replace(member_epoch=-2), INVALID, "MemberEpoch is -2; send 0 to join, -1 to leave"),
        (BEAT._replace(topic_names=None), INVALID, "SubscribedTopicNames is null with MemberEpoch 0; name a topic"),
        (BEAT._replace(topic_names=[]), INVALID, "SubscribedTopicNames is empty with MemberEpoch 0; name a topic"),
        (
            BEAT._replace(topic_names=["t"] * 1_001),
            INVALID,
            "SubscribedTopicNames has 1001 names; a member may have 1000",
        ),
        (
            BEAT._replace(topic_names=["t" * 250]),
            INVALID,
            "SubscribedTopicNames has a name of 250 characters; no topic's has more than 249, correct it.",
        ),
        (BEAT._replace(member_epoch=7), ErrorCode.UNKNOWN_MEMBER_ID, "has no members here; join with epoch 0"),
        (BEAT._replace(member_epoch=-1), ErrorCode.UNKNOWN_MEMBER_ID, "has no members here; join with epoch 0"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, tuple) else str(value)[:40],
)
async def test_a_request_that_cannot_be_meant_is_refused_whole(
    gateway: Gateway, request_: Any, code: int, text: str
) -> None:
    async with calls(gateway) as client:
        if isinstance(request_, ShareFetchRequest):
            answer: Any = await client.fetch(request_)
        elif isinstance(request_, ShareAcknowledgeRequest):
            answer = await client.acknowledge(request_)
        else:
            answer = await client.beat(request_)
    assert answer.error_code == code
    assert text in answer.error_message


async def test_a_session_outlives_requests_with_wrong_epochs(gateway: Gateway) -> None:
    group = f"group-{uuid.uuid4()}"
    named = [(gateway.topic_id, [NamedPartition(0)])]
    request = FETCH._replace(group_id=group, topics=named)
    accept = NamedPartition(0, (AcknowledgedRange(0, 0, b"\x01"),))
    async with calls(gateway) as client:
        refused = await client.fetch(request._replace(topics=[(gateway.topic_id, [accept])]))
        assert refused.error_code == INVALID
        assert "ShareSessionEpoch is 0, and there are AcknowledgementBatches" in (refused.error_message or "")
        held = await until_acquired(client, request)
        for epoch in (held.next_epoch + 1, held.next_epoch + 7, (1 << 31) - 1, -7):
            future = await client.fetch(request._replace(session_epoch=epoch))
            assert future.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert f"and {held.next_epoch} is next; begin a session with epoch 0" in (future.error_message or "")
        late = await client.acknowledge(
            ACKNOWLEDGE._replace(
                group_id=group, session_epoch=held.next_epoch + 9, topics=[(gateway.topic_id, [accept])]
            )
        )
        assert late.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        ranges = tuple(AcknowledgedRange(first, last, b"\x01") for first, last, _ in held.partition.acquired)
        done = await client.acknowledge(
            ACKNOWLEDGE._replace(
                group_id=group,
                session_epoch=held.next_epoch,
                topics=[(gateway.topic_id, [NamedPartition(0, ranges)])],
            )
        )
        assert errors_of(done) == {0: 0}, "what it held is its own still"


@pytest.mark.parametrize(
    "changed",
    [
        {"max_wait_ms": -(1 << 31)},
        {"min_bytes": -1},
        {"max_bytes": -1},
        {"max_bytes": 0},
        {"max_records": -1},
        {"max_records": 0},
        {"batch_size": -1},
        {"max_records": (1 << 31) - 1, "max_bytes": (1 << 31) - 1},
        {"forgotten": [(NO_TOPIC, [0, -1, 99])]},
    ],
    ids=str,
)
async def test_numbers_at_their_ends_hang_nothing_and_lose_nothing(gateway: Gateway, changed: dict[str, Any]) -> None:
    group, epoch = f"group-{uuid.uuid4()}", 1
    request = FETCH._replace(group_id=group, topics=[(gateway.topic_id, [NamedPartition(0)])])
    given: set[int] = set()
    async with asyncio.timeout(PATIENCE_S), calls(gateway) as client:
        assert (await client.fetch(request._replace(max_wait_ms=0, max_records=0))).error_code == 0
        while given != set(range(RECORDS)):
            is_odd = epoch == 1
            answer = await client.fetch(
                request._replace(session_epoch=epoch, topics=[], **(changed if is_odd else {"max_wait_ms": 100}))
            )
            assert answer.error_code == 0
            for _, partitions in answer.topics:
                for each in partitions:
                    assert each.error_code == 0
                    given |= {offset for first, last, _ in each.acquired for offset in range(first, last + 1)}
            epoch += 1


class Held(NamedTuple):
    """Records that a member holds, and the epoch of its next request."""

    partition: FetchedPartition
    next_epoch: int


async def until_acquired(client: Calls, request: ShareFetchRequest) -> Held:
    """Fetch until records come."""
    epoch = request.session_epoch
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await client.fetch(request._replace(session_epoch=epoch))
            assert answer.error_code == 0, answer
            epoch += 1
            for _, partitions in answer.topics:
                for each in partitions:
                    assert each.error_code == 0, each
                    if each.acquired:
                        return Held(each, epoch)


def errors_of(answer: ShareAcknowledgeResponse) -> dict[int, int]:
    """Return the outcome of each partition."""
    assert answer.error_code == 0, answer
    return {each.partition: each.error_code for _, partitions in answer.topics for each in partitions}


def only(answer: ShareAcknowledgeResponse) -> SettledPartition:
    """Return the outcome of the one partition."""
    [(_, [settled])] = answer.topics
    return settled


# ---- partitions --------------------------------------------------------------------------------------------------------


async def test_partitions_that_there_are_not_are_named_and_others_served(gateway: Gateway) -> None:
    group, unknown = f"group-{uuid.uuid4()}", uuid.uuid4().bytes
    named = [
        (gateway.topic_id, [NamedPartition(0), NamedPartition(99), NamedPartition(-1)]),
        (NO_TOPIC, [NamedPartition(0)]),
        (unknown, [NamedPartition(0)]),
    ]
    codes: dict[tuple[bytes, int], tuple[int, str | None]] = {}
    is_given, epoch = False, 0
    async with calls(gateway) as client:
        while not is_given:
            answer = await client.fetch(
                FETCH._replace(group_id=group, topics=named if epoch == 0 else [], session_epoch=epoch)
            )
            epoch += 1
            for topic_id, partitions in answer.topics:
                for each in partitions:
                    codes[topic_id, each.partition] = each.error_code, each.error_message
                    is_given |= bool(each.acquired)
    no_partition = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "PartitionIndex is none of the topic's partitions; look the topic up again",
    )
    no_topic = (
        ErrorCode.UNKNOWN_TOPIC_ID,
        "TopicId is of no topic that gateway.topics offers; look the topic up again",
    )
    assert codes == {
        (gateway.topic_id, 0): (0, None),
        (gateway.topic_id, 99): no_partition,
        (gateway.topic_id, -1): no_partition,
        (NO_TOPIC, 0): no_topic,
        (unknown, 0): no_topic,
    }


# ---- acknowledgements --------------------------------------------------------------------------------------------------


def ranges_of(*parts: tuple[int, int, bytes]) -> tuple[AcknowledgedRange, ...]:
    return tuple(AcknowledgedRange(*part) for part in parts)


@pytest.mark.parametrize(
    ("ranges", "code", "text"),
    [
        (ranges_of((4, 2, b"\x01")), INVALID, "has FirstOffset 4 above LastOffset 2; send the lower one first"),
        (
            ranges_of((0, 3, b"\x01"), (2, 4, b"\x01")),
            INVALID,
            "after a range that ends at 3; send ranges in ascending",
        ),
        (
            ranges_of((0, 3, b"\x01"), (3, 4, b"\x01")),
            INVALID,
            "after a range that ends at 3; send ranges in ascending",
        ),
        (
            ranges_of((3, 4, b"\x01"), (0, 1, b"\x01")),
            INVALID,
            "after a range that ends at 4; send ranges in ascending",
        ),
        (ranges_of((-5, -1, b"\x01")), INVALID, "has FirstOffset -5; send 0 or more"),
        (ranges_of((0, 3, b"")), INVALID, "has 0 types for offsets 0 to 3; send one for all of them, or one for each"),
        (ranges_of((0, 3, b"\x01\x01")), INVALID, "has 2 types for offsets 0 to 3; send one for all of them"),
        (ranges_of((0, 3, b"\x07")), INVALID, "AcknowledgeTypes has 7 for offsets 0 to 3; send 0 (gap), 1 (accept)"),
        (ranges_of((0, 3, b"\xff")), INVALID, "AcknowledgeTypes has -1 for offsets 0 to 3; send 0 (gap), 1 (accept)"),
        (ranges_of((0, 3, b"\x04")), INVALID, "AcknowledgeTypes has 4 (renew) for offsets 0 to 3; set IsRenewAck"),
        (ranges_of((1_000, 1_010, b"\x01")), None, ""),
        (ranges_of((0, (1 << 63) - 1, b"\x01")), None, ""),
        (ranges_of((0, 10_000, b"\x01" * 10_001)), None, ""),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_acknowledgements_that_cannot_be_meant_change_nothing(
    gateway: Gateway, ranges: tuple[AcknowledgedRange, ...], code: int | None, text: str
) -> None:
    group = f"group-{uuid.uuid4()}"
    async with calls(gateway) as client:
        held = await until_acquired(
            client, FETCH._replace(group_id=group, topics=[(gateway.topic_id, [NamedPartition(0)])])
        )

        async def say(epoch: int, said: Sequence[AcknowledgedRange]) -> SettledPartition:
            topics = [(gateway.topic_id, [NamedPartition(0, tuple(said))])]
            return only(
                await client.acknowledge(ACKNOWLEDGE._replace(group_id=group, session_epoch=epoch, topics=topics))
            )

        refused = await say(held.next_epoch, ranges)
        if code is None:
            assert refused.error_code in (INVALID, ErrorCode.INVALID_RECORD_STATE)
        else:
            assert refused.error_code == code
        assert refused.error_message
        assert text in refused.error_message
        own = [AcknowledgedRange(first, last, b"\x01") for first, last, _ in held.partition.acquired]
        assert (await say(held.next_epoch + 1, own)).error_code == 0, "it holds all that it held"


async def test_acknowledgements_of_a_fetch_are_refused_beside_its_records(gateway: Gateway) -> None:
    group, named = f"group-{uuid.uuid4()}", [(gateway.topic_id, [NamedPartition(0)])]
    said = [
        NamedPartition(0, ranges_of((4, 2, b"\x01"))),
        NamedPartition(1, ranges_of((0, 0, b"\x01"))),
        NamedPartition(99, ranges_of((0, 0, b"\x01"))),
    ]
    async with calls(gateway) as client:
        held = await until_acquired(client, FETCH._replace(group_id=group, topics=named))
        answer = await client.fetch(
            FETCH._replace(group_id=group, session_epoch=held.next_epoch, topics=[(gateway.topic_id, said)])
        )
        codes = {each.partition: each.acknowledge_error_code for _, them in answer.topics for each in them}
        texts = [each.acknowledge_error_message for _, them in answer.topics for each in them]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (answer.error_code, codes, all(texts)) == (0, {0: INVALID, 1: unknown, 99: unknown}, True)
        own = tuple(AcknowledgedRange(low, high, b"\x01") for low, high, _ in held.partition.acquired)
        done = await client.acknowledge(
            ACKNOWLEDGE._replace(
                group_id=group, session_epoch=held.next_epoch + 1, topics=[(gateway.topic_id, [NamedPartition(0, own)])]
            )
        )
        assert errors_of(done) == {0: 0}


async def test_records_that_a_member_does_not_hold_are_not_acknowledged(gateway: Gateway) -> None:
    group, other, unknown = f"group-{uuid.uuid4()}", str(uuid.uuid4()), uuid.uuid4().bytes
    first = NamedPartition(0, (AcknowledgedRange(0, 0, b"\x01"),))
    named = [(gateway.topic_id, [NamedPartition(0)])]
    async with calls(gateway) as client, calls(gateway) as stranger:
        held = await until_acquired(client, FETCH._replace(group_id=group, topics=named))
        begun = await stranger.fetch(FETCH._replace(group_id=group, member_id=other, max_wait_ms=0))
        assert begun.error_code == 0
        answer = await stranger.acknowledge(
            ACKNOWLEDGE._replace(
                group_id=group,
                member_id=other,
                topics=[
                    (gateway.topic_id, [first, first._replace(partition=1), first._replace(partition=99)]),
                    (NO_TOPIC, [first]),
                    (unknown, [first]),
                ],
            )
        )
        assert {topic_id: {each.partition: each.error_code for each in them} for topic_id, them in answer.topics} == {
            gateway.topic_id: {
                0: ErrorCode.INVALID_RECORD_STATE,
                1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
            NO_TOPIC: {0: ErrorCode.UNKNOWN_TOPIC_ID},
            unknown: {0: ErrorCode.UNKNOWN_TOPIC_ID},
        }
        assert all(each.error_message for _, them in answer.topics for each in them)
        own = tuple(AcknowledgedRange(low, high, b"\x01") for low, high, _ in held.partition.acquired)
        done = await client.acknowledge(
            ACKNOWLEDGE._replace(
                group_id=group, session_epoch=held.next_epoch, topics=[(gateway.topic_id, [NamedPartition(0, own)])]
            )
        )
        assert errors_of(done) == {0: 0}


@pytest.mark.parametrize(
    ("count", "text"),
    [(8_000_000, "acknowledge types, send several"), (10_000_000, "10000")],
    ids=["refused while decoded", "refused by its size"],
)
async def test_millions_of_types_end_their_connection_and_disturb_nobody(
    gateway: Gateway, count: int, text: str
) -> None:
    group = f"group-{uuid.uuid4()}"
    types = b"\x01" * count
    topics = [(gateway.topic_id, [NamedPartition(0, (AcknowledgedRange(0, len(types) - 1, types),))])]
    async with calls(gateway) as client, raw_member(gateway.node.address, group, gateway.topic_id) as member:
        with pytest.raises(Disconnected):
            await client.acknowledge(ACKNOWLEDGE._replace(group_id=group, topics=topics))
        while not (found := await member.fetch()).get(0) or not found[0].acquired:
            pass
    await wait_until(lambda: any(text in line for line in gateway.node.lines()), "a line")


# ---- settings ----------------------------------------------------------------------------------------------------------


async def test_patterns_that_match_nothing_are_a_line_that_names_topics(
    gateway: Gateway, kafka: str, topic: str
) -> None:
    with capture_logs() as lines:
        async with running(make_settings(kafka, topic, **{"gateway.topics": "nothing-*"})):
            await wait_until(lambda: any(line["event"] == "gateway_topics_unmatched" for line in lines), "a line")
    [line] = [line for line in lines if line["event"] == "gateway_topics_unmatched"]
    assert line["patterns"] == ["nothing-*"]
    assert line["more_topics"] or gateway.topic in line["topics"]
    assert topic not in line["topics"]


# ---- members -----------------------------------------------------------------------------------------------------------


async def test_a_group_takes_so_many_members_and_epochs_of_its_own_alone(gateway: Gateway) -> None:
    group = f"group-{uuid.uuid4()}"
    beat = BEAT._replace(group_id=group, topic_names=[gateway.topic])
    async with calls(gateway) as client:
        first = await client.beat(beat)
        assert (first.error_code, first.member_epoch > 0) == (0, True)
        assert (await client.beat(beat._replace(member_id=str(uuid.uuid4())))).error_code == 0
        third = await client.beat(beat._replace(member_id=str(uuid.uuid4())))
        assert third.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert third.error_message
        stranger = await client.beat(beat._replace(member_id=str(uuid.uuid4()), member_epoch=1, topic_names=None))
        assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        ahead = await client.beat(beat._replace(member_epoch=first.member_epoch + 9, topic_names=None))
        assert ahead.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        behind = await client.beat(beat._replace(member_epoch=1, topic_names=None))
        assert behind.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        again = await client.beat(beat)
        assert (again.error_code, bool(again.assignment)) == (0, True), "a known member that joins goes on"
        left = await client.beat(beat._replace(member_epoch=-1, topic_names=None))
        assert (left.error_code, left.member_epoch) == (0, -1)
