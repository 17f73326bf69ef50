"""docs/protocol.md: its tables are those of the code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from holdfast.daemon.admin.commands import AdminCommands
from holdfast.daemon.server.api_table import APIS
from holdfast.daemon.share.config import ShardConfig
from holdfast.daemon.share.errors import ErrorCode
from tests.pure.docs.pages import ROOT, table

PAGE = (ROOT / "docs" / "protocol.md").read_text()


def test_the_calls_are_those_that_are_served() -> None:
    described = {int(key): (name, versions, flexible) for key, name, versions, flexible, _ in table(PAGE, "apis")}
    assert described == {
        key: (api.name, f"{api.min_version}–{api.max_version}", str(api.flexible_from)) for key, api in APIS.items()
    }


def test_the_error_codes_are_those_of_the_code() -> None:
    described = {(name, int(code)) for code, name, *_ in table(PAGE, "error codes")}
    assert described == {(code.name, code.value) for code in ErrorCode}


def test_the_admin_commands_are_those_of_the_node() -> None:
    nothing = cast("Any", SimpleNamespace())
    commands = AdminCommands(nothing, nothing, nothing).table()
    assert {command.strip("`") for command, *_ in table(PAGE, "admin commands")} == set(commands)


def test_the_bound_of_a_state_is_that_of_the_shard() -> None:
    assert PAGE.count(f"{ShardConfig().state_batches_max:,} batches") == 2
