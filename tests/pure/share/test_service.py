"""The share service splits, sends, collects and answers (share-coordinator.md §9), over a runtime that is a dictionary of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from structlog.testing import capture_logs

from holdfast.api.results import (
    DeleteResult,
    InitializeResult,
    ReadResult,
    StateRequest,
    StateResponse,
    SummaryResult,
    WriteResult,
)
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.metrics.instruments import Counter
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.runtime.errors import (
    CoordinatorError,
    LoadInProgress,
    NotAvailable,
    NotCoordinator,
    OperationFailed,
    OutcomeUnknown,
    RecordTooLarge,
    TimedOut,
)
from holdfast.runtime.state_machine import Operation
from holdfast.share.errors import error_of
from holdfast.share.service import ShareService
from tests.world.samples import OTHER_TOPIC, TOPIC, UNKNOWN_TOPIC, batch
from tests.world.service import CALLS, PARTITION_COUNT, House, ask, codes


@pytest.fixture
def house() -> House:
    return House()


# ---- before splitting (§9.1) -----------------------------------------------------------------------------------------

ONE = [(TOPIC, "one")]
EMPTY_TOPIC = [(TOPIC, "one"), (OTHER_TOPIC, "none")]
NOTHING: list[tuple[bytes, str]] = []
REFUSED = [(TOPIC, [(0, 15)])]


@pytest.mark.parametrize(
    ("api_keys", "is_active", "group_id", "topics", "expected"),
    [
        # Every call, while the service is active.
        (CALLS, True, "g1", NOTHING, []),
        (CALLS, True, "", ONE, []),
        (CALLS, True, "", NOTHING, []),
        ([READ, WRITE, SUMMARY, DELETE], True, "g1", EMPTY_TOPIC, []),
        ([INITIALIZE], True, "g1", EMPTY_TOPIC, [(TOPIC, [(0, 0)])]),
        ([INITIALIZE], True, "g1", [(TOPIC, "none")], []),
        # Write and Read look at the request first, the others at the service.
        (CALLS, False, "g1", ONE, REFUSED),
        (CALLS, False, "g1", NOTHING, []),
        ([READ, WRITE], False, "", ONE, []),
        ([SUMMARY, DELETE, INITIALIZE], False, "", ONE, REFUSED),
        ([READ, WRITE], False, "g1", EMPTY_TOPIC, []),
        ([SUMMARY, DELETE, INITIALIZE], False, "g1", EMPTY_TOPIC, REFUSED),
    ],
)
def test_request_is_checked_before_it_is_split(
    api_keys: list[int],
    is_active: bool,
    group_id: str,
    topics: list[tuple[bytes, str]],
    expected: list[tuple[bytes, list[tuple[int, int]]]],
) -> None:
    for api_key in api_keys:
        house = House()
        if not is_active:
            house.service.shut_down()
        asked = [(topic, [ask(api_key, 0)] if what == "one" else []) for topic, what in topics]
        assert codes(house.call(api_key, *asked, group_id=group_id)) == expected
        # Nothing that is refused or empty reaches a shard.
        assert bool(house.runtime.names) is (expected not in ([], REFUSED))


def test_duplicates_are_answered_once_while_the_service_is_not_active(house: House) -> None:
    house.service.shut_down()
    response = house.call(WRITE, (TOPIC, [ask(WRITE, 1), ask(WRITE, 1)]), (TOPIC, [ask(WRITE, 1), ask(WRITE, 2)]))
    assert codes(response) == [(TOPIC, [(1, 15), (2, 15)])]


# ---- split and collect (§9.2) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api_key", "name"),
    [
        (WRITE, "write-share-group-state"),
        (READ, "read-update-leader-epoch-state"),
        (SUMMARY, "read-share-group-state-summary"),
        (DELETE, "delete-share-group-state"),
        (INITIALIZE, "initialize-share-group-state"),
    ],
)
def test_each_share_partition_is_one_operation(house: House, api_key: int, name: str) -> None:
    house.call(api_key, (TOPIC, [ask(api_key, 0), ask(api_key, 1)]), (OTHER_TOPIC, [ask(api_key, 0)]))
    assert house.runtime.names == [name] * 3


@pytest.mark.parametrize(
    ("api_key", "expected"),
    [
        (INITIALIZE, InitializeResult()),
        (READ, ReadResult(0, None, 0, 100, (batch(100, 109, 2, 1),))),
        (WRITE, WriteResult()),
        (SUMMARY, SummaryResult(0, None, 0, 0, 100, 10)),
        (DELETE, DeleteResult()),
    ],
)
def test_a_call_reaches_the_shard_of_its_share_partition(house: House, api_key: int, expected: object) -> None:
    house.initialize(3)
    state_batches = (batch(100, 109, 2, 1),)
    house.call(
        WRITE, (TOPIC, [ask(WRITE, 3, start_offset=100, delivery_complete_count=10, state_batches=state_batches)])
    )
    assert house.call(api_key, (TOPIC, [ask(api_key, 3)])) == [(TOPIC, [(3, expected)])]
    assert house.runtime.worlds[house.index(3)].shard.state.share_partition_count() == (api_key != DELETE)


def test_a_response_keeps_the_order_in_which_things_were_first_requested(house: House) -> None:
    house.initialize(0, 1, 2, 3)
    response = house.call(
        SUMMARY,
        (OTHER_TOPIC, [ask(SUMMARY, 3), ask(SUMMARY, 1)]),
        (TOPIC, [ask(SUMMARY, 2)]),
        (OTHER_TOPIC, [ask(SUMMARY, 0), ask(SUMMARY, 3)]),
    )
    assert codes(response) == [(OTHER_TOPIC, [(3, 0), (1, 0), (0, 0)]), (TOPIC, [(2, 0)])]


def test_parts_of_a_request_succeed_and_fail_on_their_own(house: House) -> None:
    house.initialize(0)
    response = house.call(READ, (TOPIC, [ask(READ, 0), ask(READ, 1), ask(READ, -1)]), (UNKNOWN_TOPIC, [ask(READ, 0)]))
    assert codes(response) == [(TOPIC, [(0, 0), (1, 42), (-1, 42)]), (UNKNOWN_TOPIC, [(0, 42)])]


def test_duplicates_are_executed_in_order_and_the_first_error_is_reported(house: House) -> None:
    house.initialize(0)
    first, second = batch(100, 109, 2, 1), batch(110, 119, 2, 1)
    response = house.call(
        WRITE,
        (
            TOPIC,
            [
                ask(WRITE, 0, state_batches=(first,)),
                ask(WRITE, 0, state_batches=(batch(5, 4, 0, 1),)),
                ask(WRITE, 0, state_epoch=-2),
                ask(WRITE, 0, state_batches=(second,)),
            ],
        ),
    )
    [(_, [(partition, result)])] = response
    assert (partition, result.error_code) == (0, ErrorCode.INVALID_REQUEST)
    assert [bool(decision.records) for decision in house.runtime.decisions[-4:]] == [True, False, False, True]
    [(_, [(_, read)])] = house.call(READ, (TOPIC, [ask(READ, 0)]))
    assert read == ReadResult(0, None, 0, 100, (batch(100, 119, 2, 1),))


def test_the_last_of_successful_duplicates_is_reported(house: House) -> None:
    house.initialize(0)
    house.runtime.is_holding = True
    house.send(READ, (TOPIC, [ask(READ, 0), ask(READ, 0)]))
    house.runtime.release(1, ReadResult(0, None, 2, 2, ()))
    house.runtime.release(0, ReadResult(0, None, 1, 1, ()))
    assert house.answers[-1] == [(TOPIC, [(0, ReadResult(0, None, 2, 2, ()))])]


def test_an_answer_waits_for_the_last_part_in_whatever_order_they_come(house: House) -> None:
    house.initialize(0, 1, 2)
    house.runtime.is_holding = True
    before = len(house.answers)
    house.send(SUMMARY, (TOPIC, [ask(SUMMARY, 0), ask(SUMMARY, 1), ask(SUMMARY, 2)]))
    for number in (2, 0):
        house.runtime.release(number)
        assert len(house.answers) == before
    house.runtime.release(1)
    assert codes(house.answers[-1]) == [(TOPIC, [(0, 0), (1, 0), (2, 0)])]
    assert len(house.answers) == before + 1


def test_answer_to_a_half_done_request_tells_done_from_undone(house: House) -> None:
    house.initialize(0, 1, 2)
    house.runtime.is_holding = True
    house.send(WRITE, (TOPIC, [ask(WRITE, 0), ask(WRITE, 1), ask(WRITE, 2)]))
    house.runtime.release(0)
    for number in (1, 2):
        house.runtime.release(number, NotCoordinator("another node took it"))
    assert codes(house.answers[-1]) == [(TOPIC, [(0, 0), (1, 16), (2, 16)])]


# ---- malformed requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (batch(150, 140, 0, 1), "last offset must not be below"),
        (batch(-1, 140, 0, 1), "first offset must be 0 or more"),
        (batch(-5, -1, 0, 1), "first offset must be 0 or more"),
        (batch(100, 109, 1, 1), "delivery state must be 0"),
        (batch(100, (1 << 63) - 1, 0, 1), "last offset must be 9223372036854775806 or less"),
        (batch((1 << 63) - 1, (1 << 63) - 1, 0, 1), "last offset must be 9223372036854775806 or less"),
        (batch(100, 109, -1, 1), "delivery state must be 0"),
        (batch(100, 109, 5, 1), "delivery state must be 0"),
        (batch(100, 109, 0, -1), "delivery count must be 0 or more"),
    ],
)
def test_a_batch_that_means_nothing_is_refused_by_name_and_at_once(house: House, bad: StateBatch, fault: str) -> None:
    house.initialize(0)
    good = batch(160, 169, 2, 1)
    [(_, [(_, result)])] = house.call(WRITE, (TOPIC, [ask(WRITE, 0, state_batches=(good, bad, good))]))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    text = result.error_message
    assert text is not None
    assert f"The state batch {bad.first_offset}-{bad.last_offset} with state {bad.delivery_state} " in text
    assert fault in text
    decision = house.runtime.decisions[-1]
    assert decision.is_malformed
    assert decision.records == ()


@pytest.mark.parametrize("delivery_state", [0, 2, 3, 4])
@pytest.mark.parametrize(("first", "last", "count"), [(0, 0, 0), (0, (1 << 63) - 2, 32767)])
def test_every_batch_that_means_something_is_taken(
    house: House, delivery_state: int, first: int, last: int, count: int
) -> None:
    house.initialize(0)
    asked = ask(WRITE, 0, state_batches=(batch(first, last, delivery_state, count),))
    assert codes(house.call(WRITE, (TOPIC, [asked]))) == [(TOPIC, [(0, 0)])]


@pytest.mark.parametrize("api_key", [INITIALIZE, WRITE])
@pytest.mark.parametrize(("start_offset", "error_code"), [(-2, 42), (-1, 0), (0, 0)])
def test_a_start_offset_below_minus_one_is_malformed(
    house: House, api_key: int, start_offset: int, error_code: int
) -> None:
    house.initialize(0)
    response = house.call(api_key, (TOPIC, [ask(api_key, 0, start_offset=start_offset)]))
    assert codes(response) == [(TOPIC, [(0, error_code)])]
    assert house.runtime.decisions[-1].is_malformed is bool(error_code)


@pytest.mark.parametrize(
    ("group_id", "error_code"), [("g" * 32767, 0), ("g" * 32768, 42), ("ß" * 16383, 0), ("ß" * 16384, 42)]
)
@pytest.mark.parametrize("api_key", CALLS)
def test_a_group_id_that_no_record_key_can_carry_is_refused(
    house: House, api_key: int, group_id: str, error_code: int
) -> None:
    house.call(INITIALIZE, (TOPIC, [ask(INITIALIZE, 0)]), group_id=group_id)
    response = house.call(api_key, (TOPIC, [ask(api_key, 0)]), group_id=group_id)
    assert codes(response) == [(TOPIC, [(0, error_code)])]


# ---- failures (§9.3) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "error_code"),
    [
        (NotCoordinator("x"), 16),
        (LoadInProgress("x"), 14),
        (NotAvailable("x"), 15),
        (TimedOut("x"), 15),
        (OutcomeUnknown("x"), 16),
        (RecordTooLarge("x"), -1),
        (OperationFailed("x"), -1),
        (CoordinatorError("x"), -1),
    ],
)
@pytest.mark.parametrize("api_key", CALLS)
def test_a_failed_operation_becomes_an_error_of_its_part(
    house: House, failure: CoordinatorError, error_code: int, api_key: int
) -> None:
    house.runtime.failures = dict.fromkeys(range(PARTITION_COUNT), failure)
    [(topic_id, [(partition, result)])] = house.call(api_key, (TOPIC, [ask(api_key, 3)]))
    assert (topic_id, partition, result.error_code) == (TOPIC, 3, error_code)
    assert result.error_message == f"{house.runtime.names[0]}: x"
    defaults = {SUMMARY: (0, 0, 0, -1), READ: (0, 0, ())}
    assert result[2:] == defaults.get(api_key, ())


@pytest.mark.parametrize("failure", [ValueError("secret"), KeyError("secret"), Exception("secret")])
def test_the_text_of_a_bug_stays_here(failure: Exception) -> None:
    code, text = error_of(failure)
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "secret" not in text


def test_a_runtime_that_raises_fails_what_it_left_undone(house: House) -> None:
    house.initialize(0, 1, 2, 3)
    assert house.index(0) != house.index(1)
    house.runtime.failures[house.index(1)] = ValueError("secret")
    with capture_logs() as lines:
        response = house.call(WRITE, (TOPIC, [ask(WRITE, partition) for partition in range(4)]))
    expected = [(0, 0), *((partition, -1) for partition in range(1, 4))]
    assert codes(response) == [(TOPIC, expected)]
    assert "secret" not in str(response)
    assert [line["operation"] for line in lines] == ["write-share-group-state"]
    assert house.bugs.value == 1


def test_a_connection_that_fails_to_take_its_answer_harms_nobody(house: House) -> None:
    house.initialize(0)

    def fail(_: StateResponse) -> None:
        raise ConnectionError("gone")

    with capture_logs() as lines:
        house.service.handle(SUMMARY, StateRequest("g1", [(TOPIC, [ask(SUMMARY, 0)])]), fail)
    assert [line["log_level"] for line in lines] == ["error"]
    assert house.bugs.value == 1
    assert codes(house.call(SUMMARY, (TOPIC, [ask(SUMMARY, 0)]))) == [(TOPIC, [(0, 0)])]


# ---- metrics (§9.4) --------------------------------------------------------------------------------------------------


def test_writes_are_counted_per_share_partition_before_validation(house: House) -> None:
    house.initialize(0)
    assert house.metrics.writes == 0
    house.call(WRITE, (TOPIC, [ask(WRITE, 0), ask(WRITE, 0), ask(WRITE, 1)]), (UNKNOWN_TOPIC, [ask(WRITE, -1)]))
    assert house.metrics.writes == 4


def test_a_read_is_counted_as_a_write_when_it_writes(house: House) -> None:
    house.initialize(0)
    for leader_epoch, expected in ((-1, 0), (5, 1), (5, 1), (4, 1), (6, 2)):
        house.call(READ, (TOPIC, [ask(READ, 0, leader_epoch=leader_epoch)]))
        assert house.metrics.writes == expected


def test_latency_is_taken_once_per_write_request_to_its_last_completion(house: House) -> None:
    house.initialize(0, 1)
    house.runtime.is_holding = True
    house.now_ms = 1000.0
    house.send(WRITE, (TOPIC, [ask(WRITE, 0), ask(WRITE, 1)]))
    house.now_ms += 5
    house.runtime.release(0)
    assert house.metrics.latencies_ms == []
    house.now_ms += 2.5
    house.runtime.release(1, NotCoordinator("gone"))
    assert house.metrics.latencies_ms == [7.5]


def test_refused_writes_are_timed_and_other_calls_are_not(house: House) -> None:
    house.initialize(0)
    for api_key in (INITIALIZE, READ, SUMMARY, DELETE):
        house.call(api_key, (TOPIC, [ask(api_key, 0)]))
    assert house.metrics.latencies_ms == []
    house.call(WRITE, (UNKNOWN_TOPIC, [ask(WRITE, -1)]))
    assert len(house.metrics.latencies_ms) == 1
    house.service.shut_down()
    house.call(WRITE, (TOPIC, [ask(WRITE, 0)]))
    assert len(house.metrics.latencies_ms) == 2


# ---- life ------------------------------------------------------------------------------------------------------------


def test_before_start_up_and_after_shutdown_every_call_is_not_available() -> None:
    house = House()
    fresh = ShareService(house.runtime, house.metrics, lambda: 0.0, InternalErrors(Counter()))
    key = SharePartitionKey("g1", TOPIC, 3)
    assert not fresh.is_active
    with pytest.raises(NotAvailable):
        fresh.partition_for(key)
    fresh.start_up(PARTITION_COUNT)
    assert fresh.is_active
    assert fresh.partition_for(key) == log_partition(key, PARTITION_COUNT)
    fresh.shut_down()
    assert not fresh.is_active
    with pytest.raises(NotAvailable):
        fresh.partition_for(key)


def test_a_second_start_up_or_shutdown_only_warns(house: House) -> None:
    key = SharePartitionKey("g1", TOPIC, 3)
    before = house.service.partition_for(key)
    with capture_logs() as lines:
        house.service.start_up(1)
        assert house.service.partition_for(key) == before
        house.service.shut_down()
        house.service.shut_down()
    assert [line["log_level"] for line in lines] == ["warning", "warning"]


def test_start_up_needs_a_partition(house: House) -> None:
    with pytest.raises(ValueError, match="partition_count is 0"):
        ShareService(house.runtime, house.metrics, lambda: 0.0, InternalErrors(Counter())).start_up(0)


def test_places_are_right_whatever_group_was_hashed_before(house: House) -> None:
    groups = ["a" * 300, "b" * 300, "a" * 300, "g1"]  # longer ones are not remembered
    for group_id in groups:
        asked = [ask(INITIALIZE, partition) for partition in range(4)]
        assert codes(house.call(INITIALIZE, (TOPIC, asked), group_id=group_id)) == [(TOPIC, [(n, 0) for n in range(4)])]
        asked = [ask(READ, partition) for partition in range(4)]
        [(_, results)] = house.call(READ, (TOPIC, asked), group_id=group_id)
        assert [result.start_offset for _, result in results] == [100] * 4  # type: ignore[union-attr]
        for partition in range(4):
            key = SharePartitionKey(group_id, TOPIC, partition)
            shard = house.runtime.worlds[log_partition(key, PARTITION_COUNT)].shard
            assert shard.state.newest(key) is not None


def test_the_memory_of_places_is_bounded() -> None:
    house = House(key_cache_size_max=3)
    for partition in range(20):
        key = SharePartitionKey("g1", TOPIC, partition)
        assert house.service.partition_for(key) == log_partition(key, PARTITION_COUNT)
        assert len(house.service._places) <= 3
    house.initialize(0, 1, 2, 3, 4, 5)
    response = house.call(SUMMARY, (TOPIC, [ask(SUMMARY, partition) for partition in range(6)]))
    assert codes(response) == [(TOPIC, [(partition, 0) for partition in range(6)])]


def test_a_shutdown_during_a_request_leaves_the_rest_of_it_to_the_runtime() -> None:
    """An operation may complete at once and its answer may shut the service down; the rest must not be lost."""
    house = House()
    house.initialize(0, 1)
    stop: list[Callable[[], None]] = [house.service.shut_down]

    class StoppingRuntime:
        def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
            first, *rest = operations
            house.runtime.write_many([first])
            stop.pop()()
            house.runtime.write_many(rest)

    house.service._runtime = StoppingRuntime()
    response = house.call(SUMMARY, (TOPIC, [ask(SUMMARY, 0), ask(SUMMARY, 1)]))
    assert codes(response) == [(TOPIC, [(0, 0), (1, 0)])]
    assert codes(house.call(SUMMARY, (TOPIC, [ask(SUMMARY, 0)]))) == [(TOPIC, [(0, 15)])]
