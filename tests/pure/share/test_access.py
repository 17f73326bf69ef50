"""Share state as another tenant of the node reaches it: the decision, and the way to it beside calls over the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.api.results import InitializePartition, ReadOrInitializeResult, WritePartition, WriteResult
from holdfast.api.share_state import DELETE, INITIALIZE, READ
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.batches import ARCHIVED, ARCHIVING
from holdfast.records.share.keys import SharePartitionKey, log_partition
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.errors import LoadInProgress, NotAvailable, NotCoordinator
from holdfast.share.access import ShareAccess
from holdfast.share.read_or_initialize import FIRST_STATE_EPOCH, decide_read_or_initialize
from holdfast.share.service import READ_OR_INITIALIZE
from holdfast.share.state_bounds import StateTotals
from tests.configs import state_bounds
from tests.pure.share.test_requests_together import House as Together
from tests.pure.share.test_service_over_runtime import Node
from tests.simulated.memory_log import MemoryTopic
from tests.world.samples import KEY, TOPIC, batch
from tests.world.shard import World

UNKNOWN = SharePartitionKey(KEY.group_id, b"unknown topic id", 0)
NONE = ReadOrInitializeResult()


def ask(world: World, leader_epoch: int, start_offset: int | None = None, key: SharePartitionKey = KEY) -> Any:
    decision = decide_read_or_initialize(world.shard, key, leader_epoch, start_offset, world.now_ms)
    return world.run(decision)


def found(state_epoch: int, start_offset: int, *batches: Any) -> ReadOrInitializeResult:
    return ReadOrInitializeResult(0, None, state_epoch, start_offset, batches, has_state=True)


# ---- the decision ------------------------------------------------------------------------------------------------------------------


def test_without_state_and_offset_nothing_is_made() -> None:
    world = World()
    assert ask(world, 3) == NONE
    assert not world.log


def test_without_state_one_is_made_in_one_record_that_fences_lower_leaders() -> None:
    world = World()
    assert ask(world, 3, 40) == found(FIRST_STATE_EPOCH, 40)
    now_ms = world.now_ms
    snapshot = Snapshot(0, FIRST_STATE_EPOCH, 3, 40, 0, now_ms, now_ms, (), 3, FIRST_STATE_EPOCH)
    assert [world.last_record(), len(world.log)] == [(KEY, snapshot), 1]
    for again in (world, world.loaded()):
        assert again.read(2).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(again, 2, 50).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(again, 3, 50) == ask(again, 3) == found(FIRST_STATE_EPOCH, 40), (
            "what a Read says, and no other offset"
        )
        assert len(again.log) == 1


def test_a_state_is_read_and_a_higher_leader_epoch_is_written() -> None:
    world = World()
    world.initialize(7, 100)
    world.write(batch(100, 109, ARCHIVED, 2), leader_epoch=0, state_epoch=7)
    assert ask(world, 5, 0) == ask(world, 5) == found(7, 100, batch(100, 109, ARCHIVED, 2))
    assert world.last_record() == (KEY, Update(0, 5, 100, 0, ()))
    assert ask(world, 4) == ReadOrInitializeResult(*world.read(4)[:2])


def test_a_state_whose_offset_is_not_decided_is_read_as_it_is() -> None:
    world = World()
    world.initialize(2, -1)
    assert ask(world, 1, 40) == found(2, -1)


def test_a_deleted_state_is_made_anew() -> None:
    world = World()
    ask(world, 3, 40)
    world.write(batch(40, 49, ARCHIVED, 1), start_offset=45)
    world.delete()
    assert ask(world, 3) == NONE
    assert ask(world, 3, 60) == found(FIRST_STATE_EPOCH, 60)


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize(
    ("key", "leader_epoch", "start_offset", "code"),
    [
        (UNKNOWN, 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (UNKNOWN, 1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY._replace(partition=8), 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY._replace(partition=-1), 1, 0, ErrorCode.INVALID_REQUEST),
        (KEY, -1, 0, ErrorCode.INVALID_REQUEST),
        (KEY, -1, None, ErrorCode.INVALID_REQUEST),
        (KEY, 1, -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_it_is_refused_as_the_calls_are_of_which_it_is_made(
    key: SharePartitionKey, leader_epoch: int, start_offset: int | None, code: ErrorCode, *, with_state: bool
) -> None:
    world = World()
    if with_state:  # of a topic that was known then
        world.image.partition_counts.update({UNKNOWN.topic_id: 8, TOPIC: 9})
        world.initialize(1, 0, key)
        world.image.partition_counts.update({UNKNOWN.topic_id: 0, TOPIC: 8})
    before = len(world.log)
    result = ask(world, leader_epoch, start_offset, key)
    assert (result.error_code, result.has_state, len(world.log)) == (code, False, before)
    assert result.error_message


def test_no_more_states_are_made_than_there_is_room_for() -> None:
    world = World(totals=StateTotals(state_bounds(share_partitions_max=1)))
    world.initialize(1, 0)
    other = KEY._replace(group_id="another")
    refused = world.run(world.shard.decide_initialize(other, 1, 0, world.now_ms))
    assert ask(world, 1, 0, other) == ReadOrInitializeResult(*refused)
    assert ask(world, 1, None, other) == NONE


# ---- the way to it -----------------------------------------------------------------------------------------------------------------


class House:
    """A process that serves share state, with an access to it; what goes together is begun at `settle`."""

    def __init__(self, topic: MemoryTopic, name: str = "a") -> None:
        self.node = Node(topic, name)
        self.calls: list[Callable[[], None]] = []
        self.callers: list[str] = []

        def handle(api_key: int, request: Any, respond: Any, caller: str) -> None:
            self.callers.append(caller)
            self.node.service.handle(api_key, request, respond)

        gate: Any = type("Gate", (), {"handle": staticmethod(handle), "partition_for": self.node.service.partition_for})
        self.access = ShareAccess(gate, self.node.service.partition_of_topic, self.calls.append)

    def settle(self) -> None:
        calls, self.calls[:] = self.calls[:], []
        for call in calls:
            call()
        self.node.settle()

    def read_or_initialize(self, leader_epoch: int, start_offset: int | None, group: str = "g1") -> Any:
        results: list[ReadOrInitializeResult] = []
        self.access.read_or_initialize(SharePartitionKey(group, TOPIC, 0), leader_epoch, start_offset, results.append)
        return results

    def write(self, leader_epoch: int, *batches: Any, start_offset: int = -1, group: str = "g1") -> list[WriteResult]:
        results: list[WriteResult] = []
        write = WritePartition(0, FIRST_STATE_EPOCH, leader_epoch, start_offset, -1, batches)
        self.access.write(group, TOPIC, write, results.append)
        return results


def test_an_answer_leaves_when_its_record_is_in_the_log() -> None:
    topic = MemoryTopic()
    house = House(topic)
    house.node.load(1)
    made = house.read_or_initialize(3, 40)
    assert not made, "it goes with the calls of its turn"
    for call in house.calls:
        call()
    house.calls.clear()
    assert not made, "it is not in the log yet"
    house.settle()
    assert made == [found(FIRST_STATE_EPOCH, 40)]
    written = house.write(3, batch(40, 44, ARCHIVING, 5), batch(45, 49, ARCHIVED, 5))
    house.settle()
    assert written == [WriteResult()]
    assert set(house.callers) == {"in process"}

    other = House(topic, "b")
    other.node.load(2)
    read = other.read_or_initialize(4, 90)
    other.settle()
    assert read == [found(FIRST_STATE_EPOCH, 40, batch(40, 44, ARCHIVING, 5), batch(45, 49, ARCHIVED, 5))]
    late = house.write(3, batch(50, 59, ARCHIVED, 1))
    house.settle()
    assert late[0].error_code == ErrorCode.NOT_COORDINATOR, "the former owner cannot write"


def test_two_leaders_that_find_no_state_make_one() -> None:
    house = House(MemoryTopic())
    house.node.load(1)
    first, second, third = (house.read_or_initialize(epoch, start) for epoch, start in ((3, 40), (3, 70), (4, 90)))
    house.settle()
    assert first == second == third == [found(FIRST_STATE_EPOCH, 40)]
    fenced = house.write(3, batch(40, 44, 2, 1))
    house.settle()
    assert fenced[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_call_whose_group_is_empty_is_answered() -> None:
    house = House(MemoryTopic())
    house.node.load(1)
    read, written = house.read_or_initialize(1, 0, group=""), house.write(1, group="")
    house.settle()
    assert (read[0].error_code, written[0].error_code) == (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LoadInProgress("it loads"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (NotCoordinator("another has it"), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_codes_are_those_of_calls_over_the_wire(failure: Exception, code: ErrorCode) -> None:
    house = Together()
    house.runtime.failures = dict.fromkeys(range(4), failure)
    results: list[Any] = []
    gate: Any = type(
        "Gate",
        (),
        {"handle": staticmethod(lambda key, request, respond, _: house.service.handle(key, request, respond))},
    )
    access = ShareAccess(gate, house.service.partition_of_topic, lambda call: call())
    access.read_or_initialize(KEY, 1, 0, results.append)
    access.write(KEY.group_id, TOPIC, WritePartition(0, 1, 1, -1, -1, ()), results.append)
    house.end()
    house.service.shut_down()
    access.read_or_initialize(KEY, 1, 0, results.append)
    house.end()
    assert [result.error_code for result in results] == [code, code, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not any(getattr(result, "has_state", False) for result in results)


def test_a_call_that_makes_a_state_counts_as_a_write() -> None:
    house = House(MemoryTopic())
    house.node.load(1)
    metrics: Any = house.node.service._metrics
    for start, count in ((None, 0), (40, 1), (40, 1)):
        house.read_or_initialize(3, start)
        house.settle()
        assert metrics.writes == count


def test_calls_of_the_wire_and_of_the_process_see_one_state() -> None:
    house = House(MemoryTopic())
    house.node.load(1)
    made = house.read_or_initialize(3, 40)
    house.settle()
    [(_, [(_, result)])] = house.node.call(INITIALIZE, InitializePartition(0, FIRST_STATE_EPOCH + 1, 60))
    assert not result.error_code
    fenced = house.write(3, batch(40, 44, 2, 1))
    house.settle()
    assert (made[0].start_offset, fenced[0].error_code) == (40, ErrorCode.FENCED_STATE_EPOCH), "an alteration fences"
    assert {DELETE, INITIALIZE, READ}.isdisjoint({READ_OR_INITIALIZE})


@pytest.mark.parametrize("placement", Placement)
def test_a_log_by_topic_partition_has_the_state_of_all_groups_together(placement: Placement) -> None:
    house = Together()
    house.service.shut_down()
    with pytest.raises(NotAvailable):
        house.service.partition_of_topic(TOPIC, 0)
    house.service.start_up(50, placement)
    keys = [SharePartitionKey(group, TOPIC, partition) for partition in range(20) for group in ("g1", "g:2", "")]
    found = [house.service.partition_of_topic(key.topic_id, key.partition) for key in keys]
    placed = [house.service.partition_for(key) for key in keys]
    assert placed == [log_partition(key, 50, placement) for key in keys]
    assert found == (placed if placement is Placement.BY_TOPIC_PARTITION else [None] * len(keys))
