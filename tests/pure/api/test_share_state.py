"""The share-state codecs agree with kio's generated ones, both ways, and turn any other bytes into one exception."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from holdfast.api import results, share_state, state_requests, state_responses
from holdfast.api.results import StateRequest, StateResponse
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.records.share.batches import StateBatch

MODULES = {
    share_state.INITIALIZE: "initialize_share_group_state",
    share_state.READ: "read_share_group_state",
    share_state.WRITE: "write_share_group_state",
    share_state.DELETE: "delete_share_group_state",
    share_state.SUMMARY: "read_share_group_state_summary",
}
CALLS = [(key, version) for key, (low, high) in share_state.VERSIONS.items() for version in range(low, high + 1)]

PARTITIONS: dict[int, Any] = {
    share_state.INITIALIZE: results.InitializePartition,
    share_state.READ: results.ReadPartition,
    share_state.WRITE: results.WritePartition,
    share_state.DELETE: results.DeletePartition,
    share_state.SUMMARY: results.SummaryPartition,
}
RESULTS: dict[int, Any] = {
    share_state.INITIALIZE: results.InitializeResult,
    share_state.READ: results.ReadResult,
    share_state.WRITE: results.WriteResult,
    share_state.DELETE: results.DeleteResult,
    share_state.SUMMARY: results.SummaryResult,
}

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
topic_ids = st.binary(min_size=16, max_size=16)
batches = st.lists(st.builds(StateBatch, int64, int64, st.integers(-128, 127), int16), max_size=4).map(tuple)
FIELDS: dict[str, Any] = {
    "partition": int32,
    "state_epoch": int32,
    "leader_epoch": int32,
    "start_offset": int64,
    "delivery_complete_count": int32,
    "state_batches": batches,
    "error_code": st.sampled_from([0, 3, 14, 15, 16, 42, 74, 124, -1]),
    "error_message": st.none() | st.text(max_size=200),
}


def values_of(kind: Any) -> Any:
    return st.builds(kind, **{name: FIELDS[name] for name in kind._fields})


def without(value: Any, absent: dict[str, int]) -> Any:
    return value._replace(**{name: default for name, default in absent.items() if name in value._fields})


def absent_fields(version: int) -> dict[str, int]:
    return {"delivery_complete_count": -1} if version == 0 else {}


@pytest.mark.parametrize("kind", get_args(results.PartitionRequest))
def test_a_request_about_a_share_partition_names_it_first(kind: Any) -> None:
    # Compiled code takes it by its place.
    assert kind._fields[0] == "partition"


@st.composite
def requests(draw: Any, api_key: int, version: int) -> StateRequest:
    partitions = st.lists(values_of(PARTITIONS[api_key]), max_size=4)
    topics = draw(st.lists(st.tuples(topic_ids, partitions), max_size=3))
    absent = absent_fields(version)
    return StateRequest(
        draw(st.text(max_size=300)),
        [(topic_id, [without(partition, absent) for partition in partitions]) for topic_id, partitions in topics],
    )


@st.composite
def responses(draw: Any, api_key: int, version: int) -> StateResponse:
    partitions = st.lists(st.tuples(int32, values_of(RESULTS[api_key])), max_size=4)
    topics = draw(st.lists(st.tuples(topic_ids, partitions), max_size=3))
    absent = absent_fields(version)
    return [
        (topic_id, [(partition, without(r, absent)) for partition, r in partitions]) for topic_id, partitions in topics
    ]


def kio_schema(api_key: int, version: int, direction: str) -> Any:
    module = import_module(f"kio.schema.{MODULES[api_key]}.v{version}.{direction}")
    name = "".join(part.title() for part in MODULES[api_key].split("_")) + direction.title()
    return getattr(module, name)


def kio_decode(schema: Any, data: bytes) -> Any:
    value, size = entity_reader(schema)(data, 0)
    assert size == len(data)
    return value


def kio_encode(value: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def plain_topic_id(value: uuid.UUID | None) -> bytes:
    return bytes(16) if value is None else value.bytes


def plain(partition: Any, names: tuple[str, ...], version: int) -> dict[str, Any]:
    """Return the fields of a kio entity by name, as our values have them."""
    fields: dict[str, Any] = {}
    for name in names:
        value: Any = absent_fields(version).get(name) if not hasattr(partition, name) else getattr(partition, name)
        if name == "state_batches":
            value = tuple((b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in value)
        fields[name] = value
    return fields


@pytest.mark.parametrize(("api_key", "version"), CALLS)
@given(data=st.data())
def test_kio_reads_the_requests_we_write_and_we_read_them_again(api_key: int, version: int, data: Any) -> None:
    request = data.draw(requests(api_key, version))
    encoded = state_requests.encode_request(api_key, version, request)
    assert state_requests.decode_request(api_key, version, encoded) == request
    assert state_requests.decode_request(api_key, version, memoryview(b"head" + encoded), 4) == request

    entity = kio_decode(kio_schema(api_key, version, "request"), encoded)
    assert entity.group_id == request.group_id
    assert [plain_topic_id(topic.topic_id) for topic in entity.topics] == [topic_id for topic_id, _ in request.topics]
    names = PARTITIONS[api_key]._fields
    assert [[plain(p, names, version) for p in topic.partitions] for topic in entity.topics] == [
        [p._asdict() for p in partitions] for _, partitions in request.topics
    ]
    assert kio_encode(entity) == encoded


@pytest.mark.parametrize(("api_key", "version"), CALLS)
@given(data=st.data())
def test_kio_reads_the_responses_we_write_and_we_read_them_again(api_key: int, version: int, data: Any) -> None:
    response = data.draw(responses(api_key, version))
    encoded = state_responses.encode_response(api_key, version, response)
    assert state_responses.decode_response(api_key, version, encoded) == response
    assert state_responses.decode_response(api_key, version, b"head" + encoded, 4) == response

    entity = kio_decode(kio_schema(api_key, version, "response"), encoded)
    assert [plain_topic_id(topic.topic_id) for topic in entity.results] == [topic_id for topic_id, _ in response]
    names = RESULTS[api_key]._fields
    assert [[(p.partition, plain(p, names, version)) for p in topic.partitions] for topic in entity.results] == [
        [(partition, result._asdict()) for partition, result in partitions] for _, partitions in response
    ]
    assert kio_encode(entity) == encoded


#: Bodies recorded from Apache Kafka 4.3.1: group g1, topic id 00..0f, partition 7.
TOPIC_ID = bytes(range(16))
WRITE_1 = bytes.fromhex(
    "03673102000102030405060708090a0b0c0d0e0f02000000070000000200000005000000000000006e00000004"
    "02000000000000006e000000000000007702000100000000"
)
WRITE_0 = WRITE_1.replace(bytes.fromhex("6e0000000402"), bytes.fromhex("6e02"))


def test_the_bodies_recorded_from_kafka() -> None:
    batch = StateBatch(110, 119, 2, 1)
    partition = results.WritePartition(7, 2, 5, 110, 4, (batch,))
    request = StateRequest("g1", [(TOPIC_ID, [partition])])
    assert state_requests.decode_request(share_state.WRITE, 1, WRITE_1) == request
    assert state_requests.encode_request(share_state.WRITE, 1, request) == WRITE_1
    without_count = StateRequest("g1", [(TOPIC_ID, [partition._replace(delivery_complete_count=-1)])])
    assert state_requests.decode_request(share_state.WRITE, 0, WRITE_0) == without_count
    assert state_requests.encode_request(share_state.WRITE, 0, request) == WRITE_0
    response = bytes.fromhex("02000102030405060708090a0b0c0d0e0f0200000007000000000000")
    assert state_responses.encode_response(share_state.WRITE, 1, [(TOPIC_ID, [(7, results.WriteResult())])]) == response
    assert state_responses.encode_response(share_state.READ, 0, []) == bytes.fromhex("0100")


TAGS = bytes.fromhex("020003616263800100")  # tag 0 with three bytes, tag 128 with none


def test_tagged_fields_are_skipped_wherever_they_stand() -> None:
    request = state_requests.decode_request(share_state.WRITE, 1, WRITE_1)
    batch, partition, topic = len(WRITE_1) - 4, len(WRITE_1) - 3, len(WRITE_1) - 2
    for position in (batch, partition, topic, len(WRITE_1) - 1):
        assert WRITE_1[position] == 0
        assert (
            state_requests.decode_request(share_state.WRITE, 1, WRITE_1[:position] + TAGS + WRITE_1[position + 1 :])
            == request
        )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("00", "GroupId"),  # null
        ("ff7f6731", "GroupId"),  # 16382 bytes announced
        ("03c328", "GroupId"),  # not UTF-8
        ("ffffffffff", "GroupId"),  # a varint that never ends
        ("ffffffff0f", "GroupId"),  # 2^32 - 1
        ("03673100", "Topics"),  # null
        ("036731ffffffff07", "Topics"),  # 2^31 - 2 topics announced
        ("03673102" + "00" * 16 + "000000", "Topics.Partitions"),  # null
        ("03673102" + "00" * 16 + "ffffffff07", "Topics.Partitions"),
        ("036731010000", "the end of the body"),  # one byte too many
        ("036731010105ff", "the tagged fields of the body"),
    ],
)
def test_a_malformed_request_is_named_by_its_field(body: str, field: str) -> None:
    with pytest.raises(MalformedBody) as caught:
        state_requests.decode_request(share_state.READ, 0, bytes.fromhex(body))
    assert caught.value.field == field
    assert str(caught.value).startswith(f"The field {field} at byte {caught.value.offset} is malformed: ")


def test_announced_batches_are_not_believed() -> None:
    head = WRITE_1[: WRITE_1.index(bytes.fromhex("0000000402")) + 4]
    with pytest.raises(
        MalformedBody, match=r"StateBatches at byte 45 .* 2147483646 elements are announced and 0 bytes"
    ):
        state_requests.decode_request(share_state.WRITE, 1, head + bytes.fromhex("ffffffff07"))


def test_a_number_that_does_not_fit_is_a_clear_error() -> None:
    with pytest.raises(ValueError, match="A number does not fit its field"):
        state_requests.encode_request(
            share_state.DELETE, 0, StateRequest("g", [(TOPIC_ID, [results.DeletePartition(1 << 31)])])
        )
    with pytest.raises(ValueError, match="A topic id has 16 bytes, not 3"):
        state_requests.encode_request(
            share_state.DELETE, 0, StateRequest("g", [(b"abc", [results.DeletePartition(1)])])
        )


def sample_bodies(api_key: int, version: int) -> tuple[bytes, bytes]:
    """Return a request and a response with two topics, several partitions, batches and a message."""
    numbers = {
        "error_code": 42,
        "error_message": "no",
        "state_batches": (StateBatch(1, 2, 0, 1), StateBatch(3, 4, 2, 5)),
    }
    partition = PARTITIONS[api_key](**{name: numbers.get(name, 7) for name in PARTITIONS[api_key]._fields})
    result = RESULTS[api_key](**{name: numbers.get(name, 7) for name in RESULTS[api_key]._fields})
    ids = (TOPIC_ID, bytes(16))
    request = StateRequest("group", [(topic_id, [partition, partition]) for topic_id in ids])
    response: StateResponse = [(topic_id, [(1, result), (2, result)]) for topic_id in ids]
    return state_requests.encode_request(api_key, version, request), state_responses.encode_response(
        api_key, version, response
    )


def mutations(sample: bytes, source: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        data = bytearray(sample)
        for _ in range(source.randint(1, 3)):
            position = source.randrange(len(data))
            match source.randrange(4):
                case 0:
                    data[position] = source.choice((0, 1, 2, 0x7F, 0x80, 0xFF, source.randrange(256)))
                case 1:
                    del data[position : position + source.randint(1, 8)]
                case 2:
                    data[position:position] = source.randbytes(source.randint(1, 8))
                case _:
                    data[position : position + 5] = b"\xff\xff\xff\xff\x07"
            if not data:
                break
        yield bytes(data)


DECODERS: tuple[Callable[[int, int, bytes], object], ...] = (
    state_requests.decode_request,
    state_responses.decode_response,
)


@pytest.mark.parametrize(("api_key", "version"), CALLS)
def test_mutated_samples_raise_malformed_body_or_decode(api_key: int, version: int) -> None:
    source = random.Random(api_key * 10 + version)
    refused = 0
    for sample, decode in zip(sample_bodies(api_key, version), DECODERS, strict=True):
        for data in mutations(sample, source, 1_500):
            try:
                decode(api_key, version, data)
            except MalformedBody:
                refused += 1
    assert refused > 1_000


@pytest.mark.parametrize(("api_key", "version"), CALLS)
def test_every_cut_and_every_trailing_byte_is_refused(api_key: int, version: int) -> None:
    for sample, decode in zip(sample_bodies(api_key, version), DECODERS, strict=True):
        for length in range(len(sample)):
            with pytest.raises(MalformedBody):
                decode(api_key, version, sample[:length])
        with pytest.raises(MalformedBody):
            decode(api_key, version, sample + b"\x00")
