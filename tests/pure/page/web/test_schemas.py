"""Answers are as `/openapi.json` describes them: of moments, of views with all that they may have, and of refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.kafka.topics.topic_ends import Ends
from holdfast.page.moment import Moment, Truth
from holdfast.page.source import (
    BrokerView,
    Change,
    ClusterView,
    HandOverView,
    HeldRange,
    HistoryView,
    HoldingsView,
    LogPartitionView,
    MemberView,
    NodeView,
    Part,
    ReaderView,
    RecordView,
    TimelineView,
    to_json,
)
from holdfast.page.web import openapi
from holdfast.page.web.app import QUERIES, make_app
from tests.pure.page.samples import KEY, NOW_MS, TOPIC_ID, Log, acknowledged, available, book_of, moment_of, snapshot
from tests.world.described import Description
from tests.world.http import get
from tests.world.page_server import PageServer
from tests.world.page_source import MemorySource, quiet, stuck

ONE = "group=orders&topic=orders.created&partition=1&offset=40118"


def moments() -> list[Moment]:
    """Return one of which all is known, and an old one of which little is."""
    log = Log()
    log.put(KEY, snapshot(5, acknowledged(7, 8), available(12, 4)))
    log.put(KEY._replace(partition=1), snapshot(-1))
    known = moment_of(
        book_of(log), {KEY: Ends(2, 20), KEY._replace(partition=1): Ends(0, 3)}, {(TOPIC_ID, 0, 5): NOW_MS}
    )
    return [known, moment_of(book_of(log), {}, truth=Truth(NOW_MS, "not read on: its leader is silent"))]


def answers() -> list[tuple[str, object]]:
    """Return the JSON of views by their queries: of moments, and with and without all that may be lacking."""
    held = HoldingsView(
        as_of_ms=1,
        members=(MemberView("m", "c", "h", 1, ("orders",), 1, 2),),
        members_in_all=1,
        held=(HeldRange("id", 0, 1, 2, None, 1, 5, False), HeldRange("id", 0, 3, 3, "m", 1, 5, True, "orders")),
        held_in_all=2,
        records_held=3,
    )
    found = list[tuple[str, object]]()
    for moment in moments():
        group, window = moment.group("workers", None), moment.window("workers", "orders", 0)
        found += [("group-topics", moment.groups(None)), ("group", group), ("group", group._replace(holdings=held))]
        found += [("window", window), ("window", window._replace(holdings=held))]
        found += [("window", moment.window("workers", "orders", 1))]
    changes = tuple(Change(1, "finished", count, "", count, 1, 0, 1, "history") for count in (None, 3))
    timeline = TimelineView(
        as_of_ms=1,
        group="workers",
        topic=None,
        topic_id="id",
        partition=0,
        offset=1,
        now=None,
        changes=(),
        log_topic="states",
        log_partition=0,
        reaches_to_offset=0,
        reaches_to_ms=None,
        unknown=("Something.",),
    )
    told = timeline._replace(topic="orders", now=changes[0], changes=changes, reaches_to_ms=1)
    history = HistoryView("/history", None, None, 4, "It is not there.")
    found += [("timeline", each) for each in (timeline, told, told._replace(history=history))]
    part = Part(b"a", 2)
    record = RecordView(1, "orders", 0, 1, 1, None, None, (("a", None), ("b", part)), 2)
    found += [("record", record), ("record", record._replace(key=part, value=part))]
    cluster = ClusterView(
        as_of_ms=1,
        bootstrap="here",
        cluster_id="",
        state_topic="states",
        brokers=(BrokerView(1, "a:1"), BrokerView(2, "a:2", 5)),
        log_partitions=(
            LogPartitionView(0, None, None, None, 0, 0, "x"),
            LogPartitionView(0, 1, 0, 1, 0, 0, "", 1, "1"),
        ),
        problems=("Something.",),
        nodes=(NodeView("1", None, "absent", (), (), 0), NodeView("2", "a:3", "member", (0,), ("job",), 1)),
        readers=(ReaderView("fold", "reads", None, None), ReaderView("other", "reads", 1, 1)),
        hand_overs=(HandOverView(1, 0, None, "1", 1, 1, None, None), HandOverView(1, 0, "1", "2", 2, 1, 5, "asked")),
    )
    found.append(("cluster", cluster._replace(next="more")))
    no_parameters = cast("Any", SimpleNamespace(query_params={}))
    return [(name, QUERIES[name].shape(view, no_parameters)) for name, view in found]


def test_answers_have_the_fields_that_are_described_and_no_other() -> None:
    description = Description(openapi.describe(QUERIES))
    faults = [fault for name, answer in answers() for fault in description.faults(f"/api/v1/{name}", 200, answer)]
    assert faults == []
    assert description.schemas.keys() - description.seen == {"Refusal"}


@pytest.mark.parametrize("source", [quiet, stuck])
async def test_each_answer_is_as_the_server_describes_it(source: Callable[[], MemorySource]) -> None:
    server = PageServer(make_app(source()))
    await server.start("127.0.0.1", 0)
    try:
        description = Description((await get(server.port, "/openapi.json")).json())
        found = [(name, await get(server.port, f"/api/v1/{name}?{ONE}")) for name in QUERIES]
        found += [(name, await get(server.port, f"/api/v1/{name}?group=ordrs&offset=x&after=x")) for name in QUERIES]
        found.append(("group", await get(server.port, f"/api/v1/group?{ONE}", host="evil.example")))
    finally:
        await server.stop()
    assert {answer.status for _, answer in found} >= {200, 400, 404, 421}
    for name, answer in found:
        assert description.faults(f"/api/v1/{name}", answer.status, answer.json()) == [], answer
    assert "Refusal" in description.seen


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"as_of_ms": None}, ".as_of_ms: None is no ['integer']"),
        ({"new": 1}, ".new is not described"),
        ({"rows": [{}]}, ".rows[0].group is not there"),
        ({"next": 3}, ".next: 3 is no ['string', 'null']"),
    ],
)
def test_an_answer_that_is_otherwise_is_noticed(changed: Mapping[str, object], fault: str) -> None:
    answer = to_json(moments()[0].groups(None)) | changed
    found = Description(openapi.describe(QUERIES)).faults("/api/v1/group-topics", 200, answer)
    assert found[0] == f"/api/v1/group-topics{fault}"
