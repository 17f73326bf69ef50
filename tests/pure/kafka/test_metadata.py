"""Questions about topics over real sockets: one connection for all, a new one where it broke, none left behind."""

import asyncio
from random import Random
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import response as metadata
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import RESERVED_IDS, MetadataClient, is_topic_name
from tests.pure.kafka.brokers.metadata_brokers import METADATA, NO_TIME, Broker, listening, to_bytes
from tests.waiting import wait_until

#: length of the header of the requests that a client with this name sends
HEADER_SIZE = 4 + 4 + 2 + len("holdfast") + 1


class AskedBroker(Broker):
    """Knows every topic it is asked for by name, and no id; refuses a question that holds a reserved id, as Kafka does."""

    def _answer(self, api_key: int, frame: bytes) -> bytes | None:
        if api_key != 3:
            return super()._answer(api_key, frame)
        request, _ = entity_reader(MetadataRequest)(frame, HEADER_SIZE)
        ids = [topic.topic_id for topic in request.topics or () if topic.name is None]
        if None in ids or UUID(int=0) in ids:
            return METADATA.replace(b"\x0acluster-a", b"\x00")
        topics = tuple(
            metadata.MetadataResponseTopic(
                error_code=ErrorCode.none if topic.name else ErrorCode.unknown_topic_id,
                name=TopicName(topic.name) if topic.name else None,
                topic_id=topic.topic_id if topic.topic_id else UUID(int=9),
                is_internal=False,
                partitions=(),
            )
            for topic in request.topics or ()
        )
        return to_bytes(
            metadata.MetadataResponse(
                throttle_time=NO_TIME, brokers=(), cluster_id="cluster-a", controller_id=BrokerId(1), topics=topics
            )
        )


def client_of(*ports: int, timeout_ms: int = 30_000) -> MetadataClient:
    options = ConnectionOptions(bootstrap=tuple(("127.0.0.1", port) for port in ports))
    return MetadataClient(options, timeout_ms=timeout_ms, random=Random(1))


async def test_queries_at_once_share_one_connection_and_none_is_left_behind() -> None:
    broker = AskedBroker()
    async with listening(broker) as port:
        client = client_of(port)
        for _ in range(3):
            found = await asyncio.gather(*(client.query_names([f"topic-{number}"]) for number in range(60)))
            assert [list(each) for each in found] == [[f"topic-{number}"] for number in range(60)]
            client.close()
        assert broker.accepted == 3
        await wait_until(lambda: not broker.open)


async def test_a_connection_that_cannot_be_opened_fails_all_who_wait_for_it_once() -> None:
    async with listening(Broker()) as port:
        pass
    client = client_of(port)
    outcomes = await asyncio.gather(*(client.query_ids([]) for _ in range(20)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ConnectionFailed}


async def test_a_broker_that_was_restarted_is_queried_again_by_the_first_query() -> None:
    before, after = AskedBroker(), AskedBroker()
    async with listening(before) as port:
        client = client_of(port)
        assert list(await client.query_names(["orders"])) == ["orders"]
        for writer in before.open:
            writer.close()
    async with listening(after, port=port):
        # Asked before the loop has told anybody that the connection ended, too.
        assert list(await client.query_names(["orders"])) == ["orders"]
        client.close()
    assert (before.accepted, after.accepted) == (1, 1)


async def test_a_broker_that_cannot_be_reached_is_passed_over_within_one_query() -> None:
    async with listening(Broker()) as dead:
        pass
    async with listening(AskedBroker()) as port:
        for seed in range(4):
            options = ConnectionOptions(bootstrap=(("127.0.0.1", dead), ("127.0.0.1", port)))
            client = MetadataClient(options, timeout_ms=30_000, random=Random(seed))
            assert list(await client.query_names(["orders"])) == ["orders"]
            client.close()


async def test_a_query_that_is_given_up_takes_no_other_with_it() -> None:
    broker = AskedBroker()
    async with listening(broker) as port:
        client = client_of(port)
        given_up = asyncio.create_task(client.query_names(["orders"]))
        others = [asyncio.create_task(client.query_names(["payments"])) for _ in range(3)]
        await asyncio.sleep(0)
        given_up.cancel()
        assert [list(found) for found in await asyncio.gather(*others)] == [["payments"]] * 3
        later = asyncio.create_task(client.query_names(["orders"]))
        other = asyncio.create_task(client.query_names(["payments"]))
        await asyncio.sleep(0)
        later.cancel()
        assert list(await other) == ["payments"]
        client.close()
    assert broker.accepted == 1


async def test_closing_ends_a_connection_that_is_being_opened() -> None:
    silent = Broker(answer=None)
    silent._answer = lambda api_key, frame: None  # type: ignore[method-assign]  # a broker that never says anything
    async with listening(silent) as port:
        client = client_of(port)
        asking = asyncio.create_task(client.query_ids([]))
        await wait_until(lambda: silent.accepted == 1)
        client.close()
        with pytest.raises(ConnectionFailed, match="closed while it was opened"):
            await asking
        await wait_until(lambda: not silent.open)


async def test_reserved_ids_are_unknown_and_spoil_no_query() -> None:
    other = bytes([7] * 16)
    async with listening(AskedBroker()) as port:
        client = client_of(port)
        assert bytes(16) in RESERVED_IDS
        answers = await client.query_ids([*RESERVED_IDS, other])
        client.close()
    assert answers.unknown_ids == RESERVED_IDS | {other}


@pytest.mark.parametrize("name", ["orders", "a.b_c-D9", "x" * 249, "AAAAAAAAAAAAAAAAAAAAAA", "..."])
def test_names_that_kafka_allows_are_requested(name: str) -> None:
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "\ud800", "a\n", "a/b", "x" * 40_000])
def test_names_that_kafka_does_not_allow_are_not(name: str) -> None:
    assert not is_topic_name(name)
