"""Lengths of messages that kio reads: right ones pass to the last byte, and one that says too much never reaches kio."""

from __future__ import annotations

import base64
from dataclasses import replace
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse as FindCoordinatorResponse2
from kio.schema.find_coordinator.v6 import response as coordinators
from kio.schema.join_group.v9 import response as joined
from kio.schema.list_offsets.v5 import response as offsets
from kio.schema.metadata.v12 import response as metadata
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i32, i64

from holdfast.kafka.errors import UnreadableAnswer
from holdfast.kafka.exchange import from_bytes
from holdfast.kafka.protocol.lengths import check_lengths
from holdfast.kafka.protocol.primitives import MalformedBody
from tests.pure.kafka.brokers.metadata_brokers import NO_TIME

NONE = ErrorCode.none
METADATA = metadata.MetadataResponse(
    throttle_time=NO_TIME,
    brokers=tuple(
        metadata.MetadataResponseBroker(node_id=BrokerId(number), host="ä", port=i32(1), rack=rack)
        for number, rack in enumerate((None, "", "rack"))
    ),
    cluster_id=None,
    topics=tuple(
        metadata.MetadataResponseTopic(
            error_code=NONE,
            name=name,
            topic_id=UUID(int=1 << 127),
            partitions=tuple(
                metadata.MetadataResponsePartition(
                    error_code=NONE,
                    partition_index=i32(number),
                    leader_id=BrokerId(number),
                    replica_nodes=(BrokerId(1), BrokerId(2))[:number],
                )
                for number in range(3)
            ),
        )
        for name in (TopicName("orders"), None)
    ),
)
MESSAGES: list[Any] = [
    METADATA,
    FindCoordinatorResponse2(
        throttle_time=NO_TIME, error_code=NONE, error_message=None, node_id=BrokerId(1), host="h", port=i32(1)
    ),
    coordinators.FindCoordinatorResponse(
        throttle_time=NO_TIME,
        coordinators=(
            coordinators.Coordinator(
                key="k", node_id=BrokerId(1), host="h", port=i32(1), error_code=NONE, error_message="why"
            ),
        ),
    ),
    joined.JoinGroupResponse(
        throttle_time=NO_TIME,
        error_code=NONE,
        generation_id=i32(1),
        protocol_type="p",
        protocol_name=None,
        leader="l",
        member_id="m",
        members=(joined.JoinGroupResponseMember(member_id="m", group_instance_id=None, metadata=b"\xff" * 9),),
    ),
    offsets.ListOffsetsResponse(
        throttle_time=NO_TIME,
        topics=(
            offsets.ListOffsetsTopicResponse(
                name=TopicName("orders"),
                partitions=(
                    offsets.ListOffsetsPartitionResponse(partition_index=i32(0), error_code=NONE, offset=i64(5)),
                ),
            ),
        ),
    ),
]
#: What a fuzzer found: kio made room for as many elements, and the process was gone.
FOUND = [
    (metadata.MetadataResponse, "BAAAAP////8//////////////////wAAAyMAAAAgAAAAAA=="),
    (coordinators.FindCoordinatorResponse, "AwDg//////8b3n4AG95+ACYAAAAAAAA="),
]


def encoded(message: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_whole_message_passes_and_one_that_is_cut_does_not(message: Any) -> None:
    data = encoded(message)
    assert check_lengths(type(message), data) == len(data)
    assert from_bytes(type(message), data) == message
    for size in range(len(data)):
        with pytest.raises(MalformedBody):
            check_lengths(type(message), data[:size])


@pytest.mark.parametrize(("kind", "text"), FOUND)
def test_what_a_fuzzer_found_is_an_answer_that_cannot_be_read(kind: Any, text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        from_bytes(kind, base64.b64decode(text))


@given(st.sampled_from(MESSAGES), st.data())
def test_no_length_that_is_too_large_reaches_kio(message: Any, data: st.DataObject) -> None:
    whole = encoded(message)
    bomb = data.draw(st.sampled_from([b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\x3f\xff\xff\xff"]))
    place = data.draw(st.integers(0, len(whole)))
    armed = whole[:place] + bomb + whole[place + data.draw(st.integers(0, 5)) :]
    try:
        from_bytes(type(message), armed)  # a process that ends fails the test
    except UnreadableAnswer:
        return


def test_tagged_fields_are_looked_into_where_they_are_known_and_skipped_where_not() -> None:
    whole = encoded(MESSAGES[2])
    assert check_lengths(type(MESSAGES[2]), whole[:-1] + b"\x01\x63\x02ab") == len(whole) + 4
    with pytest.raises(MalformedBody, match="a tagged field"):
        check_lengths(type(MESSAGES[2]), whole[:-1] + b"\x01\x63\x03ab")


#: After the throttle time, where the first array begins, which has no elements.
AT = 4
EMPTY = [
    (encoded(replace(METADATA, brokers=())), metadata.MetadataResponse, b"\x01", b"\x00"),
    (
        encoded(offsets.ListOffsetsResponse(throttle_time=NO_TIME, topics=())),
        offsets.ListOffsetsResponse,
        bytes(4),
        b"\xff\xff\xff\xff",
    ),
]


@pytest.mark.parametrize(("data", "kind", "empty", "null"), EMPTY, ids=["compact", "legacy"])
def test_an_array_that_may_not_be_missing_is_refused_where_it_is(
    data: bytes, kind: Any, empty: bytes, null: bytes
) -> None:
    end = AT + len(empty)
    assert data[AT:end] == empty
    with pytest.raises(UnreadableAnswer, match="it must not be null"):
        from_bytes(kind, data[:AT] + null + data[end:])


def test_an_array_in_an_array_may_not_be_missing_either() -> None:
    topic = replace(METADATA.topics[0], partitions=())
    data = encoded(replace(METADATA, brokers=(), topics=(topic,)))
    # The array is followed by the authorized operations and no tagged fields of the topic, then no tagged fields of the message.
    at = len(data) - 1 - 1 - 4 - 1
    assert data[at] == 1
    with pytest.raises(UnreadableAnswer, match=r"partitions.*it must not be null"):
        from_bytes(metadata.MetadataResponse, data[:at] + b"\0" + data[at + 1 :])


def test_a_length_below_that_of_null_is_refused() -> None:
    data, kind, empty, _ = EMPTY[1]
    with pytest.raises(UnreadableAnswer, match="its length is -2147483648"):
        from_bytes(kind, data[:AT] + b"\x80\0\0\0" + data[AT + len(empty) :])
