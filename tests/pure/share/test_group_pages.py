"""`/api/v1/groups`: the same numbers as those of `holdfast groups list --json`, by pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.console.show.group_lag import GroupFilter, list_with_lag
from holdfast.daemon.http.queries import PREFIX
from holdfast.daemon.server.admin import AdminError
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topic_ids import format_topic_id, parse_topic_id
from holdfast.records.share.batches import ACKNOWLEDGED, AVAILABLE, StateBatch
from holdfast.records.share.deliveries import describe_state
from holdfast.records.share.group_lag import LagTotals, Row, TopicEnd
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.share import group_pages as groups
from tests.pure.daemon.http.test_app import Node, TokenOnly, serving

ORDERS, GONE = bytes(15) + b"\x01", bytes(15) + b"\x02"
BATCHES = (StateBatch(10, 19, ACKNOWLEDGED, 1), StateBatch(20, 24, AVAILABLE, 3))
STATE = ShareState(0, 1, 1, 10, -1, 0, 0, BATCHES, 1, 1, 0)
ODD = "a/b c?\u00fc<script>"
NOT_LISTED = [{"log_partition": 3, "state": "closed", "why": "node 2 has it"}]


def states(*keys: tuple[str, bytes, int]) -> list[Row]:
    return [describe_state(SharePartitionKey(*key), STATE, 0, "1") for key in sorted(keys)]


class Held:
    """A node that holds some share partitions, and gives few on a page."""

    def __init__(self, rows: list[Row], per_page: int) -> None:
        self.rows = rows
        self.per_page = per_page
        self.ends_refused = ""
        self.node = Node(share_partitions=self.page, topic_ends=self.ends)

    def page(self, arguments: Mapping[str, Any]) -> object:
        after, group = arguments.get("after"), arguments.get("group")
        begin = None if after is None else (after[0], parse_topic_id(after[1]), after[2])
        found = [
            row
            for row in self.rows
            if (group is None or row["group"] == group)
            and (begin is None or (row["group"], parse_topic_id(row["topic_id"]), row["partition"]) > begin)
        ]
        rows = found[: self.per_page]
        last = rows[-1] if len(found) > len(rows) else None
        cursor = None if last is None else [last["group"], last["topic_id"], last["partition"]]
        return {"share_partitions": rows, "next": cursor, "not_listed": NOT_LISTED}

    async def ends(self, arguments: Mapping[str, Any]) -> object:
        if self.ends_refused:
            raise AdminError(self.ends_refused, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return {
            topic_id: {
                "name": None if parse_topic_id(topic_id) == GONE else "orders",
                "partitions": {
                    str(each): {"first_offset": 0, "end_offset": 100, "problem": None}
                    if parse_topic_id(topic_id) != GONE
                    else {"first_offset": -1, "end_offset": -1, "problem": "there is no such topic"}
                    for each in partitions
                },
            }
            for topic_id, partitions in arguments["topics"].items()
        }


class Shown:
    """The same share partitions as a source of the command line."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def pages(self, wanted: GroupFilter) -> Any:
        yield [row for row in self.rows if wanted.group in (None, row["group"])]

    def ends(self, places: Any) -> dict[Any, TopicEnd]:
        gone = TopicEnd(None, None, "there is no such topic")
        return {place: gone if parse_topic_id(place[0]) == GONE else TopicEnd("orders", 100) for place in places}

    def gaps(self) -> list[str]:
        return []


def shown_by_the_command_line(rows: list[Row]) -> Any:
    by_group: dict[str, LagTotals] = {}
    for page in list_with_lag(Shown(rows), GroupFilter()):
        for row in page:
            by_group.setdefault(row["group"], LagTotals()).add(row)
    return json.loads(json.dumps([{"group": group} | by_group[group].data() for group in sorted(by_group)]))


ROWS = states(
    *(("many", ORDERS, each) for each in range(7)), ("one", ORDERS, 0), ("mixed", ORDERS, 1), ("mixed", GONE, 0)
)


@pytest.mark.parametrize("per_page", [1, 2, 3, 100])
async def test_all_pages_together_are_what_the_command_line_shows(per_page: int) -> None:
    found: list[Any] = []
    async with serving(Held(ROWS, per_page).node) as ask:
        path = f"{PREFIX}groups"
        while True:
            answer = (await ask(path)).json()
            assert answer["not_listed"] == NOT_LISTED
            found += answer["groups"]
            if answer["next"] is None:
                break
            path = f"{PREFIX}groups?after={quote(answer['next'])}"
    assert found == shown_by_the_command_line(ROWS)
    by_name = {each["group"]: each for each in found}
    assert by_name["many"]["lag"] == 7 * 80, "from 10 to 100, ten of them acknowledged"
    assert (by_name["mixed"]["lag"], by_name["mixed"]["lag_unknown"]) == (None, {"there is no such topic": 1})


@pytest.mark.parametrize("per_page", [1, 3, 100])
async def test_a_group_has_its_sums_and_share_partitions(per_page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "STATES_MAX", 3)
    listed: list[Any] = []
    async with serving(Held(ROWS, per_page).node) as ask:
        after = ""
        while True:
            answer = (await ask(f"{PREFIX}groups/many{after}")).json()
            assert (answer["share_partitions"], answer["lag"], answer["in_flight"]) == (7, 560, 35)
            assert len(answer["states"]) <= 3
            listed += answer["states"]
            if answer["next"] is None:
                break
            after = f"?after={quote(json.dumps(answer['next']))}"
    (shown,) = list_with_lag(Shown(ROWS), GroupFilter("many"))
    assert listed == json.loads(json.dumps(shown))
    assert {(row["topic"], row["end_offset"], row["oldest_unfinished_offset"]) for row in listed} == {
        ("orders", 100, 20)
    }


async def test_a_group_of_any_name_is_found() -> None:
    async with serving(Held(states((ODD, ORDERS, 0)), 10).node) as ask:
        answer = await ask(f"{PREFIX}groups/{quote(ODD, safe='')}")
        assert (answer.status, answer.json()["group"]) == (200, ODD)


async def test_a_group_without_state_is_404_and_what_is_not_served_here_is_said() -> None:
    async with serving(Held(ROWS, 10).node) as ask:
        answer = await ask(f"{PREFIX}groups/none")
    assert answer.status == 404
    assert answer.json()["error"] == (
        "There is no state of the group 'none' here; /api/v1/groups lists those that there are, "
        "and 1 log partitions are not served here."
    )


async def test_ends_that_nobody_tells_are_unknown_with_the_reason() -> None:
    held = Held(ROWS, 10)
    held.ends_refused = "Too many others wait."
    async with serving(held.node) as ask:
        (one,) = [each for each in (await ask(f"{PREFIX}groups")).json()["groups"] if each["group"] == "one"]
    assert (one["lag"], one["lag_unknown"], one["in_flight"]) == (None, {"Too many others wait": 1}, 5)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("groups?limit=3", "There is no parameter 'limit'; groups takes after."),
        ("groups/many?after=3", "The parameter 'after' must be the `next` of the page before."),
        ("groups/many?after=[1,2]", "The parameter 'after' must be the `next` of the page before."),
        ("groups/many?after=[%22x%22,2]", "The parameter 'after' must be the `next` of the page before."),
    ],
)
async def test_a_wrong_parameter_is_400(path: str, error: str) -> None:
    async with serving(Held(ROWS, 10).node) as ask:
        answer = await ask(PREFIX + path)
    assert (answer.status, answer.json()) == (400, {"error": error})


@pytest.mark.parametrize("path", ["groups", "groups/many"])
async def test_without_the_token_no_group_is_shown(path: str) -> None:
    async with serving(Held(ROWS, 10).node, TokenOnly()) as ask:
        assert (await ask(PREFIX + path)).status == 401


def test_the_last_place_comes_after_all() -> None:
    assert parse_topic_id(groups._LAST_PLACE[0]) == b"\xff" * 16
    assert format_topic_id(ORDERS) != groups._LAST_PLACE[0]
