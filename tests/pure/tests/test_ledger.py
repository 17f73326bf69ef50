"""The ledger of the gateway's chaos finds each record that ended against the rules, and names what proves the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from confluent_kafka import AcknowledgeType

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.log.header import encode_header
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from holdfast.records.share.codecs.codec import Codec, Kind, encode_key, value_encoder
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.log_protocol import LogRecord
from tests.real.gateway.ledger import GIVEN_UP, SETTLED, SETTLED_UNHEARD, Delivery, Findings, Ledger
from tests.real.gateway.state_log import Fate, StateLog

LIMIT = 5
LOCK_S = 15.0
PLACE = (0, 7)
ACCEPT, REJECT, RELEASE = int(AcknowledgeType.ACCEPT), int(AcknowledgeType.REJECT), int(AcknowledgeType.RELEASE)
REFUSED = int(ErrorCode.INVALID_RECORD_STATE)
NOT_WRITTEN = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
KEY = SharePartitionKey("ledger", bytes(16), 0)


def got(at_s: float, count: int, said: int | None = None, code: int | None = None, consumer: str = "a") -> Delivery:
    """Return a delivery that was given at a time, and asked and answered soon after."""
    delivery = Delivery(consumer, PLACE, count, at_s - 0.1, at_s, consumer_ended_s=at_s + 1)
    if said is not None:
        delivery.said, delivery.asked_s = said, at_s + 0.1
    if code is not None:
        delivery.code, delivery.answered_s = code, at_s + 0.2
    return delivery


def judge(
    deliveries: Iterable[Delivery], state: int, count: int, *, is_passed: bool = True, disturbed_s: Sequence[float] = ()
) -> Findings:
    fate = Fate(PLACE[1], PLACE[1], state, count, is_passed)
    return Ledger([PLACE], deliveries, {PLACE: fate}, disturbed_s, LOCK_S, LIMIT).judge()


def kinds(findings: Findings) -> list[str]:
    return [fault.partition(":")[0] for fault in findings.faults]


@pytest.mark.parametrize(("state", "count"), [(AVAILABLE, 0), (ACKNOWLEDGED, 1)])
def test_a_record_whose_accept_was_answered_is_settled(state: int, count: int) -> None:
    findings = judge([got(1, 1, ACCEPT, 0)], state, count)
    assert not findings.faults
    assert findings.ends == {SETTLED: 1}


@pytest.mark.parametrize("code", [None, NOT_WRITTEN])
def test_a_word_that_may_be_written_settles_the_last_delivery_alone(code: int | None) -> None:
    last = judge([got(1, 1, ACCEPT, code)], AVAILABLE, 0, disturbed_s=[1.05])
    assert not last.faults
    assert last.ends == {SETTLED_UNHEARD: 1}
    earlier = judge([got(1, 1, ACCEPT, code), got(5, 2, consumer="b")], AVAILABLE, 1, disturbed_s=[1.05])
    assert kinds(earlier) == ["lost"]


@pytest.mark.parametrize(("said", "code"), [(None, None), (RELEASE, 0), (RELEASE, None), (ACCEPT, REFUSED)], ids=str)
def test_a_record_that_was_passed_without_a_final_word_is_lost(said: int | None, code: int | None) -> None:
    findings = judge([got(1, 1, said, code)], AVAILABLE, 0, disturbed_s=[1.05])
    assert kinds(findings) == ["lost"]
    assert not findings.ends


def test_a_record_that_was_never_delivered_is_skipped() -> None:
    findings = judge([], AVAILABLE, 0)
    assert kinds(findings) == ["skipped"]


@pytest.mark.parametrize(
    ("state", "count", "heard"),
    [(ARCHIVED, LIMIT, 1), (AVAILABLE, LIMIT - 1, 1), (AVAILABLE, LIMIT - 2, LIMIT)],
    ids=["archived in the log", "available to its last delivery in the log", "its last delivery was heard"],
)
def test_a_record_that_had_all_its_deliveries_is_given_up(state: int, count: int, heard: int) -> None:
    findings = judge([got(1, heard)], state, count)
    assert not findings.faults
    assert findings.ends == {GIVEN_UP: 1}
    [line] = findings.given_up
    assert f"delivery count {count}" in line
    assert f"got delivery {heard}" in line


@pytest.mark.parametrize(
    ("state", "count", "heard"),
    [(ARCHIVED, LIMIT - 1, 1), (AVAILABLE, LIMIT - 2, LIMIT - 1), (ACKNOWLEDGED, LIMIT, LIMIT)],
    ids=["archived before the limit", "one delivery was left", "acknowledged by nobody"],
)
def test_a_record_that_had_deliveries_left_is_lost(state: int, count: int, heard: int) -> None:
    assert kinds(judge([got(1, heard)], state, count)) == ["lost"]


def test_a_record_that_the_log_has_as_available_is_unfinished() -> None:
    assert kinds(judge([got(1, 1, ACCEPT, 0)], AVAILABLE, 1, is_passed=False)) == ["unfinished"]


@pytest.mark.parametrize(
    ("said", "state", "count"), [(ACCEPT, ARCHIVED, 1), (REJECT, ACKNOWLEDGED, 1), (ACCEPT, ACKNOWLEDGED, 3)]
)
def test_an_end_in_the_log_that_differs_from_the_answer_is_found(said: int, state: int, count: int) -> None:
    assert kinds(judge([got(1, 1, said, 0)], state, count)) == ["another end"]


def test_an_earlier_word_that_may_be_written_may_be_the_end_in_the_log() -> None:
    again = got(5, 2, ACCEPT, 0, "b")
    assert not judge([got(1, 1, ACCEPT, NOT_WRITTEN), again], ACKNOWLEDGED, 1, disturbed_s=[1.05]).faults
    assert kinds(judge([got(1, 1, ACCEPT, REFUSED), again], ACKNOWLEDGED, 1, disturbed_s=[1.05])) == ["another end"]


def test_a_refusal_needs_a_disturbance_or_the_end_of_a_lock() -> None:
    refused, settled = got(1, 1, ACCEPT, REFUSED), got(5, 2, ACCEPT, 0, "b")
    assert kinds(judge([refused, settled], AVAILABLE, 0)) == ["refused"]
    assert not judge([refused, settled], AVAILABLE, 0, disturbed_s=[1.1]).faults
    refused.answered_s = refused.not_before_s + LOCK_S
    assert not judge([refused, settled], AVAILABLE, 0).faults


def test_an_answer_that_was_not_heard_needs_a_disturbance_or_a_dead_client() -> None:
    unheard, settled = got(1, 1, ACCEPT), got(5, 2, ACCEPT, 0, "b")
    assert not judge([unheard, settled], AVAILABLE, 0).faults
    unheard.consumer_ended_s = 20
    assert kinds(judge([unheard, settled], AVAILABLE, 0)) == ["unexplained"]
    assert not judge([unheard, settled], AVAILABLE, 0, disturbed_s=[1.1]).faults


# ---- the log ---------------------------------------------------------------------------------------------------------------


def snapshot(start: int, *batches: StateBatch) -> Snapshot:
    return Snapshot(0, 1, 1, start, 0, 0, 0, batches, 1, 1)


def update(start: int, *batches: StateBatch) -> Update:
    return Update(0, -1, start, 0, batches)


def read(*values: Snapshot | Update, epochs: Sequence[int] = ()) -> StateLog:
    log = StateLog(KEY.group_id)
    for offset, value in enumerate(values):
        key, encoded = encode_key(Codec.AVRO, KEY, Kind.UPDATE), value_encoder(Codec.AVRO)(value)
        epoch = epochs[offset] if epochs else 1
        log.add(LogRecord(offset, key, encoded, encode_header(epoch, offset)))
    return log


def test_the_log_tells_the_state_before_the_start_offset_passed() -> None:
    log = read(
        snapshot(0, StateBatch(2, 4, AVAILABLE, 2)),
        update(3, StateBatch(5, 5, ARCHIVED, 5)),
        update(7, StateBatch(8, 8, ACKNOWLEDGED, 1)),
    )
    assert not log.faults
    assert log.fates(KEY) == [
        Fate(0, 1, AVAILABLE, 0, is_passed=True),
        Fate(2, 2, AVAILABLE, 2, is_passed=True),
        Fate(3, 4, AVAILABLE, 2, is_passed=True),
        Fate(5, 5, ARCHIVED, 5, is_passed=True),
        Fate(6, 6, AVAILABLE, 0, is_passed=True),
        Fate(7, 7, AVAILABLE, 0, is_passed=False),
        Fate(8, 8, ACKNOWLEDGED, 1, is_passed=False),
    ]


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        (update(0, StateBatch(3, 3, AVAILABLE, 1)), "the delivery count of 3 to 3 fell from 2 to 1"),
        (snapshot(0), "the delivery count of 2 to 4 fell from 2 to 0"),
        (snapshot(0, StateBatch(2, 4, AVAILABLE, 2)), "offsets 2 to 4 were in state 2 and are available again"),
    ],
)
def test_the_log_tells_where_a_delivery_count_or_a_state_fell(after: Snapshot | Update, fault: str) -> None:
    [found] = read(snapshot(0, StateBatch(2, 4, ACKNOWLEDGED, 2)), after).faults
    assert found.startswith(fault)


def test_the_log_tells_where_the_start_offset_fell() -> None:
    [found] = read(snapshot(5), snapshot(3)).faults
    assert found.startswith("the start offset fell from 5 to 3")


def test_records_of_a_former_owner_count_for_nothing() -> None:
    log = read(snapshot(0), update(1), update(9), epochs=[1, 2, 1])
    assert log.fates(KEY) == [Fate(0, 0, AVAILABLE, 0, is_passed=True)]
