"""Calls of producers and of other consumers, which a gateway lists and never carries out.

librdkafka writes the version into a ShareFetch only where Produce 3 and Fetch 4 are listed, and else fails each fetch before it is sent.
Its other consumers need to see two calls refused: without OffsetFetch they end the process (2.16: a segmentation fault after `assign`),
without ConsumerGroupHeartbeat they are silent for ever.
So a producer or a consumer that comes here by mistake gets one clear error: TOPIC_AUTHORIZATION_FAILED for every partition that it names,
or one for its group, with the text of `EXPLANATION` where an answer has room for it.
A producer that waits for no answer (acks=0) loses its connection, as it does in Kafka.

Source: Apache Kafka's schemas of `Produce`, `Fetch`, `OffsetFetch` and `ConsumerGroupHeartbeat`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from holdfast.daemon.access.acl import Operation
from holdfast.daemon.server.api_table import Answer
from holdfast.daemon.server.wire.requests import Api, Request, Respond, Steps
from holdfast.daemon.tenant import Call
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody, encode_legacy_string, encode_string, encode_varint

PRODUCE_VERSIONS: Final = range(3, 10)
FETCH_VERSIONS: Final = range(4, 13)
_PRODUCE_FLEXIBLE_FROM: Final = 9
_FETCH_FLEXIBLE_FROM: Final = 12
CONSUMER_GROUP_HEARTBEAT_VERSIONS: Final = range(2)
#: From the first with an error of the whole answer to the last that names one group.
OFFSET_FETCH_VERSIONS: Final = range(2, 8)
_OFFSET_FETCH_FLEXIBLE_FROM: Final = 6

EXPLANATION: Final = (
    "this is a share gateway, which only share consumers read from; produce to the Kafka cluster that holds the topic, "
    "and read from there with any other consumer"
)

#: Partitions that one request may name.
_PARTITIONS_MAX: Final = 10_000

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_GROUP_DENIED: Final = _INT16.pack(ErrorCode.GROUP_AUTHORIZATION_FAILED)
_DENIED: Final = _INT16.pack(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
#: An offset or a time that there is not.
_NONE: Final = b"\xff" * 8

#: By topic, in the order of the request.
_Named = list[tuple[str, list[int]]]


def refuse_produce(request: Request, respond: Respond) -> Steps | None:
    """Refuse each partition of a Produce.

    Raises:
        MalformedBody: the bytes are no such request, it names too many partitions, or its client waits for no answer.
    """
    version = request.api_version
    is_flexible = version >= _PRODUCE_FLEXIBLE_FROM
    reader = BodyReader(request.frame, request.body_offset, is_flexible)
    reader.nullable_string("TransactionalId")
    offset = reader.offset
    if not reader.int16("Acks"):
        raise MalformedBody("Acks", offset, f"it is 0, and no answer can tell the client that {EXPLANATION}")
    reader.int32("TimeoutMs")

    def skip_partition() -> int:
        index = reader.int32("TopicData.PartitionData.Index")
        reader.skip_bytes("TopicData.PartitionData.Records")
        return index

    topics = _read_topics(reader, "TopicData", skip_partition)
    reader.lenient_end()
    # Base offset, log append time and, as the versions add them, log start offset, record errors, error message.
    tail = b"%b%b%b" % (_NONE, _NONE, _NONE if version >= 5 else b"")
    if is_flexible:
        tail += b"\x01" + encode_string(EXPLANATION)
    elif version >= 8:
        tail += _INT32.pack(0) + encode_legacy_string(EXPLANATION)
    throttle_time = _INT32.pack(0)
    respond(_encode(b"", topics, tail, throttle_time, is_flexible))
    return None


def refuse_fetch(request: Request, respond: Respond) -> Steps | None:
    """Refuse each partition of a Fetch.

    Raises:
        MalformedBody: the bytes are no such request, or it names too many partitions.
    """
    version = request.api_version
    is_flexible = version >= _FETCH_FLEXIBLE_FROM
    reader = BodyReader(request.frame, request.body_offset, is_flexible)
    # Replica id, times and sizes, isolation level; session id and epoch.
    reader.raw(17, "ReplicaId")
    if version >= 7:
        reader.raw(8, "SessionId")
    # Leader epoch, fetch offset, last fetched epoch, log start offset, size.
    rest_bytes = 12 + (4 if version >= 9 else 0) + (4 if version >= 12 else 0) + (8 if version >= 5 else 0)

    def skip_partition() -> int:
        index = reader.int32("Topics.Partitions.Partition")
        reader.raw(rest_bytes, "Topics.Partitions.FetchOffset")
        return index

    topics = _read_topics(reader, "Topics", skip_partition)
    # Forgotten topics and the rack say nothing that is needed.
    head = _INT32.pack(0)  # throttle time
    if version >= 7:
        head += _INT16.pack(ErrorCode.NONE) + _INT32.pack(0)  # no session is begun
    # High watermark, last stable offset, log start offset, aborted transactions, preferred replica, records.
    tail = b"%b%b%b%b%b%b" % (
        _NONE,
        _NONE,
        _NONE if version >= 5 else b"",
        b"\x01" if is_flexible else _INT32.pack(0),
        _INT32.pack(-1) if version >= 11 else b"",
        b"\x01" if is_flexible else _INT32.pack(0),
    )
    respond(_encode(head, topics, tail, b"", is_flexible))
    return None


def refuse_consumer_group_heartbeat(request: Request, respond: Respond) -> Steps | None:
    """Refuse a member of a consumer group; what it says need not be read for that."""
    # Throttle time, error; no member id, epoch 0, no interval, no assignment.
    head = _INT32.pack(0) + _INT16.pack(ErrorCode.INVALID_REQUEST) + encode_string(EXPLANATION)
    respond(head + encode_string(None) + _INT32.pack(0) + _INT32.pack(0) + b"\xff" + b"\x00")
    return None


def refuse_offset_fetch(request: Request, respond: Respond) -> Steps | None:
    """Refuse an OffsetFetch; the partitions that it names need not be read for that."""
    throttle_time = _INT32.pack(0) if request.api_version >= 3 else b""
    is_flexible = request.api_version >= _OFFSET_FETCH_FLEXIBLE_FROM
    no_topics = b"\x01" if is_flexible else _INT32.pack(0)
    respond(b"%b%b%b%b" % (throttle_time, no_topics, _GROUP_DENIED, b"\x00" * is_flexible))
    return None


def _read_topics(reader: BodyReader, field: str, read_partition: Callable[[], int]) -> _Named:
    """Return the topics of a request, each with its partitions."""
    topics: _Named = []
    room = _PARTITIONS_MAX
    for _ in range(reader.count(field)):
        name, offset = reader.string(f"{field}.Name"), reader.offset
        count = reader.count(f"{field}.Partitions")
        room -= 1 + count
        if room < 0:
            text = f"more than {_PARTITIONS_MAX} topics and partitions are named"
            raise MalformedBody(f"{field}.Partitions", offset, text)
        indexes = []
        for _ in range(count):
            indexes.append(read_partition())
            reader.tags(f"{field}.Partitions")
        reader.tags(field)
        topics.append((name, indexes))
    return topics


def _encode(head: bytes, topics: _Named, tail: bytes, behind: bytes, is_flexible: bool) -> bytes:
    """Return an answer that denies each partition; after its index and error code, each has the same `tail`."""
    encode_text = encode_string if is_flexible else encode_legacy_string
    tags = b"\x00" * is_flexible

    def encode_count(count: int) -> bytes:
        return encode_varint(count + 1) if is_flexible else _INT32.pack(count)

    parts = [head, encode_count(len(topics))]
    rest = _DENIED + tail + tags
    for name, indexes in topics:
        parts += (encode_text(name), encode_count(len(indexes)))
        for index in indexes:
            parts += (_INT32.pack(index), rest)
        parts.append(tags)
    parts += (behind, tags)
    return b"".join(parts)


#: The operations are those that Kafka needs of the topics; here nobody is asked whether it has them.
CALLS: Final[Mapping[int, Call]] = {
    api_keys.PRODUCE: Call(
        # Records are passed over.
        Api("Produce", PRODUCE_VERSIONS[0], PRODUCE_VERSIONS[-1], _PRODUCE_FLEXIBLE_FROM, work_per_byte=1),
        Operation.WRITE,
    ),
    api_keys.FETCH: Call(Api("Fetch", FETCH_VERSIONS[0], FETCH_VERSIONS[-1], _FETCH_FLEXIBLE_FROM), Operation.READ),
    api_keys.OFFSET_FETCH: Call(
        Api("OffsetFetch", OFFSET_FETCH_VERSIONS[0], OFFSET_FETCH_VERSIONS[-1], _OFFSET_FETCH_FLEXIBLE_FROM),
        Operation.DESCRIBE,
    ),
    api_keys.CONSUMER_GROUP_HEARTBEAT: Call(
        Api("ConsumerGroupHeartbeat", CONSUMER_GROUP_HEARTBEAT_VERSIONS[0], CONSUMER_GROUP_HEARTBEAT_VERSIONS[-1]),
        Operation.READ,
    ),
}

ANSWERS: Final[Mapping[int, Answer]] = {
    api_keys.PRODUCE: refuse_produce,
    api_keys.FETCH: refuse_fetch,
    api_keys.OFFSET_FETCH: refuse_offset_fetch,
    api_keys.CONSUMER_GROUP_HEARTBEAT: refuse_consumer_group_heartbeat,
}
