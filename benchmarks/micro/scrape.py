"""How long monitoring holds the loop of a node at once: a scrape, and the numbers of share groups that are made for it.

    python -m benchmarks.micro.scrape [GROUPS …]

A hold is what runs between two turns of the loop. All is the real thing but the topics, whose ends are known at once, and the log,
which is not there. Each group has one share partition; `PAIRS` is `group_metrics_pairs_max`, and the last line has it at its most.
A number is the floor of `ROUNDS`, which other work on the machine disturbs least.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

from benchmarks.micro.wire import TOPIC_ID
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.kafka.topics.topic_ends import Ends, Place, TopicEnds
from holdfast.metrics.exposition import expose
from holdfast.metrics.registry import Registry
from holdfast.records.share.batches import ACKNOWLEDGED, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.runtime.build import BUILD
from holdfast.share.group_metrics.group_metrics import GroupMetrics
from holdfast.share.group_metrics.series import GroupSeries
from holdfast.share.settings import GroupMetricSettings

LOG_PARTITIONS: Final = 50
ROUNDS: Final = 3
GROUPS: Final = (500, 20_000, 100_000)


class Known:
    """Where topics end and when records were written, without a broker."""

    async def look_up(self, wanted: Mapping[bytes, Sequence[int]]) -> dict[bytes, TopicEnds]:
        """Return the ends of what is wanted."""
        return {
            topic_id: TopicEnds("topic", {each: Ends(0, 100) for each in partitions})
            for topic_id, partitions in wanted.items()
        }


class Times:
    """When records were written."""

    async def look_up(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """Return a time for each."""
        return dict.fromkeys(offsets, 1)


class States:
    """The share partitions of one log partition, as a shard has them."""

    def __init__(self, states: dict[SharePartitionKey, ShareState]) -> None:
        self._states = states

    def keys(self) -> list[SharePartitionKey]:
        """Return all of them."""
        return list(self._states)

    def at(self, position: int, key: SharePartitionKey) -> ShareState | None:
        """Return the state of one."""
        return self._states.get(key)


class Served:
    """What a node serves."""

    def __init__(self, groups: int) -> None:
        batches = (StateBatch(10, 12, ACKNOWLEDGED, 1), StateBatch(13, 14, 0, 2))
        state = ShareState(0, 1, 1, 10, -1, 0, 0, batches, 1, 1, 0)
        states: list[dict[SharePartitionKey, ShareState]] = [{} for _ in range(LOG_PARTITIONS)]
        for number in range(groups):
            # In an order of its own: what comes first by name is anywhere.
            name = f"group-{number * 7_919 % groups:06d}"
            states[number % LOG_PARTITIONS][SharePartitionKey(name, TOPIC_ID, 0)] = state
        shards = [SimpleNamespace(state=States(each)) for each in states]
        self._active = [(SimpleNamespace(machine=shard, committed_sequence=0), shard) for shard in shards]

    def active(self) -> Iterator[tuple[Any, Any]]:
        """Yield the log partitions."""
        yield from self._active


def holds_ms(work: Coroutine[Any, Any, None]) -> list[float]:
    """Return how long each turn of a task took."""
    found: list[float] = []
    while True:
        began_s = time.perf_counter()
        try:
            work.send(None)
        except StopIteration:
            return [*found, (time.perf_counter() - began_s) * 1_000]
        found.append((time.perf_counter() - began_s) * 1_000)


async def _scrape(registry: Registry, sizes: list[int]) -> None:
    """Do what `/metrics` does."""
    text = bytearray()
    for piece in expose(registry, "").pieces:
        text += piece
        await _Turn()
    sizes.append(len(text))


class _Turn:
    def __await__(self) -> Generator[None, None, None]:
        yield


def measure(groups: int, pairs_max: int) -> str:
    """Return a line of the table for so many groups."""
    registry = Registry()
    settings = GroupMetricSettings(group_metrics_pairs_max=pairs_max)
    metrics = GroupMetrics(
        settings,
        cast("Partitions", Served(groups)),
        Known(),
        Times(),
        GroupSeries(registry, lambda: 5),
        places_per_query_max=10_000,
    )
    longest = {"refresh": 1e9, "gone": 1e9, "scrape": 1e9}
    whole = dict(longest)
    sizes: list[int] = []
    nobody = cast("Partitions", Served(0))
    everybody = metrics._partitions
    for _ in range(ROUNDS):
        for name in longest:
            metrics._partitions = nobody if name == "gone" else everybody
            if name == "scrape":
                holds_ms(metrics.refresh())
            gc.collect()
            found = holds_ms(_scrape(registry, sizes) if name == "scrape" else metrics.refresh())
            longest[name], whole[name] = min(longest[name], max(found)), min(whole[name], sum(found))
    tracemalloc.start()
    holds_ms(metrics.refresh())
    peak_mib = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    series = sum(len(family.series) for family in registry.families())
    cells = " | ".join(f"{longest[name]:.2f} / {whole[name]:.0f}" for name in longest)
    return f"| {groups:,} | {pairs_max:,} | {series:,} | {cells} | {sizes[-1] / 1e6:.2f} | {peak_mib:.1f} |"


def main(arguments: Sequence[str]) -> None:
    """Measure and print a row for each number of groups."""
    gc.freeze()
    print(f"build {BUILD}; longest hold / whole time in ms")
    print("| groups | pairs max | series | numbers made | all gone | scrape | text, MB | memory of making, MiB |")
    print("| --: | --: | --: | --: | --: | --: | --: | --: |")
    for groups in [int(each) for each in arguments] or GROUPS:
        for pairs_max in (200, 500):
            print(measure(groups, pairs_max), flush=True)
    if not arguments:
        print(measure(GROUPS[-1], 10_000), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
