"""Any values of the calls of share consumers, by the names that `share_samples` has."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from holdfast.api import share_errors
from holdfast.api.share_acknowledge import SettledPartition, ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import AcknowledgedRange, NamedPartition, NodeEndpoint
from holdfast.api.share_fetch import FetchedPartition, LockedRange, ShareFetchRequest, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatRequest, HeartbeatResponse

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
#: A few are so long that a length takes two bytes.
texts = st.text(max_size=5) | st.builds("".join, st.lists(st.text(max_size=5), max_size=5).map(lambda some: some * 20))
nullable_texts = st.none() | texts
topic_ids = st.binary(min_size=16, max_size=16)
batches = st.builds(
    AcknowledgedRange, int64, int64, st.binary(max_size=5) | st.sampled_from((b"\1" * 126, b"\1" * 127))
)
named = st.builds(NamedPartition, int32, st.lists(batches, max_size=3).map(tuple))
named_topics = st.lists(st.tuples(topic_ids, st.lists(named, max_size=4)), max_size=3)
numbers = st.lists(st.tuples(topic_ids, st.lists(int32, max_size=4)), max_size=3)
endpoints = st.lists(st.builds(NodeEndpoint, int32, texts, int32, nullable_texts), max_size=3)
#: Ranges that a client would not send, too; what is told about them is `find_malformed_batches`.
ranges = st.builds(LockedRange, int64, int64, int16)


def codes(those_that_leave: frozenset[int]) -> st.SearchStrategy[int]:
    return st.just(0) | st.sampled_from(sorted(those_that_leave))


def fetch_requests(version: int) -> st.SearchStrategy[ShareFetchRequest]:
    newer = (st.integers(-128, 127), st.booleans()) if version >= 2 else (st.just(0), st.just(False))
    limits = [int32] * 5
    return st.builds(ShareFetchRequest, nullable_texts, nullable_texts, int32, named_topics, numbers, *limits, *newer)


fetched = st.builds(
    FetchedPartition,
    int32,
    st.lists(st.binary(max_size=5) | st.just(bytes(200)), max_size=3),
    st.lists(ranges, max_size=5),
    codes(share_errors.FETCH_CODES),
    nullable_texts,
    codes(share_errors.ACKNOWLEDGE_CODES),
    nullable_texts,
    int32,
    int32,
)
fetch_responses = st.builds(
    ShareFetchResponse,
    st.lists(st.tuples(topic_ids, st.lists(fetched, max_size=3)), max_size=3),
    int32,
    codes(share_errors.REQUEST_CODES),
    nullable_texts,
    endpoints,
    int32,
)


def acknowledge_requests(version: int) -> st.SearchStrategy[ShareAcknowledgeRequest]:
    is_renew = st.booleans() if version >= 2 else st.just(False)
    return st.builds(ShareAcknowledgeRequest, nullable_texts, nullable_texts, int32, named_topics, is_renew)


settled = st.builds(SettledPartition, int32, codes(share_errors.ACKNOWLEDGE_CODES), nullable_texts, int32, int32)


def acknowledge_responses(version: int) -> st.SearchStrategy[ShareAcknowledgeResponse]:
    return st.builds(
        ShareAcknowledgeResponse,
        st.lists(st.tuples(topic_ids, st.lists(settled, max_size=3)), max_size=3),
        int32 if version >= 2 else st.just(0),
        codes(share_errors.REQUEST_CODES),
        nullable_texts,
        endpoints,
        int32,
    )


heartbeat_requests = st.builds(
    HeartbeatRequest, texts, texts, int32, nullable_texts, st.none() | st.lists(texts, max_size=4)
)
heartbeat_responses = st.builds(
    HeartbeatResponse,
    codes(share_errors.HEARTBEAT_CODES),
    nullable_texts,
    nullable_texts,
    int32,
    int32,
    st.none() | numbers,
    int32,
)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{f"fetch request {version}": fetch_requests(version) for version in (1, 2)},
    "fetch response": fetch_responses,
    **{f"acknowledge request {version}": acknowledge_requests(version) for version in (1, 2)},
    **{f"acknowledge response {version}": acknowledge_responses(version) for version in (1, 2)},
    "heartbeat request": heartbeat_requests,
    "heartbeat response": heartbeat_responses,
}
