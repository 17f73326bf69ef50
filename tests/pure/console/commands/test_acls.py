"""`holdfast acls` on files: what is added, removed, shown and decided, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.console.outcomes import Exit
from holdfast.daemon.server.admin import AdminError
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.pure.console.conftest import Node, Run


class Desk:
    """A file of access rules, and the commands on it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *arguments: str, environment: dict[str, str] | None = None) -> Result:
        given = {"HOLDFAST_ACLS_FILE": str(self.path)} | (environment or {})
        result = CliRunner(env=given).invoke(main, ["acls", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), "a traceback reached the user"
        return result

    def rows(self, *arguments: str) -> Any:
        return json.loads(self.run("list", "--json", *arguments).stdout)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "acls.jsonl")


ORDERS = ("--allow-principal", "User:orders", "--operation", "read", "--operation", "WRITE", "--group", "orders-")
PREFIXED = ("--resource-pattern-type", "prefixed")


def test_rules_are_added_listed_and_removed_and_comments_stay(desk: Desk) -> None:
    desk.path.write_text("# the team of orders\n")
    added = desk.run("add", *ORDERS, *PREFIXED)
    assert added.exit_code == Exit.DONE
    assert added.stderr.splitlines() == [
        "+ User:orders may READ groups that begin with 'orders-'",
        "+ User:orders may WRITE groups that begin with 'orders-'",
        f"{desk.path} has 2 rules.",
    ]
    assert desk.run("add", *ORDERS, *PREFIXED).stderr == "Nothing changed: the file has these rules.\n"
    desk.run(
        "add", "--deny-principal", "User:*", "--host", "10.0.0.9", "--operation", "ALL", "--group", "*", "--cluster"
    )
    assert [line.split() for line in desk.run("list").stdout.splitlines()] == [
        ["principal", "permission", "operation", "resource", "name", "pattern", "host"],
        ["User:orders", "ALLOW", "READ", "GROUP", "orders-", "PREFIXED", "*"],
        ["User:orders", "ALLOW", "WRITE", "GROUP", "orders-", "PREFIXED", "*"],
        ["User:*", "DENY", "ALL", "GROUP", "*", "LITERAL", "10.0.0.9"],
        ["User:*", "DENY", "ALL", "CLUSTER", "kafka-cluster", "LITERAL", "10.0.0.9"],
    ]
    assert [row["operation"] for row in desk.rows("--group", "orders-eu")] == ["READ", "WRITE", "ALL"]
    assert [row["resource"] for row in desk.rows("--principal", "User:x")] == ["GROUP", "CLUSTER"]
    removed = desk.run("remove", *ORDERS, *PREFIXED)
    assert removed.stderr.splitlines()[:1] == ["- User:orders may READ groups that begin with 'orders-'"]
    assert len(desk.rows()) == 2
    assert desk.path.read_text().startswith("# the team of orders\n{")


def test_topics_have_rules_of_their_own(desk: Desk) -> None:
    who = ("--allow-principal", "User:orders", "--operation", "READ")
    added = desk.run("add", *who, "--topic", "orders-", "--group", "orders-", "--resource-pattern-type", "prefixed")
    assert "+ User:orders may READ topics that begin with 'orders-'" in added.stderr.splitlines()
    desk.run("add", *who, "--topic", "*")
    assert [(row["resource"], row["name"]) for row in desk.rows("--topic", "orders-eu")] == [
        ("TOPIC", "orders-"),
        ("TOPIC", "*"),
    ]
    assert [row["resource"] for row in desk.rows("--group", "orders-eu")] == ["GROUP"]
    asked = ("check", "--principal", "User:orders", "--topic", "orders-eu", "--operation")
    assert desk.run(*asked, "DESCRIBE").stdout.startswith("TOPIC orders-eu: allowed, for User:orders may READ ")
    wrong = desk.run("add", "--allow-principal", "User:orders", "--operation", "WRITE", "--topic", "orders")
    assert "operation is WRITE, which means nothing for a TOPIC" in wrong.stderr


def test_a_dry_run_changes_nothing(desk: Desk) -> None:
    shown = desk.run("add", *ORDERS, "--dry-run", "--json")
    assert json.loads(shown.stdout) == {
        "added": [
            {
                "principal": "User:orders",
                "permission": "ALLOW",
                "operation": operation,
                "resource": "GROUP",
                "name": "orders-",
                "pattern": "LITERAL",
                "host": "*",
            }
            for operation in ("READ", "WRITE")
        ],
        "removed": [],
        "changed": False,
        "dry_run": True,
    }
    assert not desk.path.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("add", "--operation", "READ", "--group", "g"), Exit.WRONG_USAGE, "Nobody is named"),
        (("add", "--allow-principal", "User:a", "--operation", "READ"), Exit.WRONG_USAGE, "No resource is named"),
        (
            ("add", "--allow-principal", "a", "--operation", "READ", "--group", "g"),
            Exit.WRONG_USAGE,
            "principal is 'a'; it",
        ),
        (
            ("add", "--allow-principal", "User:a", "--operation", "READ", "--cluster"),
            Exit.WRONG_USAGE,
            "operation is READ, which means nothing for a CLUSTER; it takes ALL, ALTER, CLUSTER_ACTION, DESCRIBE",
        ),
        (("remove", *ORDERS), Exit.NOT_FOUND, "cannot be read (No such file"),
        (("list",), Exit.NOT_FOUND, "cannot be read (No such file"),
        (
            ("check", "--principal", "a", "--operation", "READ", "--group", "g"),
            Exit.WRONG_USAGE,
            "principal is 'a'; it",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(desk: Desk, arguments: tuple[str, ...], code: Exit, text: str) -> None:
    result = desk.run(*arguments)
    assert result.exit_code == code
    assert text in result.stderr
    assert not desk.path.exists()


def test_a_rule_that_is_not_there_is_not_removed(desk: Desk) -> None:
    desk.run("add", *ORDERS)
    before = desk.path.read_text()
    result = desk.run(
        "remove",
        "--allow-principal",
        "User:orders",
        "--operation",
        "READ",
        "--operation",
        "DELETE",
        "--group",
        "orders-",
    )
    assert result.exit_code == Exit.NOT_FOUND
    assert "no such rule: User:orders may DELETE GROUP 'orders-'" in result.stderr
    assert desk.path.read_text() == before


def test_a_wrong_file_is_not_changed(desk: Desk) -> None:
    desk.path.write_text("{}\n")
    result = desk.run("add", *ORDERS)
    assert (result.exit_code, desk.path.read_text()) == (Exit.WRONG_USAGE, "{}\n")
    assert f"{desk.path}, line 1: principal is missing" in result.stderr


@pytest.mark.parametrize("arguments", [("add", *ORDERS), ("remove", *ORDERS), ("list",)])
def test_a_file_that_cannot_be_looked_at_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = Desk(tmp_path / ("x" * 300)).run(*arguments)
    why = "cannot be read (File name too long); name another.\n"
    assert (result.exit_code, result.stderr.endswith(why)) == (Exit.WRONG_USAGE, True), result.stderr


def test_check_says_what_decides(desk: Desk) -> None:
    desk.run("add", *ORDERS, *PREFIXED)
    desk.run("add", "--deny-principal", "User:orders", "--operation", "WRITE", "--group", "orders-old")
    who = ("check", "--principal", "User:orders", "--operation")
    allowed = desk.run(*who, "WRITE", "--group", "orders-eu")
    assert (allowed.exit_code, allowed.stdout) == (
        Exit.DONE,
        "GROUP orders-eu: allowed, for User:orders may WRITE groups that begin with 'orders-'\n",
    )
    denied = desk.run(*who, "write", "--group", "orders-eu", "--group", "orders-old")
    assert denied.exit_code == Exit.DENIED
    assert denied.stdout.splitlines()[1] == "GROUP orders-old: denied, for User:orders may not WRITE GROUP 'orders-old'"
    odd = desk.run(*who, "WRITE", "--group", "two\nlines")
    assert odd.stdout.startswith("GROUP two\\nlines: denied")
    (row,) = json.loads(desk.run(*who, "ALTER", "--cluster", "--json").stdout)
    assert (row["is_allowed"], row["rule"], row["why"]) == (False, None, "no rule allows it")
    supers = desk.run(*who, "ALTER", "--cluster", environment={"HOLDFAST_SUPER_USERS": "User:x; User:orders"})
    assert (supers.exit_code, supers.stdout) == (
        Exit.DONE,
        "CLUSTER kafka-cluster: allowed, for User:orders is a super user\n",
    )


def test_a_command_that_a_node_denies_has_an_exit_code_of_its_own(node: Node, run: Run) -> None:
    def deny(arguments: dict[str, Any]) -> object:
        raise AdminError("User:x may not DESCRIBE the CLUSTER.", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    node.answers["status"] = node.answers["resolve-topic"] = deny
    denied = run("status")
    assert (denied.exit_code, denied.stderr) == (Exit.DENIED, "Error: User:x may not DESCRIBE the CLUSTER.\n")
    denied = run("state", "read", "--group", "g", "--topic", "orders", "--partition", "0")
    assert denied.exit_code == Exit.DENIED
