"""Checks stand beside each other: one that raises or takes too long is a line of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.console.doctor.checks import CHECKS, without_brokers
from holdfast.console.doctor.findings import Finding, Line, Subject, right, run_checks, wrong
from holdfast.node_settings import load_settings

SUBJECT = Subject(load_settings(flags={"kafka.bootstrap.servers": "a:1"}).settings, "127.0.0.1:9492", 50)


async def good(_: Subject) -> Sequence[Finding]:
    return [right("all is well"), wrong("but this", "mend it")]


async def raising(_: Subject) -> Sequence[Finding]:
    raise ValueError("it cannot be.")


async def silent(_: Subject) -> Sequence[Finding]:
    await asyncio.Event().wait()
    raise AssertionError


async def test_each_check_has_its_lines_in_the_order_of_the_table_whatever_becomes_of_it() -> None:
    lines = await run_checks({"silent": silent, "raising": raising, "good": good}, SUBJECT)
    assert lines == [
        Line("silent", "unknown", "no answer within 50 ms", "give it longer with --timeout-ms"),
        Line(
            "raising",
            "unknown",
            "could not be checked: it cannot be",
            "see the lines about settings and brokers first",
        ),
        Line("good", "right", "all is well", ""),
        Line("good", "wrong", "but this", "mend it"),
    ]


NODE = Line("brokers", "wrong", "a:1 is a Holdfast node, not a Kafka broker", "name Kafka's brokers")
UNMADE = [Line(check, "unknown", "could not be checked", "look") for check in ("clock", "ACLs", "state topic")]
NO_SNAPSHOTS = Line("snapshot topic", "right", "none is set", "")


def test_what_brokers_alone_can_tell_is_one_line_where_there_is_none() -> None:
    others = [Line("java", "unknown", "no answer", "wait"), NO_SNAPSHOTS, Line("node", "right", "it answers", "")]
    assert without_brokers([others[0], NODE, *UNMADE, *others[1:]]) == [
        others[0],
        NODE,
        Line("brokers", "unknown", "without any, these could not be looked at: clock, ACLs, state topic", ""),
        *others[1:],
    ]
    said_twice = [NODE, UNMADE[0], Line(*UNMADE[0]), NO_SNAPSHOTS]
    clock = Line("brokers", "unknown", "without any, these could not be looked at: clock", "")
    assert without_brokers(said_twice) == [NODE, clock, NO_SNAPSHOTS]
    assert {*CHECKS} >= {NODE.check, NO_SNAPSHOTS.check, *(line.check for line in UNMADE)}


def test_what_a_broker_did_not_tell_is_a_line_each() -> None:
    lines = [NODE, Line("brokers", "right", "b:1 answers", ""), *UNMADE, NO_SNAPSHOTS]
    assert without_brokers(lines) == lines
    assert without_brokers([NODE, NO_SNAPSHOTS]) == [NODE, NO_SNAPSHOTS]
