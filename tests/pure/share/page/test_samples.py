"""The looks of a node at its share partitions, a minute apart: what each group finished, known where it was served all the minute."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.log_protocol import ReadError
from holdfast.share.page import samples as room
from holdfast.share.page.samples import Samples
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld
from tests.world.samples import TOPIC

MINUTE_MS = 60_000
KEY = SharePartitionKey("workers", TOPIC, 0)


class Minutes:
    """A node that serves two log partitions, and the time by which it looks."""

    def __init__(self, world: PartitionsWorld) -> None:
        self.world = world
        self.now_ms = 1_000 * MINUTE_MS + 50
        self.samples = Samples(world.partitions, lambda: self.now_ms)

    async def pass_one(self, *finished: int) -> None:
        """Let the share partition finish some tens of records in a minute, and look after it."""
        for first in finished:
            self.world.write(0, KEY, first)
        self.now_ms += MINUTE_MS
        await self.samples.look()

    def last(self, count: int, *log_partitions: int) -> list[int | None]:
        """Return the last minutes of the group before the one that goes on."""
        found = self.samples.of_last_minutes("workers", TOPIC, log_partitions or (0,), self.now_ms)
        assert (len(found), found[-1]) == (60, None), "the minute that goes on is not looked at"
        return list(found[-1 - count : -1])


@pytest.fixture
async def minutes() -> Minutes:
    world = await PartitionsWorld(MemoryTopic(2)).serve()
    world.initialize(0, KEY)
    minutes = Minutes(world)
    await minutes.samples.look()
    return minutes


async def test_a_first_reader_is_shown_all_minutes_from_the_first_look_on(minutes: Minutes) -> None:
    assert minutes.last(2) == [None, None]
    await minutes.pass_one(10)
    await minutes.pass_one()
    await minutes.pass_one(20, 30)
    assert minutes.last(5) == [None, None, 10, 0, 20]
    assert minutes.samples.of_last_minutes("another", TOPIC, (0,), minutes.now_ms)[-4:] == (0, 0, 0, None)


async def test_an_hour_is_kept_and_no_more(minutes: Minutes) -> None:
    await minutes.pass_one(10)
    for _ in range(58):
        await minutes.pass_one()
    assert minutes.last(59) == [10] + [0] * 58
    await minutes.pass_one()
    assert minutes.last(59) == [0] * 59
    await minutes.pass_one()
    assert not minutes.samples._counts, "nothing is kept of a group that finishes nothing"


async def test_a_log_partition_that_was_loaded_again_is_unknown_before(minutes: Minutes) -> None:
    await minutes.pass_one(10)
    held = minutes.world.runtime.partitions[0]
    minutes.world.runtime.read_failed(0, held.reading.instance, ReadError("a broker is away", is_alarm=False))
    minutes.world.partitions.load_again_soon()
    minutes.world.tick(50)
    await minutes.pass_one(20)
    await minutes.pass_one(30)
    assert minutes.last(3) == [None, None, 10]
    assert minutes.last(3, 1) == [10, 10, 10], "of the other log partition all of them are known"
    assert minutes.last(3, 0, 1) == [None, None, 10]
    assert minutes.last(3, 0, 7) == [None] * 3, "another node has a part"


async def test_a_minute_without_a_look_makes_all_before_unknown(minutes: Minutes) -> None:
    await minutes.pass_one(10)
    minutes.now_ms += MINUTE_MS
    await minutes.pass_one(20)
    await minutes.pass_one(30)
    assert minutes.last(3) == [None, None, 10]


async def test_a_node_of_too_many_share_partitions_keeps_nothing(
    minutes: Minutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await minutes.pass_one(10)
    monkeypatch.setattr(room, "KEYS_MAX", 0)
    await minutes.pass_one(20)
    assert minutes.last(1) == [None]
    assert not minutes.samples._marks


@pytest.mark.virtual_time
async def test_it_looks_when_each_minute_has_ended() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    loop = asyncio.get_running_loop()
    looks = list[int]()

    def now_ms() -> int:
        return round(loop.time() * 1_000)

    samples = Samples(world.partitions, now_ms)
    for _ in range(3):
        await samples.follow()
        looks.append(now_ms())
    assert {each % MINUTE_MS for each in looks} == {50}
    assert {after - before for before, after in pairwise(looks)} == {MINUTE_MS}
