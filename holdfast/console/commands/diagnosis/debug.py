"""`holdfast debug bundle`: one file for the person who looks for the cause of a problem."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import click

from holdfast.console.commands.diagnosis.doctor import Examined, diagnose, doctor_options, load, with_node
from holdfast.console.doctor.bundle import gather, stacks_text, try_place, write
from holdfast.console.node_session import reach_nodes_by
from holdfast.console.options import admin, split_assignment
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import print_json, say
from holdfast.daemon.settings.declarations import MIB
from holdfast.daemon.settings.file_env_flags import describe
from holdfast.daemon.settings.secrets import secrets_of
from holdfast.distribution import NAME, VERSION
from holdfast.runtime.build import BUILD

#: Query of a node to the file of its answer; the most important ones come first.
_NODE_PARTS: Final = {
    "status": "status.json",
    "members": "members.json",
    "partitions": "partitions.json",
    "readers": "readers.json",
    "settings": "node-settings.json",
    "config": "config-topic.json",
    "metrics": "metrics.json",
}


@click.group()
def debug() -> None:
    """Gather what others need to find out what is wrong.

    Example: holdfast debug bundle
    """


@debug.command()
@doctor_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; without it, one of the present directory with the time in its name.",
)
@click.option(
    "--bytes-max",
    type=click.IntRange(1_024),
    default=32 * MIB,
    show_default=True,
    help="How large all parts together may be before they are packed; what exceeds it is cut.",
)
def bundle(
    config: Path | None,
    assignments: Sequence[str],
    address: str | None,
    timeout_ms: int,
    as_json: bool,
    output: Path | None,
    bytes_max: int,
) -> None:
    """Write a tar.gz of what a node and the doctor say: status, log partitions, settings, metrics, last lines, stacks, versions.

    Secrets are hidden, wherever they stand. For a part that could not be read it has a file that says why, so it can be
    made of a node that does not answer, too. Its owner alone can read it: log lines hold addresses, names of topics and of groups.

    Example: holdfast debug bundle --output holdfast-bundle.tar.gz
    """
    flags = dict(split_assignment(text, "--set") for text in assignments)
    examined = load(config, flags, address)
    if examined.loaded is not None:  # as the node's own properties say, by which the doctor reaches it, too
        reach_nodes_by(examined.loaded.settings.security.client_properties_file)
    now = datetime.now(UTC)
    path = output or Path(f"holdfast-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    secrets = [] if examined.loaded is None else secrets_of(examined.loaded.settings)
    with _writing(path, Exit.WRONG_USAGE):  # said before all of it is gathered, of which what is silent takes long
        try_place(path)
    looked_at = partial(with_node, examined, config, flags, timeout_ms)
    files = gather(_parts(examined, looked_at, timeout_ms, now), secrets, _explain)
    with _writing(path, Exit.FAILED):
        size_bytes = write(path, files, bytes_max)
    missing = sorted(name.removesuffix(".missing.txt") for name in files if name.endswith(".missing.txt"))
    if as_json:
        print_json({"path": str(path), "bytes": size_bytes, "files": sorted(files), "missing": missing})
    else:
        click.echo(f"{path}: {size_bytes} bytes, {len(files)} files")
    if missing:
        say(f"Not to be had, and the bundle says why: {', '.join(missing)}.")


@contextmanager
def _writing(path: Path, code: Exit) -> Iterator[None]:
    """Say what is wrong with a path, and end with this exit code where it is not that there is a file already."""
    try:
        yield
    except FileExistsError:
        raise Failure(f"There is a file {path} already; name another with --output.", Exit.WRONG_USAGE) from None
    except OSError as error:
        make = "make its directory, or " if isinstance(error, FileNotFoundError) else ""
        why = f"{path} cannot be written ({error.strerror})"
        raise Failure(f"{why}; {make}name another with --output.", code) from None


class _Node:
    """The node that a bundle is made of; one that does not answer is not waited for again."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._silence: Failure | None = None

    def query(self, command: str) -> Any:  # noqa: ANN401
        """Return the answer to an admin command.

        Raises:
            Failure: it does not answer, or refuses.
        """
        if self._silence is not None:
            raise self._silence
        try:
            return admin(self._address, command)
        except Failure as failure:
            if failure.exit_code == Exit.UNREACHABLE:
                self._silence = failure
            raise


def _parts(
    examined: Examined, looked_at: Callable[[], Examined], timeout_ms: int, now: datetime
) -> Mapping[str, Callable[[], object]]:
    """Return what gives each file; the process of the node is queried once for two of them."""
    node, loaded = _Node(examined.address), examined.loaded
    process = cache(partial(node.query, "debug"))
    return {
        "about.json": partial(_about, examined.address, now),
        "doctor.json": lambda: [line._asdict() for line in diagnose(looked_at(), timeout_ms)],
        **{file: partial(node.query, command) for command, file in _NODE_PARTS.items()},
        "settings-here.json": lambda: (
            "the settings are wrong; see doctor.json" if loaded is None else describe(loaded.settings)
        ),
        "stacks.txt": lambda: stacks_text(process()),
        "log-lines.txt": lambda: process()["log_lines"],
    }


def _about(address: str, now: datetime) -> Mapping[str, Any]:
    required = sorted(
        {text.split(";")[0].split("[")[0].split(">")[0].strip() for text in metadata.requires(NAME) or ()}
    )
    installed = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    return {
        "time": now.isoformat(timespec="seconds"),
        "version": VERSION,
        "build": BUILD,
        "address": address,
        "python": sys.version,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "libraries": {name: installed[name] for name in required if name in installed},
    }


def _explain(error: Exception) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else f"{type(error).__name__}: {error}"
