"""The kind of shard that holds share state, as the host needs it (`daemon.shards.ShardKind`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.daemon.settings.models import Settings
from holdfast.daemon.shards import Shard
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.state_machine import StateMachine
from holdfast.share.components import shard_config, state_bounds
from holdfast.share.decisions import ShareShard
from holdfast.share.metrics import ShareMetrics
from holdfast.share.state_bounds import StateTotals
from holdfast.share.state_watch import StateWatch


def serving(partitions: Iterable[Partition]) -> Iterator[tuple[Partition, ShareShard]]:
    """Yield log partitions that serve, with their shards."""
    for partition in partitions:
        machine = partition.machine
        assert isinstance(machine, ShareShard), "a log partition that serves has a shard"
        yield partition, machine


class ShareShards:
    """The shards of a node."""

    def __init__(self, settings: Settings, topic: StateTopic, metrics: ShareMetrics) -> None:
        self.write_timeout_ms: int = settings.share.write_timeout_ms
        #: State that all of them hold together.
        self.totals = StateTotals(state_bounds(settings))
        self._config = shard_config(settings, topic, self.totals)
        self._metrics = metrics
        self._watch = StateWatch(self.totals, metrics)

    def make_machine(self, partition: int) -> StateMachine:
        """See `ShardKind.make_machine`."""
        return ShareShard(self._config)

    def shard_of(self, machine: StateMachine | None) -> Shard | None:
        """See `Shards.shard_of`."""
        return machine if isinstance(machine, ShareShard) else None

    def format_key(self, key: SharePartitionKey) -> str:
        """See `Shards.format_key`."""
        return format_key(key)

    def watch(self, topic: str, partition: int, shard: Shard) -> None:
        """See `ShardKind.watch`."""
        self._metrics.watch_partition(topic, partition, shard.key_count)

    def tick(self) -> None:
        """See `ShardKind.tick`."""
        self._watch.tick()
