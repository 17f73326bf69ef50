"""Fetch in all versions against kio, which is generated from Apache Kafka's schemas."""

from datetime import timedelta
from importlib import import_module
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from holdfast.kafka.errors import UnreadableAnswer, VersionUnsupported
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.records.fetch import (
    VERSIONS,
    FetchBounds,
    ReadPartition,
    ReadTarget,
    by_topic,
    choose_version,
    encode_fetch,
    has_ids,
    read_fetched,
)
from holdfast.kafka.records.transactions import AbortedTransaction

EACH_VERSION = pytest.mark.parametrize("version", range(VERSIONS[0], VERSIONS[1] + 1))
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES, IDS = ("a", "b" * 200), (UUID(int=5).bytes, UUID(int=2**127).bytes)


def keys(version: int) -> tuple[Any, Any]:
    return IDS if has_ids(version) else NAMES


@EACH_VERSION
@settings(max_examples=25, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2**31 - 1), INT32, INT64, INT32, INT32), max_size=200),
)
def test_request_is_what_the_schema_says(
    version: int, is_committed: bool, wanted: list[tuple[int, int, int, int, int, int]]
) -> None:
    request_type = import_module(f"kio.schema.fetch.v{version}.request").FetchRequest
    targets = by_topic([ReadTarget(keys(version)[topic], *rest) for topic, *rest in wanted])
    data = encode_fetch(version, FetchBounds(500, 1_000), is_committed, targets)
    request, end = entity_reader(request_type)(data, 0)
    assert end == len(data)
    assert (request.max_wait, request.min_bytes, request.max_bytes) == (timedelta(milliseconds=500), 1, 1_000)
    assert (request.isolation_level, request.session_id, request.session_epoch) == (int(is_committed), 0, -1)
    assert (request.forgotten_topics_data, request.rack_id) == ((), "")
    if version < 15:
        assert request.replica_id == -1
    found = [
        ReadTarget(
            topic.topic_id.bytes if has_ids(version) else topic.topic,
            part.partition,
            part.current_leader_epoch,
            part.fetch_offset,
            part.last_fetched_epoch,
            part.partition_max_bytes,
        )
        for topic in request.topics
        for part in topic.partitions
    ]
    assert found == targets
    assert len(request.topics) == len({target.topic for target in targets})


PARTS = st.lists(
    st.tuples(
        st.integers(0, 2**31 - 1),
        st.sampled_from([0, 1, 3, 6, 29, 74, 100]),
        *[INT64] * 3,
        st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
        st.none() | st.binary(max_size=300),
        st.none() | st.integers(0, 2**63 - 1),
        st.booleans(),
    ),
    max_size=4,
)


def encode_answer(version: int, parts: list[Any]) -> bytes:
    schema: Any = import_module(f"kio.schema.fetch.v{version}.response")
    partitions = tuple(
        schema.PartitionData(
            partition_index=index,
            error_code=ErrorCode(code),
            high_watermark=high,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=aborted
            and tuple(schema.AbortedTransaction(producer_id=one, first_offset=two) for one, two in aborted),
            records=records,
            diverging_epoch=schema.EpochEndOffset()
            if diverges_at is None
            else schema.EpochEndOffset(epoch=1, end_offset=diverges_at),
            current_leader=schema.LeaderIdAndEpoch(leader_id=4, leader_epoch=5)
            if is_moved
            else schema.LeaderIdAndEpoch(),
        )
        for index, code, high, stable, start, aborted, records, diverges_at, is_moved in parts
    )
    topics = [
        schema.FetchableTopicResponse(
            **({"topic_id": UUID(bytes=key)} if has_ids(version) else {"topic": key}), partitions=partitions
        )
        for key in keys(version)
    ]
    endpoints = {}
    if version >= 16:
        endpoints = {"node_endpoints": (schema.NodeEndpoint(node_id=4, host="host", port=9_092, rack=None),)}
    buffer = BytesIO()
    answer = schema.FetchResponse(
        throttle_time=timedelta(milliseconds=70),
        error_code=ErrorCode(70),
        session_id=9,
        responses=tuple(topics),
        **endpoints,
    )
    entity_writer(schema.FetchResponse)(buffer, answer)
    return buffer.getvalue()


@EACH_VERSION
@settings(max_examples=25, deadline=None)
@given(PARTS)
def test_answer_is_read_as_it_was_written(version: int, parts: list[Any]) -> None:
    data = encode_answer(version, parts)
    answer = read_fetched(version, memoryview(data))
    assert (answer.error_code, answer.throttle_ms) == (70, 70)
    assert [each._replace(records=memoryview(bytes(each.records))) for each in answer.partitions] == [
        ReadPartition(
            key,
            index,
            code,
            high,
            stable,
            start,
            diverges_at,
            tuple(AbortedTransaction(*each) for each in aborted or ()),
            memoryview(records or b""),
        )
        for key in keys(version)
        for index, code, high, stable, start, aborted, records, diverges_at, _ in parts
    ]
    assert all(each.records.obj is data for each in answer.partitions)


@EACH_VERSION
def test_each_end_of_an_answer_is_needed(version: int) -> None:
    data = encode_answer(
        version, [(3, 0, 5, 4, 1, [(7, 2)], b"records", 3, True), (4, 6, -1, -1, -1, None, None, None, False)]
    )
    for size in range(len(data)):
        with pytest.raises(UnreadableAnswer):
            read_fetched(version, memoryview(data[:size]))
    with pytest.raises(UnreadableAnswer, match="1 more bytes"):
        read_fetched(version, memoryview(data + b"\x00"))


def test_counts_that_no_bytes_follow_are_refused_at_once() -> None:
    for data in (
        bytes(10) + b"\xff\xff\xff\xff\x07",
        bytes(10) + b"\x02" + bytes(16) + b"\xff\xff\xff\xff\x07",
        bytes(10) + b"\x02" + bytes(16) + b"\x02" + bytes(30) + b"\xff\xff\xff\xff\x07" + bytes(40),
        bytes(10)
        + b"\x02"
        + bytes(16)
        + b"\x02"
        + bytes(30)
        + b"\x00"
        + bytes(4)
        + b"\xff\xff\xff\xff\x07"
        + bytes(40),
    ):
        with pytest.raises(UnreadableAnswer):
            read_fetched(13, memoryview(data))


def test_version_is_the_highest_that_both_speak() -> None:
    assert choose_version({}) == 12
    for offered, chosen in (((4, 12), 12), ((0, 13), 13), ((4, 18), 17), ((4, 17), 17), ((13, 13), 13)):
        assert choose_version({api_keys.FETCH: offered}) == chosen
    for offered in ((4, 11), (18, 20)):
        with pytest.raises(VersionUnsupported, match="one of 12 to 17 is needed"):
            choose_version({api_keys.FETCH: offered})
    with pytest.raises(VersionUnsupported):
        choose_version({3: (0, 13)})


def test_targets_of_a_topic_come_together_and_keep_their_order() -> None:
    wanted = [ReadTarget(topic, partition, 0, 0, 0, 1) for topic, partition in (("b", 2), ("a", 1), ("b", 0), ("a", 0))]
    assert [(each.topic, each.partition) for each in by_topic(wanted)] == [("b", 2), ("b", 0), ("a", 1), ("a", 0)]
