"""The bytes of Fetch for several topics: version 12 names them, versions 13 to 17 use their ids.

What an answer has of records is a view of it. Every length is compared with the bytes that are left.
Fetch sessions are not used: a position may move back and forth, and a partition whose buffer is full must be left out.

Source: Apache Kafka's message schemas FetchRequest and FetchResponse.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple, TypeAlias

from holdfast.kafka.errors import UnreadableAnswer, VersionUnsupported
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.primitives import (
    MalformedBody,
    encode_string,
    encode_varint,
    read_count,
    read_string,
    read_tags,
    read_varint,
    skip_tags,
)
from holdfast.kafka.records.transactions import AbortedTransaction

#: Versions that are written and read here, both inclusive; brokers since 2.7 speak the first, since 3.1 one that takes ids.
VERSIONS: Final = (12, 17)
#: From here on topics are named by their ids.
_IDS_FROM: Final = 13
#: From here on a consumer does not say that it is no replica.
_NO_REPLICA_FROM: Final = 15
_READ_COMMITTED: Final = 1
_NO_SESSION: Final = (0, -1)
#: The tagged field that says where a log was truncated.
_DIVERGING_EPOCH: Final = 0
_ID_BYTES: Final = 16
_ID_AND_OFFSET_BYTES: Final = 16

_NO_REPLICA: Final = b"\xff\xff\xff\xff"
_REQUEST_HEAD: Final = Struct(">iiibii")
_TARGET: Final = Struct(">iiqiqi")
_ANSWER_HEAD: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">iq")

#: A topic as a version names it: its name or its id of 16 bytes.
TopicKey: TypeAlias = str | bytes


class ReadTarget(NamedTuple):
    """A partition and where to begin in it."""

    topic: TopicKey
    partition: int
    #: -1: not checked.
    leader_epoch: int
    offset: int
    #: Leader epoch of the record before; -1: not known, so the broker does not look whether the log was truncated below.
    last_fetched_epoch: int
    #: How much of it is asked for.
    bytes_max: int


class ReadPartition(NamedTuple):
    """What an answer has of a partition."""

    topic: TopicKey
    partition: int
    error_code: int
    #: The end of what consumers may read; -1 with most errors.
    high_watermark: int
    #: The end of what is decided of transactions; -1 where the broker does not say.
    last_stable_offset: int
    #: -1 with most errors.
    log_start_offset: int
    #: The offset at which the leader's log goes apart from what was read; None: it does not.
    diverges_at: int | None
    #: In no order.
    aborted: tuple[AbortedTransaction, ...]
    records: memoryview


class ReadAnswer(NamedTuple):
    """What a broker answered."""

    #: Of the whole request.
    error_code: int
    #: For how long the broker reads nothing on this connection (KIP-219).
    throttle_ms: int
    partitions: list[ReadPartition]


class FetchBounds(NamedTuple):
    """What a request asks a broker to keep to; the first batch may be larger."""

    #: How long the broker may hold the request while there is nothing.
    wait_ms: int
    bytes_max: int


def choose_version(versions: Mapping[int, tuple[int, int]]) -> int:
    """Return the highest version of Fetch that a broker and this module both speak.

    Args:
        versions: lowest and highest version of each API of the broker; empty: not known.

    Raises:
        VersionUnsupported: there is none.
    """
    if not versions:
        return VERSIONS[0]
    lowest, highest = versions.get(api_keys.FETCH, (0, -1))
    version = min(highest, VERSIONS[1])
    if version < max(lowest, VERSIONS[0]):
        raise VersionUnsupported(
            f"the broker speaks versions {lowest} to {highest} of Fetch, one of {VERSIONS[0]} to {VERSIONS[1]} is needed; "
            "upgrade it to Kafka 2.7 or newer"
        )
    return version


def has_ids(version: int) -> bool:
    """Tell whether a version names topics by their ids."""
    return version >= _IDS_FROM


def encode_fetch(version: int, bounds: FetchBounds, is_committed: bool, targets: Iterable[ReadTarget]) -> bytes:
    """Return a request without a session.

    Args:
        version: one of `VERSIONS`.
        bounds: see there.
        is_committed: read up to the last stable offset, and list aborted transactions.
        targets: those of a topic side by side, each topic named as the version has it; brokers fill an answer in this order.
    """
    head = _REQUEST_HEAD.pack(bounds.wait_ms, 1, bounds.bytes_max, _READ_COMMITTED * is_committed, *_NO_SESSION)
    parts = [_NO_REPLICA if version < _NO_REPLICA_FROM else b"", head, b""]
    topics = 0
    for topic, of_topic in groupby(targets, lambda target: target.topic):
        topics += 1
        parts += (topic if isinstance(topic, bytes) else encode_string(topic), b"")
        count_at = len(parts) - 1
        for _, partition, leader_epoch, offset, last_epoch, bytes_max in of_topic:
            parts += (_TARGET.pack(partition, leader_epoch, offset, last_epoch, -1, bytes_max), b"\x00")
        parts[count_at] = encode_varint((len(parts) - count_at - 1) // 2 + 1)
        parts.append(b"\x00")
    parts[2] = encode_varint(topics + 1)
    parts.append(b"\x01\x01\x00")  # nothing forgotten, no rack, no tags
    return b"".join(parts)


def read_fetched(version: int, data: memoryview) -> ReadAnswer:
    """Return what an answer says; all records in it are views of it.

    Raises:
        UnreadableAnswer: it does not follow its schema.
    """
    try:
        return _decode(version, data)
    except (MalformedBody, StructError) as error:
        raise UnreadableAnswer(f"a broker sent an answer to Fetch that cannot be read: {error}") from error


def _decode(version: int, data: memoryview) -> ReadAnswer:
    throttle_ms, error_code, _ = _ANSWER_HEAD.unpack_from(data)
    topics, at = read_count(data, _ANSWER_HEAD.size, 3, "Responses")
    found: list[ReadPartition] = []
    for _ in range(topics):
        topic, at = _read_topic(version, data, at)
        partitions, at = read_count(data, at, _PARTITION.size, "Responses.Partitions")
        for _ in range(partitions):
            partition, at = _read_partition(topic, data, at)
            found.append(partition)
        at = skip_tags(data, at, "Responses.tags")
    at = skip_tags(data, at, "tags")
    if at != len(data):
        raise MalformedBody("the end", at, f"{len(data) - at} more bytes follow")
    return ReadAnswer(error_code, throttle_ms, found)


def _read_topic(version: int, data: memoryview, at: int) -> tuple[TopicKey, int]:
    if not has_ids(version):
        return read_string(data, at, "Responses.Topic")
    topic_id = bytes(data[at : at + _ID_BYTES])
    if len(topic_id) < _ID_BYTES:
        raise MalformedBody("Responses.TopicId", at, f"it has {_ID_BYTES} bytes, {len(topic_id)} are left")
    return topic_id, at + _ID_BYTES


def _read_partition(topic: TopicKey, data: memoryview, at: int) -> tuple[ReadPartition, int]:
    partition, error_code, high_watermark, last_stable, log_start = _PARTITION.unpack_from(data, at)
    aborted, at = _read_aborted(data, at + _PARTITION.size)
    # The preferred read replica lies between.
    size, at = read_varint(data, at + 4, "Responses.Partitions.Records")
    end = at + max(0, size - 1)
    if end > len(data):
        raise MalformedBody("Responses.Partitions.Records", at, f"it has {size - 1} bytes, {len(data) - at} are left")
    records = data[at:end]
    diverges_at, at = _read_divergence(data, end)
    found = ReadPartition(
        topic, partition, error_code, high_watermark, last_stable, log_start, diverges_at, aborted, records
    )
    return found, at


def _read_aborted(data: memoryview, at: int) -> tuple[tuple[AbortedTransaction, ...], int]:
    field = "Responses.Partitions.AbortedTransactions"
    if at < len(data) and data[at] <= 1:  # null or none, as nearly always
        return (), at + 1
    count, at = read_count(data, at, _ID_AND_OFFSET_BYTES, field)
    found: list[AbortedTransaction] = []
    for _ in range(count):
        found.append(AbortedTransaction(*_ABORTED.unpack_from(data, at)))
        at = skip_tags(data, at + _ABORTED.size, field)
    return tuple(found), at


def _read_divergence(data: memoryview, at: int) -> tuple[int | None, int]:
    """Return the offset from which on the leader has something else, and the place after the tagged fields of a partition."""
    field = "Responses.Partitions.tags"
    if at < len(data) and not data[at]:  # none, as nearly always
        return None, at + 1
    # The tagged fields are few and short, and `read_tags` is for bytes.
    end = skip_tags(data, at, field)
    tags, _ = read_tags(bytes(data[at:end]), 0, field)
    for tag, content in tags:
        if tag == _DIVERGING_EPOCH:
            return int(_DIVERGING.unpack_from(content)[1]), end
    return None, end


def by_topic(targets: Sequence[ReadTarget]) -> list[ReadTarget]:
    """Return targets with those of a topic side by side; topics and partitions keep the order in which they came first."""
    topics: dict[TopicKey, list[ReadTarget]] = {}
    for target in targets:
        topics.setdefault(target.topic, []).append(target)
    return [target for of_topic in topics.values() for target in of_topic]
