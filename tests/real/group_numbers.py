"""The numbers of groups by the command line and by the HTTP port, which are to be the same."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from unittest import mock

from click.testing import CliRunner

from holdfast.cli import main
from holdfast.console import node_session
from holdfast.console.outcomes import Exit
from tests.real.nodes import PATIENT_CLIENT
from tests.waiting import PATIENCE_S
from tests.world.http import get


async def assert_http_has_the_numbers_of_the_cli(address: str, http_port: int, groups: set[str]) -> None:
    """Compare the sums of all groups, and of each group its sums and its share partitions.

    Args:
        address: at which the command line tool queries a node.
        http_port: of the port on loopback.
        groups: all that there are.
    """
    by_http = await _http(http_port, "groups")
    assert (by_http["next"], by_http["not_listed"]) == (None, []), by_http
    assert by_http["groups"] == await _cli(address, "list")
    assert {row["group"] for row in by_http["groups"]} == groups
    for group in groups:
        described = await _http(http_port, f"groups/{group}")
        assert (described.pop("next"), described.pop("not_listed")) == (None, [])
        assert described == await _cli(address, "describe", group)


async def _http(port: int, path: str) -> Any:
    """Return what the port answers, once every worker behind it has answered in its time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (answer := await get(port, f"/api/v1/{path}")).status == 503 or answer.json().get("not_listed"):
        assert time.monotonic() < deadline_s, answer.body
        await asyncio.sleep(0.05)
    assert answer.status == 200, answer.body
    return answer.json()


async def _cli(address: str, *command: str) -> Any:
    arguments = ("groups", *command, "--json", "--address", address)
    with mock.patch.object(node_session, "_SETTINGS", PATIENT_CLIENT):
        result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert result.exit_code == Exit.DONE, result.stderr
    return json.loads(result.stdout)
