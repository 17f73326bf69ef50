"""What a node does by the clock: deleted topics lose their state, an unsafe state topic stops the shards, readers are looked up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.daemon import maintenance as upkeep_module
from holdfast.daemon.admin.commands import AdminCommands
from holdfast.daemon.maintenance import Upkeep
from holdfast.daemon.pruning.log_readers import LogReaders
from holdfast.daemon.server.admin import AdminError
from holdfast.daemon.topics.log_identity import Beginning
from holdfast.daemon.topics.metadata_cache import MetadataImage, Refresh
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError
from holdfast.daemon.topics.state_topic import StateTopic, StateTopicError, TopicMissing
from holdfast.kafka.connection import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.group_offsets import GroupRefused
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.records.keys import SharePartitionKey
from holdfast.runtime.partition.states import State
from holdfast.runtime.settings import LogIdentity
from tests.pure.daemon.partitions.shards_world import CLUSTER, ShardsWorld, state_topic
from tests.simulated.memory_log import MemoryPartition, MemoryTopic
from tests.waiting import PATIENCE_S

GRACE_MS = 1_000
A, B, C = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
ALL = frozenset([A, B, C])
NOBODY = KafkaClients({"bootstrap.servers": "127.0.0.1:1"})


class World(ShardsWorld):
    """A node's shards with their upkeep, and a cluster that has the topics it is told to have."""

    def __init__(self, topic: MemoryTopic, node_id: int = 1, **flags: object) -> None:
        flags = {"deleted_topic_grace_ms": GRACE_MS, "metadata.metadata_refresh_interval_ms": GRACE_MS} | flags
        super().__init__(topic, node_id, **flags)
        self.upkeep = Upkeep(self.settings, self.shards, self.metrics, self.registry)
        self.renewed: list[StateTopic] = []
        self.existing = ALL
        self.version = 0

    async def serve(self, image: Any = None) -> World:
        await super().serve(self.image())
        self.upkeep.start(state_topic(self.topic), CLUSTER, NOBODY, None, self.renewed.append)  # type: ignore[arg-type]
        return self

    def image(self) -> MetadataImage:
        self.version += 1
        return MetadataImage(self.version, CLUSTER, MappingProxyType(dict.fromkeys(self.existing, 100)))

    def refresh(
        self,
        after_ms: int = 0,
        is_full: bool = True,
        cluster_id: str = CLUSTER,
        asked: Iterable[bytes] | None = None,
        is_log_slow: bool = False,
    ) -> None:
        """Let a refresh come that asks for all topics in use; a slow log commits nothing yet."""
        self.now_ms += after_ms
        ids = frozenset(self.shards.topics_in_use() if asked is None else asked)
        existing = ids & self.existing
        refresh = Refresh(self.now_ms, cluster_id, existing, ids - existing, frozenset(), is_full)
        self.upkeep.refreshed(self.image(), refresh)
        if not is_log_slow:
            self.settle()

    def fill(self, sizes: dict[bytes, int]) -> None:
        """Initialize so many share partitions of each topic, on both log partitions in turn."""
        for topic_id, size in sizes.items():
            for number in range(size):
                self.initialize(number % len(self.topic.partitions), SharePartitionKey("group", topic_id, number))

    def topics(self) -> set[bytes]:
        return {key.topic_id for key in self.keys()}


async def filled(sizes: dict[bytes, int], **flags: Any) -> World:
    world = await World(MemoryTopic(2), **flags).serve()
    world.fill(sizes)
    world.refresh()
    return world


async def stopped(world: World) -> None:
    await world.upkeep.stop()


# ---- deleted topics --------------------------------------------------------------------------------------------------


async def test_the_state_of_a_deleted_topic_goes_after_the_grace_and_leaves_tombstones() -> None:
    world = await filled({A: 7, B: 20}, deleted_topic_keys_per_slice_max=2)
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS - 1)
    assert world.topics() == {A, B}
    before = [len(partition.records) for partition in world.topic.partitions]
    world.refresh(1)
    assert world.topics() == {B}
    written = [
        record.value
        for partition, count in zip(world.topic.partitions, before, strict=True)
        for record in partition.records[count:]
    ]
    assert written == [None] * 7
    reloaded = await World(world.topic, node_id=2).serve()
    assert reloaded.topics() == {B}
    await stopped(world)
    await stopped(reloaded)


async def test_a_topic_that_is_seen_again_within_the_grace_keeps_its_state() -> None:
    world = await filled({A: 1, B: 3})
    world.existing = frozenset([B])
    world.refresh()
    world.existing = ALL
    world.refresh(GRACE_MS - 1)
    world.existing = frozenset([B])
    world.refresh(1)
    world.refresh(GRACE_MS - 1)
    assert world.topics() == {A, B}
    await stopped(world)


async def test_another_clusters_answers_remove_nothing() -> None:
    world = await filled({A: 1, B: 3})
    world.existing = frozenset([B])
    world.refresh(cluster_id="other")
    world.refresh(10 * GRACE_MS, cluster_id="other")
    assert world.topics() == {A, B}
    await stopped(world)


async def test_a_topic_deleted_while_no_node_was_up_loses_its_state_after_the_grace() -> None:
    before = await filled({A: 1, B: 3})
    await stopped(before)
    world = World(before.topic, node_id=2)
    world.existing = frozenset([B, C])
    await world.serve()
    world.refresh()
    assert world.topics() == {A, B}
    world.refresh(GRACE_MS)
    assert world.topics() == {B}
    await stopped(world)


async def test_in_a_log_that_an_admin_accepted_a_topic_must_be_seen_before_its_absence_counts() -> None:
    elsewhere = World(MemoryTopic(2))
    elsewhere.cluster_id = "elsewhere"
    await elsewhere.serve()
    elsewhere.fill({A: 1, B: 3})
    await stopped(elsewhere)
    world = World(elsewhere.topic, node_id=2)
    world.existing = frozenset([B, C])
    await world.serve()
    for index in (0, 1):
        world.runtime.accept(index, "the cluster was moved")
    world.settle()
    world.refresh()
    world.refresh(10 * GRACE_MS)
    assert world.topics() == {A, B}
    world.existing = ALL
    world.refresh()
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS)
    assert world.topics() == {B}
    await stopped(world)


async def test_too_large_a_share_stops_with_an_alarm_that_an_admin_ends() -> None:
    world = await filled({A: 3, B: 2})
    commands = AdminCommands(None, world.shards, world.upkeep).table()  # type: ignore[arg-type]
    world.existing = frozenset([B])
    with capture_logs() as lines:
        for after_ms in (0, GRACE_MS, GRACE_MS, GRACE_MS):
            world.refresh(after_ms)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == [
        "the clean-up of deleted topics stopped"
    ]
    assert "`holdfast topics accept-deleted --reason …`" in lines[-1]["why"]
    assert world.series("deleted-topics-alarm") == {"deleted-topics-alarm": 1}
    assert world.topics() == {A, B}
    with capture_logs() as lines:
        told = commands["topics-accept-deleted"]({"reason": "the shop was closed"})
    assert told == "the state of 1 deleted topics (3 share partitions) may go"
    assert [line["reason"] for line in lines] == ["the shop was closed"]
    world.refresh(1)
    assert world.topics() == {B}
    assert world.series("deleted-topics-alarm") == {"deleted-topics-alarm": 0}
    await stopped(world)


async def test_a_clean_up_that_fails_goes_on_after_the_next_refresh() -> None:
    world = await filled({A: 8, B: 20}, deleted_topic_keys_per_slice_max=2)
    world.existing = frozenset([B])
    world.refresh()
    world.log.queue_records_max = 0
    world.refresh(GRACE_MS)
    assert world.topics() == {A, B}
    world.log.queue_records_max = 100_000
    world.refresh(1)
    assert world.topics() == {B}
    await stopped(world)


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_a_clean_up_ends_where_its_topic_is_seen_again_between_two_slices(
    is_full: bool, is_elsewhere: bool
) -> None:
    world = await filled({A: 8, B: 20}, deleted_topic_keys_per_slice_max=2)
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS, is_log_slow=True)
    world.existing = ALL
    world.refresh(1, is_full, cluster_id="other" if is_elsewhere else CLUSTER)
    left = Counter(key.topic_id for key in set(world.keys()))
    assert left == {A: 4, B: 20}, "one slice of each log partition is gone"
    world.existing = frozenset([B, C])
    world.refresh()
    world.refresh(GRACE_MS)
    assert world.topics() == {B}
    await stopped(world)


@pytest.mark.pure_build("it stands in for a method of the shard")
async def test_a_refresh_on_demand_counts_no_keys() -> None:
    world = await filled({A: 1, B: 3})
    world.existing = frozenset([B])
    world.refresh()

    def count() -> dict[bytes, int]:
        raise AssertionError("keys were counted")

    for _, machine in world.shards.active():
        machine.state.topic_sizes = count  # type: ignore[method-assign]
    world.refresh(GRACE_MS, is_full=False, asked=[A, C])
    assert world.topics() == {A, B}
    await stopped(world)


async def test_before_the_start_a_refresh_only_leaves_its_image() -> None:
    world = World(MemoryTopic(1))
    world.upkeep.refreshed(world.image(), Refresh(0, CLUSTER, ALL, frozenset(), frozenset()))
    await ShardsWorld.serve(world, world.image())
    world.initialize(0, SharePartitionKey("group", A, 0))


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


@pytest.fixture
def check(world: World, monkeypatch: pytest.MonkeyPatch) -> Check:
    check = Check(state_topic(world.topic))
    monkeypatch.setattr(upkeep_module, "check_state_topic", check)
    monkeypatch.setattr(upkeep_module, "check_snapshot_topic", no_snapshot_topic)
    return check


async def look(world: World) -> None:
    await world.upkeep._check_topic(NOBODY)
    world.settle()


def states(world: World) -> list[State]:
    return [held.state for held in world.shards.partitions()]


def tick_past_the_back_off(world: World) -> None:
    world.tick(world.settings.load.retry_backoff_max_ms // 50 + 1)


async def test_a_topic_that_stays_as_it_was_changes_nothing(world: World, check: Check) -> None:
    check.findings = ["one", "two"]
    await look(world)
    assert states(world) == [State.ACTIVE] * 2
    assert world.series("state-topic-warnings") == {"state-topic-warnings": 2}
    await stopped(world)


async def test_a_topic_that_became_unsafe_stops_the_shards_until_it_is_safe(world: World, check: Check) -> None:
    check.problem = StateTopicError("retention.ms=1000; mend it with: kafka-configs.sh …")
    await look(world)
    assert states(world) == [State.FAILED] * 2
    tick_past_the_back_off(world)
    assert states(world) == [State.FAILED] * 2
    assert all(
        row["is_alarmed"] and "mend it with: kafka-configs.sh" in row["failure"] for row in world.shards.describe()
    )
    check.problem = None
    await look(world)
    tick_past_the_back_off(world)
    assert states(world) == [State.ACTIVE] * 2
    await stopped(world)


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
    await stopped(world)


async def test_a_look_that_fails_says_nothing_about_the_topic(world: World, check: Check) -> None:
    check.problem = ConnectionFailed("no broker would describe it")
    with pytest.raises(ConnectionFailed):
        await look(world)
    assert states(world) == [State.ACTIVE] * 2
    await stopped(world)


async def test_another_number_of_partitions_stops_the_shards(world: World, check: Check) -> None:
    check.topic = check.topic._replace(partition_count=5)
    await look(world)
    assert states(world) == [State.FAILED] * 2
    failure = world.shards.describe()[0]["failure"]
    assert failure.startswith("the topic state has 5 partitions and had 2")
    assert failure.endswith("copy the log to a new topic with the old number, and name it in state_topic")
    await stopped(world)


async def test_a_topic_made_again_stops_the_shards_and_is_the_log_once_an_admin_accepts_it(
    world: World, check: Check
) -> None:
    world.topic.make()
    check.topic = state_topic(world.topic)
    await look(world)
    assert states(world) == [State.FAILED] * 2
    assert "`holdfast partitions accept " in world.shards.describe()[0]["failure"]
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
    await stopped(world)
    await stopped(successor)


# ---- the snapshot topic ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "is_fit", "problems", "lines"),
    [
        ((), True, 0, []),
        (("one copy",), True, 0, ["the snapshot topic could be better"]),
        (TopicMissing("There is no topic x."), False, 0, []),
        (SnapshotTopicError("cleanup.policy=delete"), False, 1, ["the snapshot topic is not fit"]),
        (ConnectionFailed("no broker"), False, 1, ["the snapshot topic is not fit"]),
    ],
)
async def test_a_snapshot_topic_that_is_not_fit_is_told_and_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch, found: Any, is_fit: bool, problems: int, lines: list[str]
) -> None:
    def look(*_: object) -> tuple[str, ...]:
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return] # a tuple otherwise

    monkeypatch.setattr(upkeep_module, "check_snapshot_topic", look)
    topic = state_topic(world.topic)
    with capture_logs() as said:
        assert await world.upkeep.look_at_snapshots(NOBODY, topic) is is_fit
    assert [line["event"] for line in said] == lines
    assert world.series("snapshot-topic-problems") == {"snapshot-topic-problems": problems}
    await stopped(world)


# ---- the clockwork ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "holds", "holds_at_once"),
    [
        ({}, ["audit", "holdfast-compaction"], ["audit"]),
        ({"snapshots.topic": ""}, ["audit"], ["audit"]),
        (
            {"compaction.run": True, "compaction.checkpoint.dir": "/checkpoint"},
            ["audit", "holdfast-compaction"],
            ["audit", "holdfast-compaction"],
        ),
        ({"log_readers": ["holdfast-compaction"]}, ["holdfast-compaction"], ["holdfast-compaction"]),
    ],
)
async def test_the_job_that_writes_snapshots_is_a_reader_once_somebody_runs_it(
    flags: dict[str, Any], holds: list[str], holds_at_once: list[str]
) -> None:
    world = await World(MemoryTopic(1), **({"log_readers": ["audit"]} | flags)).serve()
    readers = world.shards.readers
    assert list(readers.groups) == holds
    assert {row["state"] for row in readers.describe()} == {"not looked up"}
    for group in readers.groups:
        readers.learn(group, {}, {0: 1})
    assert [row["group"] for row in readers.describe() if row["state"] == "never committed"] == holds_at_once
    await stopped(world)


async def test_a_reader_that_cannot_be_asked_about_keeps_no_other_from_being_looked_up(world: World) -> None:
    async def committed(group: str) -> dict[int, int]:
        if group == "secret":
            raise GroupRefused("GROUP_AUTHORIZATION_FAILED")
        return {0: 5}

    readers = LogReaders(["secret", "audit"], 1_000, lambda: world.now_ms, world.upkeep._reader_changed)
    with capture_logs() as lines:
        for _ in range(2):
            await world.upkeep._look_up(readers, committed)
    assert [(line["event"], line["reader"]) for line in lines] == [
        ("what a log reader has committed cannot be asked", "secret")
    ], "it is said once"
    assert [row["state"] for row in readers.describe()] == ["not looked up", "reading"]
    await stopped(world)


async def test_an_admin_drops_a_reader(world: World) -> None:
    commands = AdminCommands(None, world.shards, world.upkeep).table()  # type: ignore[arg-type]
    with pytest.raises(AdminError, match="No group 'audit' is registered; registered are holdfast-compaction"):
        commands["readers-drop"]({"group": "audit", "reason": "gone"})
    with pytest.raises(AdminError, match="`reason` is needed"):
        commands["readers-drop"]({"group": "holdfast-compaction"})
    readers = world.shards.readers
    readers.learn("holdfast-compaction", {0: 1, 1: 1}, {0: 4, 1: 4})
    assert readers.holding(0, 4) is not None
    with capture_logs() as lines:
        told = commands["readers-drop"]({"group": "holdfast-compaction", "reason": "switched off"})
    assert told == "the log is pruned past holdfast-compaction until it commits again"
    assert [(line["reader"], line["reason"]) for line in lines] == [("holdfast-compaction", "switched off")]
    assert readers.holding(0, 4) is None
    assert commands["readers"]({})[0]["state"] == "dropped"  # type: ignore[index]
    assert world.series("dropped-log-readers") == {"dropped-log-readers-total": 1}
    await stopped(world)


async def test_work_that_fails_is_done_again(world: World) -> None:
    problems: list[Exception | None] = [ConnectionFailed("no broker"), RuntimeError("a bug"), None]
    done = asyncio.Event()

    async def work() -> None:
        if problems[0] is None:
            done.set()
        elif problem := problems.pop(0):
            raise problem

    with capture_logs() as lines:
        world.upkeep._every(1, work)
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
    assert [line["event"] for line in lines] == ["upkeep could not ask Kafka", "upkeep failed"]
    await stopped(world)


async def test_work_that_kafka_did_not_answer_is_told_once(world: World) -> None:
    attempts = 0
    is_over = asyncio.Event()

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 5:
            is_over.set()
        raise ConnectionFailed(f"no broker, in other words {attempts}")

    with capture_logs() as lines:
        world.upkeep._every(1, work)
        async with asyncio.timeout(60):
            await is_over.wait()
    assert [(line["event"], line["why"]) for line in lines] == [
        ("upkeep could not ask Kafka", "no broker, in other words 1")
    ]
    await stopped(world)


async def test_work_that_kafka_did_not_answer_is_told_when_the_silence_that_is_told_is_over(world: World) -> None:
    attempts, is_over = 0, asyncio.Event()

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 6:
            is_over.set()
        raise ConnectionFailed(f"no broker, at attempt {attempts}")

    world.upkeep._is_left_out = lambda _: attempts < 3
    with capture_logs() as lines:
        world.upkeep._every(1, work)
        async with asyncio.timeout(PATIENCE_S):
            await is_over.wait()
    assert [line["why"] for line in lines] == ["no broker, at attempt 3"]
    await stopped(world)


async def test_silent_readers_are_told_once_and_compared_with_the_logs_ends(world: World) -> None:
    committed: dict[int, int] = {}

    async def told(group: str) -> dict[int, int]:
        return committed

    readers = LogReaders(["reader"], 1_000, lambda: world.now_ms, world.upkeep._reader_changed)
    with capture_logs() as lines:
        for _ in range(3):
            world.now_ms += 1_000
            await world.upkeep._look_up(readers, told)
    assert [line["event"] for line in lines] == ["a registered log reader is silent and holds the log"]
    assert world.series("silent-log-readers") == {"silent-log-readers-total": 1}
    committed |= {held.index: held.committed_offset for held in world.shards.partitions()}
    with capture_logs() as lines:
        for _ in range(3):
            world.now_ms += 1_000
            await world.upkeep._look_up(readers, told)
    assert lines == []
    await stopped(world)


# ---- the beginnings of the log partitions ----------------------------------------------------------------------------


class Beginnings:
    """Stands for `read_beginnings`: reads what lies in the log of a world, but for log partitions without a broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.silent: set[int] = set()
        self.look_count = 0

    def __call__(
        self, _kafka: object, topic: StateTopic, identity: LogIdentity, _ms: int, _stop: object
    ) -> list[Beginning]:
        self.look_count += 1
        found = [Beginning(partition, identity) for partition in range(topic.partition_count)]
        for beginning in found:
            if beginning.partition in self.silent:
                beginning.why_unread = "its broker is silent"
                continue
            for record in self.world.topic.partitions[beginning.partition].records:
                if not beginning.is_known:
                    beginning.read(record)
            beginning.is_known = True
        return found


async def starting(topic: MemoryTopic, cluster_id: str = CLUSTER, node_id: int = 2) -> tuple[World, Beginnings]:
    """Return a node that has begun to start, and of which nothing is loaded yet."""
    world = World(topic, node_id=node_id)
    beginnings = Beginnings(world)
    world.upkeep._read_beginnings = beginnings
    await world.shards.start(state_topic(topic), cluster_id, ConnectionOptions(bootstrap=(("127.0.0.1", 1),)))
    world.upkeep.start(state_topic(topic), cluster_id, NOBODY, None, world.renewed.append)  # type: ignore[arg-type]
    return world, beginnings


async def ended(world: World) -> None:
    await stopped(world)
    world.runtime.close()
    world.settle()


def load_all(world: World) -> None:
    world.shards.load_all()
    world.settle()


async def test_a_log_that_is_not_trusted_is_looked_at_again_as_after_any_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    intervals_ms: dict[object, int] = {}
    monkeypatch.setattr(Upkeep, "_every", lambda _, interval_ms, work: intervals_ms.update({work: interval_ms}))
    world = await World(MemoryTopic(2), alarm_backoff_ms=70_000, retry_backoff_max_ms=20_000).serve()
    assert intervals_ms[world.upkeep._look_again] == 70_000
    await stopped(world)


async def test_no_log_partition_serves_where_partitions_were_added_before_the_start() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    before.topic.partitions.append(MemoryPartition())
    world, _ = await starting(before.topic)
    with capture_logs() as lines:
        await world.upkeep.look_at_beginnings()
        load_all(world)
    assert states(world) == [State.FAILED] * 3
    told = [(line["event"], line["log_level"]) for line in lines if line["log_level"] != "debug"]
    assert told == [("log_distrusted", "error")]
    assert {row["failure"] for row in world.shards.describe()} == {
        world.upkeep.log_problem and world.upkeep.log_problem.text
    }
    commands = AdminCommands(world, world.shards, world.upkeep)  # type: ignore[arg-type]
    for index in range(3):
        with pytest.raises(AdminError, match="was written for 2 partitions, and the topic has 3"):
            commands.table()["partitions-accept"]({"partition": index, "reason": "it should do"})
    await world.upkeep._look_again()
    tick_past_the_back_off(world)
    assert states(world) == [State.FAILED] * 3
    await stopped(world)


async def test_a_topic_of_another_program_ends_the_start_and_is_not_waited_for() -> None:
    topic = MemoryTopic(2)
    for partition in range(2):
        topic.write_foreign(partition, b"key", b"value", None)
    world, beginnings = await starting(topic)
    unread = beginnings.__call__

    def read_no_further(*asked: Any) -> list[Beginning]:
        found = unread(*asked)
        for beginning in found:
            beginning.is_known = False
        return found

    world.upkeep._read_beginnings = read_no_further
    with pytest.raises(StateTopicError, match="Another program writes topic"):
        await asyncio.wait_for(world.upkeep.look_at_beginnings(), 60)
    assert beginnings.look_count == 1
    await stopped(world)


async def test_a_log_restored_in_part_serves_nothing_until_an_admin_accepts_each_log_partition() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    before.topic.partitions[1] = MemoryPartition()
    world, _ = await starting(before.topic, cluster_id="another")
    await world.upkeep.look_at_beginnings()
    load_all(world)
    assert states(world) == [State.FAILED] * 2
    commands = AdminCommands(world, world.shards, world.upkeep)  # type: ignore[arg-type]
    commands.table()["partitions-accept"]({"partition": 0, "reason": "restored"})
    world.settle()
    assert states(world) == [State.ACTIVE, State.FAILED]
    await world.upkeep._look_again()
    tick_past_the_back_off(world)
    assert states(world) == [State.ACTIVE, State.FAILED], "the empty one lacks what was not restored"
    commands.table()["partitions-accept"]({"partition": 1, "reason": "nothing was in it"})
    world.settle()
    await world.upkeep._look_again()
    assert world.runtime.log_alarm is None
    assert states(world) == [State.ACTIVE] * 2
    await ended(world)
    again, _ = await starting(before.topic, cluster_id="another", node_id=3)
    await again.upkeep.look_at_beginnings()
    load_all(again)
    assert states(again) == [State.ACTIVE] * 2
    await stopped(again)


async def test_nothing_is_loaded_while_a_log_partition_cannot_be_read_and_the_reason_is_shown() -> None:
    before = await filled({A: 1, B: 3})
    await ended(before)
    world, beginnings = await starting(before.topic)
    beginnings.silent = {1}
    looking = asyncio.create_task(world.upkeep.look_at_beginnings())
    with capture_logs() as lines:
        while beginnings.look_count < 3:  # noqa: ASYNC110 — the looks are in a thread
            await asyncio.sleep(0)
    assert not looking.done()
    assert [line["event"] for line in lines] == ["the node waits for log partitions"]
    assert states(world) == [State.INITIAL] * 2
    for row in world.shards.describe():
        assert row["failure"].endswith("1 could not be: log partition 1 (its broker is silent)")
    beginnings.silent = set()
    await looking
    load_all(world)
    assert states(world) == [State.ACTIVE] * 2
    assert [row["failure"] for row in world.shards.describe()] == [None, None]
    await stopped(world)


async def test_an_hourly_look_does_not_trust_a_log_that_its_beginnings_speak_against(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = await filled({A: 1})
    await ended(before)
    before.topic.partitions.append(MemoryPartition())
    world, _ = await starting(before.topic)
    monkeypatch.setattr(upkeep_module, "check_state_topic", Check(state_topic(world.topic)))
    monkeypatch.setattr(upkeep_module, "check_snapshot_topic", no_snapshot_topic)
    await world.upkeep.look_at_beginnings()
    load_all(world)
    await look(world)
    tick_past_the_back_off(world)
    assert states(world) == [State.FAILED] * 3
    await stopped(world)
