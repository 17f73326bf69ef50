"""Processes of nodes that are members of one group, and how long it takes until live ones serve every log partition again."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any, Final

from holdfast.client import ClientError
from tests.real.nodes import DEFAULT_TIMES, NodeFactory, NodeProcess
from tests.waiting import PATIENCE_S, poll_pause_s

LOG_PARTITIONS: Final = 8
SETTINGS: Final[dict[str, object]] = {
    **DEFAULT_TIMES,
    "membership": "group",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "rebalance.timeout.ms": 20_000,
    "drain_timeout_ms": 10_000,
    "share.coordinator.state.topic.num.partitions": LOG_PARTITIONS,
}


class Cluster:
    """Nodes by their ids; those that run and are not frozen are live."""

    def __init__(self, make_node: NodeFactory, **settings: object) -> None:
        self._make_node = make_node
        self._settings = SETTINGS | settings
        self.nodes: dict[int, NodeProcess] = {}
        self.live: set[int] = set()
        #: What happened, and after how many seconds every log partition was served.
        self.convergences: list[tuple[str, float]] = []

    def describe(self, node_id: int) -> NodeProcess:
        """Return a node, which keeps its address over restarts."""
        if node_id not in self.nodes:
            self.nodes[node_id] = self._make_node(node_id=node_id, **self._settings)
        return self.nodes[node_id]

    def launch(self, node_id: int) -> None:
        """Start a node."""
        self.describe(node_id).launch()
        self.live.add(node_id)

    def kill(self, node_id: int) -> None:
        """End a node by SIGKILL."""
        self.live.remove(node_id)
        self.nodes[node_id].kill()

    def freeze(self, node_id: int) -> None:
        """Halt a node."""
        self.live.remove(node_id)
        self.nodes[node_id].signal(signal.SIGSTOP)

    def wake(self, node_id: int) -> None:
        """Let a frozen node go on."""
        self.nodes[node_id].signal(signal.SIGCONT)
        self.live.add(node_id)

    async def remove(self, node_id: int) -> None:
        """End a node in good order."""
        self.live.remove(node_id)
        self.nodes[node_id].signal(signal.SIGTERM)
        exit_code = await self.nodes[node_id].wait_exit()
        assert exit_code == 0, f"node {node_id} ended with {exit_code}: {self.nodes[node_id].last_words()}"

    async def listening(self) -> None:
        """Wait until every live node listens.

        Raises:
            AssertionError: one does not.
        """
        began_s = time.monotonic()
        while not all(await asyncio.gather(*(self.nodes[node_id].status() for node_id in self.live))):
            assert time.monotonic() < began_s + PATIENCE_S, f"not all of {self.live} listen"
            await asyncio.sleep(poll_pause_s(began_s))

    async def served(self) -> dict[int, list[int]]:
        """Return by node which log partitions it serves as it says; live nodes only.

        Those have none that do not answer, or that are no members, or name others than the live nodes to clients.
        """
        found = await asyncio.gather(*(self._served_by(self.nodes[node_id]) for node_id in sorted(self.live)))
        return dict(zip(sorted(self.live), found, strict=True))

    async def converged(self, what: str, began_s: float) -> float:
        """Wait until one live node serves each log partition, and each live node serves some and knows all; returns after how many seconds.

        Raises:
            AssertionError: a node ended, or that did not come about.
        """
        waited_from_s = time.monotonic()
        while True:
            served = await self.served()
            each_once = sorted(index for indexes in served.values() for index in indexes) == list(range(LOG_PARTITIONS))
            if each_once and all(served.values()):
                break
            ended = {node_id: code for node_id in self.live if (code := self.nodes[node_id].exit_code()) is not None}
            assert not ended, f"after {what}, by node: {ended}\n{self.nodes[next(iter(ended))].last_words()}"
            assert time.monotonic() < waited_from_s + PATIENCE_S, f"after {what}: {served}"
            await asyncio.sleep(poll_pause_s(waited_from_s))
        self.convergences.append((what, time.monotonic() - began_s))
        print(f"{what}: every log partition served after {self.convergences[-1][1]:.1f} s, {served}", flush=True)
        return self.convergences[-1][1]

    async def _served_by(self, node: NodeProcess) -> list[int]:
        try:
            rows: list[dict[str, Any]] = await node.ask("partitions")
            members = await node.ask("members")
        except ClientError:
            return []
        if {row["node_id"] for row in members} != self.live or any(row["state"] == "rejoining" for row in members):
            return []
        return [row["partition"] for row in rows if row["state"] == "active"]
