"""Four nodes under load while nodes are killed, frozen and woken, removed and added, and every broker is restarted.

CHAOS_S=1 plays one round of all that, in a minute or two; a higher number goes on until so many seconds are over.
CHAOS_BROKERS says how many brokers there are (1), CHAOS_CALLERS how many callers (16), CHAOS_SEED which run is played again.
CHAOS_BUGS="NAME; NAME" plants deliberate bugs of `tests/simulated/mutants.txt` in every node: then the run must find a violation.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import EmbeddedKafka
from holdfast.client import connect
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.discovery.groups import Groups
from holdfast.kafka.exchange import broker_links
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.keys import SharePartitionKey
from tests.real.membership.callers import REGISTERS, SETS, Callers, History
from tests.real.membership.cluster import Cluster
from tests.real.membership.pursuit import CONNECTIONS, PURSUER, Pursuit
from tests.real.nodes import PATIENT_CLIENT, node_processes, topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.real

CHAOS_S: Final = float(os.environ.get("CHAOS_S", "0"))
BROKERS: Final = int(os.environ.get("CHAOS_BROKERS", "1"))
CALLERS: Final = int(os.environ.get("CHAOS_CALLERS", "16"))
SEED: Final = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 32)))
BUGS: Final = os.environ.get("CHAOS_BUGS", "")
NODES: Final = 4
#: Users' partitions; each is a register and a set.
PARTITIONS: Final = 12
PAUSE_S: Final = 0.02
#: How often a sleeper is pursued before it wakes up.
PRESSES: Final = 3
#: So few that snapshots of a superseded owner are in the log as well.
UPDATES_PER_SNAPSHOT: Final = 25
PLANTED: Final = "tests.real.membership.planted"


class Chaos:
    """What befalls the nodes and the brokers; every step ends when live nodes serve every log partition."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        cluster: Cluster,
        group: str,
        history: History,
        keys: list[SharePartitionKey],
        chance: random.Random,
    ) -> None:
        """Do nothing yet.

        Args:
            kafka: the brokers.
            cluster: the nodes.
            group: of the nodes.
            history: of all calls.
            keys: the share partitions that are called.
            chance: what chooses.
        """
        self._kafka = kafka
        self._cluster = cluster
        self._group = group
        self._history = history
        self._keys = keys
        self._chance = chance
        self._restarts = count()

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        """Return one round, in any order."""
        steps: list[Callable[[], Awaitable[None]]] = [self.kill_and_restart, self.freeze_and_wake]
        steps += [self.remove_and_add, self.add_and_remove, self.stop_all_and_forget]
        steps += [self.restart_broker] * 2 * len(self._kafka.nodes)
        self._chance.shuffle(steps)
        return steps

    async def play(self, until_s: float) -> list[str]:
        """Let a whole round befall the nodes, then more steps until the time is over; returns which histories are not linearizable."""
        is_first = True
        while True:
            for step in self.steps():
                if not is_first and time.monotonic() >= until_s:
                    return []
                await step()
                if problems := self._history.problems():
                    return problems
            is_first = False

    async def kill_and_restart(self) -> None:
        """Kill a node, and start it when others have its log partitions."""
        victim = self._any_node()
        began_s = time.monotonic()
        self._cluster.kill(victim)
        await self._cluster.converged(f"node {victim} killed", began_s)
        await self._launch(victim)

    async def freeze_and_wake(self) -> None:
        """Freeze a node until others have its log partitions, send it calls that it finds when it wakes up, and wake it."""
        victim = self._any_node()
        address = self._cluster.nodes[victim].address
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(connect(address, PURSUER)) for _ in range(CONNECTIONS)]
            # From here on they know whom to call, and call the sleeper as well.
            found = (await asyncio.gather(*(caller.find(self._keys) for caller in callers)))[0]
            keys = [key for key, owner in zip(self._keys, found, strict=True) if str(owner) == address]
            began_s = time.monotonic()
            self._cluster.freeze(victim)
            awake = [self._cluster.nodes[node_id].address for node_id in sorted(self._cluster.live)]
            successors = await stack.enter_async_context(connect(awake, PURSUER))
            pursuit = Pursuit(self._history, keys, callers, successors)
            await self._cluster.converged(f"node {victim} frozen", began_s)
            for _ in range(PRESSES):
                await pursuit.press()
            waiting = pursuit.waiting()
            began_s = time.monotonic()
            self._cluster.wake(victim)
            waking = asyncio.create_task(self._cluster.converged(f"node {victim} woken", began_s))
            await pursuit.press_on(waking)
            await waking
            answered, called = await pursuit.answered()
            print(
                f"{waiting} calls waited for the sleeper, {answered} of {called} that it was pursued with were successes"
            )

    async def remove_and_add(self) -> None:
        """End a node in good order and start it again."""
        victim = self._any_node()
        await self._remove(victim)
        await self._launch(victim)

    async def add_and_remove(self) -> None:
        """Let one more node join, and end it."""
        await self._launch(NODES + 1)
        await self._remove(NODES + 1)

    async def stop_all_and_forget(self) -> None:
        """End all nodes in good order, let the brokers forget their group, whose generations begin anew, and start all nodes."""
        node_ids = sorted(self._cluster.live)
        await asyncio.gather(*(self._cluster.remove(node_id) for node_id in node_ids))
        brokers = connection_options({"bootstrap.servers": self._kafka.bootstrap_servers})
        groups = Groups(broker_links(brokers, PATIENCE_MS), PATIENCE_MS)
        forgotten = (await groups.delete([self._group]))[self._group]
        groups.close()
        assert forgotten.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND), forgotten
        for node_id in node_ids:
            self._cluster.launch(node_id)
        await self._cluster.listening()
        began_s = time.monotonic()
        await self._cluster.converged("all nodes stopped, their group forgotten, all started and listening", began_s)

    async def restart_broker(self) -> None:
        """Restart the next broker, in good order and as a crash in turn."""
        number = next(self._restarts)
        broker = 1 + number % len(self._kafka.nodes)
        began_s = time.monotonic()
        how = (self._kafka.stop, self._kafka.kill)[number // len(self._kafka.nodes) % 2]
        await asyncio.to_thread(how, broker)
        await asyncio.to_thread(self._kafka.restart, broker)
        await self._cluster.converged(f"broker {broker} restarted ({how.__name__})", began_s)

    def _any_node(self) -> int:
        return self._chance.choice(sorted(self._cluster.live))

    async def _remove(self, node_id: int) -> None:
        # Together, for others take over while it still lives.
        removal = asyncio.create_task(self._cluster.remove(node_id))
        began_s = time.monotonic()
        await asyncio.sleep(0)
        await self._cluster.converged(f"node {node_id} removed", began_s)
        await removal

    async def _launch(self, node_id: int) -> None:
        began_s = time.monotonic()
        self._cluster.launch(node_id)
        await self._cluster.converged(f"node {node_id} started", began_s)


@pytest.mark.skipif(not CHAOS_S, reason="minutes of all processors: CHAOS_S says how many seconds at least")
async def test_nodes_lose_nothing_and_histories_are_linearizable_whatever_befalls_nodes_and_brokers(
    topic: str, tmp_path: Path
) -> None:
    print(f"\nseed {SEED}, {BROKERS} brokers, {CALLERS} callers, planted bugs: {BUGS or 'none'}")
    chance = random.Random(SEED)
    history = History()
    program = (PLANTED, BUGS) if BUGS else ("holdfast",)
    with EmbeddedKafka(brokers=BROKERS, jvm_options=QUICK_KAFKA, heap_mib=256) as kafka:
        servers, copies = kafka.bootstrap_servers, min(3, BROKERS)
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("queue", PARTITIONS, copies)])["queue"].result(PATIENCE_S)
        topic_id = topic_id_of(servers, "queue")
        keys = [SharePartitionKey(group, topic_id, n) for group in (REGISTERS, SETS) for n in range(PARTITIONS)]
        settings = {
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": min(2, copies),
            "share.coordinator.snapshot.update.records.per.snapshot": UPDATES_PER_SNAPSHOT,
        }
        async with AsyncExitStack() as stack:
            cluster = Cluster(stack.enter_context(node_processes(servers, topic, tmp_path, program)), **settings)
            began_s = time.monotonic()
            for node_id in range(1, NODES + 1):
                cluster.launch(node_id)
            await cluster.converged(f"{NODES} nodes started", began_s)
            addresses = [cluster.describe(node_id).address for node_id in range(1, NODES + 2)]
            client = await stack.enter_async_context(connect(addresses, PATIENT_CLIENT))
            for key in keys:
                await client.initialize(key.group_id, topic_id, key.partition, 1, 0)
            callers = Callers(addresses, keys, history, SEED, PAUSE_S)
            callers.start(CALLERS)
            began_s = time.monotonic()
            problems = await Chaos(kafka, cluster, f"holdfast-{topic}", history, keys, chance).play(began_s + CHAOS_S)
            took_s = time.monotonic() - began_s
            await callers.stop()
            if not problems:
                for key in keys:
                    assert await history.read(client, key, is_patient=True)
                problems = history.lost() + history.problems()
            for node_id in sorted(cluster.live):
                await cluster.remove(node_id)
    print(f"calls in {took_s:.0f} s by outcome: {dict(history.outcomes)}")
    if BUGS:
        print(f"{BUGS}: caught after {took_s:.0f} s: " + "\n".join(problems))
        assert problems
        return
    assert history.without_outcome == []
    assert problems == []
