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
from kio.static.primitive import i32

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import RESERVED_IDS, SummaryReader, TopicSummary, is_topic_name
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.topics.metadata_client import MetadataClient
from tests.fuzz.brokers import encoded
from tests.pure.kafka.brokers.metadata_answers import (
    SILENT,
    UNREACHABLE,
    answer_by_host,
    namesake,
)
from tests.pure.kafka.brokers.metadata_answers import (
    metadata as about_topic,
)
from tests.pure.kafka.brokers.metadata_brokers import METADATA, NO_TIME, Broker, listening, to_bytes
from tests.pure.kafka.records.fake_kafka import fake_kafka
from tests.waiting import PATIENCE_S, wait_until

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


async def test_who_is_cancelled_while_the_client_closes_ends_so() -> None:
    """A task that was told of a failed connection would go on for ever, for it is cancelled once."""
    silent = Broker(answer=None)
    silent._answer = lambda api_key, frame: None  # type: ignore[method-assign]  # a broker that never says anything
    async with listening(silent) as port:
        for turns in range(8):
            client = client_of(port)
            asking = asyncio.create_task(client.query_ids([]))
            await wait_until(lambda turns=turns: silent.accepted == turns + 1)  # type: ignore[misc]
            client.close()
            for _ in range(turns):
                await asyncio.sleep(0)
            if asking.cancel():
                await asyncio.wait([asking], timeout=PATIENCE_S)
                assert asking.cancelled(), f"cancelled {turns} turns after the close"
            else:
                with pytest.raises(ConnectionFailed):
                    asking.result()


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


# ---- which topic each broker means by a name -------------------------------------------------------------------------


def client_at(*hosts: str) -> MetadataClient:
    return MetadataClient(
        ConnectionOptions(bootstrap=tuple((host, 9092) for host in hosts)), timeout_ms=30_000, random=Random(1)
    )


def broker(number: int) -> tuple[str, int]:
    return f"host-{number}", 9092


async def test_every_broker_says_which_topic_it_means_also_one_that_another_one_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        "host-1": namesake(1, 1, 2, 3),
        "host-2": namesake(9, 1, 2),
        "host-3": namesake(0, 3, 4),
        "host-4": UNREACHABLE,
        "host-5": about_topic({}, UUID(int=0), (), ErrorCode.topic_authorization_failed),
    }
    asked = answer_by_host(monkeypatch, answers)
    ids = await client_at("host-1", "host-5").topic_ids("topic")
    assert ids == {broker(1): UUID(int=1).bytes, broker(2): UUID(int=9).bytes, broker(3): None}
    assert sorted(asked) == sorted(answers), "each one once"


async def test_brokers_are_queried_at_once_and_a_bootstrap_address_that_none_of_them_names_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answer_by_host(monkeypatch, {"gone": SILENT, "host-1": namesake(1, 1)})
    monkeypatch.setattr("holdfast.kafka.cluster.PATIENCE_S", 0)
    async with asyncio.timeout(PATIENCE_S):
        assert await client_at("gone", "host-1").topic_ids("topic") == {broker(1): UUID(int=1).bytes}
    assert sorted(asked) == ["gone", "host-1"]


async def test_a_broker_that_another_one_names_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_by_host(monkeypatch, {"host-1": namesake(1, 1, 2), "host-2": SILENT})
    monkeypatch.setattr("holdfast.kafka.cluster.PATIENCE_S", 0)
    asking = asyncio.create_task(client_at("host-1", "host-2").topic_ids("topic"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not asking.done()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_topic_is_not_known_everywhere_where_the_answer_names_no_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic_id = UUID(int=7)
    everywhere, stopping = about_topic({0: (1, 1)}, topic_id), about_topic({0: (-1, 2)}, topic_id, ())
    answer_by_host(monkeypatch, {"host-1": iter([stopping, everywhere, everywhere, stopping, everywhere])})
    client = client_at("host-1")
    assert not await client.is_known_everywhere(topic_id.bytes, 1)
    assert await client.is_known_everywhere(topic_id.bytes, 1)
    # The broker that was named before is asked.
    assert await client.is_known_everywhere(topic_id.bytes, 1)
    assert client.addresses == {1: broker(1)}


@pytest.mark.parametrize("answer", [UNREACHABLE, METADATA], ids=["unreachable", "without the topic"])
async def test_where_no_broker_says_which_topic_it_means_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    answer_by_host(monkeypatch, {"host-1": answer, "host-2": UNREACHABLE})
    with pytest.raises(ConnectionFailed, match=r"^no broker said which topic orders is$"):
        await client_at("host-1", "host-2").topic_ids("orders")


def test_summaries_are_what_kio_reads() -> None:
    """Arrays of two, of more than fit into one byte of a length, and of none."""
    for body in (*encoded(metadata.MetadataResponse, (2, 0)), many_partitions()):
        response, _ = entity_reader(metadata.MetadataResponse)(body, 0)
        reader = SummaryReader(body)
        assert reader.cluster_id == response.cluster_id
        assert list(reader) == [
            (
                each.name,
                each.topic_id and each.topic_id.bytes,
                len(each.partitions),
                each.is_internal,
                int(each.error_code),
            )
            for each in response.topics
        ]
        for size in range(len(body) - 6):  # operations of the topic and tags may be cut: nothing is read of them
            with pytest.raises(MalformedBody):
                list(SummaryReader(body[:size]))


def many_partitions() -> bytes:
    """Return an answer with a topic of 200 partitions, one of which has 130 replicas."""
    replicas = tuple(map(BrokerId, range(130)))
    partitions = tuple(
        metadata.MetadataResponsePartition(
            error_code=ErrorCode.leader_not_available,
            partition_index=i32(index),
            leader_id=BrokerId(-1),
            leader_epoch=i32(7),
            replica_nodes=() if index else replicas,
            isr_nodes=(),
            offline_replicas=(),
        )
        for index in range(200)
    )
    topic = metadata.MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName("wide"),
        topic_id=UUID(int=3),
        is_internal=True,
        partitions=partitions,
    )
    return to_bytes(
        metadata.MetadataResponse(
            throttle_time=NO_TIME, brokers=(), cluster_id="cluster-a", controller_id=BrokerId(1), topics=(topic,)
        )
    )


async def test_all_topics_and_some_are_summarized_over_the_kept_connection() -> None:
    async with fake_kafka() as kafka:
        one = kafka.make_topic("one", [1, 1])
        kafka.make_topic("two", [-1])
        client = MetadataClient(kafka.options, timeout_ms=30_000, random=Random(1))
        expected = TopicSummary("one", one.topic_id.bytes, 2, is_internal=False)
        assert {topic.name for topic in (await client.summarize(None)).topics} == {"one", "two"}
        assert (await client.summarize(["one"])).topics == (expected,)
        assert (await client.summarize([one.topic_id.bytes])).topics == (expected,)
        missing = (await client.summarize(["no-such-topic"])).topics[0]
        assert (missing.name, missing.is_missing) == ("no-such-topic", True)
        unknown = (await client.summarize([bytes([9] * 16)])).topics[0]
        assert (unknown.name, unknown.topic_id, unknown.is_missing) == ("", bytes([9] * 16), True)
        assert kafka.brokers[1].accepted == 1
        client.close()
