"""The command line tool."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import click
import uvloop

from holdfast.daemon.config import ConfigError, load_settings
from holdfast.daemon.logs import configure_logging
from holdfast.daemon.node import Exit, Node
from holdfast.daemon.settings import Settings


@click.group()
def main() -> None:
    """Holdfast keeps the delivery state of Kafka share groups outside the broker."""


@main.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file of settings.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; wins over all others.")
def serve(config: Path | None, assignments: tuple[str, ...]) -> None:
    """Run a node until it is told to stop.

    Example: holdfast serve --set kafka.bootstrap.servers=127.0.0.1:9092
    """
    flags = dict(assignment.split("=", 1) for assignment in assignments)
    try:
        loaded = load_settings(config, os.environ, flags)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    configure_logging(loaded.settings.logging)
    sys.exit(uvloop.run(_serve(loaded.settings)))


async def _serve(settings: Settings) -> Exit:
    node = Node(settings)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # The second signal finds the default action restored and ends the process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        node.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return await node.run()


if __name__ == "__main__":
    main()
