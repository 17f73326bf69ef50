"""The file with one call of a share consumer per line, as Kafka's generated classes write it: `tests/interop/ConsumerCalls.java`.

The bytes decode to the fields, and the fields encode to the bytes; where Kafka wrote tagged fields that nobody knows, they are passed over
and not written again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.api import share_acknowledge, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import SettledPartition, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import AcknowledgedRange, NamedPartition, NodeEndpoint
from holdfast.api.share_fetch import FetchedPartition, LockedRange, ShareFetchRequest, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.kafka.topic_ids import parse_topic_id
from tests.vectors.fields import Fields, Mismatch, check


def run_consumer_call(case: Fields) -> None:
    """Check one message in both directions."""
    message, version = case.take("message"), case.take("version")
    is_tagged, body = case.take("tagged"), bytes.fromhex(case.take("hex"))
    with case.take_object("fields") as fields:
        if message not in _MESSAGES:
            raise Mismatch(f"unknown message {message}")
        take_value, decode, encode = _MESSAGES[message]
        value = take_value(fields, version)
    check("decoded", decode(version, body), value)
    check("decoded after a header", decode(version, b"head" + body, 4), value)
    if not is_tagged:
        check("encoded", encode(version, value).hex(), body.hex())


# ---- fields of Kafka's JSON to values of ours --------------------------------------------------------------------------


def _take_each(fields: Fields, name: str, take_one: Callable[[Fields], Any]) -> list[Any]:
    taken = []
    for number, each in enumerate(fields.take_list(name)):
        with Fields(f"{fields.what}.{name}[{number}]", each) as one:
            taken.append(take_one(one))
    return taken


def _take_topics(fields: Fields, name: str, take_partition: Callable[[Fields], Any]) -> list[tuple[bytes, list[Any]]]:
    return _take_each(
        fields,
        name,
        lambda topic: (parse_topic_id(topic.take("topicId")), _take_each(topic, "partitions", take_partition)),
    )


def _take_numbers(fields: Fields, name: str) -> list[tuple[bytes, list[int]]]:
    return _take_each(
        fields, name, lambda topic: (parse_topic_id(topic.take("topicId")), topic.take_list("partitions"))
    )


def _take_named(fields: Fields) -> NamedPartition:
    def take_batch(batch: Fields) -> AcknowledgedRange:
        types = bytes(each & 0xFF for each in batch.take_list("acknowledgeTypes"))
        return AcknowledgedRange(batch.take("firstOffset"), batch.take("lastOffset"), types)

    return NamedPartition(
        fields.take("partitionIndex"), tuple(_take_each(fields, "acknowledgementBatches", take_batch))
    )


def _take_leader(fields: Fields) -> tuple[int, int]:
    with fields.take_object("currentLeader") as leader:
        return leader.take("leaderId"), leader.take("leaderEpoch")


def _take_endpoints(fields: Fields) -> list[NodeEndpoint]:
    names = ("nodeId", "host", "port", "rack")
    return _take_each(fields, "nodeEndpoints", lambda node: NodeEndpoint(*map(node.take, names)))


def _take_fetch_request(fields: Fields, version: int) -> ShareFetchRequest:
    names = ("groupId", "memberId", "shareSessionEpoch")
    limits = ("maxWaitMs", "minBytes", "maxBytes", "maxRecords", "batchSize")
    newer = ("shareAcquireMode", "isRenewAck")
    return ShareFetchRequest._make(
        (
            *map(fields.take, names),
            _take_topics(fields, "topics", _take_named),
            _take_numbers(fields, "forgottenTopicsData"),
            *map(fields.take, limits),
            *(map(fields.take, newer) if version >= 2 else (0, False)),
        )
    )


def _take_fetched(fields: Fields) -> FetchedPartition:
    def take_range(one: Fields) -> LockedRange:
        return LockedRange(one.take("firstOffset"), one.take("lastOffset"), one.take("deliveryCount"))

    records = bytes.fromhex(fields.take("records"))
    return FetchedPartition._make(
        (
            fields.take("partitionIndex"),
            (records,) if records else (),
            _take_each(fields, "acquiredRecords", take_range),
            *map(fields.take, ("errorCode", "errorMessage", "acknowledgeErrorCode", "acknowledgeErrorMessage")),
            *_take_leader(fields),
        )
    )


def _take_fetch_response(fields: Fields, _version: int) -> ShareFetchResponse:
    return ShareFetchResponse(
        _take_topics(fields, "responses", _take_fetched),
        fields.take("acquisitionLockTimeoutMs"),
        fields.take("errorCode"),
        fields.take("errorMessage"),
        _take_endpoints(fields),
        fields.take("throttleTimeMs"),
    )


def _take_acknowledge_request(fields: Fields, version: int) -> ShareAcknowledgeRequest:
    return ShareAcknowledgeRequest(
        fields.take("groupId"),
        fields.take("memberId"),
        fields.take("shareSessionEpoch"),
        _take_topics(fields, "topics", _take_named),
        version >= 2 and fields.take("isRenewAck"),
    )


def _take_settled(fields: Fields) -> SettledPartition:
    names = ("partitionIndex", "errorCode", "errorMessage")
    return SettledPartition._make((*map(fields.take, names), *_take_leader(fields)))


def _take_acknowledge_response(fields: Fields, version: int) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        _take_topics(fields, "responses", _take_settled),
        fields.take("acquisitionLockTimeoutMs") if version >= 2 else 0,
        fields.take("errorCode"),
        fields.take("errorMessage"),
        _take_endpoints(fields),
        fields.take("throttleTimeMs"),
    )


def _take_heartbeat_request(fields: Fields, _version: int) -> HeartbeatRequest:
    names = ("groupId", "memberId", "memberEpoch", "rackId", "subscribedTopicNames")
    return HeartbeatRequest._make(map(fields.take, names))


def _take_heartbeat_response(fields: Fields, _version: int) -> HeartbeatResponse:
    assignment = None
    if fields.get("assignment", None) is None:
        fields.take("assignment")
    else:
        with fields.take_object("assignment") as assigned:
            assignment = _take_numbers(assigned, "topicPartitions")
    names = ("errorCode", "errorMessage", "memberId", "memberEpoch", "heartbeatIntervalMs")
    return HeartbeatResponse._make((*map(fields.take, names), assignment, fields.take("throttleTimeMs")))


#: A message to what takes its fields, decodes it and encodes it.
_MESSAGES: dict[str, tuple[Callable[[Fields, int], Any], Callable[..., Any], Callable[[int, Any], bytes]]] = {
    "ShareFetchRequest": (_take_fetch_request, share_fetch.decode_request, share_fetch.encode_request),
    "ShareFetchResponse": (
        _take_fetch_response,
        lambda _version, *body: share_fetch.decode_response(*body),
        lambda _version, response: b"".join(share_fetch.encode_response(response)),
    ),
    "ShareAcknowledgeRequest": (
        _take_acknowledge_request,
        share_acknowledge.decode_request,
        share_acknowledge.encode_request,
    ),
    "ShareAcknowledgeResponse": (
        _take_acknowledge_response,
        share_acknowledge.decode_response,
        share_acknowledge.encode_response,
    ),
    "ShareGroupHeartbeatRequest": (
        _take_heartbeat_request,
        lambda _version, *body: share_group_heartbeat.decode_request(*body),
        lambda _version, request: share_group_heartbeat.encode_request(request),
    ),
    "ShareGroupHeartbeatResponse": (
        _take_heartbeat_response,
        lambda _version, *body: share_group_heartbeat.decode_response(*body),
        lambda _version, response: share_group_heartbeat.encode_response(response),
    ),
}
