"""A node on a real broker: how it starts, serves, refuses and stops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from holdfast.client import AdminRefused, ShareStateError, connect
from holdfast.daemon import node as node_module
from holdfast.daemon.maintenance.log_checks import LogChecks
from holdfast.daemon.maintenance.maintenance import Maintenance
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.listener import Server
from holdfast.daemon.steps import NodeSteps
from holdfast.daemon.topics.metadata_cache import ClusterMetadata
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.runtime.partition.states import State
from tests.real.nodes import ONE_TRY, topic_id_of
from tests.real.running_node import RunningNode, cut, make_settings, read_log, running
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, PATIENCE_S, in_patience, wait_until

pytestmark = pytest.mark.real

GROUP = "group"
#: Nobody listens there.
NO_KAFKA = "127.0.0.1:1"


@pytest.fixture
def orders(kafka: str, new_topic: NewTopicFactory) -> bytes:
    """Give the id of a topic with eight partitions."""
    return topic_id_of(kafka, new_topic(8))


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    yield
    gc.collect()
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith("holdfast") and not task.done()]
    assert left == []


async def fill(node: RunningNode, topic_id: bytes, partitions: int = 8) -> None:
    for partition in range(partitions):
        await node.client.initialize(GROUP, topic_id, partition, state_epoch=1, start_offset=partition)
        await node.client.write(
            GROUP, topic_id, partition, 1, 0, -1, [StateBatch(partition, partition + 9, ACKNOWLEDGED, 1)]
        )


async def start_offsets(node: RunningNode, topic_id: bytes, partitions: int = 8) -> list[int]:
    states = [await node.client.read(GROUP, topic_id, partition, 0) for partition in range(partitions)]
    return [state.start_offset for state in states]


# ---- serving ---------------------------------------------------------------------------------------------------------


async def test_a_node_serves_counts_stops_cleanly_and_finds_everything_again(
    kafka: str, topic: str, orders: bytes
) -> None:
    settings = make_settings(kafka, topic)
    async with running(settings) as node:
        await fill(node, orders)
        for partition in range(100):
            await node.client.read(GROUP, orders, partition % 8, 0)
        found = await node.client.admin("metrics")
        timed = ("event_queue", "event_processing", "event_purgatory", "batch_linger", "batch_flush", "read_index")
        assert [name for name in timed if not found[f"holdfast_{name}_time_seconds_count"]] == []
        assert found["holdfast_records_appended_total"] == found["holdfast_records_committed_total"] + 2 >= 18
        assert found["holdfast_batch_flushes_total"] <= found["holdfast_records_appended_total"]
        assert (found["holdfast_checkpoints_appended_total"], found["holdfast_internal_errors_total"]) == (2, 0)
        assert found["holdfast_event_purgatory_time_seconds_p50"] > 0
        assert found["holdfast_loop_busy_seconds_total"] > 0
        assert sum(found[f"holdfast_share_partitions{{partition={index},topic={topic}}}"] for index in (0, 1)) == 8
        assert await node.stop() is NodeExit.STOPPED
    async with running(settings) as again:
        assert await start_offsets(again, orders) == list(range(8))


async def test_a_topic_made_a_moment_ago_is_found_and_so_are_partitions_added_to_it(
    kafka: str, topic: str, new_topic: NewTopicFactory
) -> None:
    async with running(make_settings(kafka, topic)) as node:
        name = new_topic(1)
        topic_id = topic_id_of(kafka, name)
        async with connect(node.address, ONE_TRY) as client:
            await client.initialize(GROUP, topic_id, 0, 1, 0)
            with pytest.raises(ShareStateError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await client.initialize(GROUP, topic_id, 1, 1, 0)
            admin = AdminClient({"bootstrap.servers": kafka})
            admin.create_partitions([NewPartitions(name, 2)])[name].result(PATIENCE_S)
            await wait_until(
                lambda: len(admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) == 2, "two of them"
            )
            await client.initialize(GROUP, topic_id, 1, 1, 0)


# ---- starting --------------------------------------------------------------------------------------------------------


async def test_a_node_answers_while_it_waits_for_kafka(topic: str) -> None:
    node = RunningNode(make_settings(NO_KAFKA, topic))
    await wait_until(lambda: node.node.port, "it listens")
    async with connect(node.address, ONE_TRY) as client:
        with pytest.raises(ShareStateError) as refused:
            await client.write(GROUP, bytes(range(16)), 0, 1, 0, -1, [])
        assert (await client.admin("status"))["is_ready"] is False
        assert await client.admin("partitions") == []
    assert refused.value.code == ErrorCode.coordinator_not_available
    assert not node.exit.done()
    assert await node.stop() is NodeExit.STOPPED


async def test_without_kafka_a_node_waits_with_one_clear_line(topic: str) -> None:
    with capture_logs() as lines:
        node = RunningNode(make_settings(NO_KAFKA, topic))
        await wait_until(lambda: any(line["event"] == "brokers_awaited" for line in lines))
        assert await in_patience(node.stop()) is NodeExit.STOPPED
    (awaited,) = [line for line in lines if line["log_level"] != "info"]
    assert awaited["event"] == "brokers_awaited"
    assert awaited["why"].startswith(f"{NO_KAFKA} cannot be reached")


async def test_a_property_that_the_kafka_client_does_not_know_is_named(kafka: str, topic: str) -> None:
    with capture_logs() as lines:
        node = RunningNode(make_settings(kafka, topic, **{"kafka.no.such.property": "7"}))
        assert await in_patience(node.exit) is NodeExit.WRONG_USAGE
    [why] = [line["why"] for line in lines if line["log_level"] == "error"]
    assert "no.such.property" in why


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"cleanup_policy": "compact"}, "--add-config cleanup.policy=delete"),
        ({"retention_ms": "1000"}, "--add-config retention.ms=-1"),
    ],
)
async def test_an_unsafe_state_topic_is_refused_with_the_command_that_mends_it(
    kafka: str, new_topic: NewTopicFactory, config: dict[str, str], why: str
) -> None:
    name = new_topic(2, **config)
    with capture_logs() as lines:
        node = RunningNode(make_settings(kafka, name))
        assert await in_patience(node.exit) is NodeExit.REFUSED
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["node_start_failed"]
    assert why in lines[-2]["why"]
    assert (lines[-1]["event"], lines[-1]["exit_code"]) == ("node_stopped", NodeExit.REFUSED)


async def test_a_topic_that_another_program_writes_is_refused_and_stays_as_it_is(
    kafka: str, new_topic: NewTopicFactory
) -> None:
    name = new_topic(2, **{key.replace(".", "_"): value for key, value in FIXED_CONFIG.items()})
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(name, b"value", b"key", 1)
    assert producer.flush(PATIENCE_S) == 0
    with capture_logs() as lines:
        node = RunningNode(make_settings(kafka, name))
        assert await in_patience(node.exit) is NodeExit.REFUSED
    assert lines[-1]["reason"].startswith(f"Another program writes topic {name}")
    assert [len(read_log(kafka, name, partition)) for partition in (0, 1)] == [0, 1]


# ---- stopping --------------------------------------------------------------------------------------------------------


def stop_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, stop: Callable[[], None]) -> None:
    """Let `stop` be called just before a stage of the start begins."""
    stage = getattr(owner, name)

    def stop_first(*arguments: Any, **named: Any) -> Any:
        stop()
        return stage(*arguments, **named)

    monkeypatch.setattr(owner, name, stop_first)


STAGES: list[tuple[Any, str]] = [
    (Server, "start"),
    (ClusterMetadata, "wait_for_first_image"),
    (node_module, "ensure_state_topic"),
    (Partitions, "start"),
    (Maintenance, "start"),
    (LogChecks, "look_at_beginnings"),
    (Partitions, "load_all"),
]


@pytest.mark.parametrize(("owner", "name"), STAGES, ids=[name for _, name in STAGES])
async def test_a_stop_during_any_stage_of_the_start_is_clean(
    kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    holder: list[RunningNode] = []
    stop_before(monkeypatch, owner, name, lambda: holder[0].node.stop())
    with capture_logs() as lines:
        holder.append(RunningNode(make_settings(kafka, topic)))
        assert await in_patience(holder[0].exit) is NodeExit.STOPPED
    assert [line for line in lines if line["log_level"] == "error"] == []
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", holder[0].node.port)


async def test_a_stop_while_it_loads_is_clean(kafka: str, topic: str) -> None:
    node = RunningNode(make_settings(kafka, topic))
    await node.until(lambda: node.partitions(), "a load")
    assert await node.stop() is NodeExit.STOPPED
    assert {held.state for held in node.partitions()} == {State.CLOSED}


@pytest.mark.parametrize("is_stuck", [True, False], ids=["stuck", "failing"])
async def test_a_step_of_the_shutdown_that_does_not_end_keeps_no_later_one_from_being_tried(
    kafka: str, topic: str, orders: bytes, monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    async def never(self: Maintenance) -> None:
        if is_stuck:
            await asyncio.Event().wait()
        raise RuntimeError("a bug in a step")

    # Its own time alone is short: any other step may take longer than that on a busy machine.
    do, times_ms = NodeSteps.do, {}

    async def soon(steps: NodeSteps, name: str, step: Callable[[], Awaitable[object]], timeout_ms: int) -> None:
        times_ms[name] = timeout_ms
        await do(steps, name, step, 300 if name == "maintenance" else timeout_ms)

    monkeypatch.setattr(NodeSteps, "do", soon)
    monkeypatch.setattr(Maintenance, "stop", never)
    with capture_logs() as lines:
        node = await RunningNode(make_settings(kafka, topic)).ready()
        async with connect(node.address, ONE_TRY) as client:
            await client.initialize(GROUP, orders, 0, 1, 0)
        assert await node.stop() is NodeExit.FAILED_TO_STOP
    assert [line["step"] for line in lines if line["log_level"] == "error"] == ["maintenance"]
    assert times_ms["maintenance"] == PATIENCE_MS, "as it is set"
    assert {held.state for held in node.partitions()} == {State.CLOSED}
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", node.node.port)
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == "holdfast-maintenance"]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_the_first_reason_to_stop_is_the_one_that_counts(kafka: str, topic: str) -> None:
    node = await RunningNode(make_settings(kafka, topic)).ready()
    node.node.stop(NodeExit.SUPERSEDED)
    assert await node.stop() is NodeExit.SUPERSEDED


# ---- alarms and their way out ----------------------------------------------------------------------------------------


async def test_a_log_that_was_cut_by_hand_serves_again_when_an_admin_accepts_it(
    kafka: str, topic: str, orders: bytes
) -> None:
    # After an alarm the log is looked at again soon, once; while that lasts, calls are told that it loads.
    flags = {"share.coordinator.state.topic.num.partitions": 1, "alarm_backoff_ms": PATIENCE_MS}
    settings = make_settings(kafka, topic, **flags)
    async with running(settings) as node:
        await fill(node, orders)
    cut(kafka, topic, 0, 5)
    with capture_logs() as lines:
        node = RunningNode(settings)
        await node.until(
            lambda: sum(line["event"] == "log_partition_failed" for line in lines) == 2, "an alarm, after a second look"
        )
        async with connect(node.address, ONE_TRY) as client:
            node.client = client
            with pytest.raises(ShareStateError, match="COORDINATOR_NOT_AVAILABLE"):
                await client.read(GROUP, orders, 0, 0)
            answer = await client.admin("partitions-accept", partition=0, reason="we cut it")
            assert answer == "log partition 0 goes on with the log as it is"
            await node.ready()
            await client.initialize(GROUP, orders, 0, 1, 77)
            assert (await client.read(GROUP, orders, 0, 0)).start_offset == 77
        await node.stop()
    [why] = {line["error"] for line in lines if line["event"] == "log_partition_failed"}
    assert why == (
        "the log starts at 5 and no checkpoint says that it is whole: another program deleted records; "
        "`holdfast partitions accept 0 --reason …` goes on with what is there"
    )
    checkpoints = [record for record in read_log(kafka, topic, 0) if record.key == CHECKPOINT_KEY]
    assert decode_checkpoint(checkpoints[-1].value or b"").reason == "we cut it"
    async with running(settings) as again:
        assert await start_offsets(again, orders, 1) == [77]


async def test_a_static_node_takes_back_what_a_second_one_took_over(kafka: str, topic: str, orders: bytes) -> None:
    async with running(make_settings(kafka, topic)) as first:
        await fill(first, orders)
        async with running(make_settings(kafka, topic, node_id=2)) as second:
            await first.until_states(State.CLOSED)
            assert not first.node.is_ready
            row = (await first.client.admin("partitions"))[1]
            assert (row["owner"], row["state"]) == ("2", "closed")
            await second.client.initialize(GROUP, orders, 0, 2, 100)
            for partition in (0, 1):
                await first.client.admin("partitions-take", partition=partition)
            await first.until_states(State.ACTIVE)
            await second.until_states(State.CLOSED)
        assert await start_offsets(first, orders) == [100, *range(1, 8)]


async def test_a_node_queries_who_serves_before_it_takes_a_log(
    kafka: str, topic: str, orders: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "ANSWER_TIMEOUT_MS", PATIENCE_MS)  # one that is slow to answer serves all the same
    asking = {"take_over": False, "when_superseded": "exit"}
    with capture_logs() as lines:
        async with running(make_settings(kafka, topic, **asking)) as first:
            await fill(first, orders)
            second = RunningNode(make_settings(kafka, topic, node_id=2, **asking))
            assert await in_patience(second.exit) is NodeExit.SUPERSEDED
            twin = RunningNode(make_settings(kafka, topic, **asking | {"take_over": True}))
            assert await in_patience(twin.exit) is NodeExit.WRONG_USAGE
            assert (await first.client.admin("metrics"))["holdfast_checkpoints_appended_total"] == 2
            standby = RunningNode(make_settings(kafka, topic, node_id=3, **asking | {"when_superseded": "wait"}))
            await standby.until_states(State.CLOSED)
            assert first.node.is_ready
            assert await start_offsets(first, orders) == list(range(8))
        await standby.ready()
        async with connect(standby.address, ONE_TRY) as standby.client:
            assert await start_offsets(standby, orders) == list(range(8))
        assert await standby.stop() is NodeExit.STOPPED
    refused = [line["why"] for line in lines if line["event"] == "take_over_refused"]
    serves = f"node 1 serves this log and answers at {first.address}"
    assert refused == [
        f"{serves}: stop it first, or let this node take its place with --take-over",
        f"{serves}, and this node has the same id: give this one another `node_id`, or stop that one first",
    ]
    assert [line["reason"] for line in lines if line["event"] == "node_stopped" and line["exit_code"]] == refused


async def test_a_recreated_state_topic_stops_the_log_partitions_until_an_admin_accepts_it(
    kafka: str, topic: str, orders: bytes
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    settings = make_settings(kafka, topic, state_topic_check_interval_ms=1_000)
    async with running(settings) as node:
        await fill(node, orders)
        old_id = node.parts.view.state_topic
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        await wait_until(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics, "it is gone")
        await node.until_states(State.FAILED)  # they say what is wrong now, not what was wrong first
        admin.create_topics([NewTopic(topic, 2, 1, config=dict(FIXED_CONFIG))])[topic].result(PATIENCE_S)
        await node.until(lambda: node.parts.view.state_topic != old_id, "the other topic is seen")
        await node.until_states(State.FAILED)
        for index in (0, 1):
            row = await node.until_partition(index, lambda row: row["is_alarmed"], "an alarm")
            assert "`holdfast partitions accept" in row["failure"]
            await node.client.admin("partitions-accept", partition=index, reason="it is lost")
        await node.ready()
        await node.client.initialize(GROUP, orders, 0, 1, 5)
        assert (await node.client.read_summary(GROUP, orders, 1)).start_offset == -1
    async with running(settings) as again:
        assert await start_offsets(again, orders, 1) == [5]


async def test_a_state_topic_that_grows_partitions_stops_the_shards(kafka: str, topic: str) -> None:
    async with running(make_settings(kafka, topic, state_topic_check_interval_ms=1_000)) as node:
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
        await node.until_states(State.FAILED)
        row = await node.until_partition(0, lambda row: row["is_alarmed"], "an alarm")
        assert row["failure"].startswith(f"the topic {topic} has 3 partitions and had 2")


async def test_a_node_that_starts_after_partitions_were_added_serves_none_of_them(
    kafka: str, topic: str, orders: bytes
) -> None:
    async with running(make_settings(kafka, topic)) as node:
        await fill(node, orders)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    await wait_until(
        lambda: len(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions) == 3, "three of them"
    )
    settings = make_settings(kafka, topic, **{"share.coordinator.state.topic.num.partitions": 3})
    node = RunningNode(settings)
    try:
        await node.until_states(State.FAILED)
        assert len(node.partitions()) == 3
        assert not node.node.is_ready
        async with connect(node.address, ONE_TRY) as node.client:
            for row in await node.client.admin("partitions"):
                assert row["is_alarmed"]
                assert "was written for 2 partitions, and the topic has 3" in row["failure"]
            for partition in range(8):
                with pytest.raises(ShareStateError) as refused:
                    await node.client.read(GROUP, orders, partition, 0)
                assert refused.value.code == ErrorCode.coordinator_not_available
            with pytest.raises(AdminRefused, match="cannot be accepted"):
                await node.client.admin("partitions-accept", partition=2, reason="it looks fine")
    finally:
        await node.stop()
    assert read_log(kafka, topic, 2) == []


async def test_a_log_of_which_one_partition_was_restored_from_another_topic_is_served_once_all_are_accepted(
    kafka: str, topic: str, new_topic: NewTopicFactory, orders: bytes
) -> None:
    async with running(make_settings(kafka, topic)) as node:
        await fill(node, orders)
    restored = new_topic(2, **FIXED_CONFIG)
    producer = Producer({"bootstrap.servers": kafka})
    for record in read_log(kafka, topic, 0):
        headers = [("hf", record.header)]
        producer.produce(restored, record.value, record.key, 0, headers=headers)  # type: ignore[arg-type]
    assert producer.flush(30) == 0
    node = RunningNode(make_settings(kafka, restored))
    try:
        await node.until_states(State.FAILED)
        async with connect(node.address, ONE_TRY) as node.client:
            for row in await node.client.admin("partitions"):
                assert row["is_alarmed"]
                assert "log partition 0 of topic" in row["failure"]
                assert "was written for another log" in row["failure"]
            for index in (0, 1):
                await node.client.admin("partitions-accept", partition=index, reason="only 0 had anything")
            await node.ready()
    finally:
        await node.stop()
    async with running(make_settings(kafka, restored)) as again:
        assert [row["state"] for row in await again.client.admin("partitions")] == ["active"] * 2
