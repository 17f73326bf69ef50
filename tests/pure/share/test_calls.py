"""Large share-state calls: in parts, in steps, in order, and only as long as the client waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast.api import share_state, state_requests, state_responses
from holdfast.api.results import (
    DeletePartition,
    InitializePartition,
    PartitionRequest,
    ReadPartition,
    ReadResult,
    StateRequest,
    StateResponse,
    WritePartition,
)
from holdfast.daemon.server.wire.requests import Body, Request, RequestMemory
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.primitives import MalformedBody
from holdfast.records.share.batches import StateBatch
from holdfast.share import calls as share_calls
from holdfast.share.service import ShareService
from tests.world.identity.access import OPEN
from tests.world.samples import EPOCH_MAX, OTHER_TOPIC, TOPIC
from tests.world.service import House, ask
from tests.world.serving import FakeService

Topics = list[tuple[bytes, list[PartitionRequest]]]


class Ungated:
    """A service that does not ask from where a call comes."""

    def __init__(self, service: ShareService) -> None:
        self.service = service
        self.partition_for = service.partition_for

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], caller: str
    ) -> None:
        self.service.handle(api_key, request, respond)


class Call:
    """A request to a service, step by step, and its answer."""

    def __init__(
        self,
        service: share_calls.ShareCalls,
        api_key: int,
        topics: Topics,
        group_id: str = "g",
        bounds: state_requests.Bounds = state_requests.UNBOUNDED,
        answer_bytes_max: int = 1 << 30,
    ) -> None:
        self.version = {share_state.WRITE: 1, share_state.SUMMARY: 1}.get(api_key, 0)
        self.memory = RequestMemory(answer_bytes_max=answer_bytes_max)
        body = state_requests.encode_request(api_key, self.version, StateRequest(group_id, topics))
        self.bodies: list[Body] = []
        self.request = Request(api_key, self.version, 1, b"", body, 0, "client", self.memory, 0)
        self.woken = 0
        self.request.wake = self._wake
        self.steps = share_calls.answer(service, OPEN, bounds, self.request, self.bodies.append)

    def _wake(self) -> None:
        self.woken += 1

    def run(self) -> int:
        """Do all steps that can be done; returns how many."""
        count = 0
        if self.steps is not None:
            for is_ready in self.steps:
                count += 1
                if not is_ready:
                    break
        return count

    def answer(self) -> StateResponse:
        (body,) = self.bodies
        encoded = body if isinstance(body, bytes) else b"".join(body)
        return state_responses.decode_response(self.request.api_key, self.version, encoded)


def parts_of(service: FakeService) -> list[int]:
    return [sum(len(partitions) for _, partitions in request.topics) for _, request in service.requests]


def test_a_small_request_is_carried_out_in_one_step() -> None:
    service = FakeService()
    call = Call(service, share_state.READ, [(TOPIC, [ReadPartition(1, 0)])])
    assert call.steps is None
    assert call.answer() == [(TOPIC, [(1, ReadResult())])]


@pytest.mark.parametrize("topics", [[(TOPIC, 1_000)], [(TOPIC, 500), (OTHER_TOPIC, 500)]])
def test_a_large_request_is_carried_out_in_parts_and_answered_as_one(topics: list[tuple[bytes, int]]) -> None:
    service = FakeService()
    asked: Topics = [(topic, [InitializePartition(n, 0, 0) for n in range(count)]) for topic, count in topics]
    call = Call(service, share_state.INITIALIZE, asked)
    assert call.run() > 10
    parts = parts_of(service)
    assert sum(parts) == 1_000
    assert max(parts) == 64
    answer = call.answer()
    assert [(topic, [number for number, _ in results]) for topic, results in answer] == [
        (topic, list(range(count))) for topic, count in topics
    ]


def test_a_large_write_is_cut_by_its_batches_too() -> None:
    service = FakeService()
    batches = tuple(StateBatch(n, n, 0, 1) for n in range(600))
    call = Call(
        service,
        share_state.WRITE,
        [(TOPIC, [WritePartition(n, EPOCH_MAX, EPOCH_MAX, -1, -1, batches) for n in range(6)])],
    )
    call.run()
    assert parts_of(service) == [2, 2, 2]


def test_only_some_parts_are_on_their_way_at_once() -> None:
    service = FakeService()
    service.is_holding = True
    call = Call(service, share_state.DELETE, [(TOPIC, [DeletePartition(n) for n in range(2_000)])])
    call.run()
    assert len(service.held) == 8
    assert call.run() == 1  # nothing more until one is answered
    assert (call.woken, len(service.held)) == (0, 8)
    service.release()
    assert call.woken == 1
    call.run()
    assert len(service.held) == 8
    while service.held:
        service.release()
        call.run()
    assert len(call.answer()[0][1]) == 2_000


def test_parts_are_not_begun_once_the_client_is_gone() -> None:
    service = FakeService()
    service.is_holding = True
    call = Call(service, share_state.DELETE, [(TOPIC, [DeletePartition(n) for n in range(2_000)])])
    call.run()
    call.request.is_wanted = False
    call.run()
    assert len(service.requests) == 8
    assert call.bodies == []
    while service.held:
        service.release()
    assert call.bodies == [b""]  # then what it held is given back
    assert len(service.requests) == 8


def test_the_service_begins_nothing_for_a_client_that_is_gone() -> None:
    house = House()
    house.initialize(0)
    request = Request(84, 0, 1, b"", b"", 0, "client", RequestMemory(), 0)
    request.is_wanted = False
    answers: list[StateResponse] = []
    before = len(house.runtime.names)
    house.service.handle(
        share_state.READ, StateRequest("g1", [(TOPIC, [ReadPartition(0, 5)])], request), answers.append
    )
    assert answers == [[]]
    assert len(house.runtime.names) == before


def test_share_partition_in_two_parts_has_its_first_error_or_last_result() -> None:
    service = FakeService()
    count = [0]

    def answer(api_key: int, key: object, asked: ReadPartition) -> ReadResult:
        count[0] += 1
        is_error = asked.partition == 7 and count[0] < 64
        return ReadResult(ErrorCode.INVALID_REQUEST if is_error else 0, "no" if is_error else None, count[0])

    service.answer = answer
    call = Call(service, share_state.READ, [(TOPIC, [ReadPartition(n % 300, 0) for n in range(600)])])
    call.run()
    [(_, results)] = call.answer()
    assert [number for number, _ in results] == list(range(300))
    assert results[7][1].error_code == ErrorCode.INVALID_REQUEST
    assert results[8][1] == ReadResult(0, None, 309)


def test_request_with_a_topic_without_partitions_has_an_empty_answer() -> None:
    house = House()
    call = Call(
        Ungated(house.service),
        share_state.READ,
        [(TOPIC, [ReadPartition(n, 0) for n in range(1_000)]), (OTHER_TOPIC, [])],
    )
    call.run()
    assert call.answer() == []


def test_an_error_does_not_repeat_the_group_and_has_a_bound() -> None:
    house = House()
    group_id = "g" * 30_000
    for api_key in (share_state.READ, share_state.WRITE):
        answer = house.call(api_key, (TOPIC, [ask(api_key, 1)]), group_id=group_id)
        [(_, [(_, result)])] = answer
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "never initialized" in str(result.error_message)
        assert len(str(result.error_message)) <= 200


def big_house(batches: int) -> House:
    house = House()
    house.initialize(*range(6))
    written = tuple(StateBatch(2 * n, 2 * n, 0, 1) for n in range(50, 50 + batches))
    house.call(share_state.WRITE, (TOPIC, [ask(share_state.WRITE, n, state_batches=written) for n in range(6)]))
    return house


def test_share_partitions_without_room_in_the_answer_are_requested_again() -> None:
    house = big_house(1_000)
    call = Call(
        Ungated(house.service),
        share_state.READ,
        [(TOPIC, [ReadPartition(n, 3) for n in range(6)])],
        "g1",
        answer_bytes_max=45_000,
    )
    assert call.memory.answer_bytes == 2 * 20_000
    [(_, results)] = call.answer()
    assert [result.error_code for _, result in results] == [0, 0, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4]
    # A client that asks for the others alone gets them, two at a time; so every client comes to an end.
    call = Call(
        Ungated(house.service),
        share_state.READ,
        [(TOPIC, [ReadPartition(n, 3) for n in range(2, 6)])],
        "g1",
        answer_bytes_max=45_000,
    )
    [(_, results)] = call.answer()
    assert [result.error_code for _, result in results][:2] == [0, 0]


def test_one_share_partition_is_answered_however_large_it_is() -> None:
    house = big_house(1_000)
    call = Call(
        Ungated(house.service), share_state.READ, [(TOPIC, [ReadPartition(1, 3)])], "g1", answer_bytes_max=1_024
    )
    [(_, [(_, result)])] = call.answer()
    assert result.error_code == 0
    assert isinstance(result, ReadResult)
    assert len(result.state_batches) == 1_000


def test_a_large_answer_is_encoded_in_steps_and_is_the_same() -> None:
    house = big_house(5_000)
    topics: Topics = [(TOPIC, [ReadPartition(n, 0) for n in range(6)])]
    call = Call(Ungated(house.service), share_state.READ, topics, "g1")
    (body,) = call.bodies
    assert isinstance(body, Iterator)
    pieces = list(body)
    assert max(map(len, pieces)) <= 2_000 * share_state.BATCH_SIZE + 100
    assert b"".join(pieces) == state_responses.encode_response(
        share_state.READ, 0, house.call(share_state.READ, topics[0])
    )


def test_an_answer_that_cannot_be_encoded_is_reported_to_the_connection() -> None:
    service = FakeService()
    service.answer = lambda api_key, key, asked: ReadResult(0, None, 1 << 40)
    call = Call(service, share_state.READ, [(TOPIC, [ReadPartition(1, 0)])])
    assert call.request.failure is not None
    assert call.bodies == [b""]


@pytest.mark.parametrize(
    ("bounds", "counts", "text"),
    [
        (state_requests.Bounds(10, 100, 100), [1] * 11, "at most 10 share partitions"),
        (state_requests.Bounds(1_000, 100, 1_000), [101], "one share partition has 101 state batches, at most 100"),
        (state_requests.Bounds(1_000, 300, 1_000), [300, 300, 300, 101], "at most 1000 state batches"),
    ],
)
def test_more_than_a_request_may_hold_is_refused_while_it_is_decoded(
    bounds: state_requests.Bounds, counts: list[int], text: str
) -> None:
    service = FakeService()
    asked: list[PartitionRequest] = [
        WritePartition(number, EPOCH_MAX, EPOCH_MAX, -1, -1, tuple(StateBatch(n, n, 0, 1) for n in range(count)))
        for number, count in enumerate(counts)
    ]

    def attempt() -> None:
        Call(service, share_state.WRITE, [(TOPIC, asked)], bounds=bounds).run()

    with pytest.raises(MalformedBody, match=text):
        attempt()
    assert service.requests == []


@pytest.mark.parametrize("api_key", [83, 84, 85, 86, 87])
def test_steps_decode_what_one_step_decodes(api_key: int) -> None:
    version = 1 if api_key in (85, 87) else 0
    asked: Topics = [(n.to_bytes(16), [ask(api_key, p) for p in range(n)]) for n in (1, 300, 0, 450)]
    body = state_requests.encode_request(api_key, version, StateRequest("g", asked))
    expected = state_requests.decode_request(api_key, version, body)
    steps = state_requests.decode_in_steps(api_key, version, body, 0, state_requests.UNBOUNDED, expected.caller)
    count = 0
    decoded: StateRequest | None = None
    while decoded is None:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            decoded = end.value
    assert decoded == expected
    assert count >= 3


def test_topics_that_name_no_partition_are_decoded_in_steps_and_counted() -> None:
    body = state_requests.encode_request(
        share_state.READ, 0, StateRequest("g", [(n.to_bytes(16), []) for n in range(2_000)])
    )
    caller = state_requests.decode_request(share_state.READ, 0, body).caller
    assert (
        sum(1 for _ in state_requests.decode_in_steps(share_state.READ, 0, body, 0, state_requests.UNBOUNDED, caller))
        >= 10
    )
    with pytest.raises(MalformedBody, match="at most 1999 share partitions"):
        list(state_requests.decode_in_steps(share_state.READ, 0, body, 0, state_requests.Bounds(1_999), caller))
