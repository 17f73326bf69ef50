"""Three nodes and three brokers, each in a network namespace of its own, while one node is cut off from some of the brokers.

`python -m tests.real.membership.cut_links DIRECTORY CUT…` plays these cuts, in a network namespace in which there is nothing else.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.client import Client, ClientSettings, connect
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.keys import SharePartitionKey, java_string_hash, log_partition
from tests.real.membership.callers import HASTY, REGISTERS, History
from tests.real.membership.cluster import LOG_PARTITIONS, Cluster
from tests.real.membership.split_kafka import split_kafka
from tests.real.membership.split_network import SplitNetwork, split_network
from tests.real.nodes import DEFAULT_TIMES, NodeProcess, node_processes, topic_id_of
from tests.waiting import PATIENCE_S

BROKERS: Final = ["broker-1", "broker-2", "broker-3"]
NODES: Final = ["node-1", "node-2", "node-3"]
#: As by default, like the heartbeats of `TIMES`.
SESSION_S: Final = 10.0
#: Nobody may be without an answer for longer than a session and this.
BEYOND_SESSION_S: Final = 5.0
CUT_S: Final = 20.0
#: Stands for a cut that nobody mends.
LONG_CUT_S: Final = 60.0
PAUSE_S: Final = 0.1
#: Ten pauses: so much of a stall of this program counts as time without an answer.
TURN_MAX_S: Final = 1.0
PORT: Final = 9092
_GROUPS: Final = "__consumer_offsets"
#: Of users; enough for a share partition of each log partition.
PARTITIONS: Final = 60
TIMES: Final[dict[str, object]] = {
    **DEFAULT_TIMES,
    "session.timeout.ms": int(SESSION_S * 1_000),
    "heartbeat.interval.ms": 1_000,
    "listener.insecure": "true",
    # The test asks for what only admins see.
    "super.users": "User:ANONYMOUS",
    "drain_timeout_ms": 10_000,
    "shutdown_step_timeout_ms": 10_000,
}


class Cut(NamedTuple):
    """How one node is cut off, and for how long."""

    is_from_leader: bool = False
    is_from_coordinator: bool = False
    is_from_all: bool = False
    #: Whether the node's packets are lost, and the brokers'.
    loses_its: bool = True
    loses_theirs: bool = True
    lasts_s: float = CUT_S


CASES: Final = {
    "leader": Cut(is_from_leader=True),
    "leader-coordinator": Cut(is_from_leader=True, is_from_coordinator=True),
    "leader-coordinator-for-good": Cut(is_from_leader=True, is_from_coordinator=True, lasts_s=LONG_CUT_S),
    "coordinator": Cut(is_from_coordinator=True),
    "all": Cut(is_from_all=True),
    "all-for-good": Cut(is_from_all=True, lasts_s=LONG_CUT_S),
    "to-leader": Cut(is_from_leader=True, loses_theirs=False),
    "from-leader": Cut(is_from_leader=True, loses_its=False),
    "to-all": Cut(is_from_all=True, loses_theirs=False),
    "from-all": Cut(is_from_all=True, loses_its=False),
    "from-leader-coordinator": Cut(is_from_leader=True, is_from_coordinator=True, loses_its=False),
}


class Clock:
    """A clock that stands still while this program does, which is the machine's fault and no node's."""

    def __init__(self) -> None:
        self._read_s, self._now_s = time.monotonic(), 0.0
        #: For so long it stood still.
        self.stalled_s = 0.0

    def now_s(self) -> float:
        """Return the time, in which no more than `TURN_MAX_S` lies between two calls."""
        read_s = time.monotonic()
        passed_s = read_s - self._read_s
        counted_s = min(passed_s, TURN_MAX_S)
        self._read_s = read_s
        self._now_s += counted_s
        self.stalled_s += passed_s - counted_s
        return self._now_s


class Calls:
    """Calls of every share partition, all the time."""

    def __init__(self, keys: Sequence[SharePartitionKey]) -> None:
        self.history = History()
        self.clock = Clock()
        self._keys = keys
        #: When each caller of a share partition was answered.
        self._answered_s: list[tuple[SharePartitionKey, list[float]]] = []
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, of_all: Client, of_each: Sequence[Client]) -> None:
        """Write at the node that any node names, and read at the one that each node names."""
        self._tasks.append(asyncio.create_task(self._keep_time()))
        for key in self._keys:
            self._tasks.append(asyncio.create_task(self._repeat(self.history.write, of_all, key)))
            self._tasks += [asyncio.create_task(self._repeat(self.history.read, client, key)) for client in of_each]

    async def stop(self) -> None:
        """Let each call end."""
        self._stopping.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)

    def gaps_s(self, began_s: float, ended_s: float) -> dict[int, float]:
        """Return by log partition the longest time for which one of its callers had no answer."""
        gaps = dict.fromkeys(range(LOG_PARTITIONS), 0.0)
        for key, answered_s in self._answered_s:
            index = log_partition(key, LOG_PARTITIONS, Placement.BY_TOPIC_PARTITION)
            times = [began_s, *(each for each in answered_s if began_s < each < ended_s), ended_s]
            gaps[index] = max(gaps[index], *(b - a for a, b in pairwise(times)))
        return gaps

    async def _keep_time(self) -> None:
        while not self._stopping.is_set():
            self.clock.now_s()
            await asyncio.sleep(PAUSE_S)

    async def _repeat(self, call: Callable[..., Any], client: Client, key: SharePartitionKey) -> None:
        self._answered_s.append((key, answered_s := []))
        while not self._stopping.is_set():
            if await call(client, key, is_patient=False):
                answered_s.append(self.clock.now_s())
            await asyncio.sleep(PAUSE_S)


class Leads(NamedTuple):
    """Which broker leads each log partition, and which one coordinates the nodes."""

    leaders: dict[int, int]
    coordinator: int


def leads(servers: str, topic: str) -> Leads:
    """Ask a broker."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    asked = admin.describe_topics(TopicCollection([topic, _GROUPS]))
    states, groups = (asked[name].result(PATIENCE_S).partitions for name in (topic, _GROUPS))
    # As Kafka places it.
    place = abs(java_string_hash(f"holdfast-{topic}")) % len(groups)
    (coordinator,) = (each.leader.id for each in groups if each.id == place)
    return Leads({each.id: each.leader.id for each in states}, coordinator)


def keys_of(topic_id: bytes) -> list[SharePartitionKey]:
    """Return a share partition of each log partition."""
    found: dict[int, SharePartitionKey] = {}
    for number in range(PARTITIONS):
        key = SharePartitionKey(REGISTERS, topic_id, number)
        found.setdefault(log_partition(key, LOG_PARTITIONS, Placement.BY_TOPIC_PARTITION), key)
    return [found[index] for index in range(LOG_PARTITIONS)]


async def play(name: str, network: SplitNetwork, cluster: Cluster, leads: Leads, calls: Calls) -> dict[int, float]:
    """Cut a node off, heal the link, and wait until every node serves again; returns the longest gaps."""
    await cluster.converged(f"before {name}", time.monotonic())
    cut, served = CASES[name], await cluster.served()
    others = {broker for broker in leads.leaders.values() if broker != leads.coordinator}
    # It has most of what a broker leads that is not the group's coordinator.
    node, leader = max(
        ((node, broker) for node in served for broker in others),
        key=lambda each: sum(leads.leaders[index] == each[1] for index in served[each[0]]),
    )
    brokers = {leader} if cut.is_from_leader else set()
    if cut.is_from_coordinator:
        brokers.add(leads.coordinator)
    if cut.is_from_all:
        brokers = {1, 2, 3}
    began_s, stalled_s = calls.clock.now_s(), calls.clock.stalled_s
    for broker in sorted(brokers):
        if cut.loses_its:
            network.cut(f"node-{node}", f"broker-{broker}")
        if cut.loses_theirs:
            network.cut(f"broker-{broker}", f"node-{node}")
    await asyncio.sleep(cut.lasts_s)
    network.heal()
    healed_s = time.monotonic()
    await cluster.converged(f"{name}: links of node {node} to brokers {sorted(brokers)} healed", healed_s)
    await asyncio.sleep(1)
    gaps = calls.gaps_s(began_s, calls.clock.now_s())
    stalled_s = calls.clock.stalled_s - stalled_s
    led = {index: leads.leaders[index] in brokers for index in served[node]}
    print(
        f"longest gap {max(gaps.values()):.1f} s; of all: { {index: round(gap, 1) for index, gap in gaps.items()} }",
        end="",
    )
    print(f"; the node had, and was cut off from the leader of: {led}", flush=True)
    if not cut.is_from_coordinator or cut.is_from_leader:
        assert max(gaps.values()) + stalled_s > SESSION_S / 2, f"{name} has cut nothing: {gaps}"
    return gaps


async def play_all(directory: Path, names: Sequence[str]) -> None:
    """Play these cuts one after the other.

    Raises:
        AssertionError: a log partition was without an answer for too long, or an answer was of a state that others had changed.
    """
    topic = "states"
    async with AsyncExitStack() as stack:
        network = stack.enter_context(split_network([*BROKERS, *NODES]))
        servers = stack.enter_context(split_kafka(network, BROKERS, directory))
        make = stack.enter_context(node_processes(servers, topic, directory))

        def make_node(node_id: int, **settings: object) -> NodeProcess:
            host = network.hosts[f"node-{node_id}"]
            return make(node_id=node_id, listen=f"{host.address}:{PORT}", **settings)

        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("queue", PARTITIONS, 1)])["queue"].result(PATIENCE_S)
        copies = {"share.coordinator.state.topic.replication.factor": 3, "share.coordinator.state.topic.min.isr": 2}
        cluster = Cluster(make_node, **TIMES, **copies)
        began_s = time.monotonic()
        for node_id in (1, 2, 3):
            with network.hosts[f"node-{node_id}"].inside():
                cluster.launch(node_id)
        await cluster.converged("three nodes started", began_s)
        keys = keys_of(topic_id_of(servers, "queue"))
        addresses = [cluster.nodes[node_id].address for node_id in (1, 2, 3)]
        of_all = await stack.enter_async_context(connect(addresses, HASTY))
        of_each = [await stack.enter_async_context(connect(address, HASTY)) for address in addresses]
        patient = await stack.enter_async_context(connect(addresses, ClientSettings()))
        for key in keys:
            await patient.initialize(key.group_id, key.topic_id, key.partition, 1, 0)
        calls = Calls(keys)
        calls.start(of_all, of_each)
        await asyncio.sleep(2)
        worst = {}
        for name in names:
            found = await asyncio.to_thread(leads, servers, topic)
            worst[name] = max((await play(name, network, cluster, found, calls)).values())
            assert calls.history.problems() == []
        await calls.stop()
        print(f"calls by outcome: {dict(calls.history.outcomes)}")
        for key in keys:
            assert await calls.history.read(patient, key, is_patient=True)
        assert calls.history.problems() == []
        too_long = {name: gap for name, gap in worst.items() if gap > SESSION_S + BEYOND_SESSION_S}
        assert not too_long, f"nobody answered for too long: {too_long}"


if __name__ == "__main__":
    asyncio.run(play_all(Path(sys.argv[1]), sys.argv[2:]))
