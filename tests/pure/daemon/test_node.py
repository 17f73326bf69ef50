"""A node from its first moment on: what callers get while it starts, and when all of its parts exist; without Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.client import AdminRefused, Client, ClientSettings, ShareStateError, connect
from holdfast.client.connection import Address, open_connection
from holdfast.daemon import node as node_module
from holdfast.daemon.config_topic import topic as topic_module
from holdfast.daemon.maintenance.log_checks import LogChecks
from holdfast.daemon.node import Node
from holdfast.daemon.node_condition import stop_timeout_ms
from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.server.sockets import listen
from holdfast.daemon.settings import reloading
from holdfast.daemon.settings.file_env_flags import Loaded, load_settings
from holdfast.daemon.steps import NodeSteps
from holdfast.daemon.tenant import Host, Tables
from holdfast.daemon.topics import cluster_queries
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.daemon.worker_place import ALONE, WorkerPlace
from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.discovery.find_coordinator import FIND_COORDINATOR, Found, Key, KeyType
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.kafka.topics.metadata_client import Topic, TopicAnswers
from holdfast.records.share.keys import SharePartitionKey
from holdfast.runtime.kafka_log import shell
from holdfast.share.tenant import SHARE_TENANT
from holdfast.tenants import TABLES
from tests.pure.daemon.config_topic.test_node_settings import Topic as ConfigTopic
from tests.simulated.memory_log import MemoryTopic
from tests.waiting import PATIENCE_S, in_patience, wait_until
from tests.world.http import get
from tests.world.node import CLUSTER, state_topic
from tests.world.samples import TOPIC
from tests.world.timers import STARTS, TICK, TIMERS, NodeTimers

KEY = SharePartitionKey("group", TOPIC, 0)
LOG_PARTITIONS = 2
FLAGS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "membership": "static",
    "listen": "127.0.0.1:0",
    "http.listen": "127.0.0.1:0",
    "snapshots.topic": "",
}
ONE_TRY = ClientSettings(attempts_max=1)


class LoopLog:
    """The log in memory, moved on by the event loop; as `KafkaLog` is started and closed."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._log = topic.open_log()
        self._moving: asyncio.Task[None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def start(self, listener: Any) -> None:
        self._log.start(listener)
        self._moving = asyncio.create_task(self._move())

    async def close(self, timeout_s: float) -> bool:
        if self._moving is not None:
            self._moving.cancel()
        return True

    async def _move(self) -> None:
        while True:
            await wait_until(self._topic.moves, "something to move")
            self._topic.run_until_quiet()


class Stages:
    """The stages of a start that wait for Kafka; each lasts until the test lets it end."""

    def __init__(self) -> None:
        self.topic = MemoryTopic(LOG_PARTITIONS)
        self.topic_found, self.beginnings_read = asyncio.Event(), asyncio.Event()

    async def ensure_state_topic(self, *_: object) -> tuple[StateTopic, tuple[str, ...]]:
        await self.topic_found.wait()
        return state_topic(self.topic), ()

    async def look_at_beginnings(self, checks: LogChecks) -> None:
        await self.beginnings_read.wait()


class Metadata:
    """Stands for `MetadataClient`: a cluster with one topic."""

    brokers = ()

    def __init__(self, options: ConnectionOptions, **_: object) -> None:
        self.cluster = Cluster(options, timeout_ms=1)
        self.found = Topic(TOPIC, "orders", 10)

    async def query_ids(self, topic_ids: Collection[bytes]) -> TopicAnswers:
        return TopicAnswers(CLUSTER, (self.found,) if TOPIC in topic_ids else (), frozenset(topic_ids) - {TOPIC})

    async def query_names(self, names: Collection[str]) -> dict[str, Topic]:
        return {"orders": self.found}

    def move_on(self) -> None:
        """Stay."""

    def close(self) -> None:
        """Do nothing."""


class Silence:
    """A watch over silent brokers that knows of none."""

    cut_off: frozenset[int] = frozenset()

    def leave_out(self, partition: int | None) -> bool:
        return False

    def leader_quiet_s(self, partition: int) -> float:
        return 0.0

    def leader_unheard_since_s(self, partition: int) -> float | None:
        return None


class Watch:
    """Stands for `BrokerWatch`: all brokers answer."""

    problem = ""

    def __init__(self, *_: object, **__: object) -> None:
        self.is_stopped = False
        self.silence = Silence()

    def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
async def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    stages = Stages()

    async def no_snapshots(*_: object) -> bool:
        return False

    monkeypatch.setattr(cluster_queries, "MetadataClient", Metadata)
    monkeypatch.setattr(node_module, "BrokerWatch", Watch)
    monkeypatch.setattr(node_module, "ensure_state_topic", stages.ensure_state_topic)
    monkeypatch.setattr(node_module, "check_snapshots", no_snapshots)
    monkeypatch.setattr(node_module, "KafkaClients", lambda *_: SimpleNamespace(admin=no_admin))
    monkeypatch.setattr(LogChecks, "look_at_beginnings", lambda checks: stages.look_at_beginnings(checks))
    monkeypatch.setattr(shell, "KafkaLog", lambda *_: LoopLog(stages.topic))
    return stages


class no_admin:  # noqa: N801 - a context manager
    """Gives no client."""

    def __enter__(self) -> None:
        """Give none."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


@asynccontextmanager
async def listening(
    config: ConfigTopic | None = None, place: WorkerPlace = ALONE, tables: Tables = TABLES, **flags: object
) -> AsyncIterator[tuple[Node, Client]]:
    """Give a node that listens, and a client of it; it ends cleanly. With a config topic, it takes settings from there."""

    def load(cluster: Mapping[str, str]) -> Loaded:
        return load_settings(flags=FLAGS | flags, cluster=cluster, model=tables.settings)

    node = Node(load({}).settings, tables, None if config is None else load, place)
    ended = asyncio.create_task(node.run())
    try:
        await wait_until(lambda: node.port or ended.done(), "the node listens")
        async with connect(f"127.0.0.1:{node.port}", ONE_TRY) as client:
            yield node, client
    finally:
        node.stop()
        async with asyncio.timeout(PATIENCE_S):
            assert await ended is NodeExit.STOPPED


async def refusal(client: Client, command: str, **arguments: object) -> str:
    with pytest.raises(AdminRefused) as refused:
        await client.admin(command, **arguments)
    return str(refused.value)


async def test_a_node_that_starts_answers_at_once_that_it_serves_nothing_yet(stages: Stages) -> None:
    async with listening() as (node, client):
        status = await client.admin("status")
        assert status["why_not_ready"] == "the node starts"
        assert (status["node_id"], status["run_id"], status["port"]) == (1, node.run_id, node.port)
        unknown = ("cluster_id", "state_topic", "topic_id", "log_partitions")
        assert [status[name] for name in unknown] == [None] * 4
        assert (status["log_partitions_held"], status["superseded_by"]) == (0, [])
        assert await client.admin("partitions") == []
        assert await client.admin("readers") == []
        for command, arguments in ("share-partitions", {}), ("partitions-take", {"partition": 0}):
            assert "is starting; try again when it is ready" in await refusal(client, command, **arguments)
        assert (await client.admin("settings"))["node_id"] == 1
        found = await client.admin("resolve-topic", name="orders")
        assert found == {"name": "orders", "topic_id": format_topic_id(TOPIC), "partitions": 10}
        with pytest.raises(ShareStateError, match="COORDINATOR_NOT_AVAILABLE"):
            await client.read(KEY.group_id, TOPIC, 0, 0)


async def test_a_worker_that_starts_answers_at_the_address_of_all_where_no_other_does(stages: Stages) -> None:
    (shared,) = listen("127.0.0.1", 0, 10)
    port = shared.getsockname()[1]
    async with listening(place=WorkerPlace((shared,))) as (node, _):
        async with connect(f"127.0.0.1:{port}", ONE_TRY) as client:
            assert (await in_patience(client.admin("status")))["why_not_ready"] == "the node starts"
            with pytest.raises(ShareStateError, match="COORDINATOR_NOT_AVAILABLE"):
                await in_patience(client.read(KEY.group_id, TOPIC, 0, 0))
        assert node.parts is None, "Kafka is away"


async def test_it_names_its_partitions_before_they_load_and_serves_when_they_have(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening() as (node, client):
        assert node.parts is None
        stages.topic_found.set()
        await wait_until(lambda: node.parts is not None, "the parts exist")
        status = await client.admin("status")
        assert (status["cluster_id"], status["state_topic"], status["log_partitions"]) == (CLUSTER, "state", 2)
        assert not status["is_ready"]
        assert node.parts is not None
        node.parts.partitions.list_all_unloaded("a broker is silent")
        rows = await client.admin("partitions")
        assert [(row["state"], row["failure"]) for row in rows] == [("initial", "a broker is silent")] * 2
        assert "log partition 0: a broker is silent" in (await client.admin("status"))["why_not_ready"]
        (found,) = await client.find([KEY])
        assert found == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node does not serve share state now")
        with pytest.raises(ShareStateError) as refused:
            await client.initialize(KEY.group_id, TOPIC, 0, 1, 0)
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        stages.beginnings_read.set()
        await wait_until(lambda: node.is_ready, "the node is ready")
        assert await client.find([KEY]) == [("127.0.0.1", node.port)]
        await client.initialize(KEY.group_id, TOPIC, 0, 1, 7)
        assert (await client.read(KEY.group_id, TOPIC, 0, 0)).start_offset == 7
        assert [(row["state"], row["why"]) for row in node.describe_readiness()] == [("serving", None)] * 2
        monkeypatch.setattr(Silence, "cut_off", frozenset([1, 7]))
        cut_off = ("cut off", "no broker that leads it answers")
        assert [(row["state"], row["why"]) for row in node.describe_readiness()] == [("serving", None), cut_off]
        assert (await client.admin("status"))["log_partitions_cut_off"] == 1


async def test_it_listens_before_it_has_read_what_holds_for_all_nodes_and_obeys_that_then(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ConfigTopic()
    config.is_answering = False
    config.write("max.connections", "1", is_read=False)
    monkeypatch.setattr(topic_module, "KafkaLog", config)
    monkeypatch.setattr(reloading, "set_level", lambda level: None)
    async with listening(config) as (node, client):
        assert (await client.admin("status"))["why_not_ready"] == "the node starts"
        assert node.settings.limits.connections_max > 1
        await wait_until(lambda: config.readings, "the topic is read")
        config.answer()
        await wait_until(lambda: node.settings.limits.connections_max == 1, "it was read")
        await client.admin("status")  # it is not silent
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        assert await reader.read() == b"", "the client has the one place"
        writer.close()


@pytest.mark.parametrize("stage", ["topic", "beginnings"])
async def test_a_stop_at_any_stage_of_the_start_is_clean(stages: Stages, stage: str) -> None:
    async with listening() as (node, _):
        if stage == "beginnings":
            stages.topic_found.set()
            await wait_until(lambda: node.parts is not None, "the parts exist")
    assert node.why_not_ready() == "the node stops"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", node.port)


async def test_a_stop_takes_no_longer_than_the_service_manager_is_told(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds_ms: list[int] = []
    do = NodeSteps.do

    async def noting(steps: NodeSteps, name: str, step: Any, timeout_ms: int) -> None:
        bounds_ms.append(timeout_ms)
        await do(steps, name, step, timeout_ms)

    config = ConfigTopic()
    monkeypatch.setattr(topic_module, "KafkaLog", config)
    monkeypatch.setattr(reloading, "set_level", lambda level: None)
    monkeypatch.setattr(NodeSteps, "do", noting)
    async with listening(config) as (node, _):
        await wait_until(lambda: config.readings, "the topic is read")
        config.answer()
        stages.topic_found.set()
        stages.beginnings_read.set()
        await wait_until(lambda: node.is_ready, "the node is ready")
    assert sum(bounds_ms) == stop_timeout_ms(node.settings)


async def test_second_tenant_is_served_from_start_to_stop(stages: Stages) -> None:
    """A tenant with one row of each kind in addition to share state: call, command, HTTP paths, key type, duty, settings."""
    made: list[NodeTimers] = []

    def make(host: Host) -> NodeTimers:
        made.append(NodeTimers(host))
        return made[0]

    tables = Tables(SHARE_TENANT, [replace(TIMERS, make=make)])
    flags: dict[str, Any] = {"timers.ticks.max": 3}
    async with listening(tables=tables, **flags) as (node, client):
        assert (await client.admin("settings"))["timers.ticks.max"] == 3
        connection = await open_connection(Address("127.0.0.1", node.port), ONE_TRY)
        assert node.http_port is not None
        assert connection.versions[TICK] == (0, 1)
        assert await connection.exchange(TICK, 1, b"tea", is_flexible=True) == STARTS
        assert "is starting; try again when it is ready" in await refusal(client, "ticks")
        assert (await get(node.http_port, "/api/v1/ticks")).status == 503
        stages.topic_found.set()
        stages.beginnings_read.set()
        await wait_until(lambda: node.is_ready, "the node is ready")
        assert await connection.exchange(TICK, 1, b"tea", is_flexible=True) == b"tea: 1"
        assert await connection.exchange(TICK, 0, b"egg", is_flexible=True) == b"egg: 2"
        assert await connection.exchange(TICK, 1, b"state-tea", is_flexible=True) == b"state-tea at 8: 0"
        assert await connection.exchange(TICK, 1, b"state-tea", is_flexible=True) == b"state-tea at 9: 0"
        assert (await client.read("state-tea", TOPIC, 0, 1)).start_offset == 9
        shown = await client.admin("ticks")
        assert (shown["node_id"], shown["ticks"], shown["ticks_max"]) == (1, 2, 3)
        serving = made[0].serving
        assert serving is not None
        assert {index for index, serves in serving.changes if serves} == set(range(serving.log_partitions))
        await wait_until(lambda: serving.rounds > 0, "its duty is done")
        assert "takes no argument 'until'" in await refusal(client, "ticks", until=1)
        assert (await get(node.http_port, "/api/v1/ticks")).json()["ticks"] == 2
        assert (await get(node.http_port, "/api/v1/clock")).json() == {"clock": 2}
        keys = [Key(KeyType.GROUP, "tea")]
        body = await connection.exchange(
            FIND_COORDINATOR.api_key, 6, FIND_COORDINATOR.encode(6, keys), is_flexible=True
        )
        assert FIND_COORDINATOR.decode(6, keys, body).values[keys[0]] == Found(1, "127.0.0.1", node.port, 0, "")
        await client.initialize(KEY.group_id, TOPIC, 0, 1, 0)
        connection.close()
    assert serving.log_partitions == 0, "it is shut down"
    assert serving.changes[-1][1] is False, "it serves no log partition any more"
