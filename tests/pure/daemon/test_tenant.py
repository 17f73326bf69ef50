"""Tables of a node: rows of the host and of its tenants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.daemon.access.acl import Operation
from holdfast.daemon.access.needs import COMMANDS, LOOKS, Command
from holdfast.daemon.http.queries import QUERIES, Page, Query
from holdfast.daemon.server.api_table import APIS
from holdfast.daemon.server.wire.requests import Api
from holdfast.daemon.tenant import Call, Tables, Tenant
from holdfast.kafka.protocol import api_keys
from holdfast.share.tenant import SHARE_TENANT


async def _answer(*_: Any) -> dict[str, Any]:
    return {}


def _make(_: Any) -> Any:
    raise AssertionError("no node is made here")


TIMER = Tenant(
    "timer",
    {19_999: Call(Api("Tick", 0, 1), Operation.READ)},
    {"ticks": Command(LOOKS, ("since",))},
    (Query("ticks", "Ticks.", "array"),),
    (Page(Query("clock", "The clock.", "object"), _answer),),
    _make,
)


def test_tables_hold_the_rows_of_the_host_and_of_each_tenant() -> None:
    tables = Tables((SHARE_TENANT, TIMER))
    assert tables.apis.keys() == APIS.keys() | SHARE_TENANT.calls.keys() | {19_999}
    assert tables.needs.commands.keys() == COMMANDS.keys() | SHARE_TENANT.commands.keys() | {"ticks"}
    assert tables.needs.calls[19_999] == ("Tick", Operation.READ)
    assert tables.needs.unknown_arguments("ticks", ["since", "until"]) == ["until"]
    assert tables.queries.keys() == QUERIES.keys() | {query.command for query in SHARE_TENANT.queries} | {"ticks"}
    assert tables.pages == (*SHARE_TENANT.pages, *TIMER.pages)
    assert Tables(()).apis == APIS


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"calls": {api_keys.METADATA: TIMER.calls[19_999]}}, "API key 3 has two rows"),
        ({"calls": {85: TIMER.calls[19_999]}}, "API key 85 has two rows"),
        ({"commands": {"status": TIMER.commands["ticks"]}}, "command status has two rows"),
        ({"commands": {"state-preview": TIMER.commands["ticks"]}}, "command state-preview has two rows"),
        ({"queries": (Query("members", "", "array"),)}, "path members has two rows"),
        ({"pages": (Page(Query("groups", "", "object"), _answer),)}, "path groups has two rows"),
        ({"pages": (Page(Query("ticks", "", "object"), _answer),)}, "path ticks has two rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_tables_refuse_two_rows_of_one_key(rows: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        Tables((SHARE_TENANT, replace(TIMER, **rows)))
