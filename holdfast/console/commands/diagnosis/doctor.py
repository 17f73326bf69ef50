"""`holdfast doctor`: what is right and wrong about a machine, its Kafka and its node, and what to type."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from holdfast.console.doctor.checks import CHECKS
from holdfast.console.doctor.findings import Level, Line, Subject, run_checks
from holdfast.console.options import INT32_MAX, json_option, split_assignment
from holdfast.console.outcomes import Failure
from holdfast.console.show.output import print_json, print_rows, say
from holdfast.console.show.tables import Column
from holdfast.daemon.settings.file_env_flags import ConfigError, Loaded, load_settings
from holdfast.kafka.addresses import format_address

#: Where a node that listens everywhere is reached from here.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
_COLUMNS: Final = {
    "level": Column("is"),
    "check": Column("check"),
    "text": Column("found", is_detail=True),
}
_SETTINGS: Final = "settings"


def settings_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options that name the settings of a node; the command gets `config` and `assignments`."""
    file = click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="TOML file of settings of the node.",
    )
    values = click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting of the node.")
    return file(values(command))


@click.command()
@settings_options
@click.option(
    "--address",
    envvar="HOLDFAST_ADDRESS",
    show_envvar=True,
    metavar="HOST:PORT",
    help="A node; without it, the one of the settings.",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(100, INT32_MAX),
    default=10_000,
    show_default=True,
    help="How long each check may take; all run at once.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@json_option
def doctor(
    config: Path | None, assignments: Sequence[str], address: str | None, timeout_ms: int, strict: bool, as_json: bool
) -> None:
    """Look at this machine, the brokers, the topics and the nodes: what is right, what is wrong, and what to type.

    It reads the settings as `holdfast serve` does, and changes nothing.
    The exit code is 0 when nothing is wrong, and 1 when something is, or could not be checked.

    Example: holdfast doctor --set kafka.bootstrap.servers=127.0.0.1:9092
    """
    lines = diagnose(config, dict(split_assignment(text, "--set") for text in assignments), address, timeout_ms)
    if as_json:
        print_json([line._asdict() for line in lines])
    else:
        print_rows(_COLUMNS, [line._asdict() for line in lines])
        for line in lines:
            if line.remedy:
                say(f"{line.check}: {line.remedy}")
    bad = _count(lines, Level.WRONG, Level.UNKNOWN, *((Level.WARNING,) if strict else ()))
    if bad:
        raise Failure(f"{bad} of {len(lines)} findings are not right.")


def diagnose(config: Path | None, flags: Mapping[str, object], address: str | None, timeout_ms: int) -> list[Line]:
    """Return the findings of all checks; where the settings are wrong, those about the settings alone."""
    try:
        loaded = load_settings(config, os.environ, flags)
    except ConfigError as error:
        remedy = "mend it; docs/configuration.md has every setting"
        return [Line(_SETTINGS, Level.WRONG.value, problem.removesuffix("."), remedy) for problem in error.problems]
    subject = Subject(loaded.settings, address or _find_address(loaded), timeout_ms)
    return [*_about_settings(loaded), *asyncio.run(run_checks(CHECKS, subject))]


def _about_settings(loaded: Loaded) -> Iterable[Line]:
    doubted = [Line(_SETTINGS, Level.WARNING.value, each.removesuffix("."), "remove it") for each in loaded.warnings]
    return doubted or [Line(_SETTINGS, Level.RIGHT.value, "each has a value that it may have", "")]


def _find_address(loaded: Loaded) -> str:
    host, port = loaded.settings.listener.listen_address
    return format_address(_EVERYWHERE.get(host, host), port)


def _count(lines: Iterable[Line], *levels: Level) -> int:
    named = {level.value for level in levels}
    return sum(line.level in named for line in lines)
