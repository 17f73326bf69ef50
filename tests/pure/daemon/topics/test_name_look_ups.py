"""Look-ups of topics by name: one question for all who wait, and what is known where Kafka cannot be reached."""

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from holdfast.daemon.topics.name_look_ups import NameBounds, NotATopicName, Resolved, TooManyNames, TopicNames
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.topics.metadata_client import Topic

OLD, NEW = Topic(bytes([1] * 16), "orders", 8), Topic(bytes([2] * 16), "orders", 8)
REFUSED = "127.0.0.1:9092 cannot be reached"


class Kafka:
    """Answers questions one at a time, when it may."""

    def __init__(self) -> None:
        self.topics = {"orders": OLD}
        self.missing = {"missing"}
        self.is_down = False
        self.asked: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_closed = False

    async def query_names(self, names: Iterable[str]) -> Mapping[str, Topic]:
        self.asked.append(list(names))
        await self.may_answer.wait()
        if self.is_down:
            raise ConnectionFailed(REFUSED)
        return {name: self.topics.get(name, Topic(bytes(16), name, 1)) for name in names if name not in self.missing}

    def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self, timeout_ms: int = 60_000, **bounds: int) -> None:
        self.kafka, self.now_ms = Kafka(), 1_000_000
        self.names = TopicNames(self.kafka, lambda: self.now_ms, timeout_ms=timeout_ms, bounds=NameBounds(**bounds))


async def test_kafka_is_queried_each_time_so_a_recreated_topic_is_seen() -> None:
    world = World()
    assert await world.names.resolve("orders") == Resolved(OLD, 0, "")
    world.kafka.topics["orders"] = NEW
    assert await world.names.resolve("orders") == Resolved(NEW, 0, "")
    assert await world.names.resolve("missing") == Resolved(None, 0, "")


async def test_where_kafka_cannot_be_reached_a_name_resolved_before_serves_and_says_how_old_it_is() -> None:
    world = World()
    await world.names.resolve("orders")
    world.now_ms += 5_000
    world.kafka.is_down = True
    assert await world.names.resolve("orders") == Resolved(OLD, 5_000, REFUSED)
    with pytest.raises(ConnectionFailed, match=REFUSED):
        await world.names.resolve("payments")


async def test_a_broker_that_is_silent_keeps_a_name_resolved_before_waiting_for_a_bounded_time_only() -> None:
    world = World(timeout_ms=50)
    await world.names.resolve("orders")
    world.now_ms += 5_000
    world.kafka.may_answer.clear()
    async with asyncio.timeout(60):
        assert await world.names.resolve("orders") == Resolved(OLD, 5_000, "no broker answered within 50 ms")
        with pytest.raises(ConnectionFailed, match="no broker answered within 50 ms"):
            await world.names.resolve("payments")
        assert world.kafka.asked[1:] == [["orders"]], "one question is asked at a time, also where it waits"
        world.kafka.may_answer.set()
        assert await world.names.resolve("orders") == Resolved(OLD, 0, "")


async def test_what_kafka_knows_no_more_is_forgotten() -> None:
    world = World()
    await world.names.resolve("orders")
    world.kafka.missing.add("orders")
    assert await world.names.resolve("orders") == Resolved(None, 0, "")
    world.kafka.is_down = True
    with pytest.raises(ConnectionFailed):
        await world.names.resolve("orders")


async def test_names_are_remembered_for_a_bounded_time() -> None:
    world = World(age_max_ms=10_000)
    await world.names.resolve("orders")
    world.kafka.is_down = True
    world.now_ms += 10_000
    assert (await world.names.resolve("orders")).age_ms == 10_000
    world.now_ms += 1
    with pytest.raises(ConnectionFailed):
        await world.names.resolve("orders")


async def test_names_are_remembered_in_a_bounded_number_of_bytes_the_newest_longest() -> None:
    world = World(bytes_max=2_000)
    for number in range(50):
        await world.names.resolve(f"topic-{number}-{'x' * 200}")
        assert world.names._known_bytes <= 2_000
    world.kafka.is_down = True
    assert (await world.names.resolve(f"topic-49-{'x' * 200}")).problem
    with pytest.raises(ConnectionFailed):
        await world.names.resolve(f"topic-0-{'x' * 200}")
    assert world.names._known_bytes == sum(400 + len(name) for name in world.names._known)


async def test_all_who_wait_share_queries_of_a_bounded_size_and_one_is_queried_at_a_time() -> None:
    world = World(per_request_max=2)
    world.kafka.may_answer.clear()
    first = asyncio.create_task(world.names.resolve("a"))
    await asyncio.sleep(0)
    others = [asyncio.create_task(world.names.resolve(name)) for name in ("b", "c", "d", "b", "b")]
    await asyncio.sleep(0)
    world.kafka.may_answer.set()
    await asyncio.gather(first, *others)
    assert world.kafka.asked[0] == ["a"]
    assert sorted(name for asked in world.kafka.asked for name in asked) == ["a", "b", "c", "d"]
    assert max(map(len, world.kafka.asked)) == 2


async def test_too_many_names_at_once_are_refused_and_the_others_served() -> None:
    world = World(waiting_max=3)
    world.kafka.may_answer.clear()
    waiting = [asyncio.create_task(world.names.resolve(name)) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    with pytest.raises(TooManyNames):
        await world.names.resolve("d")
    same = asyncio.create_task(world.names.resolve("a"))
    world.kafka.may_answer.set()
    assert all([(await each).topic for each in (*waiting, same)])


async def test_what_is_no_topic_name_is_not_requested() -> None:
    world = World()
    for name in ("", "\ud800", "x" * 40_000, "a b"):
        with pytest.raises(NotATopicName):
            await world.names.resolve(name)
    assert world.kafka.asked == []


async def test_the_end_fails_those_who_wait_and_leaves_nothing_behind() -> None:
    world = World()
    world.kafka.may_answer.clear()
    waiting = asyncio.create_task(world.names.resolve("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await world.names.close()
    with pytest.raises(ConnectionFailed, match="given up"):
        await waiting
    assert world.kafka.is_closed


async def test_one_who_gives_up_takes_no_other_along() -> None:
    world = World()
    world.kafka.may_answer.clear()
    gone, other = (asyncio.create_task(world.names.resolve("orders")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    world.kafka.may_answer.set()
    assert (await other).topic == OLD
    assert gone.cancelled()
