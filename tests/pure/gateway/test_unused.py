"""Share partitions that nobody fetches any more are unloaded, and nothing is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.api.share_acknowledge import ShareAcknowledgeRequest
from holdfast.api.share_consumer import NamedPartition
from holdfast.api.share_fetch import Piece, ShareFetchRequest, decode_response
from holdfast.delivery.group_config import GroupConfig
from holdfast.gateway.leading.led_partition import LedPartition
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.records.transactions import AbortedTransaction
from holdfast.records.share.keys import SharePartitionKey
from tests.pure.gateway.test_serving import WANTED, Caller, World, make_batch, make_calls
from tests.world.samples import TOPIC

OTHER_TOPIC = bytes(15) + b"\x09"


class Node:
    """A node that two members fetch from, each over a connection of its name."""

    def __init__(self) -> None:
        self.world = World()
        self.calls = make_calls(self.world)
        self.answers = list[list[Piece]]()

    def fetch(
        self, member: str, epoch: int, added: Sequence[int] = (), forgotten: Sequence[int] = (), wait_ms: int = 0
    ) -> None:
        gone = [(TOPIC, list(forgotten))] if forgotten else []
        named = [(TOPIC, [NamedPartition(each) for each in added])] if added else []
        request = ShareFetchRequest("group", member, epoch, named, gone, wait_ms, 1, 1 << 20, 500, 500)
        self.calls.fetch(Caller(member), request, self.answers.append)

    def led(self) -> set[int]:
        return {each for each in range(10) if self.find(each) is not None}

    def find(self, partition: int) -> LedPartition | None:
        return self.world.leader.find(SharePartitionKey("group", TOPIC, partition))

    def feed(self, partition: int) -> None:
        for reader in self.world.readers.opened:
            if reader.partition == partition:
                reader.put((make_batch(0, 9),), ())


@pytest.mark.virtual_time
async def test_partition_that_its_last_member_forgot_is_unloaded_soon() -> None:
    node = Node()
    node.fetch("one", 0, [0, 1, 2])
    node.fetch("two", 0, [2])
    node.fetch("one", 1, forgotten=[1, 2])
    assert node.led() == {0, 1, 2}, "another member may fetch it with its next heartbeat"
    await asyncio.sleep(30)
    assert node.led() == {0, 2}


@pytest.mark.virtual_time
async def test_partitions_of_a_session_that_ended_go_though_its_group_goes_on() -> None:
    node = Node()
    node.fetch("one", 0, [0, 1])
    node.fetch("two", 0, [2])
    node.calls.connection_closed("one")
    node.fetch("three", 0, [3])
    node.calls.acknowledge(Caller("three"), 1, ShareAcknowledgeRequest("group", "three", -1, []), list[bytes]().append)
    await asyncio.sleep(30)
    assert node.led() == {2}


@pytest.mark.virtual_time
async def test_partition_that_a_new_session_lacks_is_unloaded() -> None:
    node = Node()
    node.fetch("one", 0, [0, 1])
    node.fetch("one", 0, [1])
    await asyncio.sleep(30)
    assert node.led() == {1}


@pytest.mark.virtual_time
async def test_partition_that_moves_to_another_member_stays_loaded() -> None:
    node = Node()
    node.fetch("one", 0, [0, 1])
    node.fetch("two", 0, [2])
    led = node.find(1)
    node.fetch("one", 1, forgotten=[1])
    await asyncio.sleep(6)
    node.fetch("two", 1, [1])
    await asyncio.sleep(30)
    assert node.find(1) is led


@pytest.mark.virtual_time
async def test_partition_with_a_record_that_is_held_waits_for_its_lock() -> None:
    node = Node()
    node.fetch("one", 0, [0, 1])
    node.feed(1)
    node.fetch("one", 1)
    node.fetch("one", 2, forgotten=[1])
    await asyncio.sleep(25)
    led = node.find(1)
    assert led is not None
    assert led.is_held, "its member may still acknowledge it"
    await asyncio.sleep(10)
    assert not led.is_held
    node.world.state.answer()
    await asyncio.sleep(10)
    assert node.led() == {0}
    assert node.world.state.writes[-1].state_batches == ((0, 9, 0, 1),)


@pytest.mark.virtual_time
async def test_log_knows_how_far_all_is_done_before_a_partition_is_unloaded() -> None:
    """Aborted records are passed over without a Write; lag would be wrong for as long as nobody fetches."""
    node = Node()
    node.fetch("one", 0, [0, 1])
    led = node.find(1)
    assert led is not None
    reader = node.world.readers.opened[-1]
    reader.put((make_batch(0, 9, producer_id=7),), (AbortedTransaction(7, 0),))
    assert led.give(WANTED, 500, 1 << 20) is None
    node.fetch("one", 1, forgotten=[1])
    await asyncio.sleep(15)
    assert node.led() == {0, 1}
    assert [each.start_offset for each in node.world.state.writes] == [10]
    node.world.state.answer()
    assert node.led() == {0}


@pytest.mark.virtual_time
async def test_log_is_told_again_of_what_was_given_up_until_it_knows() -> None:
    """The member of records that were given as often as they may be is gone, and the log takes no Write for a while."""
    world = World(GroupConfig(delivery_count_limit=1, record_lock_duration_ms=1_000_000))
    led, state = world.lead(), world.state
    for first, member in ((0, "one"), (10, "gone")):
        world.readers.opened[-1].put((make_batch(first, first + 9),), ())
        assert led.give(WANTED._replace(member_id=member), 10, 1 << 20) is not None
    led.release("gone")
    for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
        state.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        count = len(state.writes)
        await asyncio.sleep(0.9 * pause_s)
        assert len(state.writes) == count
        await asyncio.sleep(0.2 * pause_s)
        assert len(state.writes) == count + 1
    state.answer()
    await asyncio.sleep(100)
    assert [each.state_batches for each in state.writes] == [((10, 19, 4, 1),)] * 9


@pytest.mark.virtual_time
async def test_log_knows_what_was_given_up_before_a_partition_is_unloaded() -> None:
    world = World(GroupConfig(delivery_count_limit=1))
    led, state = world.lead(), world.state
    world.readers.opened[-1].put((make_batch(0, 9),), ())
    assert led.give(WANTED, 500, 1 << 20) is not None
    led.release(WANTED.member_id)
    led.unload()
    state.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.lead() is led
    await asyncio.sleep(5)
    assert [each.start_offset for each in state.writes] == [10, 10]
    state.answer()
    assert len(world.leader) == 0


@pytest.mark.virtual_time
async def test_many_partitions_are_unloaded_over_many_turns() -> None:
    node = Node()
    node.world.leader._share_partitions_max = 1_000
    node.fetch("one", 0, range(450))
    node.fetch("one", 1, forgotten=range(1, 450))
    await asyncio.sleep(11)
    assert len(node.world.leader) == 1
    assert not len(node.calls._unused)


async def test_share_partitions_of_a_topic_that_is_gone_end_and_fetches_are_told() -> None:
    node = Node()
    node.fetch("one", 0, [0, 1], wait_ms=50)
    other = node.world.leader.lead(SharePartitionKey("group", OTHER_TOPIC, 0))
    node.world.leader.forget_topics(lambda topic_id: topic_id == OTHER_TOPIC)
    await asyncio.sleep(0.2)
    assert (node.led(), len(node.world.leader)) == (set(), 1)
    assert isinstance(other, LedPartition)
    assert other.ended is None
    [(_, partitions)] = decode_response(b"".join(node.answers[0])).topics
    assert {each.error_code for each in partitions} == {ErrorCode.UNKNOWN_TOPIC_ID}
