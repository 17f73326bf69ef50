"""Whether the log may be served: the state topic is checked again, the snapshot topic too, and how log partitions begin."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.admin.commands import LogCommands
from holdfast.daemon.maintenance import log_checks
from holdfast.daemon.maintenance.log_checks import ClusterAccess, check_snapshots
from holdfast.daemon.server.admin import AdminError
from holdfast.daemon.topics.cluster_queries import make_cluster_queries
from holdfast.daemon.topics.log_identity import FirstRecords
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError
from holdfast.daemon.topics.state_topic import StateTopic, StateTopicError, TopicDisputed, TopicMissing
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.records.log.checkpoint import Placement, decode_checkpoint
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity
from tests.pure.kafka.brokers.metadata_answers import UNREACHABLE, answer_by_host, metadata
from tests.simulated.memory_log import MemoryPartition, MemoryTopic
from tests.world.maintenance import (
    NO_KAFKA,
    A,
    B,
    World,
    filled,
    states,
    tick_past_the_back_off,
)
from tests.world.node import CLUSTER, state_topic

# ---- the state topic -------------------------------------------------------------------------------------------------


class Check:
    """Stands for `check_state_topic`: gives what a test says it found."""

    def __init__(self, topic: StateTopic) -> None:
        self.topic = topic
        self.problem: Exception | None = None
        self.findings: list[str] = []

    def __call__(self, *_: object) -> tuple[StateTopic, list[str]]:
        if self.problem is not None:
            raise self.problem
        return self.topic, self.findings


def no_snapshot_topic(*_: object) -> tuple[str, ...]:
    raise TopicMissing("There is no topic holdfast-share-snapshots.")


@pytest.fixture
async def world() -> World:
    return await filled({A: 1, B: 3})


def let_brokers_mean(monkeypatch: pytest.MonkeyPatch, *topic_ids: bytes | None) -> None:
    """Let each broker name the topic of one of these ids; None: it cannot be reached."""
    bodies = [
        UNREACHABLE if each is None else metadata({}, UUID(bytes=each), range(len(topic_ids)), name="state")
        for each in topic_ids
    ]
    hosts = {f"host-{number}": body for number, body in enumerate(bodies)}
    answer_by_host(monkeypatch, {"127.0.0.1": bodies[0], **hosts})


@pytest.fixture
def check(world: World, monkeypatch: pytest.MonkeyPatch) -> Check:
    check = Check(state_topic(world.topic))
    monkeypatch.setattr(log_checks, "check_state_topic", check)
    monkeypatch.setattr(log_checks, "check_snapshot_topic", no_snapshot_topic)
    let_brokers_mean(monkeypatch, check.topic.topic_id)
    return check


async def look(world: World) -> None:
    await world.maintenance.log_checks.check_topic()
    world.settle()


async def test_a_topic_that_stays_as_it_was_changes_nothing(world: World, check: Check) -> None:
    check.findings = ["one", "two"]
    await look(world)
    assert states(world) == [State.ACTIVE] * 2
    assert world.series("holdfast_state_topic_warnings") == {"holdfast_state_topic_warnings": 2}


async def test_a_topic_that_became_unsafe_stops_the_shards_until_it_is_safe(world: World, check: Check) -> None:
    check.problem = StateTopicError("retention.ms=1000; mend it with: kafka-configs.sh …")
    await look(world)
    assert states(world) == [State.FAILED] * 2
    tick_past_the_back_off(world)
    assert states(world) == [State.FAILED] * 2
    assert all(
        row["is_alarmed"] and "mend it with: kafka-configs.sh" in row["failure"] for row in world.partitions.describe()
    )
    check.problem = None
    await look(world)
    tick_past_the_back_off(world)
    assert states(world) == [State.ACTIVE] * 2


async def test_what_an_admin_accepted_goes_on_at_the_next_look(world: World, check: Check) -> None:
    check.problem = StateTopicError("retention.ms=1000; mend it with: kafka-configs.sh …")
    await look(world)
    world.runtime.accept(1, "we know")
    world.settle()
    assert states(world) == [State.FAILED, State.ACTIVE]
    await look(world)
    assert states(world) == [State.FAILED, State.ACTIVE]
    check.problem = StateTopicError("cleanup.policy=compact; mend it with: kafka-configs.sh …")
    await look(world)
    assert states(world) == [State.FAILED] * 2, "another problem is another matter"


async def test_a_look_that_fails_says_nothing_about_the_topic(world: World, check: Check) -> None:
    check.problem = ConnectionFailed("no broker would describe it")
    with pytest.raises(ConnectionFailed):
        await look(world)
    assert states(world) == [State.ACTIVE] * 2


async def test_another_number_of_partitions_stops_the_shards(world: World, check: Check) -> None:
    check.topic = check.topic._replace(partition_count=5)
    await look(world)
    assert states(world) == [State.FAILED] * 2
    failure = world.partitions.describe()[0]["failure"]
    assert failure.startswith("the topic state has 5 partitions and had 2")
    assert failure.endswith("copy the log to a new topic with the old number, and name it in state_topic")


@pytest.mark.parametrize("problem", [StateTopicError("retention.ms=1000"), TopicMissing("There is no topic state.")])
async def test_what_is_wrong_with_a_topic_is_not_believed_while_brokers_mean_different_ones(
    world: World, check: Check, monkeypatch: pytest.MonkeyPatch, problem: StateTopicError
) -> None:
    check.problem = problem
    let_brokers_mean(monkeypatch, check.topic.topic_id, bytes([9] * 16))
    with pytest.raises(TopicDisputed):
        await look(world)
    assert states(world) == [State.ACTIVE] * 2
    let_brokers_mean(monkeypatch, check.topic.topic_id, check.topic.topic_id)
    await look(world)
    assert states(world) == [State.FAILED] * 2


@pytest.mark.parametrize("partition_count", [2, 5])
async def test_a_change_that_not_every_broker_confirms_is_not_believed_yet(
    world: World, check: Check, monkeypatch: pytest.MonkeyPatch, partition_count: int
) -> None:
    known, other = check.topic, check.topic._replace(topic_id=bytes([9] * 16), partition_count=partition_count)
    check.topic, check.findings = other, ["of another topic"]
    let_brokers_mean(monkeypatch, other.topic_id, known.topic_id)
    with pytest.raises(TopicDisputed, match="the brokers do not agree which topic state is: "):
        await look(world)
    assert states(world) == [State.ACTIVE] * 2
    assert world.renewed == []
    assert world.series("holdfast_state_topic_warnings") == {"holdfast_state_topic_warnings": 0}
    check.topic, check.findings = known, []
    with pytest.raises(TopicDisputed):
        await look(world)  # also where it is this node that has the topic of a broker that is behind
    assert states(world) == [State.ACTIVE] * 2
    let_brokers_mean(monkeypatch, other.topic_id, other.topic_id)
    check.topic = other
    await look(world)
    assert states(world) == [State.FAILED] * 2


async def test_a_recreated_topic_stops_the_log_partitions_and_is_the_log_once_an_admin_accepts_it(
    world: World, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic.make()
    check.topic = state_topic(world.topic)
    let_brokers_mean(monkeypatch, check.topic.topic_id, None)
    await look(world)
    assert states(world) == [State.FAILED] * 2
    assert "`holdfast partitions accept " in world.partitions.describe()[0]["failure"]
    assert world.renewed == [check.topic]
    await look(world)
    tick_past_the_back_off(world)
    assert states(world) == [State.FAILED] * 2, "what was committed is missing, whether or not the topic is fit"
    for index in (0, 1):
        world.runtime.accept(index, "it was restored by hand")
    world.settle()
    assert states(world) == [State.ACTIVE] * 2
    assert world.keys() == set()
    world.initialize(0, SharePartitionKey("group", A, 0))
    await look(world)
    assert states(world) == [State.ACTIVE] * 2
    successor = await World(world.topic, node_id=2).serve()
    assert states(successor) == [State.ACTIVE] * 2, "its checkpoints carry the new id"


# ---- the snapshot topic ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "is_fit", "problems", "lines"),
    [
        ((), True, 0, []),
        (("one copy",), True, 0, ["snapshot_topic_weakened"]),
        (TopicMissing("There is no topic x."), False, 0, []),
        (SnapshotTopicError("cleanup.policy=delete"), False, 1, ["snapshot_topic_refused"]),
        (ConnectionFailed("no broker"), False, 1, ["snapshot_topic_refused"]),
    ],
)
async def test_a_snapshot_topic_that_is_not_fit_is_reported_and_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch, found: Any, is_fit: bool, problems: int, lines: list[str]
) -> None:
    def look(*_: object) -> tuple[str, ...]:
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return] # a tuple otherwise

    monkeypatch.setattr(log_checks, "check_snapshot_topic", look)
    cluster = make_cluster_queries(world.settings, ConnectionOptions(bootstrap=()), lambda: 0)
    access = ClusterAccess(NO_KAFKA, world.settings, world.metrics, cluster.client)
    with capture_logs() as said:
        assert await check_snapshots(access, state_topic(world.topic)) is is_fit
    assert [line["event"] for line in said] == lines
    assert world.series("holdfast_snapshot_topic_problems") == {"holdfast_snapshot_topic_problems": problems}


# ---- the first records of the log partitions ------------------------------------------------------------------------


class FirstLooks:
    """Takes the place of `read_first_records`: reads what lies in the log of a world, but for log partitions without a broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.silent: set[int] = set()
        self.look_count = 0

    def __call__(
        self, _kafka: object, topic: StateTopic, identity: LogIdentity, _ms: int, _stop: object
    ) -> list[FirstRecords]:
        self.look_count += 1
        found = [FirstRecords(partition, identity) for partition in range(topic.partition_count)]
        for each in found:
            if each.partition in self.silent:
                each.why_unread = "its broker is silent"
                continue
            for record in self.world.topic.partitions[each.partition].records:
                if not each.is_known:
                    each.read(record)
            each.is_known = True
        return found


async def starting(topic: MemoryTopic, cluster_id: str = CLUSTER, node_id: int = 2) -> tuple[World, FirstLooks]:
    """Return a node that has begun to start, and of which nothing is loaded yet."""
    world = World(topic, node_id=node_id)
    world.cluster_id = cluster_id
    await world.begin().start()
    looks = FirstLooks(world)
    world.read_first_records(looks)
    return world, looks


async def ended(world: World) -> None:
    world.runtime.close()
    world.settle()


def load_all(world: World) -> None:
    world.partitions.load_all()
    world.settle()


async def test_no_log_partition_serves_where_partitions_were_added_before_the_start() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    before.topic.partitions.append(MemoryPartition())
    world, _ = await starting(before.topic)
    with capture_logs() as lines:
        await world.maintenance.log_checks.look_at_beginnings()
        load_all(world)
    assert states(world) == [State.FAILED] * 3
    found = [(line["event"], line["log_level"]) for line in lines if line["log_level"] != "debug"]
    assert found == [("log_distrusted", "error")]
    assert {row["failure"] for row in world.partitions.describe()} == {
        world.maintenance.log_checks.problem and world.maintenance.log_checks.problem.text
    }
    commands = LogCommands(world, world.partitions, world.maintenance, world.allotment, world.brokers)  # type: ignore[arg-type]
    for index in range(3):
        with pytest.raises(AdminError, match="was written for 2 partitions, and the topic has 3"):
            commands.table()["partitions-accept"]({"partition": index, "reason": "it should do"})
    await world.maintenance.log_checks.look_again()
    tick_past_the_back_off(world)
    assert states(world) == [State.FAILED] * 3


async def test_a_new_log_is_written_by_topic_partition_and_keeps_that_in_every_later_life() -> None:
    topic = MemoryTopic(2)
    for node_id in (2, 3):
        world, _ = await starting(topic, node_id=node_id)
        assert world.partitions.placement is None, "it is not known yet"
        await world.maintenance.log_checks.look_at_beginnings()
        assert world.partitions.placement is world.runtime.config.log.placement is Placement.BY_TOPIC_PARTITION
        load_all(world)
        world.runtime.refresh(0)
        world.settle()
        assert states(world) == [State.ACTIVE] * 2
        await ended(world)
    placements = {
        decode_checkpoint(record.value or b"").placement for each in topic.partitions for record in each.records
    }
    assert placements == {Placement.BY_TOPIC_PARTITION}


async def test_a_log_of_before_there_were_placements_stays_by_group() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    world, _ = await starting(before.topic)
    await world.maintenance.log_checks.look_at_beginnings()
    assert world.partitions.placement is Placement.BY_GROUP
    load_all(world)
    assert states(world) == [State.ACTIVE] * 2


async def test_a_topic_of_logs_with_two_placements_is_refused_with_one_line() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    kept, before.topic.partitions[1] = before.topic.partitions[0], MemoryPartition()
    before.topic.partitions[0] = MemoryPartition()
    other, _ = await starting(before.topic)
    await other.maintenance.log_checks.look_at_beginnings()
    load_all(other)
    await ended(other)
    before.topic.partitions[0] = kept
    world, _ = await starting(before.topic, node_id=3)
    with capture_logs() as lines:
        await world.maintenance.log_checks.look_at_beginnings()
        load_all(world)
    assert states(world) == [State.FAILED] * 2
    [line] = [line for line in lines if line["log_level"] != "debug"]
    assert line["event"] == "log_distrusted"
    assert "log partition 0 of topic state has share partitions by group, and log partition 1 by topic" in line["why"]


async def test_a_topic_of_another_program_ends_the_start_and_is_not_waited_for() -> None:
    topic = MemoryTopic(2)
    for partition in range(2):
        topic.write_foreign(partition, b"key", b"value", None)
    world, looks = await starting(topic)
    unread = looks.__call__

    def read_no_further(*wanted: Any) -> list[FirstRecords]:
        found = unread(*wanted)
        for each in found:
            each.is_known = False
        return found

    world.read_first_records(read_no_further)
    with pytest.raises(StateTopicError, match="Another program writes topic"):
        await asyncio.wait_for(world.maintenance.log_checks.look_at_beginnings(), 60)
    assert looks.look_count == 1


async def test_a_log_restored_in_part_serves_nothing_until_an_admin_accepts_each_log_partition() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    before.topic.partitions[1] = MemoryPartition()
    world, _ = await starting(before.topic, cluster_id="another")
    await world.maintenance.log_checks.look_at_beginnings()
    load_all(world)
    assert states(world) == [State.FAILED] * 2
    commands = LogCommands(world, world.partitions, world.maintenance, world.allotment, world.brokers)  # type: ignore[arg-type]
    commands.table()["partitions-accept"]({"partition": 0, "reason": "restored"})
    world.settle()
    assert states(world) == [State.ACTIVE, State.FAILED]
    await world.maintenance.log_checks.look_again()
    tick_past_the_back_off(world)
    assert states(world) == [State.ACTIVE, State.FAILED], "the empty one lacks what was not restored"
    commands.table()["partitions-accept"]({"partition": 1, "reason": "nothing was in it"})
    world.settle()
    await world.maintenance.log_checks.look_again()
    assert world.runtime.log_alarm is None
    assert states(world) == [State.ACTIVE] * 2
    await ended(world)
    again, _ = await starting(before.topic, cluster_id="another", node_id=3)
    await again.maintenance.log_checks.look_at_beginnings()
    load_all(again)
    assert states(again) == [State.ACTIVE] * 2


async def test_nothing_is_loaded_while_a_log_partition_cannot_be_read_and_the_reason_is_shown() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    world, looks = await starting(before.topic)
    looks.silent = {1}
    looking = asyncio.create_task(world.maintenance.log_checks.look_at_beginnings())
    with capture_logs() as lines:
        while looks.look_count < 3:  # noqa: ASYNC110 — the looks are in a thread
            await asyncio.sleep(0)
    assert not looking.done()
    assert [line["event"] for line in lines] == ["node_start_delayed"]
    assert states(world) == [State.INITIAL] * 2
    for row in world.partitions.describe():
        assert row["failure"].endswith("1 could not be: log partition 1 (its broker is silent)")
    looks.silent = set()
    await looking
    load_all(world)
    assert states(world) == [State.ACTIVE] * 2
    assert [row["failure"] for row in world.partitions.describe()] == [None, None]


async def test_an_hourly_look_does_not_trust_a_log_that_its_beginnings_speak_against(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = await filled({A: 1})
    await ended(before)
    before.topic.partitions.append(MemoryPartition())
    world, _ = await starting(before.topic)
    unchanged = state_topic(world.topic)
    monkeypatch.setattr(log_checks, "check_state_topic", Check(unchanged))
    monkeypatch.setattr(log_checks, "check_snapshot_topic", no_snapshot_topic)
    let_brokers_mean(monkeypatch, unchanged.topic_id)
    await world.maintenance.log_checks.look_at_beginnings()
    load_all(world)
    await look(world)
    tick_past_the_back_off(world)
    assert states(world) == [State.FAILED] * 3
