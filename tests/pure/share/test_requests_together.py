"""Requests that came together are split together, and their operations run together, as if they had come one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from holdfast.api.results import StateRequest, StateResponse
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.metrics.instruments import Counter
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.build import BUILD
from holdfast.runtime.state_machine import Operation
from holdfast.share.service import ShareService
from tests.world.samples import TOPIC
from tests.world.service import PARTITION_COUNT, FakeMetrics, FakeRuntime, ask, codes


class Runtime(FakeRuntime):
    """A service that notes which requests came together."""

    def __init__(self) -> None:
        super().__init__()
        #: (names of operations, ms waited) of each call.
        self.calls: list[tuple[list[str], int]] = []

    def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
        together = list(operations)
        self.calls.append(([operation.name for _, operation in together], waited_ms))
        super().write_many(together, waited_ms)


class Metrics(FakeMetrics):
    fails_at = 0

    def write_recorded(self, count: int) -> None:
        if count == self.fails_at:
            raise ValueError("secret")
        super().write_recorded(count)


class House:
    """A service whose requests come together until `end`."""

    def __init__(self) -> None:
        self.runtime, self.bugs, self.metrics = Runtime(), Counter(), Metrics()
        self.tasks: list[Callable[[], None]] = []
        self.service = ShareService(
            self.runtime, self.metrics, lambda: 0.0, InternalErrors(self.bugs), end_with=self.tasks.append
        )
        self.service.start_up(PARTITION_COUNT)
        self.answers: list[tuple[int, StateResponse]] = []

    def send(self, number: int, api_key: int, *partitions: int, waited_ms: int = 0) -> None:
        """Send a request about share partitions of one topic; its answer is noted with its number."""
        request = StateRequest("g1", [(TOPIC, [ask(api_key, partition) for partition in partitions])])

        def respond(response: StateResponse) -> None:
            self.answers.append((number, response))

        self.service.handle(api_key, request, respond, waited_ms)

    def end(self) -> None:
        tasks, self.tasks[:] = self.tasks[:], []
        for task in tasks:
            task()


def test_operations_of_requests_together_run_in_one_go_and_in_order() -> None:
    house = House()
    house.send(1, INITIALIZE, 0, 1)
    house.send(2, READ, 0)
    house.send(3, DELETE, 1)
    assert not house.answers
    assert len(house.tasks) == 1
    house.end()
    initialize, read, delete = (
        "initialize-share-group-state",
        "read-update-leader-epoch-state",
        "delete-share-group-state",
    )
    assert house.runtime.calls == [([initialize, initialize, read, delete], 0)]
    assert [number for number, _ in house.answers] == [1, 2, 3]
    assert [codes(response) for _, response in house.answers] == [
        [(TOPIC, [(0, 0), (1, 0)])],
        [(TOPIC, [(0, 0)])],
        [(TOPIC, [(1, 0)])],
    ]
    house.send(4, SUMMARY, 0)
    house.end()
    assert len(house.runtime.calls) == 2


def test_operations_of_a_late_request_have_less_time_and_keep_their_place() -> None:
    house = House()
    house.send(1, INITIALIZE, 0)
    house.send(2, READ, 0, waited_ms=7)
    house.send(3, DELETE, 0)
    house.end()
    assert [(len(names), waited_ms) for names, waited_ms in house.runtime.calls] == [(1, 0), (1, 7), (1, 0)]
    assert [codes(response) for _, response in house.answers] == [[(TOPIC, [(0, 0)])]] * 3


@pytest.mark.skipif(BUILD == "compiled", reason="a method of a compiled class cannot be replaced")
def test_a_request_that_cannot_be_split_fails_alone_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    place = house.service._place

    def place_all_but_one(key: SharePartitionKey, hash_of_group: int) -> tuple[SharePartitionKey, int]:
        if key.partition == 5:
            raise ValueError("secret")
        return place(key, hash_of_group)

    monkeypatch.setattr(house.service, "_place", place_all_but_one)
    house.send(1, INITIALIZE, 0)
    house.send(2, INITIALIZE, 1, 5)
    house.send(3, READ, 0)
    with capture_logs() as lines:
        house.end()
    assert [len(names) for names, _ in house.runtime.calls] == [2]
    assert sorted((number, codes(response)) for number, response in house.answers) == [
        (1, [(TOPIC, [(0, 0)])]),
        (2, [(TOPIC, [(1, -1), (5, -1)])]),
        (3, [(TOPIC, [(0, 0)])]),
    ]
    assert [line["event"] for line in lines] == ["share_request_failed"]
    assert "secret" not in str(house.answers)


def test_a_request_whose_count_fails_is_answered_and_harms_no_other() -> None:
    house = House()
    house.metrics.fails_at = 2
    house.send(1, INITIALIZE, 0)
    house.send(2, WRITE, 0, 1)
    house.send(3, WRITE, 0)
    with capture_logs() as lines:
        house.end()
    assert sorted((number, codes(response)) for number, response in house.answers) == [
        (1, [(TOPIC, [(0, 0)])]),
        (2, [(TOPIC, [(0, -1), (1, -1)])]),
        (3, [(TOPIC, [(0, 0)])]),
    ]
    assert [line["event"] for line in lines] == ["share_request_failed"]
    assert house.bugs.value == 1


def test_a_runtime_that_raises_fails_what_is_left_undone_of_all_requests() -> None:
    house = House()
    indexes = [house.service.partition_for(SharePartitionKey("g1", TOPIC, partition)) for partition in range(8)]
    raising = indexes[0]
    first_other = next(partition for partition, index in enumerate(indexes) if index != raising)
    house.runtime.failures[raising] = ValueError("secret")
    house.send(1, INITIALIZE, first_other)
    house.send(2, INITIALIZE, 0)
    house.send(3, READ, first_other)
    with capture_logs() as lines:
        house.end()
    assert [(number, codes(response)) for number, response in house.answers] == [
        (1, [(TOPIC, [(first_other, 0)])]),
        (2, [(TOPIC, [(0, ErrorCode.UNKNOWN_SERVER_ERROR)])]),
        (3, [(TOPIC, [(first_other, ErrorCode.UNKNOWN_SERVER_ERROR)])]),
    ]
    assert [line["operation"] for line in lines] == ["initialize-share-group-state, read-update-leader-epoch-state"]


def test_requests_before_a_shutdown_that_are_split_after_it_are_refused() -> None:
    house = House()
    house.send(1, INITIALIZE, 0)
    house.service.shut_down()
    house.end()
    assert [codes(response) for _, response in house.answers] == [[(TOPIC, [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)])]]


_CALLS = st.tuples(st.sampled_from([INITIALIZE, READ, WRITE, DELETE, SUMMARY]), st.lists(st.integers(0, 3), max_size=3))


@given(st.lists(st.tuples(_CALLS, st.booleans(), st.sampled_from([0, 0, 0, 3])), max_size=12))
def test_requests_together_have_the_answers_of_requests_one_by_one(
    sent: list[tuple[tuple[int, list[int]], bool, int]],
) -> None:
    together, alone = House(), House()
    for number, ((api_key, partitions), is_last, waited_ms) in enumerate(sent):
        together.send(number, api_key, *partitions, waited_ms=waited_ms)
        alone.send(number, api_key, *partitions, waited_ms=waited_ms)
        alone.end()
        if is_last:
            together.end()
    together.end()
    assert sorted(together.answers, key=lambda each: each[0]) == alone.answers
    assert together.runtime.decisions == alone.runtime.decisions
    assert together.metrics.writes == alone.metrics.writes
