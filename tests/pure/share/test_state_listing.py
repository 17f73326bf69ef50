"""Pages of the state of a node: each share partition once, in order, as the log has committed it, in steps."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from holdfast.api.admin import AdminRequest, decode_admin_response
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import Admin, AdminError
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.metrics.instruments import Counter
from holdfast.records.share.keys import SharePartitionKey
from holdfast.share.state_listing import ROWS_PER_PAGE_MAX, StateListing, with_time
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld
from tests.world.process import Call
from tests.world.samples import OTHER_TOPIC, TOPIC, Image, batch
from tests.world.tenants import NEEDS

KEYS = sorted(
    SharePartitionKey(group, topic_id, partition)
    for group in ("payments", "orders", "a:b")
    for topic_id in (TOPIC, OTHER_TOPIC)
    for partition in range(3)
)


def steps_of(world: PartitionsWorld, rows_max: int = ROWS_PER_PAGE_MAX, **arguments: Any) -> tuple[int, dict[str, Any]]:
    """Return how many steps a page took, and the page."""
    page, count = StateListing(world.partitions, world.settings.limits, rows_max=rows_max).page(arguments), 0
    while True:
        try:
            next(page)
        except StopIteration as end:
            return count, end.value
        count += 1


def page_of(world: PartitionsWorld, **arguments: Any) -> dict[str, Any]:
    return steps_of(world, **arguments)[1]


def pages_of(world: PartitionsWorld, **arguments: Any) -> Iterator[dict[str, Any]]:
    after = None
    while True:
        page = page_of(world, **arguments, after=after)
        yield page
        if (after := page["next"]) is None:
            return


async def filled(**flags: Any) -> PartitionsWorld:
    world = PartitionsWorld(MemoryTopic(4), **flags)
    await world.serve(Image({TOPIC: 3, OTHER_TOPIC: 3}))
    for number, key in enumerate(KEYS):
        world.initialize(number % 4, key)
    return world


def listed(*pages: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(row["group"], row["topic_id"], row["partition"]) for page in pages for row in page["share_partitions"]]


ALL = [(key.group_id, format_topic_id(key.topic_id), key.partition) for key in KEYS]


@pytest.mark.parametrize("limit", [1, 2, 5, 17, 18, 19])
async def test_pages_hold_each_share_partition_once_and_in_order(limit: int) -> None:
    world = await filled()
    pages = list(pages_of(world, limit=limit))
    assert listed(*pages) == ALL
    assert {len(page["share_partitions"]) for page in pages[:-1]} <= {limit}
    assert len(pages) == -(-len(ALL) // limit)


async def test_a_page_has_as_many_rows_and_bytes_as_the_settings_allow() -> None:
    world = await filled()
    for arguments in ({}, {"limit": 1_000}):
        assert len(page_of(world, rows_max=4, **arguments)["share_partitions"]) == 4
    world = await filled(answer_size_bytes_max=1_024)
    pages = list(pages_of(world))
    assert listed(*pages) == ALL
    assert {len(page["share_partitions"]) for page in pages} == {2}


async def test_one_group_or_one_topic_is_listed_alone() -> None:
    world = await filled()
    assert listed(*pages_of(world, group="a:b", limit=4)) == [key for key in ALL if key[0] == "a:b"]
    topic_id = format_topic_id(OTHER_TOPIC)
    assert listed(*pages_of(world, topic_id=topic_id, limit=4)) == [key for key in ALL if key[1] == topic_id]
    assert listed(page_of(world, group="nobody")) == []


async def test_a_state_is_summed_up() -> None:
    world = await filled()
    batches = (batch(100, 109, 2, 1), batch(110, 119, 0, 2), batch(125, 125, 4, 5))
    world.call(0, lambda shard, now_ms: shard.decide_write(KEYS[0], 1, 0, 100, 11, batches, now_ms))
    assert page_of(world, limit=1)["share_partitions"] == [
        {
            "group": "a:b",
            "topic_id": format_topic_id(TOPIC),
            "partition": 0,
            "state_epoch": 1,
            "leader_epoch": 0,
            "start_offset": 100,
            "state_end_offset": 126,
            "oldest_unfinished_offset": 110,
            "finished": 11,
            "delivery_complete_count": 11,
            "in_flight": 15,
            "delivery_count_max": 2,
            "delivery_counts": {"2": 10},
            "state_batches": 3,
            "log_partition": 0,
            "owner": "1",
        }
    ]


async def test_uncommitted_state_is_not_listed() -> None:
    world = await filled()
    new = SharePartitionKey("zz", TOPIC, 0)
    world.runtime.write(1, Call(lambda shard, now_ms: shard.decide_initialize(new, 1, 0, now_ms)))
    world.runtime.write(0, Call(lambda shard, now_ms: shard.decide_write(KEYS[0], 1, 0, 7, 0, (), now_ms)))
    page = page_of(world)
    assert listed(page) == ALL
    assert page["share_partitions"][0]["start_offset"] == 0
    world.settle()
    page = page_of(world)
    assert listed(page) == [*ALL, ("zz", format_topic_id(TOPIC), 0)]
    assert page["share_partitions"][0]["start_offset"] == 7


async def test_log_partitions_that_are_not_served_are_named() -> None:
    world = await filled()
    world.partition(1).fail(RuntimeError("a bug"), world.clock.now_ms)
    page = page_of(world)
    assert listed(page) == [key for number, key in enumerate(ALL) if number % 4 != 1]
    [missing] = page["not_listed"]
    assert (missing["log_partition"], missing["state"]) == (1, "failed")
    assert "a bug" in missing["why"]


async def test_a_log_partition_that_goes_while_a_page_is_made_is_named() -> None:
    world = await filled()
    page = StateListing(world.partitions, world.settings.limits).page({})
    next(page)
    world.partition(1).fail(RuntimeError("a bug"), world.clock.now_ms)
    try:
        while True:
            next(page)
    except StopIteration as end:
        answer = end.value
    assert listed(answer) == [key for number, key in enumerate(ALL) if number % 4 != 1]
    assert [missing["log_partition"] for missing in answer["not_listed"]] == [1]


async def test_a_large_page_is_made_in_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.share.state_listing._KEYS_PER_STEP", 1)
    monkeypatch.setattr("holdfast.share.state_listing._BATCHES_PER_STEP", 1)
    world = await filled()
    count, page = steps_of(world)
    assert listed(page) == ALL
    assert count == 2 * len(ALL) - 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"limit": 0}, "whole number from 1 on"),
        ({"limit": True}, "whole number from 1 on"),
        ({"group": 7}, "The `group` must be a text"),
        ({"topic_id": "orders"}, "a topic id is 22 characters"),
        ({"after": "orders"}, "must be the `next`"),
        ({"after": ["g", "orders", 0]}, "a topic id is 22 characters"),
    ],
)
async def test_a_wrong_argument_is_named(arguments: dict[str, Any], why: str) -> None:
    world = await filled()
    with pytest.raises(AdminError, match=why):
        page_of(world, **arguments)


async def test_a_node_that_starts_says_so_and_is_to_be_tried_again() -> None:
    world = PartitionsWorld(MemoryTopic(4))
    world.begin()
    with pytest.raises(AdminError, match="This node is starting; try again") as refused:
        page_of(world)
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_steps_of_a_command_end_with_its_answer_or_its_refusal() -> None:
    def count(arguments: dict[str, Any]) -> Any:
        for _ in range(arguments["steps"]):
            yield
        return arguments["steps"]

    def refuse(arguments: dict[str, Any]) -> Any:
        yield
        raise AdminError("No more.")

    answers: list[bytes] = []
    admin = Admin({"count": count, "refuse": refuse}, NEEDS, 60_000, InternalErrors(Counter()))
    steps = admin.handle(AdminRequest("count", {"steps": 3}), answers.append)
    assert steps is not None
    assert (list(steps), decode_admin_response(answers[0]).result) == ([True] * 3, 3)
    steps = admin.handle(AdminRequest("refuse", {}), answers.append)
    assert steps is not None
    assert (list(steps), decode_admin_response(answers[1])) == ([True], (42, "No more.", None))


def test_a_page_for_another_node_tells_the_time_that_it_took() -> None:
    used_s = 0.0

    def work() -> Generator[None, None, dict[str, Any]]:
        nonlocal used_s
        used_s += 0.25
        yield
        used_s += 0.5
        return {"share_partitions": [], "next": None}

    page = with_time(work(), lambda: used_s)
    next(page)
    used_s += 60  # of others
    with pytest.raises(StopIteration) as end:
        next(page)
    assert end.value.value == {"share_partitions": [], "next": None, "spent_s": 0.75}
