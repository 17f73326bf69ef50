"""What follows the power cut where there are several nodes: the others take over what the dead one served."""

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from demo.cluster import Cluster, Served, Taken
from demo.daemon import LOG_PARTITIONS
from demo.verdict import Check
from demo.worker import GROUP, PATIENT
from holdfast.client import connect
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.keys import SharePartitionKey, log_partition


class Takeover(NamedTuple):
    """How a dead node was replaced."""

    node_id: int  #: of the dead one
    busiest: int  #: the log partition with the most records, which it served
    taken: list[Taken]  #: all that it served, in the order in which others served it again
    answered_s: float  #: until a client that knows only the others was answered from the busiest one
    checks: list[Check]

    def summary(self) -> str:
        """Return who took over the busiest log partition, and how long it took, in a sentence or two."""
        heir = next((each for each in self.taken if each.log_partition == self.busiest), None)
        if heir is None:
            return f"Nobody took over log partition {self.busiest}, the busiest one."
        return (
            f"Node {heir.node_id} took over log partition {self.busiest}, the busiest one, {heir.after_s:.1f} s after the "
            f"death of node {self.node_id}; a read sent at that moment was answered after {self.answered_s:.1f} s."
        )


def find_busiest(served: Mapping[int, Served]) -> int:
    """Return the log partition with the most records."""
    return max(served, key=lambda index: served[index].records)


async def watch(
    cluster: Cluster, topic_id: bytes, partitions: int, served: Mapping[int, Served], killed_s: float
) -> Takeover:
    """Wait until the other nodes serve what the owner of the busiest log partition served.

    Args:
        cluster: without the dead node.
        topic_id: of the orders.
        partitions: how many that topic has.
        served: who served which log partition before.
        killed_s: when the node died, by the monotonic clock.
    """
    busiest = find_busiest(served)
    dead = served[busiest].node_id
    lost = {index: each for index, each in served.items() if each.node_id == dead}

    async def answered() -> float:
        keys = (SharePartitionKey(GROUP, topic_id, partition) for partition in range(partitions))
        placement = Placement.BY_TOPIC_PARTITION
        key = next(key for key in keys if log_partition(key, LOG_PARTITIONS, placement) == busiest)
        async with connect(cluster.addresses, PATIENT) as client:
            await client.read_summary(*key)
        return time.monotonic() - killed_s

    (taken, now), answered_s = await asyncio.gather(cluster.watch_takeover(lost, killed_s), answered())
    ownerless = sorted(lost.keys() - {each.log_partition for each in taken})
    elsewhere = sorted(
        index
        for index in served.keys() - lost.keys()
        if index not in now or now[index].node_id != served[index].node_id
    )
    checks = [
        Check(
            f"The other nodes took over all {len(lost)} log partitions of node {dead}.",
            not ownerless,
            [f"{ownerless} have no owner"] if ownerless else (),
        ),
        Check(
            "What the other nodes served stayed where it was.",
            not elsewhere,
            [f"{elsewhere} did not"] if elsewhere else (),
        ),
    ]
    return Takeover(dead, busiest, taken, answered_s, checks)
