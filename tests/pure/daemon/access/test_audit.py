"""Logins in the audit log: who, whence, by what and why not, and never more lines than there may be."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from holdfast.daemon.access.audit import Audit
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from tests.world.tenants import NEEDS

NOW_MS = [0]


def make_audit(of_each: int = 2, in_all: int = 5) -> Audit:
    NOW_MS[0] = 0
    return Audit(Counter(), NEEDS, LineLimiter(lambda: NOW_MS[0]), of_each, in_all)


def shown(lines: list[Any]) -> list[tuple[Any, ...]]:
    names = ("event", "log_level", "principal", "claimed_name", "client", "mechanism", "why", "left_out")
    return [tuple(line[name] for name in names if name in line) for line in lines]


def test_a_login_says_who_whence_and_by_what_and_a_failed_one_why() -> None:
    audit = make_audit()
    with capture_logs() as lines:
        audit.logged_in("10.0.0.1:5", "User:alice", "SCRAM-SHA-256")
        audit.login_refused("10.0.0.2:6", "alice", "PLAIN", "its password is wrong")
        audit.login_refused("[::1]:7", "m" * 1_000, "PLAIN", "w" * 1_000)
    assert shown(lines) == [
        ("login_accepted", "info", "User:alice", "10.0.0.1:5", "SCRAM-SHA-256"),
        ("login_refused", "warning", "alice", "10.0.0.2:6", "PLAIN", "its password is wrong"),
        ("login_refused", "warning", "m" * 300, "[::1]:7", "PLAIN", "w" * 300),
    ]


def test_an_address_has_so_many_lines_of_failed_logins_a_minute_whatever_names_it_gives() -> None:
    audit = make_audit()
    with capture_logs() as lines:
        for number in range(50):
            audit.login_refused(f"10.0.0.1:{number}", f"name{number}", "PLAIN", "wrong")
        audit.login_refused("10.0.0.2:1", "alice", "PLAIN", "wrong")
        NOW_MS[0] = 61_000
        audit.login_refused("10.0.0.1:99", "alice", "PLAIN", "wrong")
    assert [(line["client"], line.get("left_out")) for line in lines] == [
        ("10.0.0.1:0", None),
        ("10.0.0.1:1", None),
        ("10.0.0.2:1", None),
        ("10.0.0.1:99", 48),
    ]


def test_all_addresses_together_have_so_many_and_take_none_of_those_who_come_in() -> None:
    audit = make_audit(in_all=5)
    with capture_logs() as lines:
        for number in range(3_000):
            audit.login_refused(f"2001:db8::{number:x}:1", "alice", "PLAIN", "wrong")
        audit.logged_in("10.0.0.1:5", "User:alice", "PLAIN")
        NOW_MS[0] = 61_000
        audit.login_refused("10.0.0.9:1", "alice", "PLAIN", "wrong")
    assert [line["event"] for line in lines] == ["login_refused"] * 5 + ["login_accepted", "login_refused"]
    assert lines[-1]["left_out"] == 2_995


def test_what_an_address_left_out_is_told_by_a_later_line_also_where_all_have_too_many() -> None:
    audit, attempts = make_audit(of_each=1, in_all=2), 0

    def attempt(address: str, count: int) -> None:
        nonlocal attempts
        attempts += count
        for _ in range(count):
            audit.login_refused(f"{address}:1", "alice", "PLAIN", "wrong")

    with capture_logs() as lines:
        attempt("10.0.0.1", 5)
        NOW_MS[0] = 61_000
        attempt("10.0.0.2", 1)
        attempt("10.0.0.3", 1)
        attempt("10.0.0.1", 1)  # its own minute is over, and all have had theirs
        NOW_MS[0] = 122_000
        attempt("10.0.0.4", 1)
    assert len(lines) + sum(line.get("left_out", 0) for line in lines) == attempts
    assert lines[-1]["left_out"] == 5
