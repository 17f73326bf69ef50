"""The kind of shard that holds share state, as the host needs it (`daemon.shards.ShardKind`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from holdfast.daemon.settings.models import Settings
from holdfast.daemon.shards import Shard
from holdfast.daemon.topics.state_topic import StateTopic
from holdfast.records.share.keys import SharePartitionKey, format_key
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.state_machine import StateMachine
from holdfast.share.components import shard_config, state_bounds
from holdfast.share.decisions import ShareShard
from holdfast.share.metrics import ShareMetrics
from holdfast.share.settings import ShareSettings
from holdfast.share.state_bounds import StateTotals

_log = structlog.get_logger(__name__)

#: Shares of a bound at which the warning is written, and below which the next one may be.
_CLOSE: Final = 0.8
_FAR: Final = 0.7


def serving(partitions: Iterable[Partition]) -> Iterator[tuple[Partition, ShareShard]]:
    """Yield log partitions that serve, with their shards."""
    for partition in partitions:
        machine = partition.machine
        assert isinstance(machine, ShareShard), "a log partition that serves has a shard"
        yield partition, machine


class _StateWatch:
    """The gauges of the states held, and one line each time a bound comes close."""

    def __init__(self, totals: StateTotals, metrics: ShareMetrics) -> None:
        self._totals = totals
        self._metrics = metrics
        #: Bounds that were warned of.
        self._close: set[str] = set()

    def tick(self) -> None:
        """Look at the totals."""
        totals, metrics, used = self._totals, self._metrics, self._totals.used()
        metrics.state_bytes.value = totals.state_bytes
        metrics.state_bounds_used.value = round(max(used.values()), 4)
        metrics.state_refusals.value = totals.refusals
        for name, share in used.items():
            if share >= _CLOSE and name not in self._close:
                self._close.add(name)
                _log.warning(
                    "state_bound_approached",
                    setting=name,
                    used=round(share, 3),
                    share_partitions=totals.share_partitions,
                    state_bytes=totals.state_bytes,
                )
            elif share < _FAR:
                self._close.discard(name)


class ShareShards:
    """The shards of a node."""

    def __init__(self, settings: Settings, topic: StateTopic, metrics: ShareMetrics) -> None:
        self.write_timeout_ms: int = settings.of(ShareSettings).write_timeout_ms
        #: State that all of them hold together.
        self.totals = StateTotals(state_bounds(settings))
        self._config = shard_config(settings, topic, self.totals)
        self._metrics = metrics
        self.format_key: Callable[[SharePartitionKey], str] = format_key
        self.tick: Callable[[], None] = _StateWatch(self.totals, metrics).tick

    def make_machine(self, partition: int) -> StateMachine:
        """See `ShardKind.make_machine`."""
        return ShareShard(self._config)

    def shard_of(self, machine: StateMachine | None) -> Shard | None:
        """See `Shards.shard_of`."""
        return machine if isinstance(machine, ShareShard) else None

    def watch(self, topic: str, partition: int, shard: Shard) -> None:
        """See `ShardKind.watch`."""
        self._metrics.watch_partition(topic, partition, shard.key_count)
