"""The findings of a check, and a table of checks that run side by side, each within its time and independent of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from holdfast.daemon.settings.models import Settings
from holdfast.kafka.connection_options import ConnectionOptions, connection_options


class Level(Enum):
    """The result of a check."""

    RIGHT = "right"
    #: It works, and should be fixed.
    WARNING = "warning"
    WRONG = "wrong"
    #: It could not be checked.
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """One line of the doctor."""

    level: Level
    #: One sentence without its full stop.
    text: str
    #: A command to type or a thing to change; empty if nothing is wrong.
    remedy: str = ""


class Subject(NamedTuple):
    """The node to check, and its settings."""

    settings: Settings
    #: The address at which the node should answer, host:port.
    address: str
    #: Bound of each check.
    timeout_ms: int

    def options(self) -> ConnectionOptions:
        """Return how brokers are connected to.

        Raises:
            PropertyRefused: by no way.
        """
        return connection_options(self.settings.kafka.properties)


Check: TypeAlias = Callable[[Subject], Awaitable[Sequence[Finding]]]


class Line(NamedTuple):
    """A finding, and the name of the check that found it."""

    check: str
    level: str
    text: str
    remedy: str


def right(text: str) -> Finding:
    """Return that a thing is as it should be."""
    return Finding(Level.RIGHT, text)


def warning(text: str, remedy: str) -> Finding:
    """Return that a thing works and should be mended."""
    return Finding(Level.WARNING, text, remedy)


def wrong(text: str, remedy: str) -> Finding:
    """Return that a thing does not work."""
    return Finding(Level.WRONG, text, remedy)


def unknown(text: str, remedy: str) -> Finding:
    """Return that a thing could not be checked."""
    return Finding(Level.UNKNOWN, text, remedy)


async def run_checks(checks: Mapping[str, Check], subject: Subject) -> list[Line]:
    """Run all checks at once, and return what they find in the order of the table."""
    found = await asyncio.gather(*(_run(check, subject) for check in checks.values()))
    return [
        Line(name, finding.level.value, finding.text, finding.remedy)
        for name, findings in zip(checks, found, strict=True)
        for finding in findings
    ]


async def _run(check: Check, subject: Subject) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(subject.timeout_ms / 1_000):
            return await check(subject)
    except TimeoutError:
        return [unknown(f"no answer within {subject.timeout_ms} ms", "give it longer with --timeout-ms")]
    except Exception as error:  # a check that cannot be made is a line, and not the end of the others
        what = str(error).removesuffix(".") or type(error).__name__
        return [unknown(f"could not be checked: {what}", "see the lines about settings and brokers first")]
