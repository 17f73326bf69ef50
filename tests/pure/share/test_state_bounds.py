"""State has bounds over all groups and for each: growth beyond is refused, what is there is loaded and served."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.partitions.partitions import LOOK_INTERVAL_MS
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.share import shard_kind
from holdfast.share.decisions import ShareShard
from tests.configs import shard_config
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld
from tests.world.process import TICK_MS
from tests.world.samples import EPOCH_MAX, TOPIC, batch

WHY_NOT = "allows no more"
_TICKS_PER_LOOK = LOOK_INTERVAL_MS // TICK_MS + 1


def key(number: int, group_id: str = "group") -> SharePartitionKey:
    return SharePartitionKey(group_id, TOPIC, number)


async def serving(partition_count: int = 2, topic: MemoryTopic | None = None, **bounds: int) -> PartitionsWorld:
    # A node that follows another one on its log is another one: its chance must not be the same.
    world = PartitionsWorld(topic or MemoryTopic(partition_count), 1 if topic is None else 2, **bounds)
    await world.serve()
    return world


def initialize(world: PartitionsWorld, *keys: SharePartitionKey) -> list[tuple[int, str | None]]:
    """Initialize share partitions on the log partitions in turn; returns code and text of each."""
    answers = []
    for each in keys:
        outcome = world.call(
            each.partition % len(world.runtime.partitions),
            lambda shard, now_ms, each=each: shard.decide_initialize(each, 0, 0, now_ms),  # type: ignore[misc]
        )
        answers.append((outcome.error_code, outcome.error_message))  # type: ignore[attr-defined]
    return answers


def write(world: PartitionsWorld, index: int, each: SharePartitionKey, first: int, count: int) -> int:
    """Write single records apart from each other, so that each is a batch of its own."""
    batches = tuple(batch(2 * number, 2 * number, 2, 1) for number in range(first, first + count))
    outcome = world.call(
        index, lambda shard, now_ms: shard.decide_write(each, EPOCH_MAX, EPOCH_MAX, -1, -1, batches, now_ms)
    )
    return outcome.error_code  # type: ignore[attr-defined, no-any-return]


async def test_one_share_partition_too_many_is_refused_and_names_the_setting() -> None:
    world = await serving(share_partitions_max=3)
    *answers, refused = initialize(world, *(key(number) for number in range(4)))
    assert answers == [(0, None)] * 3
    assert refused == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "This node holds 3 share partitions; share_partitions_max allows no more.",
    )
    assert initialize(world, key(1)) == [(0, None)], "what has state may start over"
    assert write(world, 1, key(1), 0, 1) == 0
    world.call(0, lambda shard, _: shard.decide_delete(key(2)))
    assert initialize(world, key(3)) == [(0, None)], "a deleted one made room"


async def test_one_group_has_a_bound_of_its_own_over_all_log_partitions() -> None:
    world = await serving(share_partitions_per_group_max=2)
    *answers, refused = initialize(world, *(key(number) for number in range(3)))
    assert answers == [(0, None)] * 2
    assert refused == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "The group has 2 share partitions; share_partitions_per_group_max allows no more.",
    )
    assert initialize(world, key(3, "other")) == [(0, None)]


async def test_a_group_id_that_is_too_long_gets_no_state() -> None:
    world = await serving(group_id_bytes_max=10)
    assert initialize(world, key(0, "ä" * 5), key(1, "x" * 11)) == [
        (0, None),
        (ErrorCode.INVALID_REQUEST, "The group id has 11 bytes; group_id_bytes_max allows 10."),
    ]


async def test_state_that_would_grow_beyond_its_bytes_is_refused_and_may_shrink() -> None:
    world = await serving(1, state_bytes_max=1024 * 1024)
    assert initialize(world, key(0), key(1)) == [(0, None)] * 2
    codes = [write(world, 0, key(number % 2), 5_000 * number, 10_000) for number in range(8)]
    assert codes[0] == 0
    assert codes[-1] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert sorted(codes, reverse=True) == codes, "once there is no room, there is none"
    state_bytes = world.kind.totals.state_bytes
    assert 900_000 < state_bytes <= 1024 * 1024
    same = (batch(0, 0, 2, 1),)
    again = world.call(
        0, lambda shard, now_ms: shard.decide_write(key(0), EPOCH_MAX, EPOCH_MAX, -1, -1, same * 20_000, now_ms)
    )
    assert again.error_code == 0, "a write that adds no batch is none that grows"  # type: ignore[attr-defined]
    moved = world.call(0, lambda shard, now_ms: shard.decide_write(key(0), EPOCH_MAX, EPOCH_MAX, 10**6, -1, (), now_ms))
    assert moved.error_code == 0  # type: ignore[attr-defined]
    assert write(world, 0, key(1), 100_000, 10_000) == 0


async def test_state_in_the_log_is_loaded_and_served_beyond_any_bound() -> None:
    roomy = await serving()
    initialize(roomy, *(key(number, "g" * 600) for number in range(4)))
    await roomy.partitions.stop(1_000)
    world = await serving(
        topic=roomy.topic, share_partitions_max=1, share_partitions_per_group_max=1, group_id_bytes_max=1
    )
    assert len(world.keys()) == 4
    assert initialize(world, key(1, "g" * 600)) == [(0, None)]
    assert initialize(world, key(9, "h"))[0][0] == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_totals_follow_initializes_writes_deletes_reloads_and_losses() -> None:
    world = await serving(2)
    totals = world.kind.totals

    def check() -> None:
        machines = [machine for _, machine in shard_kind.serving(world.partitions.active())]
        assert totals.share_partitions == sum(machine.state.share_partition_count() for machine in machines)
        assert totals.state_bytes == sum(machine.state.live_bytes for machine in machines)
        groups = [each.group_id for machine in machines for each in machine.state.timeline.current]
        assert totals._groups == {name: groups.count(name) for name in set(groups)}

    initialize(world, *(key(number, group) for number in range(6) for group in ("g", "h")))
    write(world, 0, key(0, "g"), 0, 100)
    check()
    assert totals.share_partitions == 12
    world.call(0, lambda shard, _: shard.decide_delete(key(2, "g")))
    check()
    world.partition(0).fail(RuntimeError("a bug"), world.clock.now_ms)
    check()
    assert totals.share_partitions == 6
    world.tick(20)
    check()
    assert totals.share_partitions == 11
    world.runtime.unload(1, None)
    world.settle()
    check()
    await world.partitions.stop(1_000)
    assert (totals.share_partitions, totals.state_bytes, totals._groups) == (0, 0, {})


async def test_an_append_that_the_log_refuses_counts_for_nothing() -> None:
    world = await serving(1)
    initialize(world, key(0))
    before = world.kind.totals.state_bytes
    world.topic.message_bytes_max = 10
    assert world.call(0, lambda shard, now_ms: shard.decide_initialize(key(1), -1, 0, now_ms))
    assert (world.kind.totals.share_partitions, world.kind.totals.state_bytes) == (1, before)


async def test_a_bound_that_comes_close_is_one_line_before_anybody_is_refused() -> None:
    world = await serving(share_partitions_max=10)

    def warnings(count: int) -> list[dict[str, object]]:
        with capture_logs() as lines:
            initialize(world, *(key(number) for number in range(count)))
            world.tick(_TICKS_PER_LOOK)
        return [dict(line) for line in lines if line["event"] == "state_bound_approached"]

    assert warnings(7) == []
    (warning,) = warnings(8)
    assert (warning["setting"], warning["used"], warning["log_level"]) == ("share_partitions_max", 0.8, "warning")
    assert warnings(9) == []
    assert world.series("state_") | {"holdfast_state_bytes": 0} == world.series("state_") | {
        "holdfast_state_bytes": 0,
        "holdfast_state_bounds_used_ratio": 0.9,
        "holdfast_state_refusals_total": 0,
    }
    initialize(world, key(9), key(10))
    world.tick(_TICKS_PER_LOOK)
    assert world.series("state_refusals")["holdfast_state_refusals_total"] == 1
    for number in range(10):
        world.call(number % 2, lambda shard, _, number=number: shard.decide_delete(key(number)))  # type: ignore[misc]
    world.tick(_TICKS_PER_LOOK)
    assert len(warnings(8)) == 1, "it came close again"


@pytest.mark.parametrize(("codec", "is_shared"), [(Codec.AVRO, True), (Codec.KAFKA, False)])
def test_the_two_encodings_of_a_key_are_held_once_where_they_are_the_same(codec: Codec, is_shared: bool) -> None:
    shard = ShareShard(shard_config(codec=codec))
    of_snapshots, of_updates = shard.state._encode_keys(key(0))
    assert (of_snapshots is of_updates) is is_shared
