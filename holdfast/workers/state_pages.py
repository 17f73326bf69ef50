"""Pages of share partitions of all workers, joined to one.

The place after which a page goes on is a share partition, in one order for all workers. So it means the same to each of them, and
nothing needs to be known of the worker that gave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import Any, TypeAlias

from holdfast.kafka.topic_ids import parse_topic_id

#: A page as the command `share-partitions` gives it.
Page: TypeAlias = dict[str, Any]

#: Of a log partition that is another node's.
_OF_OTHERS = frozenset({"elsewhere", "unassigned"})


def join_pages(pages: Sequence[Page], limit: int | None = None) -> Page:
    """Return one page of those that workers gave for the same arguments.

    It ends where the first of them ends, because later share partitions of that worker are not known yet, or after `limit` rows.
    A log partition is not listed where no worker lists it.
    """
    rows = [
        next(same)
        for _, same in groupby(merge(*(page["share_partitions"] for page in pages), key=_place_of), key=_place_of)
    ]
    cursors = [page["next"] for page in pages if page["next"] is not None]
    last = min(cursors, key=_order, default=None)
    if last is not None:
        rows = [row for row in rows if _place_of(row) <= _order(last)]
    if limit is not None and len(rows) > limit:
        rows = rows[:limit]
        last = [rows[-1][name] for name in ("group", "topic_id", "partition")]
    return {"share_partitions": rows, "next": last, "not_listed": _not_listed(pages)}


def _not_listed(pages: Sequence[Page]) -> list[dict[str, Any]]:
    """Return the log partitions that no page lists, each as the worker says it that is to serve it."""
    found = [{row["log_partition"]: row for row in page["not_listed"]} for page in pages]
    missing = set.intersection(*map(set, found))
    return [
        min((rows[number] for rows in found), key=lambda row: row["state"] in _OF_OTHERS) for number in sorted(missing)
    ]


def _place_of(row: Mapping[str, Any]) -> tuple[str, bytes, int]:
    return row["group"], parse_topic_id(row["topic_id"]), row["partition"]


def _order(cursor: Sequence[Any]) -> tuple[str, bytes, int]:
    group, topic_id, partition = cursor
    return group, parse_topic_id(topic_id), partition
