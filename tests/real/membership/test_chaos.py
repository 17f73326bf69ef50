"""Four nodes under load while nodes are killed, frozen and woken, removed and added, and every broker is restarted.

CHAOS_S=1 plays one round of all that, in a minute or two; a higher number goes on until so many seconds are over.
CHAOS_BROKERS says how many brokers there are (1), CHAOS_CALLERS how many callers (16), CHAOS_SEED which run is played again.
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
from holdfast.records.keys import SharePartitionKey
from tests.real.membership.callers import PATIENT, REGISTERS, SETS, Callers, History
from tests.real.membership.cluster import Cluster
from tests.real.nodes import PATIENT_CLIENT, node_processes, topic_id_of
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.real

CHAOS_S: Final = float(os.environ.get("CHAOS_S", "0"))
BROKERS: Final = int(os.environ.get("CHAOS_BROKERS", "1"))
CALLERS: Final = int(os.environ.get("CHAOS_CALLERS", "16"))
SEED: Final = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 32)))
NODES: Final = 4
#: Users' partitions; each is a register and a set.
PARTITIONS: Final = 12
PAUSE_S: Final = 0.02


class Chaos:
    """What befalls the nodes and the brokers; every step ends when live nodes serve every log partition."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        cluster: Cluster,
        history: History,
        keys: list[SharePartitionKey],
        chance: random.Random,
    ) -> None:
        self._kafka = kafka
        self._cluster = cluster
        self._history = history
        self._keys = keys
        self._chance = chance
        self._restarts = count()

    def steps(self) -> list[Callable[[], Awaitable[None]]]:
        """Return one round, in any order."""
        steps: list[Callable[[], Awaitable[None]]] = [self.kill_and_restart, self.freeze_and_wake]
        steps += [self.remove_and_add, self.add_and_remove]
        steps += [self.restart_broker] * 2 * len(self._kafka.nodes)
        self._chance.shuffle(steps)
        return steps

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
        async with connect(self._cluster.nodes[victim].address, PATIENT) as client:
            # From here on this client knows whom to call, and calls the sleeper as well.
            await asyncio.gather(*(self._history.read(client, key, is_patient=False) for key in self._keys))
            began_s = time.monotonic()
            self._cluster.freeze(victim)
            await self._cluster.converged(f"node {victim} frozen", began_s)
            calls = [self._history.read, self._history.write]
            late = [asyncio.create_task(call(client, key, is_patient=True)) for key in self._keys for call in calls]
            _, waiting = await asyncio.wait(late, timeout=1)
            began_s = time.monotonic()
            self._cluster.wake(victim)
            answered = sum(await asyncio.wait_for(asyncio.gather(*late), PATIENCE_S))
            print(f"{len(waiting)} calls waited for the sleeper, {answered} of {len(late)} were answered with success")
            await self._cluster.converged(f"node {victim} woken", began_s)

    async def remove_and_add(self) -> None:
        """End a node in good order and start it again."""
        victim = self._any_node()
        await self._remove(victim)
        await self._launch(victim)

    async def add_and_remove(self) -> None:
        """Let one more node join, and end it."""
        await self._launch(NODES + 1)
        await self._remove(NODES + 1)

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
    print(f"\nseed {SEED}, {BROKERS} brokers, {CALLERS} callers")
    chance = random.Random(SEED)
    history = History()
    with EmbeddedKafka(brokers=BROKERS, jvm_options=QUICK_KAFKA, heap_mib=256) as kafka:
        servers, copies = kafka.bootstrap_servers, min(3, BROKERS)
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("queue", PARTITIONS, copies)])["queue"].result(PATIENCE_S)
        topic_id = topic_id_of(servers, "queue")
        keys = [SharePartitionKey(group, topic_id, n) for group in (REGISTERS, SETS) for n in range(PARTITIONS)]
        durable = {
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": min(2, copies),
        }
        async with AsyncExitStack() as stack:
            cluster = Cluster(stack.enter_context(node_processes(servers, topic, tmp_path)), **durable)
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
            chaos = Chaos(kafka, cluster, history, keys, chance)
            while time.monotonic() < began_s + CHAOS_S:
                for step in chaos.steps():
                    await step()
            await callers.stop()
            for key in keys:
                assert await history.read(client, key, is_patient=True)
            for node_id in sorted(cluster.live):
                await cluster.remove(node_id)
        print(f"calls in {time.monotonic() - began_s:.0f} s by outcome: {dict(history.outcomes)}")
        assert history.without_outcome == []
        assert history.lost() == []
        assert history.problems() == []
