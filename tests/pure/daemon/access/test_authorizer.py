"""What is remembered of decisions, what the audit log has of them, and how other rules come in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from holdfast.api import share_state
from holdfast.daemon.access.acl import Acl, Operation, PatternType, Permission, ResourceType
from holdfast.daemon.access.acl_file import AclFileError, line_of, write_lines
from holdfast.daemon.access.audit import Audit
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.following import make_audit, make_authorizer
from holdfast.daemon.access.needs import COMMANDS as HOST_COMMANDS
from holdfast.daemon.access.needs import Need, Needs
from holdfast.daemon.access.rules import Decision, Rules
from holdfast.daemon.admin.commands import LogCommands, NodeCommands, StartingCommands
from holdfast.daemon.file_watch import FileWatch
from holdfast.kafka.protocol import api_keys
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from holdfast.node_settings import load_settings
from tests.world.context import make_context
from tests.world.identity.access import closed, cluster_acl, group_acl
from tests.world.identity.needs import CALLS, CHANGES, COMMANDS, LOOKS, READS
from tests.world.tenants import NEEDS


class Client(NamedTuple):
    principal: str = "User:a"
    client_address: str = "10.0.0.1:5"


class CountingRules(Rules):
    decisions = 0

    def decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> Decision:
        self.decisions += 1
        return super().decide(principal, host, operation, resource, name)


def topic_acl(operation: Operation, name: str, pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl("User:a", Permission.ALLOW, operation, ResourceType.TOPIC, name, pattern)


def test_a_tenant_may_ask_about_topics_and_what_is_allowed_is_decided_once() -> None:
    rules = CountingRules(
        [topic_acl(Operation.READ, "orders"), topic_acl(Operation.DESCRIBE, "x-", PatternType.PREFIXED)]
    )
    denials = Counter()
    authorizer = Authorizer(rules, Audit(denials, NEEDS, LineLimiter(), 10, 10), NEEDS, permissions_cached_max=2)

    def may(operation: Operation, name: str, resource: ResourceType = ResourceType.TOPIC, **how: bool) -> bool:
        return authorizer.may(Client(), "ShareFetch", operation, resource, name, **how)

    for _ in range(3):
        assert may(Operation.READ, "orders")
        assert may(Operation.DESCRIBE, "x-1")
    assert rules.decisions == 2
    assert may(Operation.DESCRIBE, "orders"), "READ implies it"
    assert not may(Operation.READ, "orders", ResourceType.GROUP), "a group of this name is another resource"
    assert not may(Operation.READ, "x-1", is_audited=False)
    assert denials.value == 1
    with capture_logs() as lines:
        assert not may(Operation.READ, "orders-1")
    assert lines[0]["call"] == "ShareFetch"
    assert (lines[0]["operation"], lines[0]["resource"], lines[0]["name"]) == ("READ", "TOPIC", "orders-1")
    assert may(Operation.DESCRIBE, "x-" * 1_000)
    assert sum(map(len, authorizer._allowed_of.values())) <= 2
    authorizer.reconfigure(Rules())
    assert not may(Operation.READ, "orders")


def test_who_acts_for_the_cluster_may_not_therefore_read_topics() -> None:
    authorizer = Authorizer(
        Rules([cluster_acl(Operation.CLUSTER_ACTION, principal="User:a")]),
        Audit(Counter(), NEEDS, LineLimiter(), 10, 10),
        NEEDS,
    )
    assert authorizer.may(Client(), "ShareFetch", Operation.READ, ResourceType.GROUP, "g")
    assert not authorizer.may(Client(), "ShareFetch", Operation.READ, ResourceType.TOPIC, "g")


def test_what_is_allowed_is_decided_once_until_the_rules_change() -> None:
    rules = CountingRules([group_acl(Operation.ALL, "*", principal="User:*")])
    authorizer = Authorizer(rules, Audit(Counter(), NEEDS, LineLimiter(), 10, 10), NEEDS, permissions_cached_max=2)
    for _ in range(3):
        assert authorizer.may_call(Client(), share_state.WRITE, "g")
    assert rules.decisions == 1
    assert authorizer.may_call(Client("User:b"), share_state.WRITE, "g")
    assert authorizer.may_call(Client(), share_state.READ, "g")  # the bound is reached
    assert authorizer.may_call(Client(), share_state.READ, "g")
    assert rules.decisions == 3
    assert len(authorizer._allowed) == 1
    assert authorizer.may_call(Client(), share_state.READ, "g" * 1_000)
    assert len(authorizer._allowed) == 1
    authorizer.reconfigure(Rules())
    assert not authorizer.may_call(Client(), share_state.READ, "g")


def test_what_is_remembered_is_no_right_of_others() -> None:
    authorizer = closed(group_acl(Operation.READ, "g", principal="User:a", host="10.0.0.1"))
    assert authorizer.may_call(Client(), share_state.READ, "g")
    assert authorizer.may_call(Client(), api_keys.FIND_COORDINATOR, "g")
    assert not authorizer.may_call(Client(), share_state.WRITE, "g")
    assert not authorizer.may_call(Client(), share_state.READ, "h")
    assert not authorizer.may_call(Client("User:b"), share_state.READ, "g")
    assert not authorizer.may_call(Client("User:a", "10.0.0.2:5"), share_state.READ, "g")
    assert not authorizer.may_call(Client("User:a", "[::1]:5"), share_state.READ, "g")


def test_denials_push_out_nothing() -> None:
    authorizer = Authorizer(
        Rules([group_acl(Operation.READ, "g")]),
        Audit(Counter(), NEEDS, LineLimiter(), 1, 1),
        NEEDS,
        permissions_cached_max=1,
    )
    assert authorizer.may_call(Client("User:ANONYMOUS"), share_state.READ, "g")
    for number in range(5):
        assert not authorizer.may_call(Client("User:b"), share_state.READ, f"g{number}")
    assert len(authorizer._allowed) == 1


def test_every_denial_is_counted_and_each_principal_has_so_many_lines_a_minute() -> None:
    denials, now_ms = Counter(), [0]
    authorizer = Authorizer(Rules(), Audit(denials, NEEDS, LineLimiter(lambda: now_ms[0]), 2, 2), NEEDS)
    with capture_logs() as lines:
        for number in range(4):
            authorizer.may_call(Client(), share_state.WRITE, f"g{number}")
        authorizer.may_call(Client("User:b"), api_keys.FIND_COORDINATOR, "x" * 1_000)
        authorizer.refuse_command(Client("User:b"), "status", {})
        now_ms[0] = 61_000
        authorizer.may_call(Client(), share_state.DELETE, "last")
    assert denials.value == 7
    assert all((line["event"], line["log_level"]) == ("access_denied", "warning") for line in lines)
    names = ("principal", "client", "call", "operation", "resource", "name", "left_out")
    assert [tuple(line.get(name) for name in names) for line in lines] == [
        ("User:a", "10.0.0.1:5", "WriteShareGroupState", "WRITE", "GROUP", "g0", None),
        ("User:a", "10.0.0.1:5", "WriteShareGroupState", "WRITE", "GROUP", "g1", None),
        ("User:b", "10.0.0.1:5", "FindCoordinator", "DESCRIBE", "GROUP", "x" * 300, None),
        ("User:b", "10.0.0.1:5", "status", "DESCRIBE", "CLUSTER", "kafka-cluster", None),
        ("User:a", "10.0.0.1:5", "DeleteShareGroupState", "DELETE", "GROUP", "last", 2),
    ]


@pytest.mark.parametrize("is_open", [True, False])
def test_every_change_by_an_admin_is_in_the_audit_log_and_no_look_is(is_open: bool) -> None:
    audit = Audit(Counter(), NEEDS, LineLimiter(), 10, 10)
    authorizer = Authorizer(Rules([cluster_acl(Operation.ALTER, principal="User:a")]), audit, NEEDS, is_open=is_open)
    with capture_logs() as lines:
        for command in COMMANDS:
            authorizer.refuse_command(Client(), command, {"reason": "r" * 1_000})
    written = {line["command"] for line in lines if line["event"] == "admin_change_requested"}
    assert written == {"partitions-take", "partitions-accept", "readers-drop", "topics-accept-deleted"}
    shown = {line["command"]: line["arguments"] for line in lines if "arguments" in line}
    assert shown.pop("partitions-take") == "{}"
    assert set(shown.values()) == {f"{{'reason': '{'r' * 1_000}'}}"}, "a reason is kept as the log keeps it"


@pytest.mark.parametrize("command", CHANGES)
def test_no_argument_pushes_out_of_the_audit_log_what_is_changed(command: str) -> None:
    audit = Audit(Counter(), NEEDS, LineLimiter(), 10, 10)
    heeded = {name: f"the-{name}" for name in CHANGES[command] if name != "reason"}
    given = (
        {"pad": "x" * 40_000, "\n\x1b[31m": 1, "reason": "r" * 40_000, "a" * 30_000: {}} | heeded | {"z": [1] * 9_000}
    )
    with capture_logs() as lines:
        audit.commanded(Client(), command, given)
    (line,) = lines
    assert all(f"{name!r}: {value!r}" in line["arguments"] for name, value in heeded.items())
    assert "pad" not in line["arguments"]
    assert line["refused_arguments"].startswith("['\\n")
    assert len(line["arguments"]) + len(line["refused_arguments"]) < 2_000, "the line is cut to 8,000"


def test_each_command_of_a_node_has_its_row() -> None:
    parts: Any = None
    of_node = NodeCommands(parts, parts, parts).table().keys()
    of_log = LogCommands(parts, parts, parts, parts, parts).table().keys()
    assert of_node | of_log == of_node | StartingCommands().table().keys() == HOST_COMMANDS.keys()
    assert {name: command.arguments for name, command in NEEDS.commands.items()} == COMMANDS
    assert {name: command.need for name, command in NEEDS.commands.items()} == (
        dict.fromkeys(LOOKS, Need(Operation.DESCRIBE))
        | dict.fromkeys(CHANGES, Need(Operation.ALTER))
        | dict.fromkeys(READS, Need(Operation.READ, ResourceType.GROUP))
    )
    assert {api_key: tuple(call) for api_key, call in NEEDS.calls.items()} == CALLS
    assert Needs().need_of("a command to come") == (Operation.ALTER, ResourceType.CLUSTER)


# ---- from settings and a file ----------------------------------------------------------------------------------------


def made_of(files: FileWatch, **flags: str) -> Authorizer:
    given = {"kafka.bootstrap.servers": "b:1"} | {name.replace("__", "."): value for name, value in flags.items()}
    settings = load_settings(flags=given).settings
    return make_authorizer(settings, make_audit(make_context(), NEEDS), NEEDS, files)


ELSEWHERE = {"listen": "10.1.2.3:9492", "listener__insecure": "true"}


@pytest.mark.parametrize(
    ("flags", "is_open"),
    [
        ({}, True),
        ({"listen": "localhost:1"}, True),
        ({"listen": "[::1]:1"}, True),
        ({"listen": "127.8.9.10:1", "super__users": "User:x"}, True),
        (ELSEWHERE, False),
        (ELSEWHERE | {"listen": "holdfast.example:1"}, False),
        (ELSEWHERE | {"listen": "0.0.0.0:1", "advertised_listener": "127.0.0.1:1"}, False),
    ],
)
def test_without_rules_everything_is_allowed_on_loopback_and_nothing_anywhere_else(
    flags: dict[str, str], is_open: bool
) -> None:
    with capture_logs() as lines:
        authorizer = made_of(FileWatch(make_context()), **flags)
    assert authorizer.may_call(Client(), share_state.WRITE, "g") is is_open
    assert (not authorizer.refuse_command(Client(), "status", {})) is is_open
    assert [line["event"] for line in lines] == ["access_rules_loaded", "access_closed"][: 1 + (not is_open)]


def test_rules_hold_on_loopback_too_and_super_users_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "acls"
    write_lines(path, [line_of(group_acl(Operation.READ, "g", principal="User:a"))])
    authorizer = made_of(FileWatch(make_context()), acls_file=str(path), super__users="User:root; User:CN=x,O=y")
    assert authorizer.may_call(Client(), share_state.READ, "g")
    assert not authorizer.may_call(Client(), share_state.WRITE, "g")
    for user in ("User:root", "User:CN=x,O=y"):
        assert authorizer.may_call(Client(user), share_state.DELETE, "other")


def test_a_wrong_file_keeps_a_node_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "acls").write_text("{}\n")
    with pytest.raises(AclFileError, match="acls, line 1: principal is missing"):
        made_of(FileWatch(make_context()), acls_file=str(tmp_path / "acls"))


def test_a_changed_file_is_taken_over_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    path, files = tmp_path / "acls", FileWatch(make_context())
    first, second = (line_of(group_acl(Operation.READ, name, principal="User:a")) for name in ("g", "h"))
    write_lines(path, [first])
    authorizer = made_of(files, acls_file=str(path), **ELSEWHERE)

    def allowed() -> list[str]:
        return [name for name in ("g", "h") if authorizer.may_call(Client(), share_state.READ, name)]

    assert allowed() == ["g"]
    with capture_logs() as lines:
        files.look()
        assert lines == []
        write_lines(path, [second])
        files.look()
        files.look()
    assert allowed() == ["h"]
    (line,) = lines
    assert (line["event"], line["added"], line["removed"]) == (
        "access_rules_reloaded",
        ["User:a may READ GROUP 'h'"],
        ["User:a may READ GROUP 'g'"],
    )
    path.write_text("[]\n")
    with capture_logs() as lines:
        files.look()
        files.look()
    assert [(line["event"], line["log_level"]) for line in lines] == [("access_rules_reload_failed", "error")]
    assert allowed() == ["h"]
    path.unlink()
    with capture_logs() as lines:
        files.look()
    assert [line["event"] for line in lines] == ["access_rules_reload_failed"]
    assert allowed() == ["h"]
    write_lines(path, [first, second])
    files.reload()  # as at SIGHUP
    assert allowed() == ["g", "h"]


def test_a_change_while_the_file_is_read_for_the_first_time_is_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "acls"
    first, second = (line_of(group_acl(Operation.READ, name, principal="User:a")) for name in ("g", "h"))
    write_lines(path, [first])

    class Meddled(FileWatch):
        """The file changes in the moment before it is followed."""

        def follow(self, setting: str, paths: Callable[[], Sequence[Path]], reload: Callable[[], bool]) -> None:
            write_lines(path, [second])
            super().follow(setting, paths, reload)

    files = Meddled(make_context())
    authorizer = made_of(files, acls_file=str(path))
    files.look()
    assert authorizer.may_call(Client(), share_state.READ, "h")


def test_what_a_reload_brings_is_shown_up_to_a_number_of_rules(tmp_path: Path) -> None:
    path, files = tmp_path / "acls", FileWatch(make_context())
    write_lines(path, [])
    made_of(files, acls_file=str(path))
    write_lines(path, [line_of(group_acl(Operation.READ, f"g{number}")) for number in range(60)])
    with capture_logs() as lines:
        files.look()
    (line,) = lines
    assert (line["rules"], len(line["added"]), line["added"][-1]) == (60, 51, "and 10 more")


@pytest.mark.parametrize(
    ("allowed", "command", "arguments", "lacking"),
    [
        ((), "decision-preview", {"decision": "partitions-take"}, ("DESCRIBE", "ALTER")),
        ((Operation.ALTER,), "decision-preview", {"decision": "partitions-take"}, ()),
        ((), "members", {}, ("DESCRIBE",)),
    ],
)
def test_a_denial_names_all_that_a_preview_and_what_it_shows_need(
    allowed: tuple[Operation, ...], command: str, arguments: dict[str, Any], lacking: tuple[str, ...]
) -> None:
    authorizer = Authorizer(
        Rules([cluster_acl(each, principal="User:a") for each in allowed]),
        Audit(Counter(), NEEDS, LineLimiter(), 9, 9),
        NEEDS,
    )
    refusal = authorizer.refuse_command(Client(), command, arguments)
    if not lacking:
        assert refusal == ""
        return
    options = " ".join(f"--operation {each}" for each in lacking)
    assert refusal == (
        f"User:a may not {' and '.join(lacking)} the CLUSTER, which {command} needs; `holdfast acls add "
        f"--allow-principal User:a {options} --cluster` on the host of the node allows it."
    )


def test_a_denial_of_a_preview_of_a_write_names_the_write() -> None:
    authorizer = Authorizer(Rules(), Audit(Counter(), NEEDS, LineLimiter(), 9, 9), NEEDS)
    refusal = authorizer.refuse_command(Client(), "state-preview", {"group": "g", "call": "write"})
    assert "--operation WRITE --group g`" in refusal
    assert refusal.startswith("User:a may not ")
