"""Groups with their lag, for `/api/v1/groups`: made of pages of share partitions and of the ends of their topics.

The numbers are those of `holdfast groups list --json`, because `records.share.group_lag` makes both.
They are of the log partitions that this node serves; the others are named in `not_listed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from holdfast.daemon.http.queries import Ask, CommandRefused, Page, Parameter, Query, QueryRefused
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.records.share.group_lag import LagTotals, Place, Row, TopicEnd, place_of, with_lag

#: Partitions that one query of ends names; a node takes some thousands.
_PLACES_PER_QUERY: Final = 1_000
#: If the ends of a page take longer than this and none is known then, those of the next pages are not requested.
_SILENCE_S: Final = 2.0
#: Share partitions that one answer lists; its sums are of all of the group.
STATES_MAX: Final = 1_000
#: After all share partitions of a group.
_LAST_PLACE: Final = (format_topic_id(b"\xff" * 16), (1 << 31) - 1)

LIST: Final = Query(
    "groups",
    "Groups with lag, records in flight and highest delivery count, as `holdfast groups list --json` has them.",
    "object",
    (Parameter("after", "string", "The `next` of the page before."),),
)
DESCRIBE: Final = Query(
    "groups/{group}",
    "A group with its sums and its share partitions, as `holdfast groups describe --json` has them.",
    "object",
    (Parameter("after", "json", "The `next` of the page before."),),
)


async def list_groups(ask: Ask, after: str | None) -> dict[str, Any]:
    """Return a page of groups in the order of their names, those after `after`.

    A page has the groups of one page of share partitions; the last of them is read to its end.

    Raises:
        CommandRefused: the node cannot list them now.
    """
    cursor = None if after is None else [after, *_LAST_PLACE]
    by_group: dict[str, LagTotals] = {}
    ends = _Ends(ask)
    page = await ask("share-partitions", {"after": cursor})
    while not page["share_partitions"] and page["next"] is not None:  # all of them were deleted meanwhile
        page = await ask("share-partitions", {"after": page["next"]})
    for row in await ends.add_to(page["share_partitions"]):
        by_group.setdefault(row["group"], LagTotals()).add(row)
    last = None
    if page["next"] is not None:
        last = max(by_group)
        async for rows in _pages_of(ask, last, page["next"]):
            for row in await ends.add_to(rows["share_partitions"]):
                by_group[last].add(row)
    return {
        "groups": [{"group": group} | totals.data() for group, totals in sorted(by_group.items())],
        "next": last,
        "not_listed": page["not_listed"],
    }


async def describe_group(ask: Ask, group: str, after: object) -> dict[str, Any]:
    """Return the sums of a group and a page of its share partitions, those after `after`: topic id and partition.

    Raises:
        CommandRefused: the node cannot list them now, or holds no state of the group.
        QueryRefused: `after` is no place.
    """
    begin = None if after is None else _parse_place(after)
    totals, states, ends = LagTotals(), list[Row](), _Ends(ask)
    not_listed: list[Any] = []
    has_more = False
    async for page in _pages_of(ask, group, None):
        not_listed = page["not_listed"]
        for row in await ends.add_to(page["share_partitions"]):
            totals.add(row)
            if begin is not None and _ordered(place_of(row)) <= begin:
                continue
            if len(states) < STATES_MAX:
                states.append(row)
            else:
                has_more = True
    if not totals.share_partitions:
        text = f"There is no state of the group {group[:255]!r} here; /api/v1/groups lists those that there are"
        if not_listed:
            text += f", and {len(not_listed)} log partitions are not served here"
        raise CommandRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{text}.")
    return (
        {"group": group}
        | totals.data()
        | {
            "states": states,
            "next": [*place_of(states[-1])] if has_more else None,
            "not_listed": not_listed,
        }
    )


class _Ends:
    """The ends of topics, for one answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        #: Why none is known, where Kafka was silent for a page before; empty: it was not.
        self._silence = ""

    async def add_to(self, rows: list[Row]) -> list[Row]:
        """Return share partitions with the names and the ends of their topics, and with their lag."""
        places = sorted({place_of(row) for row in rows})
        ends: dict[Place, TopicEnd] = {}
        if self._silence:
            ends = dict.fromkeys(places, TopicEnd(None, None, self._silence))
        else:
            now_s = asyncio.get_running_loop().time
            began_s = now_s()
            for start in range(0, len(places), _PLACES_PER_QUERY):
                ends |= await self._look_up(places[start : start + _PLACES_PER_QUERY])
            if places and now_s() - began_s > _SILENCE_S and all(end.problem for end in ends.values()):
                self._silence = next(iter(ends.values())).problem
        return [with_lag(row, ends[place_of(row)]) for row in rows]

    async def _look_up(self, places: list[Place]) -> dict[Place, TopicEnd]:
        topics: dict[str, list[int]] = {}
        for topic_id, partition in places:
            topics.setdefault(topic_id, []).append(partition)
        try:
            answer = await self._ask("topic-ends", {"topics": topics})
        except CommandRefused as refused:
            return dict.fromkeys(places, TopicEnd(None, None, str(refused).removesuffix(".")))
        ends = {}
        for topic_id, partition in places:
            name, found = answer[topic_id]["name"], answer[topic_id]["partitions"][str(partition)]
            problem = found["problem"] or ""
            ends[topic_id, partition] = TopicEnd(name, None if problem else found["end_offset"], problem)
        return ends


async def _pages_of(ask: Ask, group: str, after: object) -> AsyncIterator[dict[str, Any]]:
    """Yield the pages of share partitions of a group after a place."""
    while True:
        page = await ask("share-partitions", {"group": group, "after": after})
        yield page
        if (after := page["next"]) is None:
            return


def _parse_place(after: object) -> tuple[bytes, int]:
    match after:
        case [str(topic_id), int(partition)]:
            try:
                return parse_topic_id(topic_id), partition
            except ValueError:
                pass
    raise QueryRefused("The parameter 'after' must be the `next` of the page before.")


def _ordered(place: Place) -> tuple[bytes, int]:
    return parse_topic_id(place[0]), place[1]


PAGES: Final = (
    Page(LIST, lambda ask, names, arguments: list_groups(ask, arguments.get("after"))),
    Page(DESCRIBE, lambda ask, names, arguments: describe_group(ask, names["group"], arguments.get("after"))),
)
