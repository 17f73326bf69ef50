"""Answers of newer brokers are read: tagged fields that kio's schemas do not know are skipped, and malformed ones are not."""

from dataclasses import field, fields, is_dataclass, make_dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from io import BytesIO
from types import NoneType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.serial import entity_writer
from kio.static.primitive import i32

from holdfast.kafka.errors import UnreadableAnswer
from holdfast.kafka.exchange import exchange

REQUEST = MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)

#: What is read by `exchange`, and some with what those lack: tagged structs and arrays, a struct that may be null, other types.
RESPONSES = [
    ("metadata", 12, "MetadataResponse"),
    ("find_coordinator", 3, "FindCoordinatorResponse"),
    ("offset_fetch", 7, "OffsetFetchResponse"),
    ("offset_commit", 8, "OffsetCommitResponse"),
    ("fetch", 16, "FetchResponse"),
    ("describe_topic_partitions", 0, "DescribeTopicPartitionsResponse"),
    ("describe_delegation_token", 3, "DescribeDelegationTokenResponse"),
    ("describe_client_quotas", 1, "DescribeClientQuotasResponse"),
    ("describe_user_scram_credentials", 0, "DescribeUserScramCredentialsResponse"),
    ("describe_quorum", 2, "DescribeQuorumResponse"),
    ("sasl_authenticate", 2, "SaslAuthenticateResponse"),
    ("expire_delegation_token", 2, "ExpireDelegationTokenResponse"),
]
VALUES: dict[str, Any] = {
    "bool": True,
    "int8": 2,
    "int16": 3,
    "uint16": 9_092,
    "int32": 70_000,
    "int64": 2**40,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(milliseconds=5),
    "timedelta_i64": timedelta(milliseconds=6),
    "datetime_i64": datetime.fromtimestamp(1_700_000_000, tz=UTC),
    "float64": 0.5,
    "uuid": UUID(int=2**100 + 1),
    "string": "text",
    "bytes": b"bytes",
    "records": b"\x01" * 200,  # its length has two bytes
}


class Scripted:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def exchange(self, *_: object, **__: object) -> bytes:
        return self._body


async def read(body: bytes, response_type: type[Any]) -> Any:
    connection: Any = Scripted(body)
    return await exchange(connection, REQUEST, response_type)


def to_bytes(value: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(value))(buffer, value)
    return buffer.getvalue()


def newer_type(of: Any) -> Any:
    """Return the type of a field in a schema in which every struct has a tagged field more."""
    if is_dataclass(of):
        assert isinstance(of, type)
        had = [
            (each.name, newer_type(each.type), field(default=each.default, metadata=each.metadata))
            for each in fields(of)
        ]
        added = ("added", i32, field(metadata={"kafka_type": "int32", "tag": 99}))
        marks = {name: getattr(of, name) for name in ("__flexible__", "__version__", "__type__")}
        return make_dataclass(of.__name__, [*had, added], namespace=marks, kw_only=True)
    if NoneType in get_args(of):
        return newer_type(get_args(of)[0]) | None
    return tuple[newer_type(get_args(of)[0]), ...] if get_origin(of) is tuple else of  # type: ignore[misc]


def sample(of: Any, kafka_type: str = "", *, has_nulls: bool = False, length: int = 2) -> Any:
    """Return a value of a field's type, with arrays of one length."""
    if NoneType in get_args(of):
        return None if has_nulls else sample(get_args(of)[0], kafka_type, has_nulls=has_nulls, length=length)
    if get_origin(of) is tuple:
        return (sample(get_args(of)[0], kafka_type, has_nulls=has_nulls, length=length),) * length
    if not is_dataclass(of):
        return VALUES[kafka_type]
    assert isinstance(of, type)
    return of(
        **{
            each.name: sample(each.type, each.metadata.get("kafka_type", ""), has_nulls=has_nulls, length=length)
            for each in fields(of)
        }
    )


@pytest.fixture(params=RESPONSES, ids=lambda each: each[0])
def response_type(request: pytest.FixtureRequest) -> type[Any]:
    api, version, name = request.param
    found: type[Any] = getattr(import_module(f"kio.schema.{api}.v{version}.response"), name)
    return found


@pytest.mark.parametrize("has_nulls", [False, True])
async def test_tagged_fields_that_are_not_known_are_skipped_in_every_struct(
    response_type: type[Any], has_nulls: bool
) -> None:
    known = sample(response_type, has_nulls=has_nulls)
    body = to_bytes(sample(newer_type(response_type), has_nulls=has_nulls))
    assert len(body) > len(to_bytes(known))
    assert await read(body, response_type) == known


async def test_an_answer_with_such_fields_that_is_cut_short_cannot_be_read(response_type: type[Any]) -> None:
    body = to_bytes(sample(newer_type(response_type), length=1))
    for size in range(len(body)):
        with pytest.raises(UnreadableAnswer, match="cannot be read"):
            await read(body[:size], response_type)


#: Throttle time, no brokers, no cluster id, no controller and no topics of a Metadata answer.
EMPTY = bytes.fromhex("00000000 01 00 ffffffff 01")


@pytest.mark.parametrize("tags", ["01 63 01 00", "02 63 00 64 02 0000", "02 63 00 63 00"])
async def test_any_tags_may_be_new(tags: str) -> None:
    assert (await read(EMPTY + bytes.fromhex(tags), MetadataResponse)).topics == ()


@pytest.mark.parametrize(
    "tags",
    [
        "01 63 02 00",
        "02 63 01 00",
        "01 63 ffffffff0f 00",
        "01 63 ffffffffffff 00",
        "ffffffff0f 63 00",
    ],
    ids=["longer than the rest", "one is missing", "a size above int32", "a size without end", "too many"],
)
async def test_a_malformed_section_of_tags_makes_an_answer_unreadable_and_is_no_bug(tags: str) -> None:
    with pytest.raises(UnreadableAnswer, match="cannot be read"):
        await read(EMPTY + bytes.fromhex(tags), MetadataResponse)
