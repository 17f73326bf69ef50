"""Tables of a node: rows of the host and of its tenants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.daemon.access.acl import Operation
from holdfast.daemon.access.needs import COMMANDS
from holdfast.daemon.http.queries import QUERIES, Page, Query
from holdfast.daemon.server.api_table import APIS
from holdfast.daemon.tenant import Answers, Tables, find_topics, merge_rows
from holdfast.gateway.topics.offered import StartingTopics
from holdfast.kafka.protocol import api_keys
from holdfast.share.tenant import SHARE_TENANT
from tests.world.node import make_settings
from tests.world.timers import TICK, TIMERS, TimerSettings


async def _answer(*_: Any) -> dict[str, Any]:
    return {}


def test_tables_hold_the_rows_of_the_host_and_of_each_tenant() -> None:
    tables = Tables(SHARE_TENANT, [TIMERS])
    assert tables.apis.keys() == APIS.keys() | SHARE_TENANT.calls.keys() | {TICK}
    assert tables.needs.commands.keys() == COMMANDS.keys() | SHARE_TENANT.commands.keys() | {"ticks"}
    assert tables.needs.calls[TICK] == ("Tick", Operation.READ)
    assert tables.needs.unknown_arguments("ticks", ["since", "until"]) == ["until"]
    assert tables.queries.keys() == QUERIES.keys() | {query.command for query in SHARE_TENANT.queries} | {"ticks"}
    assert tables.pages == (*SHARE_TENANT.pages, *TIMERS.pages)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"calls": {api_keys.METADATA: TIMERS.calls[TICK]}}, "API key 3 has two rows"),
        ({"calls": {85: TIMERS.calls[TICK]}}, "API key 85 has two rows"),
        ({"commands": {"status": TIMERS.commands["ticks"]}}, "command status has two rows"),
        ({"commands": {"state-preview": TIMERS.commands["ticks"]}}, "command state-preview has two rows"),
        ({"queries": (Query("members", "", "array"),)}, "path members has two rows"),
        ({"pages": (Page(Query("groups", "", "object"), _answer),)}, "path groups has two rows"),
        ({"pages": (Page(Query("ticks", "", "object"), _answer),)}, "path ticks has two rows"),
        ({"settings": {"log": TimerSettings}}, "settings component log has two rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_tables_refuse_two_rows_of_one_key(rows: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        Tables(SHARE_TENANT, [replace(TIMERS, **rows)])


def test_tenants_cannot_share_a_settings_component() -> None:
    with pytest.raises(ValueError, match=r"^settings component timers has two rows$"):
        Tables(SHARE_TENANT, [replace(TIMERS, calls={}, commands={}, queries=(), pages=()), TIMERS])


def test_rows_of_two_tenants_with_one_key_are_refused() -> None:
    assert merge_rows("key type", {0: "timers"}, {2: "share state"}) == {0: "timers", 2: "share state"}
    with pytest.raises(ValueError, match=r"^key type 2 has two rows$"):
        merge_rows("key type", {2: "timers"}, {2: "share state"})


def test_a_tenant_that_is_off_has_no_rows() -> None:
    off = replace(TIMERS, is_on=lambda settings: settings.node_id == 7)
    tables = Tables(SHARE_TENANT, [off])
    assert TICK in tables.on(make_settings(node_id=7)).apis
    without = tables.on(make_settings(node_id=1))
    assert TICK not in without.apis
    assert without.others == ()
    assert without.needs.commands.keys() == COMMANDS.keys() | SHARE_TENANT.commands.keys()


def test_one_tenant_at_most_shows_topics() -> None:
    shown = Answers({}, {}, {}, StartingTopics())
    assert find_topics([Answers({}, {}, {}), shown]) is shown.topics
    assert find_topics([Answers({}, {}, {})]) is None
    with pytest.raises(ValueError, match=r"^two tenants show topics$"):
        find_topics([shown, shown])
