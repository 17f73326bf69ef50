"""The command line tool: `holdfast serve` is the daemon, all else looks at one or administers it."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.console.importing import importing
from holdfast.console.lazy_commands import LazyCommands, shape
from holdfast.console.standard_output import RUN_UNSEEN, CommandLine, nobody_reads, print_to_nobody
from holdfast.distribution import VERSION

#: Where the commands are; see `LazyCommands`.
_COMMANDS = {
    "acls": "acls:acls",
    "broker": "broker:broker",
    "compact": "compact:compact",
    "config": "config:config",
    "dev": "dev:dev",
    "debug": "diagnosis.debug:debug",
    "diff": "history:diff",
    "doctor": "diagnosis.doctor:doctor",
    "dump": "dump:dump",
    "find": "find:find",
    "groups": "groups:groups",
    "history": "history:history",
    "members": "node:members",
    "metrics": "node:metrics",
    "page": "page:page",
    "partitions": "node:partitions",
    "readers": "node:readers",
    "settings": "node:settings",
    "snapshots": "snapshots:snapshots",
    "state": "state:state",
    "status": "node:status",
    "topics": "node:topics",
    "users": "security.users:users",
}


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    """Print which version of which build is installed, and end."""
    if is_wanted and not context.resilient_parsing:
        # Which build it is tells a module of the hot path, which most commands do not need.
        from holdfast.runtime.build import BUILD

        click.echo(f"holdfast {VERSION} ({BUILD})")
        context.exit()


@click.group(
    cls=CommandLine,
    commands=LazyCommands(_COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option("--address", metavar="HOST:PORT", help="A node, for every command that queries one.")
@click.option(
    "--command-config",
    envvar="HOLDFAST_COMMAND_CONFIG",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties by which nodes are reached: security.protocol, sasl.username, ssl.ca.location and so on.",
)
@click.pass_context
def main(context: click.Context, address: str | None, command_config: Path | None) -> None:
    """Keep the delivery state of Kafka share groups outside the broker.

    Example: holdfast serve --set kafka.bootstrap.servers=127.0.0.1:9092
    """
    # All others end before they change what they could not tell of.
    if sys.stdout is None and context.invoked_subcommand not in RUN_UNSEEN:
        raise nobody_reads()
    if sys.stdout is None:
        print_to_nobody()


@main.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file of settings.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; wins over all others.")
@click.option("--insecure", is_flag=True, help="Listen without TLS on any address; who reaches it reads along.")
@click.option("--take-over", is_flag=True, help="Replace a node that serves this log; else that node keeps it.")
@click.option("--new-state-topic", is_flag=True, help="Begin with an empty log where the one before was deleted.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Run this number of nodes on this host, as members of one group.",
)
@click.option("--worker", is_flag=True, hidden=True, help="Be one of them; what to do comes on the standard input.")
def serve(
    config: Path | None,
    assignments: Sequence[str],
    insecure: bool,
    take_over: bool,
    new_state_topic: bool,
    workers: int | None,
    worker: bool,
) -> None:
    """Run a node until a signal stops it.

    SIGTERM and Ctrl-C let requests in flight finish; a second one stops at once.
    The page Configuration lists the settings; `holdfast settings` shows those of a node that runs.

    With --workers, several nodes share one address. Each also has a port of its own: the ports that follow the one of the address.

    Example: holdfast serve --set kafka.bootstrap.servers=127.0.0.1:9092 --workers 2
    """
    # The daemon takes half a second to import, which no other command should wait for.
    with importing():
        from holdfast.console.commands.serve import serve_as_worker, serve_until_stopped
        from holdfast.console.options import split_assignment

    flags = dict(split_assignment(text, "--set") for text in assignments)
    if insecure:
        flags["listener.insecure"] = "true"
    if take_over:
        flags["take_over"] = "true"
    if new_state_topic:
        flags["new_state_topic"] = "true"
    if workers is not None:
        flags["workers"] = str(workers)
    sys.exit(serve_as_worker() if worker else serve_until_stopped(config, flags))


shape(main)
