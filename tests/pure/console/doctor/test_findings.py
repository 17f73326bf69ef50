"""Checks stand beside each other: one that raises or takes too long is a line of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.console.doctor.findings import Finding, Line, Subject, right, run_checks, wrong
from holdfast.daemon.settings.file_env_flags import load_settings

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
