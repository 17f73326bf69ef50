"""The command line tool: `holdfast serve` is the daemon, all else looks at one or administers it."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.console.commands import node
from holdfast.console.commands.broker import broker
from holdfast.console.commands.compact import compact
from holdfast.console.commands.config import config
from holdfast.console.commands.dev import dev
from holdfast.console.commands.dump import dump
from holdfast.console.commands.find import find
from holdfast.console.commands.group import group
from holdfast.console.commands.groups import groups, list_states
from holdfast.console.commands.history import diff, history
from holdfast.console.commands.snapshots import snapshots
from holdfast.console.commands.state import state
from holdfast.console.commands.topics import create_topic
from holdfast.console.options import split_assignment
from holdfast.distribution import VERSION
from holdfast.runtime.build import BUILD


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(VERSION, message=f"holdfast %(version)s ({BUILD})")
@click.option("--address", metavar="HOST:PORT", help="A node, for every command that queries one.")
def main(address: str | None) -> None:
    """Keep the delivery state of Kafka share groups outside the broker.

    Example: holdfast serve --set kafka.bootstrap.servers=127.0.0.1:9092
    """


@main.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file of settings.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; wins over all others.")
@click.option("--take-over", is_flag=True, help="Replace a node that serves this log; else that node keeps it.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run so many nodes on this host, as members of one group.",
)
@click.option("--worker", is_flag=True, hidden=True, help="Be one of them; what to do comes on the standard input.")
def serve(config: Path | None, assignments: Sequence[str], take_over: bool, workers: int | None, worker: bool) -> None:
    """Run a node until a signal stops it.

    SIGTERM and Ctrl-C let requests in flight finish; a second one stops at once.
    The settings are listed in docs/configuration.md.

    With --workers, a node for each processor serves behind one address, and each has a port of its own, the next ones after it.

    Example: holdfast serve --set kafka.bootstrap.servers=127.0.0.1:9092 --workers 2
    """
    flags = dict(split_assignment(text, "--set") for text in assignments)
    if take_over:
        flags["take_over"] = "true"
    if workers is not None:
        flags["workers"] = str(workers)
    # The daemon takes a second to import, which no other command should wait for.
    from holdfast.console.commands.serve import serve_as_worker, serve_until_stopped

    sys.exit(serve_as_worker() if worker else serve_until_stopped(config, flags))


state.add_command(list_states)
for command in (
    groups,
    state,
    find,
    group,
    dump,
    snapshots,
    history,
    diff,
    node.status,
    node.members,
    node.partitions,
    node.topics,
    node.readers,
    node.settings,
    config,
    node.metrics,
    dev,
    broker,
    compact,
):
    main.add_command(command)
node.topics.add_command(create_topic)


def _shape_help(command: click.Command) -> None:
    """Keep each example on a line of its own, to be copied out of the help, and the first sentence whole in lists of commands."""
    text = inspect.cleandoc(command.help or "")
    command.short_help = " ".join(text.partition("\n\n")[0].split())
    command.help = text.replace("Example:", "\b\nExample:")
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _shape_help(inner)


_shape_help(main)
