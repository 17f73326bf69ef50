"""The log partitions of a member of a group: what it is given, gives up, hands over and loses."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.admin.commands import LogCommands
from holdfast.daemon.server.admin import AdminError
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.errors import NotCoordinator
from holdfast.runtime.partition.states import State
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld
from tests.world.process import Call
from tests.world.samples import TOPIC, batch

KEY = SharePartitionKey("group", TOPIC, 0)


def events(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines if line["log_level"] in ("warning", "error")]


async def begin_member(topic: MemoryTopic, node_id: int = 1) -> PartitionsWorld:
    world = PartitionsWorld(topic, node_id, membership="group")
    world.begin()
    await world.partitions.start()
    world.partitions.list_all_unloaded(None)
    return world


async def test_a_member_serves_what_it_is_given_and_is_ready_with_that() -> None:
    world = await begin_member(MemoryTopic(3))
    assert world.is_ready[-1:] == []
    world.partitions.load((), 1)
    assert world.is_ready[-1] is True, "without work, too"
    world.partitions.load((0, 2), 2)
    assert world.is_ready[-1] is False
    world.settle()
    assert (world.is_ready[-1], world.partitions.held_count()) == (True, 2)
    assert [(each.index, each.generation) for each in world.partitions.active()] == [(0, 2), (2, 2)]
    world.partitions.load((0, 2), 3)
    assert [(each.index, each.generation) for each in world.partitions.active()] == [(0, 3), (2, 3)]


async def test_what_is_given_up_answers_at_once_what_was_parked_and_is_not_missed() -> None:
    world = await begin_member(MemoryTopic(2))
    world.partitions.load((0, 1), 1)
    world.settle()
    world.initialize(1, KEY)
    parked = Call(lambda shard, now_ms: shard.decide_write(KEY, 1, 0, 0, 0, (batch(0, 9, 2, 1),), now_ms))
    world.runtime.write(1, parked)
    assert parked.outcomes == []
    world.partitions.unload((1,))
    assert [type(each) for each in parked.outcomes] == [NotCoordinator]
    assert (world.is_ready[-1], world.partitions.held_count()) == (True, 1)
    world.partitions.load((1,), 2)
    world.settle()
    assert world.partition(1).state is State.ACTIVE


@pytest.mark.parametrize("how", ["unload", "release"])
async def test_what_waits_for_its_turn_and_is_given_up_is_not_loaded(how: str) -> None:
    world = PartitionsWorld(MemoryTopic(2), membership="group", loads_max=1)
    world.begin()
    await world.partitions.start()
    world.partitions.load((0, 1), 1)
    getattr(world.partitions, how)((1,))
    world.settle()
    assert [(each.index, each.state) for each in world.partitions] == [(0, State.ACTIVE)]
    assert world.is_ready[-1] is True


async def test_of_what_is_given_up_together_nothing_is_loaded_in_the_room_that_the_first_leaves() -> None:
    world = PartitionsWorld(MemoryTopic(3), membership="group", loads_max=1)
    world.begin()
    await world.partitions.start()
    world.partitions.load((0, 1, 2), 1)
    world.partitions.unload((0, 1, 2))
    assert [each.index for each in world.partitions] == [0]
    assert world.partitions.held_count() == 0


async def test_what_another_member_was_to_take_is_handed_over_in_one_line() -> None:
    topic = MemoryTopic(2)
    world, other = await begin_member(topic), await begin_member(topic, node_id=2)
    world.partitions.load((0, 1), 1)
    world.settle()
    world.handed_over = {1}
    world.partitions.release((1,))
    assert world.partition(1).state is State.ACTIVE
    ready = len(world.is_ready)
    with capture_logs() as lines:
        other.partitions.load((1,), 2)
        other.settle()
        world.settle()
        world.tick(20)
    assert events(lines) == []
    [line] = [line for line in lines if line["event"] == "log_partitions_handed_over"]
    assert (line["log_partitions"], line["which"], line["node"], line["address"]) == (
        1,
        "1",
        "2",
        "node-2.example:9492",
    )
    assert set(world.is_ready[ready:]) == {True}
    assert (world.lost_to, world.is_ready[-1], world.partitions.superseded_by()) == ([], True, [])
    assert world.series("ownerships_lost") == {"holdfast_ownerships_lost_total": 0}


async def test_a_log_of_a_higher_generation_is_no_loss_for_a_member_that_had_it_never() -> None:
    topic = MemoryTopic(1)
    first = await begin_member(topic, node_id=2)
    first.partitions.load((0,), 5)
    first.settle()
    world = await begin_member(topic)
    with capture_logs() as lines:
        world.partitions.load((0,), 1)
        world.settle()
        world.tick(20)
    assert events(lines) == []
    [line] = [line for line in lines if line["event"] == "log_partitions_outranked"]
    assert (line["which"], line["log_generation"]) == ("0", 5)
    assert world.series("ownerships_lost") == {"holdfast_ownerships_lost_total": 0}
    world.partitions.load((0,), 6)
    world.settle()
    assert world.is_ready[-1] is True


async def test_an_admin_accepts_only_what_is_this_members_and_takes_nothing_from_the_group() -> None:
    world = await begin_member(MemoryTopic(2))
    world.partitions.load((0,), 1)
    world.settle()

    class Group:
        def refuse_take(self) -> str:
            return "The group divides."

        def describe_elsewhere(self) -> list[dict[str, object]]:
            return [{"partition": 1, "state": "elsewhere", "owner": 2, "owner_address": "b:9492"}]

    commands = LogCommands(None, world.partitions, None, Group(), world.brokers).table()  # type: ignore[arg-type]
    with pytest.raises(AdminError, match=r"^The group divides\.$"):
        commands["partitions-take"]({"partition": 1})
    with pytest.raises(
        AdminError, match=r"Log partition 1 is not this node's to serve: node 2 has it; .* --address b:9492"
    ):
        commands["partitions-accept"]({"partition": 1, "reason": "restored"})


async def test_a_member_that_loses_what_it_was_to_keep_says_so_and_does_not_end() -> None:
    topic = MemoryTopic(2)
    world, other = await begin_member(topic), await begin_member(topic, node_id=2)
    world.partitions.load((0, 1), 1)
    world.settle()
    with capture_logs() as lines:
        other.partitions.load((1,), 2)
        other.settle()
        world.settle()
        world.tick(20)
    assert (events(lines), world.lost_to, world.is_ready[-1]) == (["log_partitions_lost"], [], False)
    assert world.partitions.superseded_by() == [
        {"node_id": "2", "advertised_address": "node-2.example:9492", "log_partitions": [1]}
    ]
