"""Nobody misses anything: all share partitions of a session that waits are asked, from outside of what wakes it.

A fetch asks only what may have changed. So while it sleeps, a copy of each of its share partitions is asked as that fetch would ask,
and must give nothing; nor may its reader be at rest, for only a question has it go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holdfast.delivery.sessions import Session
from holdfast.delivery.share_partition.batches import DeliveryBatch, DeliveryRun
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.values import AcquireMode
from holdfast.gateway.fetch import Fetch
from holdfast.gateway.leading.led_partition import LedPartition
from holdfast.gateway.leading.window import RecordWindow, Strand
from holdfast.kafka.records.batches import Batch
from holdfast.records.share.keys import SharePartitionKey
from tests.simulated.checks.invariants import Invariant, violate

if TYPE_CHECKING:
    from tests.simulated.gateway.node import GatewayNode

_MANY = 10_000
#: The attributes that are copied as they are; compiled classes cannot be copied by `copy`, nor tell their attributes.
_OF_PARTITION: Final = ("condition", "_state_epoch", "_written")
_OF_WINDOW: Final = (
    *("start_offset", "written_start", "end_offset", "complete_count", "has_available"),
    *("_gap_start", "_gap_end", "_empty_hole"),
)
_OF_RUN: Final = ("member_id", "lock_until_ms", "is_lock_over", "write")


def waiting_for(node: GatewayNode, led: LedPartition) -> Iterator[Session]:
    """Yield the sessions with a fetch that waits for a share partition and was not told an error of it."""
    group_id, topic_id, partition = led.key
    for (group, _), session in node.sessions._sessions.items():
        fetch = session.waiter
        if group == group_id and isinstance(fetch, Fetch) and (topic_id, partition) in session.places:
            if fetch.is_done:
                violate(Invariant.NOTHING_IS_LEFT, f"a fetch that was answered waits for {led.key} at {node.name}")
            if (topic_id, partition) not in fetch.ended:
                yield session


def check_nobody_misses(node: GatewayNode) -> None:
    """Ask for all who sleep; the node must have nothing else to do at this moment."""
    for (group_id, _), session in node.sessions._sessions.items():
        fetch = session.waiter
        if not isinstance(fetch, Fetch) or fetch._is_awake:
            continue
        for place in session.places:
            led = node.leader.find(SharePartitionKey(group_id, *place))
            if place in fetch.ended:
                continue
            if led is None:
                violate(Invariant.NOBODY_MISSES_ANYTHING, f"{session.key} waits at {node.name} for {place}: not led")
            elif why := _find_missed(node, led):
                violate(Invariant.NOBODY_MISSES_ANYTHING, f"{session.key} waits at {node.name} for {place}: {why}")


def _find_missed(node: GatewayNode, led: LedPartition) -> str:
    """Return what a fetch would get or bring about by asking; empty: nothing."""
    if led._suspicions != node.leader.suspicions and not led.is_loading:
        return "nobody asks the log who leads"
    core = copy_partition(led.core)
    if led.is_loading or not core.can_acquire():
        return ""
    offset = core.next_fetch_offset()
    strand = _strand_at(led._window, offset)
    if strand is None or strand.reader.failure is not None:
        return f"nobody reads {offset}"
    batches = [batch for batch in _at_hand(strand) if batch.last_offset >= offset]
    if not batches:
        return f"the reader of {offset} is at rest" if strand.reader.is_resting else ""
    acquired = core.acquire(
        led._leader.now_ms(), "nobody", AcquireMode.BATCH_OPTIMIZED, _MANY, _MANY, offset, batches, []
    )
    if acquired.ranges:
        return f"{acquired.ranges[0]} is at hand"
    return f"{offset} could be passed" if core.can_acquire() and core.next_fetch_offset() != offset else ""


def copy_partition(core: SharePartition) -> SharePartition:
    """Return a copy of a share partition, which can be asked for records without consequences."""
    copied = SharePartition(core._leader_epoch, core.config)
    _take_over(copied, core, _OF_PARTITION)
    _take_over(copied.window, core.window, _OF_WINDOW)
    copied.window.firsts[:] = core.window.firsts
    copied.window.given_up[:] = core.window.given_up
    copied.window.batches[:] = map(_copy_batch, core.window.batches)
    copied._locks._deadlines[:] = core._locks._deadlines
    return copied


def _copy_batch(batch: DeliveryBatch) -> DeliveryBatch:
    copied = DeliveryBatch(batch.first, batch.last, 0, 0)
    copied.is_split = batch.is_split
    copied.runs = [DeliveryRun(run.first, run.last, run.state, run.count) for run in batch.runs]
    for copied_run, run in zip(copied.runs, batch.runs, strict=True):
        _take_over(copied_run, run, _OF_RUN)
    return copied


def _take_over(copied: object, source: object, names: tuple[str, ...]) -> None:
    for name in names:
        setattr(copied, name, getattr(source, name))


def _strand_at(window: RecordWindow, offset: int) -> Strand | None:
    """Return what an answer to a question would come from; None: it would have to begin."""
    ahead, again = window._ahead, window._again
    if ahead is None or (offset >= ahead.from_offset and ahead.is_below(offset)):
        return None
    if offset >= ahead.from_offset:
        return ahead
    return None if again is None or offset < again.from_offset or again.is_below(offset) else again


def _at_hand(strand: Strand) -> Iterator[Batch]:
    for part in strand._parts:
        yield from part.batches
    for chunk in strand.reader._chunks:
        yield from chunk.batches
