"""Which requests wait for a look-up of their topics, and that each is carried out exactly once."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import pytest

from holdfast.daemon.cluster import MetadataImage
from holdfast.daemon.service import READ, WRITE
from holdfast.daemon.topic_gate import TopicGate
from holdfast.records.results import StateRequest, StateResponse
from tests.pure.daemon.service_world import ask
from tests.pure.daemon.shard_world import OTHER_TOPIC, TOPIC, UNKNOWN_TOPIC

Handled = tuple[int, StateRequest]


class Service:
    """Keeps what reaches it, and answers it with nothing."""

    def __init__(self) -> None:
        self.is_active = True
        self.handled: list[Handled] = []

    def handle(self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None]) -> None:
        self.handled.append((api_key, request))
        respond([])

    def partition_for(self, key: object) -> int:
        return 7


class Metadata:
    """Keeps what is wanted until `answer`."""

    def __init__(self) -> None:
        self.image: MetadataImage | None = MetadataImage(1, "cluster", MappingProxyType({TOPIC: 2, OTHER_TOPIC: 1}))
        self.wanted: dict[bytes, list[Callable[[], None]]] = {}
        self.timeouts_ms: set[int] = set()

    def want(self, topic_id: bytes, then: Callable[[], None], timeout_ms: int) -> None:
        self.wanted.setdefault(topic_id, []).append(then)
        self.timeouts_ms.add(timeout_ms)

    def answer(self, topic_id: bytes) -> None:
        for then in self.wanted.pop(topic_id):
            then()


class World:
    """A gate, what stands before and behind it, and the answers that have left."""

    def __init__(self) -> None:
        self.service, self.metadata = Service(), Metadata()
        self.gate = TopicGate(self.service, write_timeout_ms=5_000)
        self.gate.metadata = self.metadata
        self.answers: list[StateResponse] = []

    def send(self, request: StateRequest, api_key: int = WRITE) -> None:
        self.gate.handle(api_key, request, self.answers.append)


@pytest.fixture
def world() -> World:
    return World()


def request(*asked: tuple[bytes, int]) -> StateRequest:
    return StateRequest("g1", [(topic_id, [ask(WRITE, partition)]) for topic_id, partition in asked])


def test_a_request_for_known_topics_goes_straight_through(world: World) -> None:
    known = request((TOPIC, 0), (TOPIC, 1), (OTHER_TOPIC, 0))
    world.send(known, READ)
    assert world.service.handled == [(READ, known)]
    assert world.metadata.wanted == {}
    assert world.gate.partition_for(None) == 7  # type: ignore[arg-type]


@pytest.mark.parametrize(("topic_id", "partition"), [(UNKNOWN_TOPIC, 0), (TOPIC, 2), (OTHER_TOPIC, 1)])
def test_an_unknown_topic_or_partition_is_looked_up_first(world: World, topic_id: bytes, partition: int) -> None:
    held = request((TOPIC, 0), (topic_id, partition))
    world.send(held)
    assert (world.service.handled, list(world.metadata.wanted)) == ([], [topic_id])
    world.metadata.answer(topic_id)
    assert world.service.handled == [(WRITE, held)]
    assert world.answers == [[]]


def test_all_unknown_topics_of_a_request_are_waited_for_once_each(world: World) -> None:
    third = bytes([9] * 16)
    held = request((UNKNOWN_TOPIC, 0), (third, 5), (UNKNOWN_TOPIC, 1))
    world.send(held)
    world.metadata.answer(UNKNOWN_TOPIC)
    assert world.answers == []
    world.metadata.answer(third)
    assert world.answers == [[]]
    assert world.service.handled == [(WRITE, held)]


def test_others_pass_by_a_request_that_waits(world: World) -> None:
    world.send(request((UNKNOWN_TOPIC, 0)))
    world.send(request((TOPIC, 0)))
    assert world.service.handled == [(WRITE, request((TOPIC, 0)))]


def test_half_of_the_deadline_is_left_for_the_write(world: World) -> None:
    world.send(request((UNKNOWN_TOPIC, 0)))
    assert world.metadata.timeouts_ms == {2_500}


def test_a_negative_partition_needs_no_look_up(world: World) -> None:
    world.send(request((TOPIC, -1)))
    assert len(world.service.handled) == 1


def test_nothing_waits_while_the_node_starts_or_after_it_stopped(world: World) -> None:
    unknown = request((UNKNOWN_TOPIC, 0))
    world.service.is_active = False
    world.send(unknown)
    world.service.is_active, world.metadata.image = True, None
    world.send(unknown)
    world.gate.metadata = None
    world.send(unknown)
    assert len(world.answers) == 3
    assert world.metadata.wanted == {}
