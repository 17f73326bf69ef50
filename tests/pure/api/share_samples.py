"""The calls of share consumers in all versions and both directions, with a value of each."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

from holdfast.api import share_acknowledge, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import SettledPartition, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import AcknowledgedRange, NamedPartition, NodeEndpoint
from holdfast.api.share_fetch import FetchedPartition, LockedRange, ShareFetchRequest, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatRequest, HeartbeatResponse


def join(response: ShareFetchResponse) -> bytes:
    """Return the body of an answer as a client receives it."""
    return b"".join(share_fetch.encode_response(response))


def result_of(steps: Generator[bool, None, Any]) -> Any:
    """Do all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Codec(NamedTuple):
    """One direction of one version of a call."""

    decode: Callable[[bytes, int], Any]
    encode: Callable[[Any], bytes]
    sample: Any
    #: Does the same in steps, for requests that may be large.
    decode_in_steps: Callable[[bytes, int], Generator[bool, None, Any]] | None = None


TOPIC_ID = bytes(range(16))
RANGES = (AcknowledgedRange(3, 7, b"\1"), AcknowledgedRange(8, 10, b"\1\2\3"))
NAMED = [(TOPIC_ID, [NamedPartition(0, RANGES), NamedPartition(1)]), (bytes(16), [NamedPartition(2, RANGES[:1])])]
FORGOTTEN = [(TOPIC_ID, [1, 2]), (bytes(16), [3])]
ENDPOINTS = [NodeEndpoint(1, "one", 9092), NodeEndpoint(2, "two", 9093, "rack")]
FETCH = ShareFetchRequest("group", "member", 3, NAMED, FORGOTTEN, 500, 1, 50 << 20, 500, 500)
FETCHED = [
    (
        TOPIC_ID,
        [
            FetchedPartition(0, [b"records", b" of a batch"], [LockedRange(3, 7, 1)]),
            FetchedPartition(1, (), [], 6, "moved", 121, "late", 2, 7),
        ],
    ),
    (bytes(16), [FetchedPartition(2, [b"more"], [LockedRange(n, n, 2) for n in range(4)])]),
]
SETTLED = [(TOPIC_ID, [SettledPartition(0), SettledPartition(1, 6, "moved", 2, 7)]), (bytes(16), [SettledPartition(2)])]

CODECS = {
    **{
        f"fetch request {version}": Codec(
            partial(share_fetch.decode_request, version),
            partial(share_fetch.encode_request, version),
            FETCH if version == 1 else FETCH._replace(acquire_mode=1, is_renew=True),
            partial(share_fetch.decode_in_steps, version),
        )
        for version in (1, 2)
    },
    "fetch response": Codec(share_fetch.decode_response, join, ShareFetchResponse(FETCHED, 30_000, 0, None, ENDPOINTS)),
    **{
        f"acknowledge request {version}": Codec(
            partial(share_acknowledge.decode_request, version),
            partial(share_acknowledge.encode_request, version),
            ShareAcknowledgeRequest("group", "member", 3, NAMED, version == 2),
            partial(share_acknowledge.decode_in_steps, version),
        )
        for version in (1, 2)
    },
    **{
        f"acknowledge response {version}": Codec(
            partial(share_acknowledge.decode_response, version),
            partial(share_acknowledge.encode_response, version),
            ShareAcknowledgeResponse(SETTLED, 30_000 if version == 2 else 0, 0, None, ENDPOINTS),
        )
        for version in (1, 2)
    },
    "heartbeat request": Codec(
        share_group_heartbeat.decode_request,
        share_group_heartbeat.encode_request,
        HeartbeatRequest("group", "member", 0, "rack", ["one", "two"]),
    ),
    "heartbeat response": Codec(
        share_group_heartbeat.decode_response,
        share_group_heartbeat.encode_response,
        HeartbeatResponse(0, None, "member", 1, 5_000, FORGOTTEN),
    ),
}
