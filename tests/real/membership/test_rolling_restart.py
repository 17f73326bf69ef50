"""Three nodes are restarted one after the other under load: how long nobody answers for a log partition, eager beside cooperative.

ROLLS=1 restarts each node so often, ROLL_UPDATES="0 100000 2000000" with logs of so many updates; `pytest -s` shows the figures.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from holdfast.client import Client, ClientError, ClientSettings, ShareStateError, connect
from holdfast.daemon.topics.state_topic import FIXED_CONFIG
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.keys import SharePartitionKey, log_partition
from tests.real.log.long_log import write_long_log
from tests.real.membership.callers import percentile
from tests.real.membership.cluster import LOG_PARTITIONS, Cluster
from tests.real.nodes import node_processes, topic_id_of
from tests.real.shared_kafka import NewTopicFactory
from tests.waiting import PATIENCE_MS, in_patience, wait_until
from tests.world.samples import EPOCH_MAX

pytestmark = pytest.mark.real

ROLLS: Final = int(os.environ.get("ROLLS", "0"))
UPDATES: Final = [int(number) for number in os.environ.get("ROLL_UPDATES", "0").split()]
NODES: Final = (1, 2, 3)
#: Share partitions that a long log has updates of, and no caller calls.
LONG_LOG_KEYS: Final = 1_000
GROUP: Final = "rolling"
#: Enough that every log partition has one of them by Kafka's hash; a test would end at once otherwise.
PARTITIONS: Final = 64
ONE_TRY: Final = ClientSettings(attempts_max=1)
#: Between two calls of a caller: no gap is seen finer than that.
PAUSE_S: Final = 0.01


#: A new client for each call costs the machine more.
PAUSE_ANEW_S: Final = 0.05


class Caller:
    """Writes to one share partition over and over, and keeps the longest time between two answers since it was asked last.

    One that comes anew looks up the coordinator at any node for each call, over connections that it has not had before.
    """

    def __init__(
        self, addresses: list[str], key: SharePartitionKey, outcomes: Counter[str], *, comes_anew: bool
    ) -> None:
        self.answers = 0
        self.comes_anew = comes_anew
        self.is_stopping = False
        self._addresses = addresses
        self._key = key
        self._outcomes = outcomes
        self._answered_s = 0.0
        self._longest_s = 0.0

    def longest_gap_s(self) -> float:
        """Return the longest gap, one that goes on included, and begin anew."""
        longest_s = max(self._longest_s, time.perf_counter() - self._answered_s)
        self._longest_s = 0.0
        return longest_s

    async def run(self) -> None:
        """Call until told to stop."""
        while not self.is_stopping:
            addresses = random.sample(self._addresses, len(self._addresses))
            async with connect(addresses, ONE_TRY) as client:
                await self._call(client)
                while not (self.comes_anew or self.is_stopping):
                    await self._call(client)

    async def _call(self, client: Client) -> None:
        try:
            await client.write(GROUP, self._key.topic_id, self._key.partition, EPOCH_MAX, EPOCH_MAX, self.answers, [])
        except ClientError as error:
            self._outcomes[error.name if isinstance(error, ShareStateError) else type(error).__name__] += 1
        else:
            now_s = time.perf_counter()
            self._longest_s = max(self._longest_s, now_s - (self._answered_s or now_s))
            self._answered_s = now_s
            self._outcomes["answered"] += 1
            self.answers += 1
        await asyncio.sleep(PAUSE_ANEW_S if self.comes_anew else PAUSE_S)


@pytest.mark.skipif(not ROLLS, reason="a measurement: ROLLS says how often each node is restarted")
@pytest.mark.parametrize("updates", UPDATES)
@pytest.mark.parametrize("protocol", ["cooperative", "eager"])
async def test_nodes_are_restarted_one_after_the_other_and_every_log_partition_is_answered_for_again(
    kafka: str, new_topic: NewTopicFactory, tmp_path: Path, protocol: str, updates: int
) -> None:
    topic_id = topic_id_of(kafka, new_topic(PARTITIONS))
    topic = new_topic(LOG_PARTITIONS, **{name.replace(".", "_"): value for name, value in FIXED_CONFIG.items()})
    if updates:
        long = [SharePartitionKey(f"group-{n}", topic_id, 0) for n in range(LONG_LOG_KEYS)]
        write_long_log(kafka, topic, long, LOG_PARTITIONS, updates // LONG_LOG_KEYS)
    placement = Placement.BY_GROUP if updates else Placement.BY_TOPIC_PARTITION
    keys = {
        log_partition(key, LOG_PARTITIONS, placement): key
        for key in (SharePartitionKey(GROUP, topic_id, n) for n in range(PARTITIONS))
    }
    assert len(keys) == LOG_PARTITIONS
    #: Of callers that keep their connections and what they have looked up, and of those that come anew.
    kinds: Final = {False: "old clients", True: "new clients"}
    outcomes: dict[bool, Counter[str]] = {kind: Counter() for kind in kinds}
    gaps_s: dict[bool, list[float]] = {kind: [] for kind in kinds}
    async with AsyncExitStack() as stack:
        # No busy machine keeps the others from loading all before a node that stops is gone.
        patient = {"drain_timeout_ms": PATIENCE_MS, "handover_timeout_ms": PATIENCE_MS}
        make_node = stack.enter_context(node_processes(kafka, topic, tmp_path))
        cluster = Cluster(make_node, rebalance_protocol=protocol, **patient)
        began_s = time.monotonic()
        for node_id in NODES:
            cluster.launch(node_id)
        await cluster.converged("3 nodes started", began_s)
        addresses = [node.address for node in cluster.nodes.values()]
        async with connect(addresses) as client:
            for key in keys.values():
                await client.initialize(GROUP, topic_id, key.partition, 1, 0)
        callers = [Caller(addresses, key, outcomes[kind], comes_anew=kind) for key in keys.values() for kind in kinds]
        tasks = [asyncio.create_task(caller.run()) for caller in callers]
        await all_answered(callers)
        undisturbed_s = [caller.longest_gap_s() for caller in callers]
        for counted in outcomes.values():
            counted.clear()
        for node_id in NODES * ROLLS:
            for what in ("stopped", "started"):
                began_s = time.monotonic()
                if what == "stopped":
                    await cluster.remove(node_id)
                else:
                    cluster.launch(node_id)
                await cluster.converged(f"{protocol}: node {node_id} {what}", began_s)
                await all_answered(callers)
                for caller in callers:
                    gaps_s[caller.comes_anew].append(caller.longest_gap_s())
        for caller in callers:
            caller.is_stopping = True
        await in_patience(asyncio.gather(*tasks))
        for node_id in NODES:
            await cluster.remove(node_id)
    for kind, name in kinds.items():
        shown = ", ".join(f"p{percent} {percentile(gaps_s[kind], percent) * 1_000:.0f} ms" for percent in (50, 99))
        undisturbed = max(gap for gap, caller in zip(undisturbed_s, callers, strict=True) if caller.comes_anew == kind)
        print(
            f"{protocol}, a log of {updates:,} updates, {name}: {len(gaps_s[kind])} longest gaps, one per log partition and step: "
            f"{shown}, longest {max(gaps_s[kind]) * 1_000:.0f} ms; undisturbed {undisturbed * 1_000:.0f} ms; {dict(outcomes[kind])}"
        )


async def all_answered(callers: list[Caller]) -> None:
    """Wait until each caller has some more answers."""
    before = [caller.answers for caller in callers]
    await wait_until(
        lambda: all(caller.answers >= 5 + had for caller, had in zip(callers, before, strict=True)), "answers for all"
    )
