"""The nodes of the demonstration: one that serves the whole log, or several that divide it as members of a Kafka group."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from demo.daemon import LOG_PARTITIONS, Daemon
from holdfast.client import ClientError
from holdfast.runtime.partition.states import State

_DIVISION_TIMEOUT_S: Final = 60.0
_TAKEOVER_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05

#: The shortest session that Kafka's brokers accept unless they are set up otherwise: a dead node is found after so long.
_MEMBER: Final = {"membership": "group", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}


class Served(NamedTuple):
    """A log partition, and who serves it."""

    node_id: int
    records: int


class Taken(NamedTuple):
    """A log partition that another node serves now."""

    log_partition: int
    records: int  #: in it when its owner died
    node_id: int  #: of the new owner
    after_s: float  #: since its owner died


class Cluster:
    """Runs the nodes of one state topic."""

    def __init__(self, bootstrap_servers: str, state_topic: str, directory: Path, nodes: int) -> None:
        member = _MEMBER if nodes > 1 else {}
        self.nodes = {
            node_id: Daemon(bootstrap_servers, state_topic, directory, node_id, member)
            for node_id in range(1, nodes + 1)
        }
        self._killed: dict[int, Daemon] = {}
        self._exit_codes: list[int | None] = []

    @property
    def addresses(self) -> list[str]:
        """Where the nodes listen that were neither killed nor stopped."""
        return [node.address for node in self.nodes.values()]

    async def start(self) -> float:
        """Start the nodes, and wait until each serves its share of the log; returns how many seconds that took.

        Raises:
            RuntimeError: one of them ended, or they were not ready in time.
        """
        began_s = time.monotonic()
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        while not await self._is_divided():
            if time.monotonic() - began_s > _DIVISION_TIMEOUT_S:
                raise RuntimeError(f"{len(self.nodes)} nodes did not divide the log in {_DIVISION_TIMEOUT_S:.0f} s.")
            await asyncio.sleep(_POLL_S)
        return time.monotonic() - began_s

    async def served(self) -> dict[int, Served]:
        """Return who serves each log partition, by log partition; those that nobody serves are not in it."""
        found: dict[int, Served] = {}
        for node_id, node in self.nodes.items():
            try:
                rows = await node.query("partitions")
            except ClientError:
                continue
            for row in rows:
                if row["state"] == State.ACTIVE.value:
                    found[row["partition"]] = Served(node_id, row["committed"] - row["log_start"])
        return found

    def kill(self, node_id: int) -> None:
        """End a node by SIGKILL; it is no longer one of the nodes."""
        node = self._killed[node_id] = self.nodes.pop(node_id)
        node.kill()

    async def restart(self, node_id: int) -> float:
        """Start a node again that was killed; returns how many seconds it took until it was ready."""
        node = self.nodes[node_id] = self._killed.pop(node_id)
        return await node.start()

    async def watch_takeover(
        self, lost: Mapping[int, Served], killed_s: float
    ) -> tuple[list[Taken], dict[int, Served]]:
        """Wait until the nodes serve the whole log again; returns what they took over in that order, and who serves what then.

        Args:
            lost: what the dead node served, by log partition.
            killed_s: when it died, by the monotonic clock.
        """
        taken: dict[int, Taken] = {}
        served: dict[int, Served] = {}
        while len(served) < LOG_PARTITIONS and time.monotonic() - killed_s < _TAKEOVER_TIMEOUT_S:
            await asyncio.sleep(_POLL_S)
            served, after_s = await self.served(), time.monotonic() - killed_s
            for index in served.keys() & lost.keys() - taken.keys():
                taken[index] = Taken(index, lost[index].records, served[index].node_id, after_s)
        return sorted(taken.values(), key=lambda each: (each.after_s, each.log_partition)), served

    async def shrink(self) -> Daemon:
        """Stop all nodes but the last, which takes over what they serve, and return that one.

        Raises:
            RuntimeError: it did not take over in time.
        """
        *leaving, last = self.nodes
        for node_id in leaving:
            node = self.nodes.pop(node_id)
            self._exit_codes.append(await asyncio.to_thread(node.stop))
        began_s = time.monotonic()
        while len(await self.served()) < LOG_PARTITIONS:
            if time.monotonic() - began_s > _TAKEOVER_TIMEOUT_S:
                raise RuntimeError(f"Node {last} did not take over; it said:\n{self.nodes[last].log_tail()}")
            await asyncio.sleep(_POLL_S)
        return self.nodes[last]

    def stop(self) -> list[int | None]:
        """Stop the nodes; returns the exit codes of all that were ever stopped, None for one that did not run."""
        self._exit_codes += [node.stop() for node in self.nodes.values()]
        self.nodes = {}
        return self._exit_codes

    async def _is_divided(self) -> bool:
        served = await self.served()
        return len(served) == LOG_PARTITIONS and {each.node_id for each in served.values()} == self.nodes.keys()
