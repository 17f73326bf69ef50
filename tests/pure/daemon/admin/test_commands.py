"""What an admin can ask of a node, and what is refused with the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.admin.commands import LogCommands, NodeCommands, StartingCommands
from holdfast.daemon.admin.host_metrics import HostMetrics
from holdfast.daemon.config_topic.node_settings import NodeSettings
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.membership.duties import Duties
from holdfast.daemon.membership.lone_node import LoneNode
from holdfast.daemon.partitions.description import describe_elsewhere
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.server.admin import AdminCommand, AdminError
from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.topics.name_look_ups import TopicNames
from holdfast.daemon.worker_place import ALONE
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.metadata_client import Topic
from holdfast.kafka.topics.topic_ends import Ends, TopicEnds, TopicEndSource
from holdfast.metrics.instruments import Counter
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.build import BUILD
from holdfast.runtime.partition.states import State
from holdfast.share.commands import StartingShareCommands
from holdfast.share.tenant import StartingShareCalls
from tests.simulated.memory_log import MemoryTopic
from tests.world.context import make_context
from tests.world.maintenance import make_deleted_state, make_maintenance, make_share_commands
from tests.world.node import PartitionsWorld
from tests.world.samples import TOPIC

KEY = SharePartitionKey("group", TOPIC, 0)


class Kafka:
    """Resolves one name while it can be reached."""

    def __init__(self) -> None:
        self.is_down = False

    async def query_names(self, names: Iterable[str]) -> Mapping[str, Topic]:
        if self.is_down:
            raise ConnectionFailed("127.0.0.1:9092 cannot be reached")
        return {name: Topic(TOPIC, name, 8) for name in names if name == "orders"}

    def close(self) -> None:
        """Do nothing."""


class _Member(LoneNode):
    """A node that has been given everything, but for what others have."""

    def __init__(self, elsewhere: list[dict[str, Any]], *given: Any) -> None:
        super().__init__(*given)
        self._elsewhere = elsewhere

    def describe_elsewhere(self) -> list[dict[str, Any]]:
        return self._elsewhere


class World(PartitionsWorld):
    """A node's shards, and its admin commands."""

    def __init__(self, topic: MemoryTopic, node_id: int = 1, names: TopicNames | None = None) -> None:
        super().__init__(topic, node_id, when_superseded="wait")
        self.node_settings = NodeSettings(self.settings)
        self.run_id = f"run-{node_id}"
        self.host_metrics = HostMetrics(self.settings, make_context(registry=self.registry), ALONE)
        options = ConnectionOptions(bootstrap=(("a", 9092),))
        self.topic_ends = TopicEndSource(Cluster(options, 1_000), timeout_ms=1_000, waiting_max=10)
        names = names or TopicNames(Kafka(), lambda: 0, timeout_ms=60_000)
        self.elsewhere: list[dict[str, Any]] = []
        self._of_node = NodeCommands(self, names, self.topic_ends).table()
        calls = StartingShareCalls(self.share_metrics, lambda: 0.0, InternalErrors(Counter()))
        of_share = StartingShareCommands(calls).table()
        self.table: Mapping[str, AdminCommand] = {**self._of_node, **StartingCommands().table(), **of_share}

    @property
    def allotment(self) -> LoneNode:
        """What gives the node its work; as the group's map has it, some of it belongs to others."""
        return _Member(self.elsewhere, self.node, self.view, self.partitions, Duties({}, InternalErrors(Counter())))

    def begin(self, image: Any = None) -> Partitions:
        partitions = super().begin(image)
        share = make_share_commands(self, make_deleted_state(self))
        of_log = LogCommands(
            self, partitions, make_maintenance(self), self.allotment, self.brokers, share.decisions()
        ).table()
        self.table = {**self._of_node, **of_log, **share.table()}
        return partitions

    def status(self) -> dict[str, Any]:
        return {"node_id": self.settings.node_id}

    def ask(self, command: str, **arguments: object) -> Any:
        answer = self.table[command](arguments)
        self.settle()
        return answer

    def refusal(self, command: str, **arguments: object) -> str:
        with pytest.raises(AdminError) as refused:
            self.ask(command, **arguments)
        return str(refused.value)

    def accepted_because(self, index: int) -> list[str | None]:
        """Return the reasons in the checkpoints of a log partition."""
        records = self.topic.partitions[index].records
        return [decode_checkpoint(record.value or b"").reason for record in records if record.key == CHECKPOINT_KEY]


async def serving(partition_count: int = 1) -> World:
    world = World(MemoryTopic(partition_count))
    await world.serve()
    return world


# ---- what it tells ---------------------------------------------------------------------------------------------------


async def test_a_node_reports_what_it_is_and_what_it_holds() -> None:
    world = await serving(3)
    assert world.ask("status") == {"version": "0.1.0", "build": BUILD, "node_id": 1}
    assert world.ask("settings")["node_id"] == 1
    assert world.ask("config") == {"offset": -1, "settings": []}
    assert steps_of(world.ask("metrics"))[-1]["holdfast_log_partitions{state=active}"] == 3
    assert [row["state"] for row in world.ask("partitions")] == ["active"] * 3


def test_a_node_that_starts_lists_nothing_and_refuses_what_needs_a_log_partition() -> None:
    world = World(MemoryTopic(3))
    assert world.ask("partitions") == []
    assert world.ask("readers") == []
    for command in (
        "share-partitions",
        "partitions-take",
        "partitions-accept",
        "topics-accept-deleted",
        "readers-drop",
        "decision-preview",
    ):
        assert world.refusal(command, partition=0) == "This node is starting; try again when it is ready."
    begun = World(MemoryTopic(3))
    begun.begin()
    assert world.table.keys() == begun.table.keys()


async def test_a_member_lists_what_others_have_as_its_map_has_it_and_names_them() -> None:
    world = await serving(2)
    [ours, *_] = world.ask("partitions")
    other = Node(2, "h", 9002)
    world.elsewhere += [describe_elsewhere(index, other, world.node, 7) for index in (1, 2)]
    rows = world.ask("partitions")
    assert [(row["partition"], row["state"], row["owner"]) for row in rows] == [
        (0, "active", "1"),
        (1, "elsewhere", "2"),
        (2, "elsewhere", "2"),
    ]
    assert all(list(row) == list(ours) for row in rows), "each row has the same fields"
    *_, end = steps_of(world.ask("share-partitions"))
    assert [(row["log_partition"], row["why"]) for row in end["not_listed"]] == [
        (1, "node 2 has it"),
        (2, "node 2 has it"),
    ]
    refusal = world.refusal("partitions-accept", partition=2, reason="so")
    assert refusal == "This node has no log partition 2: node 2 has it; repeat this with --address h:9002."
    del world.partitions.wanted[1]
    refusal = world.refusal("partitions-accept", partition=1, reason="so")
    assert refusal == ("Log partition 1 is not this node's to serve: node 2 has it; repeat this with --address h:9002.")


def steps_of(listing: Any) -> list[Any]:
    """Return what a command of many steps returns, after its steps."""
    steps = []
    while True:
        try:
            steps.append(next(listing))
        except StopIteration as ended:
            return [*steps, ended.value]


# ---- take ------------------------------------------------------------------------------------------------------------


async def test_a_static_node_takes_back_what_another_took_over() -> None:
    world = await serving()
    world.initialize(0, KEY)
    other = World(world.topic, node_id=2)
    await other.serve()
    world.settle()
    assert (world.partition(0).state, other.partition(0).state) == (State.CLOSED, State.ACTIVE)
    before = {"state": "closed", "owner": "2", "owner_epoch": 2, "failure": world.partition(0).failure}
    after = {"state": "active", "owner": "1", "owner_epoch": 3, "failure": None}
    answer = world.ask("decision-preview", decision="partitions-take", partition=0)
    assert answer == {"before": before, "after": after, "data_lost": [], "run_id": "run-1"}
    assert world.partition(0).state is State.CLOSED
    assert world.refusal("partitions-take", partition=0, run_id="run-2").startswith("Another node showed")
    assert world.partition(0).state is State.CLOSED
    assert world.ask("partitions-take", partition=0, run_id="run-1") == "log partition 0 is being taken"
    other.settle()
    [row] = world.ask("partitions")
    assert {name: row[name] for name in after} == after
    assert (world.partition(0).state, other.partition(0).state) == (State.ACTIVE, State.CLOSED)
    assert (world.partition(0).ownership.epoch, world.keys()) == (3, {KEY})


async def test_what_a_node_has_it_need_not_take() -> None:
    world = await serving()
    refusal = "This node has log partition 0 already: it is active."
    assert world.refusal("partitions-take", partition=0) == refusal


@pytest.mark.parametrize("partition", [3, -1, None, "0", 0.0, True])
async def test_a_partition_that_is_not_held_is_named_with_those_that_are(partition: object) -> None:
    world = await serving(3)
    refusal = f"This node has no log partition {partition!r}; it has 0 to 2."
    assert world.refusal("partitions-take", partition=partition) == refusal
    assert world.refusal("partitions-accept", partition=partition, reason="so") == refusal


# ---- accept ----------------------------------------------------------------------------------------------------------


async def alarmed() -> World:
    """Return a node whose only log partition was cut by hand before its start."""
    before = await serving()
    before.initialize(0, KEY)
    await before.partitions.stop(1_000)
    before.topic.cut(0, 1)
    world = World(before.topic, node_id=2)
    await world.serve()
    return world


async def test_a_log_that_was_cut_by_hand_serves_again_when_it_is_accepted_and_the_reason_is_in_it() -> None:
    world = await alarmed()
    [row] = world.ask("partitions")
    assert (row["state"], row["is_alarmed"]) == ("failed", True)
    assert "`holdfast partitions accept 0 --reason …`" in row["failure"]
    answer = world.ask("decision-preview", decision="partitions-accept", partition=0, reason="cut by mistake")
    assert (answer["before"]["state"], answer["after"]["state"]) == ("failed", "active")
    assert answer["data_lost"] == ["what the log of partition 0 has lost stays lost"]
    assert world.partition(0).state is State.FAILED
    answer = world.ask("partitions-accept", partition=0, reason="cut by mistake")
    assert answer == "log partition 0 goes on with the log as it is"
    assert world.partition(0).state is State.ACTIVE
    assert world.accepted_because(0) == [None, "cut by mistake"]
    successor = World(world.topic, node_id=3)
    await successor.serve()
    assert successor.partition(0).state is State.ACTIVE, "the reason counts for every later load"


@pytest.mark.parametrize("command", ["partitions-accept", "partitions-take"])
async def test_no_claim_is_written_to_another_cluster_than_the_one_that_has_the_log(command: str) -> None:
    world = await alarmed()
    asked: dict[str, Any] = {"partition": 0} | ({"reason": "so"} if command == "partitions-accept" else {})
    assert world.ask("decision-preview", decision=command, **asked)["after"]["state"] == "active"
    world.brokers.another_cluster = "the brokers are another cluster (b) than the one that has the log (a)"
    refusal = world.refusal(command, **asked)
    assert refusal.startswith(f"Nothing is taken or accepted, because {world.brokers.another_cluster}. ")
    assert world.refusal("decision-preview", decision=command, **asked) == refusal
    assert world.partition(0).state is State.FAILED
    world.brokers.another_cluster = ""
    world.ask(command, **asked)
    world.brokers.another_cluster = "the brokers are another cluster (b) than the one that has the log (a)"
    assert world.refusal(command, **asked) == refusal, "the state of the log partition is not looked at before"


async def test_nothing_is_accepted_where_nothing_is_wrong() -> None:
    world = await serving()
    refusal = "Log partition 0 is active and raised no alarm; there is nothing to accept."
    assert world.refusal("partitions-accept", partition=0, reason="so") == refusal
    await World(world.topic, node_id=2).serve()
    world.settle()
    refusal = world.refusal("partitions-accept", partition=0, reason="so")
    assert refusal.startswith(
        "Log partition 0 is closed (node 2 at node-2.example:9492 took it with owner epoch 2 at offset 1) and raised no"
    )


@pytest.mark.parametrize("reason", [None, "", "  ", 7, "x" * 1_001, "a lone \ud83d surrogate"])
async def test_whoever_accepts_says_why(reason: object) -> None:
    world = await serving()
    world.runtime.partitions[0].fail(RuntimeError("a bug"), world.clock.now_ms)
    assert world.refusal("partitions-accept", partition=0, reason=reason).startswith("A `reason` is needed")
    assert world.refusal("topics-accept-deleted", reason=reason).startswith("A `reason` is needed")


async def test_a_preview_of_a_decision_refuses_what_the_decision_refuses() -> None:
    world = await serving()
    for decision, arguments in (
        ("partitions-take", {"partition": 0}),
        ("partitions-accept", {"partition": 0, "reason": "so"}),
        ("topics-accept-deleted", {"reason": "so"}),
        ("readers-drop", {"group": "audit", "reason": "so"}),
    ):
        refusal = world.refusal(decision, **arguments)
        assert world.refusal("decision-preview", decision=decision, **arguments) == refusal
    assert "one of partitions-take" in world.refusal("decision-preview", decision="status")


async def test_no_deleted_topics_are_accepted_where_none_wait() -> None:
    world = await serving()
    with capture_logs() as lines:
        refusal = world.refusal("topics-accept-deleted", reason="so")
    assert refusal == "No clean-up of deleted topics waits for an admin."
    assert lines == []


# ---- resolve ---------------------------------------------------------------------------------------------------------


async def resolve(world: World, name: object) -> Any:
    return await world.table["resolve-topic"]({"name": name})  # type: ignore[misc]


async def test_a_topics_name_is_resolved_by_the_cluster() -> None:
    world = World(MemoryTopic(1), names=TopicNames(Kafka(), lambda: 0, timeout_ms=60_000))
    answer = await resolve(world, "orders")
    assert answer == {"name": "orders", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": 8}
    with pytest.raises(AdminError, match="The cluster knows no topic 'other'"):
        await resolve(world, "other")


@pytest.mark.parametrize("name", ["\ud800", "x" * 40_000, "", "a\nb"])
async def test_what_is_no_topics_name_is_one_clear_sentence(name: str) -> None:
    world = World(MemoryTopic(1), names=TopicNames(Kafka(), lambda: 0, timeout_ms=60_000))
    with pytest.raises(AdminError, match="That is no topic's name: Kafka takes 1 to 249 letters") as refused:
        await resolve(world, name)
    assert len(str(refused.value)) < 200


async def test_in_an_outage_a_name_known_from_before_serves_and_another_says_that_kafka_cannot_be_reached() -> None:
    kafka = Kafka()
    world = World(MemoryTopic(1), names=TopicNames(kafka, lambda: 7_000, timeout_ms=60_000))
    await resolve(world, "orders")
    kafka.is_down = True
    answer = await resolve(world, "orders")
    assert answer["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert answer["warning"].startswith(
        "Kafka cannot be reached (127.0.0.1:9092 cannot be reached); it resolved orders 0 s"
    )
    with pytest.raises(AdminError, match=r"Kafka cannot be reached .* or give the topic's id\.") as refused:
        await resolve(world, "payments")
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_a_node_that_starts_cannot_do_yet_has_one_text_and_one_code() -> None:
    with pytest.raises(AdminError) as refused:
        World(MemoryTopic(1)).table["share-partitions"]({})
    assert str(refused.value) == "This node is starting; try again when it is ready."
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---- ends of topics --------------------------------------------------------------------------------------------------


async def topic_ends(world: World, topics: object) -> Any:
    return await world.table["topic-ends"]({"topics": topics})  # type: ignore[misc]


async def test_where_topics_begin_and_end_is_reported_by_topic_id(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(MemoryTopic(1))
    source = world.topic_ends

    async def look_up(wanted: Mapping[bytes, list[int]]) -> dict[bytes, TopicEnds]:
        assert wanted == {TOPIC: [0, 9]}
        return {TOPIC: TopicEnds("orders", {0: Ends(5, 100), 9: Ends(-1, -1, "the topic has no partition 9")})}

    monkeypatch.setattr(source, "look_up", look_up)
    assert await topic_ends(world, {format_topic_id(TOPIC): [0, 9]}) == {
        format_topic_id(TOPIC): {
            "name": "orders",
            "partitions": {
                "0": {"first_offset": 5, "end_offset": 100, "problem": None},
                "9": {"first_offset": -1, "end_offset": -1, "problem": "the topic has no partition 9"},
            },
        }
    }


@pytest.mark.parametrize(
    ("topics", "why"),
    [
        (None, "topic-ends needs `topics`"),
        ({}, "topic-ends needs `topics`"),
        ({"orders": [0]}, "22 characters of base64url"),
        ({format_topic_id(TOPIC): 0}, "are not a list of whole numbers"),
        ({format_topic_id(TOPIC): [True]}, "are not a list of whole numbers"),
        ({format_topic_id(TOPIC): [1 << 31]}, "are not a list of whole numbers"),
        ({format_topic_id(TOPIC): list(range(10_001))}, "one command takes 10000"),
    ],
)
async def test_a_query_for_the_ends_of_topics_that_says_nothing_is_refused(topics: object, why: str) -> None:
    world = World(MemoryTopic(1))
    with pytest.raises(AdminError, match=why):
        await topic_ends(world, topics)
