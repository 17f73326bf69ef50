"""The deliveries of a share partition in a few numbers: records that are finished or in flight, and how often each was tried.

Records that were given out for the first time and not answered yet (acquired) are written down by no coordinator.
To the state they are like records that were never given out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

#: Records of this delivery count and of higher ones are counted together.
DELIVERY_COUNT_TOP: Final = 10


class Deliveries(NamedTuple):
    """The sums over the state batches of a share partition."""

    #: Offsets from the start offset on that are acknowledged or archived.
    finished: int
    #: Offsets from the start offset to the last one that a state batch names, those that are finished excepted.
    in_flight: int
    #: The first offset from the start offset on that is not finished; -1 while no start offset is decided.
    oldest_unfinished_offset: int
    #: The offset after the last one that a state batch names, or the start offset if there is no batch.
    end_offset: int
    #: Highest delivery count of a record that is not finished; 0 where there is none.
    delivery_count_max: int
    #: (delivery count, number of records that are not finished), counts ascending; the last may be `DELIVERY_COUNT_TOP` and more.
    by_delivery_count: tuple[tuple[int, int], ...]
    #: Those of `finished` that were given up: rejected, or delivered too often.
    archived: int


def sum_up_deliveries(start_offset: int, state_batches: Iterable[StateBatch]) -> Deliveries:
    """Return what a state says about deliveries.

    Args:
        start_offset: of the state; -1: not decided yet, then what the first batch begins with counts as it.
        state_batches: ascending and free of overlaps; what lies below the start offset counts for nothing.
    """
    begin = next_offset = start_offset
    oldest = -1
    finished = archived = delivery_count_max = 0
    counts: dict[int, int] = {}
    for first, last, delivery_state, delivery_count in state_batches:
        if next_offset < 0:
            begin = next_offset = first
        if last < next_offset:
            continue
        if first > next_offset and oldest < 0:
            oldest = next_offset
        first = max(first, next_offset)
        size = last - first + 1
        if delivery_state in (ACKNOWLEDGED, ARCHIVED):
            finished += size
            archived += size if delivery_state == ARCHIVED else 0
        else:
            if oldest < 0:
                oldest = first
            delivery_count_max = max(delivery_count_max, delivery_count)
            shown = min(delivery_count, DELIVERY_COUNT_TOP)
            counts[shown] = counts.get(shown, 0) + size
        next_offset = last + 1
    return Deliveries(
        finished,
        next_offset - begin - finished,
        next_offset if oldest < 0 else oldest,
        next_offset,
        delivery_count_max,
        tuple(sorted(counts.items())),
        archived,
    )


def find_lag(start_offset: int, state_end_offset: int, finished: int, topic_end_offset: int) -> tuple[int | None, str]:
    """Return the records from the start offset to the end of the topic's partition that are not finished, or why that is unknown.

    Args:
        start_offset: of the state; -1: not decided yet.
        state_end_offset: `Deliveries.end_offset`.
        finished: `Deliveries.finished`.
        topic_end_offset: the high watermark, after the last record.

    Source: KIP-1226.
    """
    if start_offset < 0:
        return None, "no start offset is decided yet"
    if state_end_offset > topic_end_offset:
        return None, "the state goes on beyond the end of the topic's partition"
    return topic_end_offset - start_offset - finished, ""


def describe_state(
    key: SharePartitionKey,
    state: ShareState,
    log_partition: int,
    owner: str | None,
    deliveries: Deliveries | None = None,
) -> dict[str, Any]:
    """Return a share partition and its state for JSON, the state batches summed up; None stands for what is not known.

    Args:
        key: the share partition.
        state: what is known of it.
        log_partition: where its records lie.
        owner: the node of ours or the broker that serves it; None: it is not known.
        deliveries: of the state, where they were summed up already.
    """
    if deliveries is None:
        deliveries = sum_up_deliveries(state.start_offset, state.state_batches)
    return {
        "group": key.group_id,
        "topic_id": format_topic_id(key.topic_id),
        "partition": key.partition,
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": _known(state.start_offset),
        "state_end_offset": _known(deliveries.end_offset),
        "oldest_unfinished_offset": _known(deliveries.oldest_unfinished_offset),
        "finished": deliveries.finished,
        "delivery_complete_count": _known(state.delivery_complete_count),
        "in_flight": deliveries.in_flight,
        "delivery_count_max": deliveries.delivery_count_max,
        "delivery_counts": {
            f"{count}+" if count == DELIVERY_COUNT_TOP else str(count): records
            for count, records in deliveries.by_delivery_count
        },
        "state_batches": len(state.state_batches),
        "log_partition": log_partition,
        "owner": owner,
    }


def _known(number: int) -> int | None:
    return None if number == -1 else number
