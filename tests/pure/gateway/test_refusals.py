"""Produce, Fetch and OffsetFetch in each version against kio's entities: each partition is denied, with a text where there is room."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from holdfast.daemon.server.wire.requests import Request, RequestMemory
from holdfast.gateway import refusals
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.primitives import MalformedBody
from tests.pure.daemon.server.calls import kio_bytes, schema

DENIED = ErrorCode.topic_authorization_failed


def ask_raw(api_key: int, version: int, body: bytes) -> Any:
    answers: list[Any] = []
    request = Request(api_key, version, 1, b"me", b"head" + body, 4, "10.0.0.1:5", RequestMemory(), 0)
    assert refusals.ANSWERS[api_key](request, answers.append) is None
    (answer,) = answers
    return answer


def read(call: str, version: int, name: str, answer: bytes) -> Any:
    response, size = entity_reader(schema(call, version, "response", name))(answer, 0)
    assert size == len(answer)
    return response


def produce_body(
    version: int, acks: int = 1, topics: int = 2, partitions: int = 2, records: bytes | None = b"r"
) -> bytes:
    def make(entity: str, /, **fields: Any) -> Any:
        return schema("produce", version, "request", entity)(**fields)

    data = tuple(make("PartitionProduceData", index=index, records=records) for index in range(partitions))
    topic_data = tuple(make("TopicProduceData", name=f"topic-{n}", partition_data=data) for n in range(topics))
    return kio_bytes(
        make(
            "ProduceRequest",
            transactional_id=None,
            acks=acks,
            timeout=timedelta(seconds=1),
            topic_data=topic_data,
        )
    )


@pytest.mark.parametrize("version", refusals.PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_each_partition_of_a_produce_is_denied(version: int, acks: int) -> None:
    response = read(
        "produce", version, "ProduceResponse", ask_raw(api_keys.PRODUCE, version, produce_body(version, acks))
    )
    assert [topic.name for topic in response.responses] == ["topic-0", "topic-1"]
    for topic in response.responses:
        assert [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses] == [
            (0, DENIED, -1),
            (1, DENIED, -1),
        ]
        if version >= 8:
            assert {(each.record_errors, each.error_message) for each in topic.partition_responses} == {
                ((), refusals.EXPLANATION)
            }


@pytest.mark.parametrize("version", refusals.PRODUCE_VERSIONS)
def test_a_produce_that_waits_for_no_answer_ends_its_connection(version: int) -> None:
    with pytest.raises(MalformedBody, match="produce to the Kafka cluster that holds the topic"):
        ask_raw(api_keys.PRODUCE, version, produce_body(version, acks=0))


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_passed_over_and_may_be_missing(version: int) -> None:
    for records in (None, b"", bytes(300_000)):
        answer = ask_raw(api_keys.PRODUCE, version, produce_body(version, records=records))
        assert len(read("produce", version, "ProduceResponse", answer).responses) == 2


@pytest.mark.parametrize("version", refusals.FETCH_VERSIONS)
def test_each_partition_of_a_fetch_is_denied(version: int) -> None:
    def make(entity: str, /, **fields: Any) -> Any:
        kind = schema("fetch", version, "request", entity)
        known = {field: value for field, value in fields.items() if field in kind.__dataclass_fields__}
        return kind(**known)

    partitions = tuple(
        make(
            "FetchPartition",
            partition=index,
            current_leader_epoch=-1,
            fetch_offset=7,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1_000,
        )
        for index in range(2)
    )
    request = make(
        "FetchRequest",
        replica_id=-1,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=1_000,
        isolation_level=0,
        session_id=0,
        session_epoch=0,
        topics=tuple(make("FetchTopic", topic=f"topic-{n}", partitions=partitions) for n in range(2)),
        forgotten_topics_data=(),
        rack_id="",
    )
    answer = ask_raw(api_keys.FETCH, version, kio_bytes(request))
    response = read("fetch", version, "FetchResponse", answer)
    if version >= 7:
        assert (response.error_code, response.session_id) == (ErrorCode.none, 0)
    assert [
        [(each.partition_index, each.error_code, each.records) for each in topic.partitions]
        for topic in response.responses
    ] == [[(0, DENIED, b""), (1, DENIED, b"")]] * 2


@pytest.mark.parametrize("version", refusals.OFFSET_FETCH_VERSIONS)
def test_an_offset_fetch_is_denied_as_a_whole(version: int) -> None:
    response = read("offset_fetch", version, "OffsetFetchResponse", ask_raw(api_keys.OFFSET_FETCH, version, b""))
    assert (response.error_code, response.topics) == (ErrorCode.group_authorization_failed, ())


@pytest.mark.parametrize("version", refusals.CONSUMER_GROUP_HEARTBEAT_VERSIONS)
def test_a_member_of_a_consumer_group_is_refused_with_the_text(version: int) -> None:
    answer = ask_raw(api_keys.CONSUMER_GROUP_HEARTBEAT, version, b"")
    response = read("consumer_group_heartbeat", version, "ConsumerGroupHeartbeatResponse", answer)
    assert (response.error_code, response.error_message) == (ErrorCode.invalid_request, refusals.EXPLANATION)
    assert (response.member_id, response.member_epoch, response.assignment) == (None, 0, None)


@pytest.mark.parametrize("version", [3, 9])
def test_a_request_names_a_bounded_number_of_partitions(version: int) -> None:
    with pytest.raises(MalformedBody, match="more than 10000 topics and partitions are named"):
        ask_raw(api_keys.PRODUCE, version, produce_body(version, topics=4, partitions=2_500, records=None))


@pytest.mark.parametrize("version", [3, 9])
def test_a_produce_that_is_cut_short_is_malformed(version: int) -> None:
    body = produce_body(version)
    for size in range(len(body) - 1):
        with pytest.raises(MalformedBody):
            ask_raw(api_keys.PRODUCE, version, body[:size])
