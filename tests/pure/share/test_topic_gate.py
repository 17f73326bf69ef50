"""Which requests wait for a look-up of their topics, and that each is carried out exactly once."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from holdfast.api.results import StateRequest, StateResponse, WriteResult
from holdfast.api.share_state import READ, WRITE
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.kafka.metadata import RESERVED_IDS
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.share.topic_gate import TopicGate
from tests.world.samples import OTHER_TOPIC, TOPIC
from tests.world.service import ask

UNKNOWN_TOPIC = bytes([7] * 16)

Handled = tuple[int, StateRequest]


class Service:
    """Keeps what reaches it, and answers each share partition with UNKNOWN_TOPIC_OR_PARTITION, or with nothing."""

    def __init__(self) -> None:
        self.is_active = True
        self.handled: list[Handled] = []
        self.waited_ms: list[int] = []
        self.results: dict[int, WriteResult] | None = None

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], waited_ms: int = 0
    ) -> None:
        self.handled.append((api_key, request))
        self.waited_ms.append(waited_ms)
        results = self.results
        if results is None:
            respond([])
            return
        respond(
            [
                (topic_id, [(asked.partition, results[asked.partition]) for asked in partitions])
                for topic_id, partitions in request.topics
            ]
        )

    def partition_for(self, key: object) -> int:
        return 7


class Metadata:
    """Keeps what is wanted until `answer`."""

    def __init__(self) -> None:
        self.image: MetadataImage | None = MetadataImage(1, "cluster", {TOPIC: 2, OTHER_TOPIC: 1})
        self.wanted: list[tuple[list[bytes], str, Callable[[Collection[bytes]], None], int]] = []

    def look_up(
        self, topic_ids: Collection[bytes], caller: str, then: Callable[[Collection[bytes]], None], timeout_ms: int
    ) -> None:
        self.wanted.append((list(topic_ids), caller, then, timeout_ms))

    def answer(self, not_queried: Collection[bytes] = ()) -> None:
        self.wanted.pop()[2](not_queried)


class World:
    """A gate, the callers before it, the service after it, and the answers that have left."""

    def __init__(self) -> None:
        self.service, self.metadata, self.now_ms = Service(), Metadata(), 1_000
        self.gate = TopicGate(self.service, self.metadata, write_timeout_ms=5_000, clock_ms=lambda: self.now_ms)
        self.answers: list[StateResponse] = []

    def send(self, request: StateRequest, api_key: int = WRITE) -> None:
        self.gate.handle(api_key, request, self.answers.append, "10.0.0.1:5")


@pytest.fixture
def world() -> World:
    return World()


def request(*asked: tuple[bytes, int]) -> StateRequest:
    return StateRequest("g1", [(topic_id, [ask(WRITE, partition)]) for topic_id, partition in asked])


def test_a_request_for_known_topics_goes_straight_through(world: World) -> None:
    known = request((TOPIC, 0), (TOPIC, 1), (OTHER_TOPIC, 0))
    world.send(known, READ)
    assert world.service.handled == [(READ, known)]
    assert world.metadata.wanted == []
    assert world.gate.partition_for(None) == 7  # type: ignore[arg-type]


@pytest.mark.parametrize(("topic_id", "partition"), [(UNKNOWN_TOPIC, 0), (TOPIC, 2), (OTHER_TOPIC, 1)])
def test_an_unknown_topic_or_partition_is_looked_up_first(world: World, topic_id: bytes, partition: int) -> None:
    held = request((TOPIC, 0), (topic_id, partition))
    world.send(held)
    ((asked, caller, _, _),) = world.metadata.wanted
    assert (world.service.handled, asked, caller) == ([], [topic_id], "10.0.0.1:5")
    world.metadata.answer()
    assert world.service.handled == [(WRITE, held)]
    assert world.answers == [[]]


def test_all_unknown_topics_of_a_request_are_looked_up_once_each(world: World) -> None:
    third = bytes([9] * 16)
    held = request((UNKNOWN_TOPIC, 0), (third, 5), (UNKNOWN_TOPIC, 1))
    world.send(held)
    assert [asked for asked, _, _, _ in world.metadata.wanted] == [[UNKNOWN_TOPIC, third]]
    world.metadata.answer()
    assert world.answers == [[]]
    assert world.service.handled == [(WRITE, held)]


def test_others_pass_by_a_request_that_waits(world: World) -> None:
    world.send(request((UNKNOWN_TOPIC, 0)))
    world.send(request((TOPIC, 0)))
    assert world.service.handled == [(WRITE, request((TOPIC, 0)))]


def test_write_keeps_half_of_the_deadline_and_loses_the_time_waited(world: World) -> None:
    world.send(request((UNKNOWN_TOPIC, 0)))
    assert world.metadata.wanted[0][3] == 2_500
    world.now_ms += 1_700
    world.metadata.answer()
    world.send(request((TOPIC, 0)))
    assert world.service.waited_ms == [1_700, 0]


@pytest.mark.parametrize("topic_id", sorted(RESERVED_IDS))
def test_a_reserved_id_is_no_topics_and_needs_no_look_up(world: World, topic_id: bytes) -> None:
    world.send(request((topic_id, 0)))
    assert (len(world.service.handled), world.metadata.wanted) == (1, [])


def test_unknown_topic_without_a_broker_means_try_again(world: World) -> None:
    unknown, fenced = (
        WriteResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no"),
        WriteResult(ErrorCode.FENCED_STATE_EPOCH, "no"),
    )
    world.service.results = {0: unknown, 1: fenced, 2: WriteResult()}
    world.send(request((UNKNOWN_TOPIC, 0), (UNKNOWN_TOPIC, 1), (UNKNOWN_TOPIC, 2), (OTHER_TOPIC, 0)))
    world.metadata.answer(not_queried=(UNKNOWN_TOPIC,))
    (answer,) = world.answers
    found = [(topic_id, index, result.error_code) for topic_id, results in answer for index, result in results]
    assert found == [
        (UNKNOWN_TOPIC, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (UNKNOWN_TOPIC, 1, ErrorCode.FENCED_STATE_EPOCH),
        (UNKNOWN_TOPIC, 2, ErrorCode.NONE),
        (OTHER_TOPIC, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_where_a_broker_was_queried_unknown_is_the_answer(world: World) -> None:
    world.service.results = {0: WriteResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no")}
    world.send(request((UNKNOWN_TOPIC, 0)))
    world.metadata.answer()
    assert world.answers == [[(UNKNOWN_TOPIC, [(0, world.service.results[0])])]]


def test_a_negative_partition_needs_no_look_up(world: World) -> None:
    world.send(request((TOPIC, -1)))
    assert len(world.service.handled) == 1


def test_nothing_waits_while_the_node_starts_or_after_it_stopped(world: World) -> None:
    unknown = request((UNKNOWN_TOPIC, 0))
    world.service.is_active = False
    world.send(unknown)
    world.service.is_active, world.metadata.image = True, None
    world.send(unknown)
    assert len(world.answers) == 2
    assert world.metadata.wanted == []
