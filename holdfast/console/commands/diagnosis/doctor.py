"""`holdfast doctor`: what is right and wrong about a machine, its Kafka and its node, and what to type."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from holdfast.console.doctor.checks import CHECKS, without_brokers
from holdfast.console.doctor.findings import Level, Line, Subject, run_checks
from holdfast.console.doctor.nodes import describe_node
from holdfast.console.options import ADDRESS_DEFAULT, INT32_MAX, json_option, nearest_address, split_assignment
from holdfast.console.outcomes import Failure
from holdfast.console.show.output import print_json, print_rows, say
from holdfast.console.show.tables import Column
from holdfast.daemon.settings.file_env_flags import ConfigError, Loaded, running_settings
from holdfast.kafka.addresses import format_address
from holdfast.node_settings import SETTINGS, load_settings

F = TypeVar("F", bound=Callable[..., Any])

#: Address on which a node listens everywhere to the one that reaches it from here.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_COLUMNS: Final = {
    "level": Column("is"),
    "check": Column("check"),
    "text": Column("found", is_detail=True),
}
_SETTINGS: Final = "settings"


class Examined(NamedTuple):
    """The settings of a node, and the node, both to examine."""

    #: The settings; None: they are wrong.
    loaded: Loaded | None
    #: The problems of the settings, a sentence each.
    problems: tuple[str, ...]
    #: Address of the node.
    address: str
    #: Whether settings that are not given here are those of the node, which runs.
    is_of_node: bool = False


def doctor_options(command: F) -> F:
    """Add the options of who examines a node; the command gets `config`, `assignments`, `address`, `timeout_ms` and `as_json`."""
    file = click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="TOML file of settings of the node.",
    )
    values = click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting of the node.")
    node = click.option(
        "--address",
        callback=nearest_address,
        envvar="HOLDFAST_ADDRESS",
        show_envvar=True,
        metavar="HOST:PORT",
        help="A node; without it, the one of the settings.",
    )
    bound = click.option(
        "--timeout-ms",
        type=click.IntRange(100, INT32_MAX),
        default=10_000,
        show_default=True,
        help="How long each check may take; all run at once.",
    )
    return file(values(node(bound(json_option(command)))))


@click.command()
@doctor_options
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
def doctor(
    config: Path | None, assignments: Sequence[str], address: str | None, timeout_ms: int, as_json: bool, strict: bool
) -> None:
    """Look at this machine, the brokers, the topics and the nodes: what is right, what is wrong, and what to type.

    It reads the settings as `holdfast serve` does, and changes nothing.
    The exit code is 0 when nothing is wrong, and 1 when something is, or could not be checked.

    Example: holdfast doctor --set kafka.bootstrap.servers=127.0.0.1:9092
    """
    flags = dict(split_assignment(text, "--set") for text in assignments)
    lines = diagnose(with_node(load(config, flags, address), config, flags, timeout_ms), timeout_ms)
    if as_json:
        print_json([line._asdict() for line in lines])
    else:
        print_rows(_COLUMNS, [line._asdict() for line in lines])
        for remedy, checks in _remedies(lines).items():
            say(f"{', '.join(checks)}: {remedy}")
    bad = _count(lines, Level.WRONG, Level.UNKNOWN, *((Level.WARNING,) if strict else ()))
    if bad:
        raise Failure(f"{bad} of {len(lines)} findings are not right.")


def load(config: Path | None, flags: Mapping[str, object], address: str | None) -> Examined:
    """Read the settings of a node; where they are wrong, the node is at `address` or the usual place."""
    return _load(config, flags, address, {})


def with_node(examined: Examined, config: Path | None, flags: Mapping[str, object], timeout_ms: int) -> Examined:
    """Return what is examined with the settings of the node, if it runs, in place of the defaults, which say nothing of it."""
    security = None if examined.loaded is None else examined.loaded.settings.security
    if described := asyncio.run(describe_node(security, examined.address, timeout_ms)):
        of_node = _load(config, flags, examined.address, running_settings(described, SETTINGS))
        if of_node.loaded is not None:
            return of_node._replace(is_of_node=True)
    return examined


def _load(
    config: Path | None, flags: Mapping[str, object], address: str | None, running: Mapping[str, object]
) -> Examined:
    try:
        loaded = load_settings(config, os.environ, flags, running=running)
    except ConfigError as error:
        return Examined(None, error.problems, address or ADDRESS_DEFAULT)
    return Examined(loaded, (), address or _find_address(loaded))


def diagnose(examined: Examined, timeout_ms: int) -> list[Line]:
    """Return the findings of all checks; where the settings are wrong, those about the settings alone."""
    if examined.loaded is None:
        remedy = "mend it; the page Configuration has every setting"
        return [Line(_SETTINGS, Level.WRONG.value, each.removesuffix("."), remedy) for each in examined.problems]
    subject = Subject(examined.loaded.settings, examined.address, timeout_ms)
    return [*_about_settings(examined.loaded, examined), *without_brokers(asyncio.run(run_checks(CHECKS, subject)))]


def _about_settings(loaded: Loaded, examined: Examined) -> Iterable[Line]:
    doubted = [Line(_SETTINGS, Level.WARNING.value, each.removesuffix("."), "remove it") for each in loaded.warnings]
    doubted += [
        Line(_SETTINGS, Level.WARNING.value, f"{name} {by} outranks the one {origin}", "take one of them away")
        for name, origin, by in loaded.overruled
        if by.startswith("from ")  # a flag is typed just now
    ]
    whose = f"; those that are not given here are of the node at {examined.address}" if examined.is_of_node else ""
    return doubted or [Line(_SETTINGS, Level.RIGHT.value, f"each has a value that it may have{whose}", "")]


def _remedies(lines: Iterable[Line]) -> dict[str, list[str]]:
    """Return each remedy once, with the checks that name it."""
    remedies: dict[str, list[str]] = {}
    for line in lines:
        if line.remedy and line.check not in remedies.setdefault(line.remedy, []):
            remedies[line.remedy].append(line.check)
    return remedies


def _find_address(loaded: Loaded) -> str:
    host, port = loaded.settings.listener.listen_address
    return format_address(_EVERYWHERE.get(host, host), port)


def _count(lines: Iterable[Line], *levels: Level) -> int:
    named = {level.value for level in levels}
    return sum(line.level in named for line in lines)
