"""The hand-packed requests and answers against kio, which is generated from Apache Kafka's schemas."""

import datetime
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.delete_records.v1.request import DeleteRecordsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.list_offsets.v5.request import ListOffsetsRequest
from kio.schema.produce.v8.request import ProduceRequest
from kio.serial import entity_reader, entity_writer

from holdfast.kafka.errors import UnreadableAnswer
from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.requests import FetchAnswer, Fetched, FetchTarget, Produced

produce: Any = import_module("kio.schema.produce.v8.response")
fetch: Any = import_module("kio.schema.fetch.v12.response")
list_offsets: Any = import_module("kio.schema.list_offsets.v5.response")
delete_records: Any = import_module("kio.schema.delete_records.v1.response")

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
INDEX = st.integers(0, 2**31 - 1)
CODE = st.sampled_from([0, 1, 3, 6, 7, 56, 74, 75])
TOPIC = st.text(st.characters(min_codepoint=46, max_codepoint=122), min_size=1, max_size=200)


def read(schema: Any, data: bytes) -> Any:
    value, size = entity_reader(schema)(data, 0)
    assert size == len(data)
    return value


def write(value: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def check_that_each_end_is_needed(decode: Callable[[bytes], object], answer: bytes) -> None:
    for size in range(len(answer)):
        with pytest.raises(UnreadableAnswer, match="cannot be read"):
            requests.read_answer(decode, answer[:size])


@settings(max_examples=40, deadline=None)
@given(TOPIC, st.integers(0, 2**31 - 1), st.lists(st.tuples(INDEX, st.binary(min_size=1)), max_size=4))
def test_produce_request(topic: str, timeout_ms: int, batches: list[tuple[int, bytes]]) -> None:
    request = read(ProduceRequest, requests.encode_produce(topic, timeout_ms, iter(batches)))
    assert request.transactional_id is None
    assert request.acks == -1
    assert request.timeout == datetime.timedelta(milliseconds=timeout_ms)
    (topic_data,) = request.topic_data
    assert topic_data.name == topic
    assert [(part.index, part.records) for part in topic_data.partition_data] == batches


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(INDEX, CODE, st.none() | TOPIC, st.integers(0, 2)), max_size=4))
def test_produce_response(parts: list[tuple[int, int, str | None, int]]) -> None:
    response = produce.ProduceResponse(
        responses=(
            produce.TopicProduceResponse(
                name="topic",
                partition_responses=tuple(
                    produce.PartitionProduceResponse(
                        index=index,
                        error_code=ErrorCode(code),
                        base_offset=5,
                        log_append_time=None,
                        log_start_offset=1,
                        record_errors=tuple(
                            produce.BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
                            for number, text in zip(range(errors), [None, "why"], strict=False)
                        ),
                        error_message=message,
                    )
                    for index, code, message, errors in parts
                ),
            ),
        ),
        throttle_time=datetime.timedelta(milliseconds=70),
    )
    produced_now = [Produced(index, code, 5, message or "") for index, code, message, _ in parts]
    assert requests.decode_produced(write(response)) == (produced_now, 70)
    check_that_each_end_is_needed(requests.decode_produced, write(response))


TARGETS = st.lists(st.builds(FetchTarget, INDEX, INT32, INT64, INT32), max_size=200)


@settings(max_examples=40, deadline=None)
@given(TOPIC, st.tuples(INT32, INT32), TARGETS, st.lists(INDEX, max_size=200))
def test_fetch_request(topic: str, session: tuple[int, int], targets: list[FetchTarget], forgotten: list[int]) -> None:
    data = requests.encode_fetch(topic, session, 100, 10_000, 1_000, targets, forgotten)
    request = read(FetchRequest, data)
    assert (request.replica_id, request.min_bytes, request.max_bytes, request.isolation_level) == (-1, 1, 10_000, 0)
    assert request.max_wait == datetime.timedelta(milliseconds=100)
    assert (request.session_id, request.session_epoch, request.rack_id) == (*session, "")
    asked = [
        FetchTarget(part.partition, part.current_leader_epoch, part.fetch_offset, part.last_fetched_epoch)
        for each in request.topics
        for part in each.partitions
    ]
    assert asked == targets
    assert all(part.partition_max_bytes == 1_000 for each in request.topics for part in each.partitions)
    assert [index for each in request.forgotten_topics_data for index in each.partitions] == forgotten
    assert {each.topic for each in (*request.topics, *request.forgotten_topics_data)} <= {topic}


FETCHED = st.builds(Fetched, INDEX, CODE, INT64, INT64, st.booleans(), st.binary(max_size=300))


@settings(max_examples=40, deadline=None)
@given(CODE, INT32, st.lists(FETCHED, max_size=4), st.integers(-1, 2), st.booleans())
def test_fetch_response(code: int, session_id: int, found: list[Fetched], aborted: int, names_leader: bool) -> None:
    response = fetch.FetchResponse(
        throttle_time=datetime.timedelta(milliseconds=80),
        error_code=ErrorCode(code),
        session_id=session_id,
        responses=(
            fetch.FetchableTopicResponse(
                topic="topic",
                partitions=tuple(
                    fetch.PartitionData(
                        partition_index=each.partition,
                        error_code=ErrorCode(each.error_code),
                        high_watermark=each.high_watermark,
                        log_start_offset=each.log_start_offset,
                        diverging_epoch=fetch.EpochEndOffset(epoch=4, end_offset=9)
                        if each.is_diverging
                        else fetch.EpochEndOffset(),
                        current_leader=fetch.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
                        if names_leader
                        else fetch.LeaderIdAndEpoch(),
                        aborted_transactions=None
                        if aborted < 0
                        else (fetch.AbortedTransaction(producer_id=1, first_offset=2),) * aborted,
                        records=each.records or None,
                    )
                    for each in found
                ),
            ),
        )
        if found
        else (),
    )
    assert requests.decode_fetched(write(response)) == FetchAnswer(code, session_id, 80, found)
    check_that_each_end_is_needed(requests.decode_fetched, write(response))


@settings(max_examples=40, deadline=None)
@given(TOPIC, st.lists(st.tuples(INDEX, INT32, st.sampled_from([requests.EARLIEST, requests.LATEST])), max_size=4))
def test_list_offsets_request(topic: str, asked: list[tuple[int, int, int]]) -> None:
    request = read(ListOffsetsRequest, requests.encode_list_offsets(topic, asked))
    assert (request.replica_id, request.isolation_level) == (-1, 0)
    (only,) = request.topics
    assert only.name == topic
    assert [(part.partition_index, part.current_leader_epoch, part.timestamp) for part in only.partitions] == asked


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(INDEX, st.tuples(CODE, INT64), max_size=4))
def test_list_offsets_response(found: dict[int, tuple[int, int]]) -> None:
    response = list_offsets.ListOffsetsResponse(
        throttle_time=datetime.timedelta(milliseconds=90),
        topics=(
            list_offsets.ListOffsetsTopicResponse(
                name="topic",
                partitions=tuple(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=index, error_code=ErrorCode(code), offset=offset, leader_epoch=3
                    )
                    for index, (code, offset) in found.items()
                ),
            ),
        ),
    )
    assert requests.decode_offsets(write(response)) == (found, 90)
    check_that_each_end_is_needed(requests.decode_offsets, write(response))


@settings(max_examples=40, deadline=None)
@given(TOPIC, INDEX, INDEX, INT64)
def test_delete_records_request(topic: str, timeout_ms: int, partition: int, before_offset: int) -> None:
    request = read(DeleteRecordsRequest, requests.encode_delete_records(topic, timeout_ms, partition, before_offset))
    assert request.timeout == datetime.timedelta(milliseconds=timeout_ms)
    ((name, parts),) = [(each.name, each.partitions) for each in request.topics]
    assert name == topic
    assert [(part.partition_index, part.offset) for part in parts] == [(partition, before_offset)]


@settings(max_examples=40, deadline=None)
@given(TOPIC, INDEX, INT64, CODE)
def test_delete_records_response(topic: str, partition: int, low_watermark: int, error_code: int) -> None:
    result = delete_records.DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=low_watermark, error_code=ErrorCode(error_code)
    )
    response = delete_records.DeleteRecordsResponse(
        throttle_time=datetime.timedelta(0),
        topics=(delete_records.DeleteRecordsTopicResult(name=topic, partitions=(result,)),),
    )
    assert requests.decode_deleted(write(response)) == (error_code, low_watermark)
    check_that_each_end_is_needed(requests.decode_deleted, write(response))


@pytest.mark.parametrize(
    "decode", [requests.decode_produced, requests.decode_fetched, requests.decode_offsets, requests.decode_deleted]
)
@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=120))
def test_any_bytes_are_an_answer_or_unreadable(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        answer = requests.read_answer(decode, data)
    except UnreadableAnswer:
        return
    assert answer is not None


def test_a_bug_is_no_unreadable_answer() -> None:
    def decode(data: bytes) -> None:
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        requests.read_answer(decode, b"")
