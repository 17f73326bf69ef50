"""Measure the time of the loop that a moment of a node's page takes: `python -m benchmarks.micro.page_moment [--groups N]`.

Groups of one share partition each, loaded from snapshots as a node does it; the ends of topics are known at once. Each moment is made
as often as readers may have one, so its time also tells how old it gets. Times are those of the thread.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.micro.hot_path import SETTINGS
from holdfast.console.commands.serve import COLLECTOR_THRESHOLDS
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.kafka.topics.topic_ends import Ends, TopicEnds
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot
from holdfast.runtime.build import BUILD
from holdfast.runtime.partition.states import State
from holdfast.share.components import shard_config, state_bounds
from holdfast.share.decisions import ShareShard
from holdfast.share.page.moments import Moments
from holdfast.share.page.others import OtherStates
from holdfast.share.page.purse import Purse
from holdfast.share.page.states import OwnStates
from holdfast.share.state_bounds import StateTotals
from tests.world.records import encode_record

_LOG_PARTITIONS = 50
_TOPICS = 100
_NOW_MS = 1_790_000_000_000
#: One group in ten has changed at each later moment.
_CHANGED = 10
_MOMENTS = 7


class CountingPurse(Purse):
    """A purse that knows what was paid at once."""

    def __init__(self) -> None:
        super().__init__()
        self.paid_s: list[float] = []

    def pay(self, spent_s: float, account: str | None = None) -> None:
        """See `Purse`."""
        self.paid_s.append(spent_s)
        super().pay(spent_s, account)


class KnownEnds:
    """Every partition of a topic has the same end; each record was written at one time."""

    async def look_up(self, wanted: Mapping[Any, Any]) -> dict[Any, Any]:
        """See `TopicEndSource.look_up` and `RecordTimes.look_up`."""
        if wanted and isinstance(next(iter(wanted)), tuple):
            return dict.fromkeys(wanted, _NOW_MS)
        return {
            topic_id: TopicEnds(f"topic-{topic_id[0]}", dict.fromkeys(partitions, Ends(0, 10_000_000)))
            for topic_id, partitions in wanted.items()
        }


class Served(list[Any]):
    """Log partitions, all of which serve."""

    def active(self) -> list[Any]:
        """Return all."""
        return list(self)


def group_of(number: int, start: int) -> tuple[SharePartitionKey, Snapshot]:
    """Return the share partition of a group, and its state."""
    batches = tuple(StateBatch(start + 20 * each, start + 20 * each + 9, 2 * (each % 3), 1) for each in range(5))
    key = SharePartitionKey(f"orders-service-{number}", bytes([number % _TOPICS]) * 16, number % 8)
    return key, Snapshot(3, 1, 7, start, 50, _NOW_MS, _NOW_MS, batches, 7, 1)


def make_served(groups: int) -> Served:
    """Return log partitions with a number of groups."""
    topic = StateTopic("state", bytes(16), _LOG_PARTITIONS, 1, 1_048_588)
    config = shard_config(SETTINGS, topic, StateTotals(state_bounds(SETTINGS)))
    served = Served()
    for index in range(_LOG_PARTITIONS):
        shard = ShareShard(config)
        for number in range(index, groups, _LOG_PARTITIONS):
            shard.load_record(*encode_record(Codec.AVRO, *group_of(number, 1_000)), number)
        shard.fold_loaded(lambda: False)
        shard.on_loaded(None)
        ownership = SimpleNamespace(winner=None)
        served.append(SimpleNamespace(index=index, ownership=ownership, state=State.ACTIVE, machine=shard))
    return served


def turn(served: Served, groups: int, moment: int) -> None:
    """Change some of the groups, and have all that was written committed."""
    for number in range(moment % _CHANGED, groups, _CHANGED):
        served[number % _LOG_PARTITIONS].machine.replay(*group_of(number, 1_000 + moment), moment * groups + number)
    for each in served:
        each.committed_offset = each.committed_sequence = (moment + 1) * groups


async def measure(groups: int) -> None:
    """Make some moments and print what each took."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    served, purse, ends = make_served(groups), CountingPurse(), KnownEnds()
    cluster = cast("Any", SimpleNamespace(record_times=ends, look_ups=SimpleNamespace(ends=ends)))
    others = OtherStates(cast("Any", None), list)
    moments = Moments(OwnStates(cast("Any", served)), others, bytes(16), cluster, purse, lambda: _NOW_MS, "run")
    print(f"build {BUILD}; {groups:,} groups, of which one in {_CHANGED} changes between moments")
    print("| moment | all, ms | longest slice, ms | with the questions for ends, ms | next one after, s |")
    print("| --- | --: | --: | --: | --: |")
    for number in range(_MOMENTS):
        turn(served, groups, number)
        purse.paid_s.clear()
        await moments._make()
        *slices_s, asked_s = purse.paid_s
        all_s = sum(slices_s)
        print(
            f"| {number + 1} | {all_s * 1e3:.0f} | {max(slices_s) * 1e3:.1f} | {(all_s + asked_s) * 1e3:.0f} "
            f"| {moments._fresh_s:.0f} |"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--groups", type=int, default=10_000)
    asyncio.run(measure(parser.parse_args().groups))


if __name__ == "__main__":
    main()
