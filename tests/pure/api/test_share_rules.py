"""Requests of share consumers that are refused, with the code and a text that names the field and the mend."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.share_acknowledge import ShareAcknowledgeRequest, find_malformed_acknowledge
from holdfast.api.share_consumer import AcknowledgedRange, find_malformed_batches, find_malformed_group_id
from holdfast.api.share_fetch import ShareFetchRequest, find_malformed_fetch
from holdfast.api.share_group_heartbeat import HeartbeatRequest, find_malformed_heartbeat

FETCH = ShareFetchRequest("group", "member", 1, [], [], 500, 1, 50 << 20, 500, 500)
RENEW = ShareFetchRequest("group", "member", 1, [], [], 0, 0, 0, 0, 500, 0, True)
ACKNOWLEDGE = ShareAcknowledgeRequest("group", "member", 1, [])
HEARTBEAT = HeartbeatRequest("group", "member", 0, None, ["topic"])
INVALID_REQUEST, INVALID_SHARE_SESSION_EPOCH = 42, 123

#: Both calls refuse these first.
IDS: list[tuple[dict[str, Any], str]] = [
    ({"group_id": None}, "GroupId is null; set the consumer's group.id."),
    ({"group_id": ""}, "GroupId is empty; set the consumer's group.id."),
    ({"group_id": " \t"}, "GroupId is empty; set the consumer's group.id."),
    ({"group_id": "ä" * 16_384}, "GroupId has 32768 bytes, at most 32767 are taken; use a shorter group.id."),
    ({"member_id": None}, "MemberId is null; send the UUID that the consumer made for itself."),
    ({"member_id": ""}, "MemberId is empty; send the UUID that the consumer made for itself."),
    ({"member_id": "m" * 37}, "MemberId has 37 characters, at most 36 are taken; send a UUID."),
    # The first in Kafka's order counts.
    ({"group_id": None, "member_id": None}, "GroupId is null; set the consumer's group.id."),
]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        *IDS,
        ({"acquire_mode": 2}, "ShareAcquireMode is 2; send 0 (batch_optimized) or 1 (record_limit)."),
        ({"acquire_mode": -1}, "ShareAcquireMode is -1; send 0 (batch_optimized) or 1 (record_limit)."),
        ({"member_id": "", "acquire_mode": 2}, "MemberId is empty; send the UUID that the consumer made for itself."),
    ],
)
def test_a_malformed_fetch_is_refused(changed: dict[str, Any], text: str) -> None:
    assert find_malformed_fetch(FETCH._replace(**changed)) == (INVALID_REQUEST, text)


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("max_wait_ms", "MaxWaitMs"),
        ("min_bytes", "MinBytes"),
        ("max_bytes", "MaxBytes"),
        ("max_records", "MaxRecords"),
    ],
)
def test_a_renewal_that_fetches_is_refused(field: str, name: str) -> None:
    changed: dict[str, Any] = {field: 7}
    assert find_malformed_fetch(RENEW._replace(**changed)) == (
        INVALID_REQUEST,
        f"{name} is 7 in a request with IsRenewAck, which fetches nothing; send 0.",
    )


@pytest.mark.parametrize(("changed", "text"), IDS)
def test_a_malformed_acknowledgement_is_refused(changed: dict[str, Any], text: str) -> None:
    assert find_malformed_acknowledge(ACKNOWLEDGE._replace(**changed)) == (INVALID_REQUEST, text)


def test_an_acknowledgement_begins_no_session() -> None:
    text = "ShareSessionEpoch is 0, which begins a session; begin it with a ShareFetch."
    fault = find_malformed_acknowledge(ACKNOWLEDGE._replace(session_epoch=0))
    assert fault == (INVALID_SHARE_SESSION_EPOCH, text)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        *((changed, text) for changed, text in IDS if None not in changed.values()),
        ({"member_id": " \0"}, "MemberId is empty; send the UUID that the consumer made for itself."),
        ({"rack_id": ""}, "RackId is empty; set the consumer's client.rack, or send null."),
        ({"rack_id": " "}, "RackId is empty; set the consumer's client.rack, or send null."),
        (
            {"member_epoch": -2},
            "MemberEpoch is -2; send 0 to join, -1 to leave, else the epoch of the last answer.",
        ),
        ({"topic_names": None}, "SubscribedTopicNames is null with MemberEpoch 0; name a topic to join."),
        ({"topic_names": []}, "SubscribedTopicNames is empty with MemberEpoch 0; name a topic to join."),
    ],
)
def test_a_malformed_heartbeat_is_refused(changed: dict[str, Any], text: str) -> None:
    assert find_malformed_heartbeat(HEARTBEAT._replace(**changed)) == (INVALID_REQUEST, text)


def test_requests_of_stock_clients_are_not_refused() -> None:
    longest: dict[str, Any] = {"group_id": "g" * 32_767, "member_id": "m" * 36}
    for epoch in (-1, 0, 1, (1 << 31) - 1):
        assert find_malformed_fetch(FETCH._replace(session_epoch=epoch, acquire_mode=1, **longest)) is None
        assert find_malformed_fetch(RENEW._replace(session_epoch=epoch)) is None
        assert find_malformed_acknowledge(ACKNOWLEDGE._replace(session_epoch=epoch or 2, **longest)) is None
        assert find_malformed_heartbeat(HEARTBEAT._replace(member_epoch=epoch, rack_id="a", **longest)) is None
    assert find_malformed_heartbeat(HEARTBEAT._replace(member_epoch=-1, topic_names=None)) is None
    assert find_malformed_group_id("group:with:colons ä") is None


# ---- acknowledgements of one partition ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "is_renew", "text"),
    [
        (
            [(7, 6, b"\1")],
            False,
            "AcknowledgementBatches has FirstOffset 7 above LastOffset 6; send the lower one first.",
        ),
        ([(-1, 6, b"\1")], False, "AcknowledgementBatches has FirstOffset -1; send 0 or more."),
        (
            [(0, 5, b"\1"), (5, 6, b"\1")],
            False,
            "AcknowledgementBatches has offsets 5 to 6 after a range that ends at 5;"
            " send ranges in ascending order that share no offset.",
        ),
        (
            [(8, 9, b"\1"), (0, 5, b"\1")],
            False,
            "AcknowledgementBatches has offsets 0 to 5 after a range that ends at 9;"
            " send ranges in ascending order that share no offset.",
        ),
        (
            [(0, 2, b"")],
            False,
            "AcknowledgeTypes has 0 types for offsets 0 to 2; send one for all of them, or one for each.",
        ),
        (
            [(0, 2, b"\1\1")],
            False,
            "AcknowledgeTypes has 2 types for offsets 0 to 2; send one for all of them, or one for each.",
        ),
        (
            [(3, 3, b"\1\1")],
            False,
            "AcknowledgeTypes has 2 types for offsets 3 to 3; send one for all of them, or one for each.",
        ),
        (
            [(0, 2, b"\1\5\1")],
            True,
            "AcknowledgeTypes has 5 for offsets 0 to 2;"
            " send 0 (gap), 1 (accept), 2 (release), 3 (reject) or 4 (renew).",
        ),
        (
            [(0, 2, b"\xff")],
            False,
            "AcknowledgeTypes has -1 for offsets 0 to 2;"
            " send 0 (gap), 1 (accept), 2 (release), 3 (reject) or 4 (renew).",
        ),
        (
            [(0, 1, b"\1"), (2, 2, b"\4")],
            False,
            "AcknowledgeTypes has 4 (renew) for offsets 2 to 2;"
            " set IsRenewAck, or send 1 (accept), 2 (release) or 3 (reject).",
        ),
    ],
)
def test_acknowledgements_that_mean_nothing_are_refused(
    batches: list[tuple[int, int, bytes]], is_renew: bool, text: str
) -> None:
    made = [AcknowledgedRange(*batch) for batch in batches]
    assert find_malformed_batches(made, is_renew) == (INVALID_REQUEST, text)


def is_refused_plainly(batches: list[AcknowledgedRange], is_renew: bool) -> bool:
    """Decide as the rules read, one offset at a time."""
    said: dict[int, int] = {}
    for first, last, types in batches:
        offsets = range(first, last + 1)
        if not offsets or first < 0 or len(types) not in (1, len(offsets)):
            return True
        if said and first <= max(said):
            return True
        said |= dict(zip(offsets, types * (len(offsets) if len(types) == 1 else 1), strict=True))
    return any(each > 3 + is_renew for each in said.values())


small = st.builds(
    AcknowledgedRange,
    st.integers(-1, 12),
    st.integers(-1, 14),
    st.lists(st.integers(0, 5), max_size=3).map(bytes) | st.just(b"\1"),
)
ascending = st.lists(st.integers(0, 3), min_size=8, max_size=8).map(
    lambda steps: [
        AcknowledgedRange(sum(steps[:end]), sum(steps[: end + 1]) - (steps[end] > 1), b"\1")
        for end in range(0, len(steps), 2)
    ]
)


@given(st.lists(small, max_size=3) | ascending, st.booleans())
def test_the_rules_are_those_of_single_offsets(batches: list[AcknowledgedRange], is_renew: bool) -> None:
    assert (find_malformed_batches(batches, is_renew) is not None) == is_refused_plainly(batches, is_renew)


def test_a_range_of_all_offsets_costs_nothing() -> None:
    whole = AcknowledgedRange(0, (1 << 63) - 1, b"\1")
    assert find_malformed_batches([whole], False) is None
    assert find_malformed_batches([whole._replace(types=b"\1\1")], False) is not None
