"""The log partitions of a node: loaded a few at a time, watched, described, lost and stopped."""

from __future__ import annotations

from collections import Counter

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.partitions.partition_lines import LINES_PER_MINUTE_MAX
from holdfast.records.log.header import encode_header
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot
from holdfast.runtime.errors import LoadInProgress, NotAvailable, NotCoordinator, TimedOut
from holdfast.runtime.log_protocol import ReadError
from holdfast.runtime.partition.states import State
from holdfast.share.components import state_batches_max
from holdfast.share.shard_kind import serving
from tests.simulated.memory_log import MemoryTopic
from tests.world.node import PartitionsWorld
from tests.world.process import Call
from tests.world.records import encode_record
from tests.world.samples import TOPIC

KEY = SharePartitionKey("group", TOPIC, 0)


# ---- life ------------------------------------------------------------------------------------------------------------


async def test_a_node_is_ready_when_all_of_its_partitions_serve() -> None:
    world = await PartitionsWorld(MemoryTopic(5)).serve()
    assert world.is_ready[-1]
    assert world.is_ready.count(True) == 1
    assert {index: held.state for index, held in world.runtime.partitions.items()} == dict.fromkeys(
        range(5), State.ACTIVE
    )


async def test_only_so_many_partitions_load_at_a_time() -> None:
    world = await PartitionsWorld(MemoryTopic(9), loads_max=2).serve()
    states: dict[int, State] = {}
    loading = []
    for index, state in world.process.changes:
        states[index] = state
        loading.append(list(states.values()).count(State.LOADING))
    assert max(loading) == 2
    assert world.is_ready[-1]


async def test_only_so_many_partitions_load_again_at_a_time() -> None:
    world = await PartitionsWorld(MemoryTopic(9), loads_max=2).serve()
    for index, held in world.runtime.partitions.items():
        world.runtime.read_failed(index, held.reading.instance, ReadError("a broker is away", is_alarm=False))
    world.partitions.load_again_soon()
    changes = len(world.process.changes)
    world.tick(50)
    assert [state for _, state in world.process.changes[changes:]].count(State.LOADING) == 9
    states = dict.fromkeys(range(9), State.FAILED)
    for index, state in world.process.changes[changes:]:
        states[index] = state
        assert list(states.values()).count(State.LOADING) <= 2
    assert set(states.values()) == {State.ACTIVE}


async def test_partitions_that_wait_for_their_turn_to_load_are_described_as_waiting() -> None:
    world = PartitionsWorld(MemoryTopic(3), loads_max=1)
    await world.begin().start()
    world.partitions.list_all_unloaded(None)
    world.partitions.load_all()
    assert [row["state"] for row in world.partitions.describe()] == ["loading", "waiting", "waiting"]
    world.settle()
    assert [row["state"] for row in world.partitions.describe()] == ["active"] * 3


async def test_callers_of_what_another_node_serves_meanwhile_are_sent_on_and_do_not_wait_for_the_load() -> None:
    world = PartitionsWorld(MemoryTopic(2))
    await world.begin().start()
    world.partitions.load_all()

    def outcomes() -> list[object]:
        calls = [Call(lambda shard, _: shard.decide_summary(KEY)) for _ in range(2)]
        world.partitions.writes.write_many(list(enumerate(calls)))
        return [type(outcome) for call in calls for outcome in call.outcomes]

    world.partitions.note_served_elsewhere({1})
    assert outcomes() == [LoadInProgress, NotCoordinator]
    world.partitions.note_served_elsewhere({0})
    assert outcomes() == [NotCoordinator, LoadInProgress]
    world.settle()
    assert all(each.state is State.ACTIVE for each in world.partitions)  # then it is ours, whatever is said of others
    assert not {LoadInProgress, NotCoordinator} & set(outcomes())


async def test_calls_about_what_is_out_of_reach_are_refused_at_once_and_nothing_is_written() -> None:
    world = PartitionsWorld(MemoryTopic(2))
    await world.serve()

    def outcomes() -> list[object]:
        calls = [Call(lambda shard, _: shard.decide_summary(KEY)) for _ in range(2)]
        world.partitions.writes.write_many(list(enumerate(calls)))
        return [type(outcome) for call in calls for outcome in call.outcomes]

    world.partitions.note_out_of_reach({1})
    assert outcomes().count(NotAvailable) == 1
    assert not world.runtime.partitions[1].parking
    world.partitions.note_out_of_reach(())
    assert NotAvailable not in outcomes()


async def test_loads_and_unloads_are_reported_in_one_line_and_each_of_them_at_level_debug() -> None:
    world = PartitionsWorld(MemoryTopic(50))
    with capture_logs() as lines:
        await world.serve()
        world.runtime.unload(7, 5)
        await world.partitions.stop(1_000)
    each = [line for line in lines if line["log_level"] == "debug"]
    assert Counter(line["event"] for line in each) == {
        "load_accepted": 50,
        "log_partition_loaded": 50,
        "unload_accepted": 50,
    }
    accepted = {"partition": 7, "state": "initial", "generation_before": None, "generation": None, "owner_epoch": 0}
    given_up = {"partition": 7, "state": "active", "generation_before": 1, "generation": 5, "owner_epoch": 1}
    assert [line for line in each if line["partition"] == 7 and line["event"] != "log_partition_loaded"] == [
        {"event": "load_accepted", "log_level": "debug"} | accepted,
        {"event": "unload_accepted", "log_level": "debug"} | given_up,
    ]
    first = "0, 1, 2, 3, 4, 5, 6, 7 and 42 more"
    assert [line for line in lines if line["log_level"] != "debug"] == [
        {"event": event, "log_level": "info", "log_partitions": 50, "which": first} | numbers
        for event, numbers in (
            ("log_partitions_load_started", {"highest_owner_epoch": 0}),
            ("log_partitions_loaded", {"records": 50, "longest_load_ms": 0}),
            ("log_partitions_unloaded", {"highest_owner_epoch": 1}),
        )
    ]


async def test_what_a_request_has_waited_before_is_taken_off_its_time_whoever_came_before_it() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    calls = [Call(lambda shard, now_ms: shard.decide_initialize(KEY, 1, 0, now_ms)) for _ in range(4)]
    for call, waited_ms in zip(calls, (0, 2_000, 2_500, 0), strict=True):
        world.partitions.writes.write_many([(0, call)], waited_ms)
    ended_ms: dict[int, int] = {}
    for passed_ms in range(0, 5_001, 500):
        world.runtime.tick()
        ended_ms |= {index: passed_ms for index, call in enumerate(calls) if call.outcomes and index not in ended_ms}
        world.clock.now_ms += 500
    assert ended_ms == {0: 5_000, 1: 3_000, 2: 2_500, 3: 5_000}
    assert all(isinstance(call.outcomes[0], TimedOut) for call in calls)


async def test_a_stop_answers_everything_and_appends_nothing_more() -> None:
    world = await PartitionsWorld(MemoryTopic(3), loads_max=1).serve()
    call = Call(lambda shard, now_ms: shard.decide_initialize(KEY, 1, 0, now_ms))
    world.partitions.writes.write_many([(0, call)])
    assert await world.partitions.stop(1_000)
    assert len(call.outcomes) == 1
    late = Call(lambda shard, now_ms: shard.decide_initialize(KEY, 1, 0, now_ms))
    world.partitions.writes.write_many([(0, late)])
    assert isinstance(late.outcomes[0], NotAvailable)
    assert world.is_ready[-1] is False


async def test_a_stop_while_partitions_wait_for_their_turn_loads_none_of_them() -> None:
    world = PartitionsWorld(MemoryTopic(5), loads_max=1)
    await world.begin().start()
    world.partitions.load_all()
    assert list(world.runtime.partitions) == [0]
    await world.partitions.stop(1_000)
    world.settle()
    assert list(world.runtime.partitions) == [0]
    assert sum(len(held.records) for held in world.topic.partitions) == 0


async def test_partitions_that_failed_load_again_at_once_when_brokers_answer_again_and_alarmed_ones_wait() -> None:
    world = await PartitionsWorld(MemoryTopic(3), retry_backoff_ms=30_000, retry_backoff_max_ms=30_000).serve()
    for index, is_alarm in ((0, False), (1, True)):
        world.runtime.read_failed(
            index, world.partition(index).reading.instance, ReadError("it failed", is_alarm=is_alarm)
        )
    world.tick(10)
    assert [held.state for held in world.partitions] == [State.FAILED, State.FAILED, State.ACTIVE]
    assert world.partitions.why_not_loaded() == "not every log partition serves (2 failed); log partition 0: " + str(
        world.partition(0).failure
    )
    world.partitions.load_again_soon()
    world.tick()
    assert [held.state for held in world.partitions] == [State.ACTIVE, State.FAILED, State.ACTIVE]


async def test_the_newest_image_reaches_shards_that_did_not_exist_when_it_came() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    world.initialize(0, KEY)
    assert world.keys() == {KEY}


# ---- losing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "lost_to"), [("exit", ["2", "2"]), ("wait", [])])
async def test_a_superseded_node_says_once_who_took_over_and_ends_or_stays(policy: str, lost_to: list[str]) -> None:
    topic = MemoryTopic(2)
    world = await PartitionsWorld(topic, when_superseded=policy).serve()
    with capture_logs() as lines:
        await PartitionsWorld(topic, node_id=2).serve()
        world.tick(9)
        assert [line["event"] for line in lines if line["log_level"] == "error"] == [], "more may follow"
        world.tick()
    assert world.lost_to == lost_to
    assert [line for line in lines if line["log_level"] in ("warning", "error")] == [
        {
            "event": "log_partitions_lost",
            "log_level": "error",
            "log_partitions": 2,
            "which": "0, 1",
            "node": "2",
            "address": "node-2.example:9492",
            "next_step": "`holdfast partitions take` takes one back",
        }
    ]
    assert world.series("ownerships_lost") == {"holdfast_ownerships_lost_total": 2}
    assert world.is_ready[-1] is False
    assert [line["owner_address"] for line in world.partitions.describe()] == ["node-2.example:9492"] * 2
    assert world.partitions.held_count() == 0
    assert {line["failure"] for line in world.partitions.describe()} == {
        "node 2 at node-2.example:9492 took it with owner epoch 2 at offset 1"
    }
    assert world.partitions.superseded_by() == [
        {"node_id": "2", "advertised_address": "node-2.example:9492", "log_partitions": [0, 1]}
    ]
    assert world.partitions.why_not_loaded() == (
        "not every log partition serves (2 closed); node 2 at node-2.example:9492 serves log partitions 0, 1"
    )


# ---- metrics ---------------------------------------------------------------------------------------------------------


async def test_series_of_a_partition_come_when_it_serves_and_go_when_it_does_not() -> None:
    world = PartitionsWorld(MemoryTopic(2))
    assert world.series("partition=") == {}
    await world.serve()
    world.initialize(1, KEY)
    labels = "{partition=1,topic=state}"
    dead, total = world.partitions.pruners[1].bytes_dead()
    assert world.series("partition=1") == {
        f"holdfast_last_pruned_offset{labels}": 0,
        f"holdfast_share_partitions{labels}": 1,
        f"holdfast_log_bytes{labels}": total,
        f"holdfast_log_dead_bytes{labels}": dead,
    }
    world.runtime.unload(1, None)
    world.settle()
    assert world.series("partition=1") == {}
    assert len(world.series("partition=0")) == 4
    world.runtime.load(1, 7)
    world.settle()
    assert world.series("holdfast_share_partitions{partition=1") == {f"holdfast_share_partitions{labels}": 1}


async def test_a_load_that_fails_shows_no_series_of_its_partition() -> None:
    topic = MemoryTopic(2)
    topic.write_foreign(1, b"\0\0", b"what is this", encode_header(0, 0))
    topic.commit(1)
    topic.cut(1, 1)
    world = await PartitionsWorld(topic).serve()
    assert world.partition(1).state is State.FAILED
    assert world.series("partition=1") == {}
    assert world.series("holdfast_log_partitions") == {
        "holdfast_log_partitions{state=active}": 1,
        "holdfast_log_partitions{state=failed}": 1,
        "holdfast_log_partitions{state=loading}": 0,
    }
    assert world.series("loads_failed") == {"holdfast_loads_failed_total": 1}


# ---- description -----------------------------------------------------------------------------------------------------


async def test_a_partition_is_described_for_people() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    world.initialize(0, KEY, SharePartitionKey("group", TOPIC, 1))
    world.write(0, KEY, 0)
    [row] = world.partitions.describe()
    dead, total = world.partitions.pruners[0].bytes_dead()
    assert row | {"load_ms": 0} == {
        "partition": 0,
        "state": "active",
        "owner": "1",
        "owner_address": "node-1.example:9492",
        "owner_epoch": 1,
        "generation": 1,
        "written": 4,
        "committed": 4,
        "log_start": 0,
        "keys": 2,
        "parked": 0,
        "load_ms": 0,
        "records_loaded": 1,
        "void_records": 0,
        "log_bytes": total,
        "dead_bytes": dead,
        "oldest_key": "group:AAECAwQFBgcICQoLDA0ODw:0",
        "oldest_snapshot_offset": 1,
        "why_not_pruned": f"{dead} of {total} bytes are dead; a round begins at 50% and 67108864 bytes",
        "failure": None,
        "is_alarmed": False,
    }


async def test_what_is_written_and_not_committed_shows() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    world.partitions.writes.write_many([(0, Call(lambda shard, now_ms: shard.decide_initialize(KEY, 1, 0, now_ms)))])
    [row] = world.partitions.describe()
    assert (row["written"], row["committed"], row["parked"]) == (2, 1, 1)
    assert world.series("parked_writes") == {"holdfast_parked_writes": 1}


# ---- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message_bytes_max", "batches_max"),
    [(1_048_588, 50_000), (1_034_000, 50_000), (1_033_999, 49_999), (54_000, 1_000), (10_000, 1), (0, 1)],
)
def test_the_largest_state_follows_from_the_topics_largest_message(message_bytes_max: int, batches_max: int) -> None:
    assert state_batches_max(message_bytes_max) == batches_max


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("message_bytes_max", [54_000, 200_000, 1_048_588])
def test_the_largest_state_fits_into_a_message(codec: Codec, message_bytes_max: int) -> None:
    count = state_batches_max(message_bytes_max)
    batches = tuple(StateBatch((1 << 40) + 20 * n, (1 << 40) + 20 * n + 9, 2, 100) for n in range(count))
    key = SharePartitionKey("g" * 32_767, TOPIC, 1 << 30)
    snapshot = Snapshot(1 << 30, 1 << 30, 1 << 30, 1 << 40, 1 << 30, 1 << 41, 1 << 41, batches, 1 << 30, 1 << 30)
    raw_key, raw_value = encode_record(codec, key, snapshot)
    assert raw_value is not None
    assert len(raw_key) + len(raw_value) + 200 <= message_bytes_max


async def test_settings_reach_the_shards_and_the_log() -> None:
    world = PartitionsWorld(MemoryTopic(1), codec="kafka", message_timeout_ms=7_000)
    world.message_bytes_max = 54_000
    await world.begin().start()
    world.partitions.load_all()
    world.settle()
    [(_, shard)] = serving(world.partitions.active())
    assert (shard.config.codec, shard.config.state_batches_max) == (Codec.KAFKA, 1_000)
    assert (world.shell.log_config.topic, world.shell.log_config.message_timeout_ms) == ("state", 7_000)


async def test_what_the_log_takes_and_shows_is_counted() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    world.initialize(0, KEY)
    world.topic.repeat(0, 1)
    world.settle()
    world.process.log.queue_records_max = 0
    refused = Call(lambda shard, now_ms: shard.decide_initialize(KEY, 1, 0, now_ms))
    world.partitions.writes.write_many([(0, refused)])
    counts = world.series("_total")
    assert {
        name: counts[f"holdfast_{name}_total"]
        for name in ("records_committed", "records_void", "checkpoints_appended", "appends_refused", "internal_errors")
    } == {
        "records_committed": 1,
        "records_void": 1,
        "checkpoints_appended": 1,
        "appends_refused": 1,
        "internal_errors": 0,
    }


@pytest.mark.parametrize(("together", "timed"), [(1, 2), (48, 1), (64, 2), (65, 1), (128, 1)])
async def test_operations_are_timed_once_in_64_and_so_is_the_loop_at_each_tick(together: int, timed: int) -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    for _ in range(128 // together):
        world.partitions.writes.write_many(
            [(0, Call(lambda shard, _: shard.decide_summary(KEY))) for _ in range(together)]
        )
    world.tick(3)
    assert world.series("holdfast_event_processing_time_seconds_count") == {
        "holdfast_event_processing_time_seconds_count": timed
    }
    assert world.series("holdfast_event_queue_time_seconds_count") == {"holdfast_event_queue_time_seconds_count": 3}
    assert world.series("loop_busy")["holdfast_loop_busy_seconds_total"] >= 0


async def test_what_a_silent_broker_causes_is_left_out_and_alarms_and_bugs_are_not() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    world.silent_partitions = {7}
    with capture_logs() as lines:
        for index in (7, 8):
            world.partitions.note("error", "log_partition_failed", {"partition": index, "is_alarm": False})
            world.partitions.note("warning", "load_stalled", {"partition": index})
        world.partitions.note("error", "log_partition_failed", {"partition": 7, "is_alarm": True})
        world.partitions.note("error", "event_handler_failed", {"partition": 7, "exc_info": RuntimeError("a bug")})
    assert [(line["event"], line["partition"]) for line in lines] == [
        ("log_partition_failed", 8),
        ("load_stalled", 8),
        ("log_partition_failed", 7),
        ("event_handler_failed", 7),
    ]


async def test_failures_of_many_partitions_are_reported_of_some_and_alarms_and_bugs_of_all() -> None:
    world = await PartitionsWorld(MemoryTopic(1)).serve()
    with capture_logs() as lines:
        for index in range(50):
            world.partitions.note("error", "log_partition_failed", {"partition": index, "is_alarm": False})
            world.partitions.note("error", "log_partition_failed", {"partition": index, "is_alarm": True})
            world.partitions.note("error", "tick_failed", {"exc_info": RuntimeError("a bug")})
            world.partitions.note("info", "log_partition_loaded", {"partition": index})
    reports = Counter((line["event"], line.get("is_alarm")) for line in lines)
    assert reports == {
        ("log_partition_failed", False): LINES_PER_MINUTE_MAX,
        ("log_partition_failed", True): 50,
        ("tick_failed", None): 50,
        ("log_partition_loaded", None): 50,
    }
