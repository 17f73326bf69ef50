"""What brokers answer, as bytes: an answer with all that its schema has, and all that reads it.

Nobody who reads one may raise anything but `ConnectionFailed` or `MalformedBody`, which their callers make a failed request of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from io import BytesIO
from struct import pack
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.delete_records.v1.response import DeleteRecordsResponse
from kio.schema.describe_cluster.v0.response import DescribeClusterResponse
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.list_offsets.v5.response import ListOffsetsResponse
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v8.response import ProduceResponse
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.serial import entity_writer
from kio.static.protocol import Entity

from holdfast.kafka import metadata
from holdfast.kafka.discovery import group_calls, group_offset_calls, links
from holdfast.kafka.discovery.calls import Call, query_versions
from holdfast.kafka.discovery.find_coordinator import FIND_COORDINATOR, Key, KeyType
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.exchange import from_bytes
from holdfast.kafka.protocol import requests, sasl_calls
from holdfast.kafka.protocol.frames import read_response_header
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.kafka.protocol.unknown_tags import shape_of
from holdfast.kafka.records import fetch
from holdfast.membership.kafka_group.messages import from_message

#: What a caller takes for a failed request.
REFUSALS: Final = (ConnectionFailed, MalformedBody)
#: A value of each type of a field, by kio's name of it.
_VALUES: Final[dict[str, Any]] = {
    "bool": True,
    "int8": 3,
    "int16": 3,
    "uint16": 3,
    "int32": 3,
    "int64": 3,
    "float64": 3.0,
    "string": "text",
    "bytes": b"bytes",
    "records": b"records",
    "uuid": UUID(int=7),
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(milliseconds=3),
    "timedelta_i64": timedelta(milliseconds=3),
    "datetime_i64": datetime(2026, 1, 1, tzinfo=UTC),
}


class Answer(NamedTuple):
    """What reads one kind of answer, and answers to begin with."""

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


def sample(entity_type: type[Any], count: int = 2) -> Any:  # as kio has its entities
    """Return a message in which each array has so many elements, and nothing is missing that may be there."""
    found: dict[str, Any] = {}
    for each in fields(entity_type):
        shape = shape_of(each.type)
        value = sample(shape.struct, count) if shape.struct else _VALUES[each.metadata["kafka_type"]]
        found[each.name] = (value,) * count if shape.is_array else value
    return entity_type(**found)


def encoded(response_type: type[Entity], counts: Sequence[int] = (2, 1, 0)) -> list[bytes]:
    """Return messages whose arrays have so many elements each."""
    written = []
    for count in counts:
        buffer = BytesIO()
        entity_writer(response_type)(buffer, sample(response_type, count))
        written.append(buffer.getvalue())
    return written


def _by_hand(decode: Callable[[bytes], object], response_type: type[Entity], *counts: int) -> Answer:
    return Answer(decode, partial(encoded, response_type, counts or (2, 1, 0)))


def _through_kio(response_type: Any, use: Callable[[Any], object] = lambda _: None, *counts: int) -> Answer:
    return _by_hand(lambda data: use(from_bytes(response_type, data)), response_type, *counts)


def _calls() -> Iterator[tuple[Call[Any, Any], list[Any]]]:
    groups = ["text"]
    yield links.METADATA, [links.ALL]
    yield FIND_COORDINATOR, [Key(KeyType.GROUP, "text")]
    for call in (group_calls.LIST_GROUPS, group_calls.DESCRIBE_GROUPS, group_calls.DELETE_GROUPS):
        yield call, groups
    for call in group_calls.DESCRIBE_OTHERS:
        yield call, groups
    yield group_calls.LEAVE_GROUP, [group_calls.Dismissal("text", "text", "why")]
    yield group_offset_calls.OFFSET_FETCH, [group_offset_calls.Wanted("text", (("text", 3),))]
    yield group_offset_calls.OFFSET_COMMIT, [group_offset_calls.Commit("text", ((("text", 3), 5),))]


def _read_call(call: Call[Any, Any], version: int, items: list[Any], data: bytes) -> None:
    answer = call.decode(version, items, data)
    for value in call.join(items, answer, ("host", 1)).values():
        call.error_of(value)


def _response_of(call: Call[Any, Any], version: int) -> type[Entity]:
    name = "".join(f"_{each.lower()}" if each.isupper() else each for each in call.name).lstrip("_")
    found: type[Entity] = getattr(import_module(f"kio.schema.{name}.v{version}.response"), f"{call.name}Response")
    return found


def _read_versions(data: bytes) -> None:
    """Drive the query without a loop: its one wait is over at once."""

    class Answering:
        async def exchange(self, *_: object) -> bytes:
            return data

    query = query_versions(Answering())  # type: ignore[arg-type]  # of a connection it uses that alone
    try:
        query.send(None)
    except StopIteration:
        return


def _read_produced(data: bytes) -> None:
    """Read an answer as the sender does, and compare it with what Python makes of it where C has read it."""
    assert requests.read_produced(data) == requests.read_answer(requests.decode_produced, data)


def _read_records(version: int, data: bytes) -> None:
    """Read an answer; what it has of records lies within it."""
    answer = fetch.read_fetched(version, memoryview(data))
    assert sum(len(each.records) for each in answer.partitions) <= len(data)


def answers() -> dict[str, Answer]:
    """Return all that brokers answer, by name."""
    found = {
        "Produce": _by_hand(_read_produced, ProduceResponse),
        "Fetch": _by_hand(partial(requests.read_answer, requests.decode_fetched), FetchResponse),
        "ListOffsets": _by_hand(partial(requests.read_answer, requests.decode_offsets), ListOffsetsResponse),
        "DeleteRecords": _by_hand(partial(requests.read_answer, requests.decode_deleted), DeleteRecordsResponse, 1),
        "Metadata": _through_kio(MetadataResponse, partial(metadata.read_answer, ["text", UUID(int=7).bytes])),
        "Metadata without leaders": _by_hand(lambda data: list(metadata.SummaryReader(data)), MetadataResponse),
        "ListOffsets by kio": _through_kio(ListOffsetsResponse),
        "DescribeCluster": _through_kio(DescribeClusterResponse),
        "DescribeQuorum": _through_kio(DescribeQuorumResponse),
        **{
            each.__name__.removesuffix("Response"): _through_kio(each, from_message)
            for each in (JoinGroupResponse, SyncGroupResponse, HeartbeatResponse, LeaveGroupResponse)
        },
        "ApiVersions": Answer(_read_versions, lambda: [pack(">hihhhhhh", 0, 2, 1, 0, 9, 3, 0, 13)]),
        "SaslHandshake": Answer(
            lambda data: sasl_calls.decode_handshake_answer(data, 0),
            lambda: [sasl_calls.encode_handshake_answer(0, ["PLAIN", "SCRAM-SHA-256"])],
        ),
        "response header": Answer(partial(read_response_header, has_tags=True), lambda: [bytes(4) + b"\x01\x07\x01x"]),
    }
    for version in range(sasl_calls.AUTHENTICATE_VERSION_MAX + 1):
        answer = sasl_calls.AuthenticateAnswer(0, "why", b"message", 5)
        found[f"SaslAuthenticate v{version}"] = Answer(
            lambda data, version=version: sasl_calls.decode_authenticate_answer(version, data, 0),  # type: ignore[misc]
            lambda version=version, answer=answer: [  # type: ignore[misc]
                sasl_calls.encode_authenticate_answer(version, answer)
            ],
        )
    for version in range(fetch.VERSIONS[0], fetch.VERSIONS[1] + 1):
        response_type = import_module(f"kio.schema.fetch.v{version}.response").FetchResponse
        found[f"Fetch v{version} of any topic"] = _by_hand(partial(_read_records, version), response_type)
    for call, items in _calls():
        for version in range(call.versions[0], call.versions[1] + 1):
            read = partial(_read_call, call, version, items)
            found[f"{call.name} v{version} of a call"] = _by_hand(read, _response_of(call, version))
    return found
