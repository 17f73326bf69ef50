"""Lists that are given in parts, by cursors; pure.

A cursor has where each list of a view ended, so that the next part goes on there, though rows came and went meanwhile.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.page.source import ROWS_PER_PAGE, ClusterView, PageRefused


class Listed(NamedTuple):
    """A list, sorted by a key."""

    rows: Sequence[Any]
    key: Callable[[Any], tuple[Any, ...]]
    kinds: tuple[type, ...]  #: of what the key returns


def cut(run_id: str, after: str | None, *lists: Listed) -> tuple[list[Sequence[Any]], str | None]:
    """Return a part of each list, at most `ROWS_PER_PAGE` rows, and the cursor of the next part; None: this is the last one.

    Args:
        run_id: cursors of another one are refused.
        after: the cursor of the part before; None: this is the first one.
        lists: of one view.

    Raises:
        PageRefused: the cursor is none of this run, or of other lists.
    """
    ends: list[Any] = [None] * len(lists) if after is None else _read(run_id, after, lists)
    parts, has_more = list[Sequence[Any]](), False
    for number, (rows, key, _) in enumerate(lists):
        start = 0 if ends[number] is None else bisect_right(rows, tuple(ends[number]), key=key)
        part = rows[start : start + ROWS_PER_PAGE]
        if part:
            ends[number] = key(part[-1])
        has_more |= start + len(part) < len(rows)
        parts.append(part)
    return parts, _write(run_id, ends) if has_more else None


def _write(run_id: str, ends: Sequence[Any]) -> str:
    # Escapes would make a name three times as long; a cursor that somebody wrote may have halves of surrogate pairs.
    text = json.dumps([run_id, *ends], ensure_ascii=False)
    return urlsafe_b64encode(text.encode(errors="surrogatepass")).decode()


def _read(run_id: str, after: str, lists: Sequence[Listed]) -> list[Any]:
    try:
        ends: list[Any]
        run, *ends = json.loads(urlsafe_b64decode(after.encode()))
    except (ValueError, TypeError, RecursionError):
        raise PageRefused(400, "The cursor is none of ours; begin with the first page.") from None
    if run != run_id:
        raise PageRefused(400, "The cursor is one of another run of this page; begin with the first page.")
    if len(ends) != len(lists) or not all(map(_fits, ends, lists)):
        raise PageRefused(400, "The cursor is one of another list; begin with the first page.")
    return ends


def _fits(end: object, listed: Listed) -> bool:
    return end is None or (isinstance(end, list) and tuple(map(type, end)) == listed.kinds)


#: By the name of each list of a cluster, what it is sorted by.
_OF_CLUSTER: Final[Mapping[str, tuple[Callable[[Any], tuple[Any, ...]], tuple[type, ...]]]] = {
    "brokers": (lambda each: (each.broker_id,), (int,)),
    "log_partitions": (lambda each: (each.partition,), (int,)),
    "nodes": (lambda each: (each.node_id, each.address or ""), (str, str)),
    "readers": (lambda each: (each.group,), (str,)),
    "hand_overs": (lambda each: (-each.at_ms, each.log_partition, -each.owner_epoch), (int, int, int)),
}


def cut_cluster(whole: ClusterView, run_id: str, after: str | None) -> ClusterView:
    """Return a part of each list of a cluster, and how many rows all parts have; see `cut`."""
    lists = [Listed(sorted(getattr(whole, name), key=key), key, kinds) for name, (key, kinds) in _OF_CLUSTER.items()]
    parts, more = cut(run_id, after, *lists)
    changed: dict[str, Any] = {name: tuple(part) for name, part in zip(_OF_CLUSTER, parts, strict=True)}
    changed |= {f"{name}_in_all": len(each.rows) for name, each in zip(_OF_CLUSTER, lists, strict=True)}
    return whole._replace(**changed, next=more)
