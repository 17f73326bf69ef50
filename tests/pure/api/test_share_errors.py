"""No error code leaves that a stock share consumer does not expect, and each of a coordinator becomes the one that has it try again."""

from __future__ import annotations

import pytest

from holdfast.api import share_acknowledge, share_errors, share_fetch, share_group_heartbeat
from holdfast.api.share_acknowledge import SettledPartition, ShareAcknowledgeResponse
from holdfast.api.share_fetch import FetchedPartition, ShareFetchResponse
from holdfast.api.share_group_heartbeat import HeartbeatResponse
from tests.pure.api.share_samples import TOPIC_ID, join

EVERY_CODE = range(-(1 << 15), 1 << 15)
#: As clients were read, by hand.
FETCH = {0, 6, 9, 56, 78, 3, 100, 103, 75, -1, 29, 2}
ACKNOWLEDGE = {0, 121, 42, 6, 3, 100, 29, 15, -1}
WHOLE = {0, 30, 42, 122, 123, 133, -1}
HEARTBEAT = {0, 14, 15, 16, 25, 110, 29, 30, 42, 81}


def fetched(code: int) -> tuple[int, int, int]:
    """Return what a client sees of a code in each place of an answer to ShareFetch."""
    partition = FetchedPartition(0, (), (), code, None, code)
    answer = share_fetch.decode_response(join(ShareFetchResponse([(TOPIC_ID, [partition])], 0, code)))
    ((_, (seen,)),) = answer.topics
    return answer.error_code, seen.error_code, seen.acknowledge_error_code


def settled(code: int) -> tuple[int, int]:
    """Return what a client sees of a code in each place of an answer to ShareAcknowledge."""
    asked = ShareAcknowledgeResponse([(TOPIC_ID, [SettledPartition(0, code)])], 0, code)
    answer = share_acknowledge.decode_response(2, share_acknowledge.encode_response(2, asked))
    ((_, (seen,)),) = answer.topics
    return answer.error_code, seen.error_code


def heard(code: int) -> int:
    """Return what a client sees of a code in an answer to a heartbeat."""
    encoded = share_group_heartbeat.encode_response(HeartbeatResponse(code))
    return share_group_heartbeat.decode_response(encoded).error_code


def test_no_other_code_leaves_and_no_error_as_success() -> None:
    for code in EVERY_CODE:
        places = [*zip(fetched(code), (WHOLE, FETCH, ACKNOWLEDGE), strict=True)]
        places += [*zip(settled(code), (WHOLE, ACKNOWLEDGE), strict=True), (heard(code), HEARTBEAT)]
        for seen, allowed in places:
            assert seen in allowed
            assert (seen == 0) == (code == 0)


def test_each_code_that_clients_expect_leaves_as_it_is() -> None:
    assert [fetched(code)[0] for code in sorted(WHOLE)] == sorted(WHOLE)
    assert [fetched(code)[1] for code in sorted(FETCH)] == sorted(FETCH)
    assert [fetched(code)[2] for code in sorted(ACKNOWLEDGE)] == sorted(ACKNOWLEDGE)
    assert [settled(code) for code in sorted(WHOLE & ACKNOWLEDGE)] == [
        (code, code) for code in sorted(WHOLE & ACKNOWLEDGE)
    ]
    assert [heard(code) for code in sorted(HEARTBEAT)] == sorted(HEARTBEAT)


@pytest.mark.parametrize(
    ("code", "fetch", "acknowledge"),
    [
        (14, 56, 15),  # the coordinator loads,
        (15, 56, 15),  # is not there,
        (16, 56, 15),  # is another one,
        (7, 56, 15),  # did not answer in time,
        (13, 56, 15),  # or not at all
        (19, 56, 15),  # too few replicas
        (74, 6, 6),
        (124, 6, 6),
        (69, 3, 3),
        (56, 56, 15),
        (103, 103, 100),
        (121, -1, 121),
        (42, -1, 42),
        (110, -1, -1),
        (9_999, -1, -1),
    ],
)
def test_a_coordinators_code_becomes_one_that_clients_know(code: int, fetch: int, acknowledge: int) -> None:
    assert fetched(code)[1:] == (fetch, acknowledge)
    assert settled(code)[1] == acknowledge
    assert (share_errors.fetch_code(code), share_errors.acknowledge_code(code)) == (fetch, acknowledge)


@pytest.mark.parametrize(("code", "seen"), [(69, 25), (113, 110), (7, 15), (-1, 15), (35, 15), (9_999, 15)])
def test_no_heartbeat_ends_a_consumer_that_did_no_wrong(code: int, seen: int) -> None:
    assert heard(code) == seen
