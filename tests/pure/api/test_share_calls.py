"""The calls of share consumers come back as they were sent, and any other bytes raise one exception."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api import share_acknowledge, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import ShareAcknowledgeRequest
from holdfast.api.share_consumer import (
    ELEMENTS_PER_STEP,
    NAMES_MAX,
    TYPES_MAX,
    AcknowledgedRange,
    NamedPartition,
    NamedTopics,
)
from holdfast.api.share_fetch import FetchedPartition, LockedRange, Piece, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatRequest
from holdfast.kafka.protocol.primitives import MalformedBody, encode_varint
from tests.pure.api.share_samples import CODECS, FETCH, TOPIC_ID, result_of
from tests.pure.api.share_values import VALUES
from tests.pure.api.test_share_state import mutations


def plain(value: Any) -> Any:
    """Return a value with the records of each partition in one piece."""
    if not isinstance(value, ShareFetchResponse):
        return value
    return value._replace(topics=[(topic, [one_piece(each) for each in some]) for topic, some in value.topics])


def one_piece(fetched: FetchedPartition) -> FetchedPartition:
    return fetched._replace(records=b"".join(fetched.records))  # type: ignore[arg-type]  # to be compared alone


@pytest.mark.parametrize("name", CODECS)
@given(data=st.data(), head=st.binary(max_size=3))
def test_a_value_comes_back_as_it_was_sent(name: str, data: Any, head: bytes) -> None:
    codec = CODECS[name]
    value = data.draw(VALUES[name])
    encoded = codec.encode(value)
    assert plain(codec.decode(head + encoded, len(head))) == plain(value)
    if codec.decode_in_steps is not None:
        assert result_of(codec.decode_in_steps(head + encoded, len(head))) == value


@pytest.mark.parametrize("name", CODECS)
def test_a_sample_comes_back_with_its_types(name: str) -> None:
    codec = CODECS[name]
    decoded = codec.decode(codec.encode(codec.sample), 0)
    assert plain(decoded) == plain(codec.sample)
    assert type(decoded) is type(codec.sample)


@pytest.mark.parametrize("name", CODECS)
def test_mutated_samples_raise_malformed_body_or_decode(name: str) -> None:
    codec, source, refused = CODECS[name], random.Random(name), 0
    for data in mutations(codec.encode(codec.sample), source, 1_500):
        try:
            codec.decode(data, 0)
        except MalformedBody:
            refused += 1
    assert refused > 300


@pytest.mark.parametrize("name", CODECS)
def test_every_cut_and_every_trailing_byte_is_refused(name: str) -> None:
    codec = CODECS[name]
    sample = codec.encode(codec.sample)
    for length in range(len(sample)):
        with pytest.raises(MalformedBody):
            codec.decode(sample[:length], 0)
    with pytest.raises(MalformedBody):
        codec.decode(sample + b"\x00", 0)


# ---- bounds ------------------------------------------------------------------------------------------------------------

ONE_RANGE = AcknowledgedRange(0, 0, b"\1")
TOO_MANY_TYPES = "one request may have at most 100000 acknowledge types, send several"
TOO_MANY_NAMES = "one request may name at most 100000 topics and partitions"


def acknowledgement(*batches: AcknowledgedRange) -> NamedTopics:
    return [(TOPIC_ID, [NamedPartition(0, batches)])]


def decode_acknowledgements(topics: NamedTopics) -> ShareAcknowledgeRequest:
    request = ShareAcknowledgeRequest("group", "member", 1, topics)
    return share_acknowledge.decode_request(2, share_acknowledge.encode_request(2, request))


@pytest.mark.parametrize(
    "topics",
    [
        acknowledgement(AcknowledgedRange(0, TYPES_MAX, bytes(TYPES_MAX + 1))),
        acknowledgement(*[ONE_RANGE] * (TYPES_MAX + 1)),
        acknowledgement(*[ONE_RANGE._replace(types=b"")] * (TYPES_MAX + 1)),
        acknowledgement(AcknowledgedRange(0, 9, bytes(10)), *[ONE_RANGE] * (TYPES_MAX - 9)),
        acknowledgement(*[ONE_RANGE] * (TYPES_MAX // 2)) + acknowledgement(*[ONE_RANGE] * (TYPES_MAX // 2 + 1)),
        acknowledgement(AcknowledgedRange(0, TYPES_MAX, bytes(TYPES_MAX)), ONE_RANGE),
    ],
)
def test_more_types_than_one_request_may_have_are_refused(topics: NamedTopics) -> None:
    with pytest.raises(MalformedBody, match=TOO_MANY_TYPES):
        decode_acknowledgements(topics)


@pytest.mark.parametrize(
    "topics",
    [
        acknowledgement(AcknowledgedRange(0, TYPES_MAX, bytes(TYPES_MAX))),
        acknowledgement(*[ONE_RANGE] * TYPES_MAX),
        acknowledgement(AcknowledgedRange(0, 9, bytes(10)), *[ONE_RANGE] * (TYPES_MAX - 10)),
        [(TOPIC_ID, [NamedPartition(0)] * (NAMES_MAX - 1))],
        [(TOPIC_ID, [])] * NAMES_MAX,
    ],
)
def test_as_much_as_one_request_may_hold_is_decoded(topics: NamedTopics) -> None:
    assert decode_acknowledgements(topics).topics == topics


def test_ten_million_types_cost_no_more_than_their_number() -> None:
    count = 10_000_000
    types_at = (
        len(share_acknowledge.encode_request(2, ShareAcknowledgeRequest("g", "m", 1, acknowledgement(ONE_RANGE)))) - 6
    )
    request = ShareAcknowledgeRequest("g", "m", 1, acknowledgement(AcknowledgedRange(0, count - 1, bytes(count))))
    data = share_acknowledge.encode_request(2, request)
    assert data[types_at : types_at + 4] == encode_varint(count + 1)
    # No byte of them is needed for the refusal.
    for body in (data, data[: types_at + 4] + bytes(count)):
        tracemalloc.start()
        try:
            with pytest.raises(MalformedBody, match=TOO_MANY_TYPES):
                share_acknowledge.decode_request(2, body)
            assert tracemalloc.get_traced_memory()[1] < 50_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("named", "forgotten"),
    [
        ([(TOPIC_ID, [NamedPartition(0)] * NAMES_MAX)], []),
        ([(TOPIC_ID, [])] * (NAMES_MAX + 1), []),
        ([(TOPIC_ID, [NamedPartition(0)] * (NAMES_MAX - 2))], [(TOPIC_ID, [7])]),
        ([], [(TOPIC_ID, [])] * (NAMES_MAX + 1)),
        ([], [(TOPIC_ID, [7] * NAMES_MAX)]),
    ],
)
def test_more_names_than_one_request_may_have_are_refused(
    named: NamedTopics, forgotten: list[tuple[bytes, list[int]]]
) -> None:
    body = share_fetch.encode_request(2, FETCH._replace(topics=named, forgotten=forgotten))
    with pytest.raises(MalformedBody, match=TOO_MANY_NAMES):
        share_fetch.decode_request(2, body)


#: 2^31 - 2 elements.
MANY = "ffffffff07"
IDS = "0267" + "026d"
LIMITS = "00000001" * 6


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("ff7f6731", "GroupId"),  # 16382 bytes announced
        ("03c328", "GroupId"),  # not UTF-8
        ("0267" + "03c328", "MemberId"),
        (IDS + "000000", "ShareSessionEpoch"),
        (IDS + LIMITS + "00", "Topics"),  # null
        (IDS + LIMITS + MANY, "Topics"),
        (IDS + LIMITS + "02" + "00" * 16 + "0000", "Topics.Partitions"),
        (IDS + LIMITS + "02" + "00" * 16 + MANY, "Topics.Partitions"),
        (IDS + LIMITS + "02" + "00" * 16 + "02" + "00000000" + "00" * 9, "Topics.Partitions.AcknowledgementBatches"),
        (IDS + LIMITS + "02" + "00" * 16 + "02" + "00000000" + MANY, "Topics.Partitions.AcknowledgementBatches"),
        (
            IDS + LIMITS + "02" + "00" * 16 + "02" + "00000000" + "02" + "00" * 16 + "00" * 9,
            "Topics.Partitions.AcknowledgementBatches.AcknowledgeTypes",
        ),
        (
            IDS + LIMITS + "02" + "00" * 16 + "02" + "00000000" + "02" + "00" * 16 + MANY,
            "Topics.Partitions.AcknowledgementBatches.AcknowledgeTypes",
        ),
        (IDS + LIMITS + "01" + "00", "ForgottenTopicsData"),
        (IDS + LIMITS + "01" + MANY, "ForgottenTopicsData"),
        (IDS + LIMITS + "01" + "02" + "00" * 16 + "00" * 9, "ForgottenTopicsData.Partitions"),
        (IDS + LIMITS + "01" + "02" + "00" * 16 + MANY, "ForgottenTopicsData.Partitions"),
        (IDS + LIMITS + "0101" + "00" + "00", "the end of the body"),
    ],
)
def test_a_malformed_fetch_is_named_by_its_field(body: str, field: str) -> None:
    with pytest.raises(MalformedBody) as caught:
        share_fetch.decode_request(1, bytes.fromhex(body))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("00", "GroupId"),  # null
        ("0267" + "00", "MemberId"),
        (IDS + "0000", "MemberEpoch"),
        (IDS + "00000000" + "ff", "RackId"),
        (IDS + "00000000" + "00" + MANY, "SubscribedTopicNames"),
        (IDS + "00000000" + "00" + "02" + "00", "SubscribedTopicNames"),
        (IDS + "00000000" + "00" + "00" + "00" + "00", "the end of the body"),
    ],
)
def test_a_malformed_heartbeat_is_named_by_its_field(body: str, field: str) -> None:
    with pytest.raises(MalformedBody) as caught:
        share_group_heartbeat.decode_request(bytes.fromhex(body))
    assert caught.value.field == field


def test_a_number_that_does_not_fit_is_a_clear_error() -> None:
    with pytest.raises(ValueError, match="A number does not fit its field"):
        share_fetch.encode_request(2, FETCH._replace(forgotten=[(TOPIC_ID, [1 << 31])]))
    with pytest.raises(ValueError, match="A number does not fit its field"):
        share_acknowledge.encode_request(2, ShareAcknowledgeRequest("g", "m", 1 << 31, []))
    with pytest.raises(ValueError, match="A number does not fit its field"):
        share_group_heartbeat.encode_request(HeartbeatRequest("g", "m", 1 << 31))
    with pytest.raises(ValueError, match="A topic id has 16 bytes, not 3"):
        share_fetch.encode_request(2, FETCH._replace(topics=[(b"abc", [])]))


TAGS = bytes.fromhex("020003616263800100")  # tag 0 with three bytes, tag 128 with none


def test_tags_around_a_lone_range_are_passed_over() -> None:
    """The usual request takes a way of its own, which none of these takes."""
    request = ShareAcknowledgeRequest("group", "member", 1, acknowledgement(AcknowledgedRange(7, 1 << 40, b"\3")))
    data = share_acknowledge.encode_request(2, request)
    assert share_acknowledge.decode_request(2, data) == request
    for place in range(len(data) - 4, len(data)):
        assert data[place] == 0
        assert share_acknowledge.decode_request(2, data[:place] + TAGS + data[place + 1 :]) == request


@pytest.mark.parametrize(
    ("named", "forgotten"),
    [
        (acknowledgement(*[ONE_RANGE] * 50_000), []),
        ([(TOPIC_ID, [NamedPartition(0)] * 50_000)], []),
        ([(TOPIC_ID, [NamedPartition(0, (ONE_RANGE,))] * 25_000)], []),
        ([(TOPIC_ID, [])] * 50_000, []),
        ([], [(TOPIC_ID, [])] * 50_000),
    ],
)
def test_a_large_request_is_decoded_in_steps_that_do_alike(
    named: NamedTopics, forgotten: list[tuple[bytes, list[int]]]
) -> None:
    request = FETCH._replace(topics=named, forgotten=forgotten)
    body = share_fetch.encode_request(1, request)
    steps = share_fetch.decode_in_steps(1, body)
    number, decoded = 0, None
    while decoded is None:
        try:
            assert next(steps)
            number += 1
        except StopIteration as end:
            decoded = end.value
    assert decoded == request
    assert number == 50_000 // ELEMENTS_PER_STEP


# ---- pieces ------------------------------------------------------------------------------------------------------------


def test_the_records_of_an_answer_are_the_views_that_were_given() -> None:
    broker_answer = memoryview(bytes(range(256)))
    views = [broker_answer[10:20], broker_answer[20:50], broker_answer[100:256]]
    partitions = [
        FetchedPartition(0, views[:2], [LockedRange(0, 9, 1)]),
        FetchedPartition(1),
        FetchedPartition(2, [], [], 3, "gone"),
        FetchedPartition(3, views[2:], [LockedRange(0, 9, 1)] * 3),
    ]
    pieces = share_fetch.encode_response(ShareFetchResponse([(TOPIC_ID, partitions)], 30_000))
    assert [piece for piece in pieces if isinstance(piece, memoryview)] == views
    assert all(any(piece is view for piece in pieces) for view in views)
    # All bytes between records are one piece.
    assert [isinstance(piece, bytes) for piece in pieces] == [True, False, False, True, False, True]
    decoded = share_fetch.decode_response(b"".join(pieces))
    assert [b"".join(each.records) for each in decoded.topics[0][1]] == [
        bytes(views[0]) + bytes(views[1]),
        b"",
        b"",
        bytes(views[2]),
    ]


def test_records_that_are_empty_have_length_zero_and_are_not_null() -> None:
    samples: list[list[Piece]] = [[], [b""], [memoryview(b""), b""]]
    for records in samples:
        pieces = share_fetch.encode_response(ShareFetchResponse([(TOPIC_ID, [FetchedPartition(7, records)])], 30_000))
        (head,) = [piece for piece in pieces if piece]
        # Leader -1 with epoch -1, its tags, records of length 0, no ranges, tags of partition and topic, no endpoints, tags.
        assert bytes(head).endswith(b"\xff" * 8 + b"\0" + b"\1" + b"\1" + b"\0" + b"\0" + b"\1" + b"\0")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 126, 127, 1_000])
def test_any_number_of_ranges_comes_back(count: int) -> None:
    acquired = [LockedRange(n, n, 1 + n % 5) for n in range(count)]
    response = ShareFetchResponse([(TOPIC_ID, [FetchedPartition(0, [b"r"], acquired)])] * 2, 30_000)
    assert plain(share_fetch.decode_response(b"".join(share_fetch.encode_response(response)))) == plain(
        response._replace(endpoints=[])
    )
