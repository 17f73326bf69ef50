"""`holdfast broker`: an Apache Kafka to try things out on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from holdfast.broker import (
    START_TIMEOUT_S,
    BrokerError,
    JarsUnavailable,
    cache_dir,
    detached_bootstrap_servers,
    start_detached,
    stop_detached,
)
from holdfast.console.options import F, Seconds, json_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.broker_start import showing_start
from holdfast.console.show.output import print_json, say

_data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the cluster; the same directory gives the same cluster again. Default: `broker` in the cache directory.",
)
kafka_home_option = click.option(
    "--kafka-home",
    envvar="HOLDFAST_KAFKA_HOME",
    show_envvar=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of an unpacked release of Kafka; otherwise its jars (55 MB) are fetched once, by the extra `broker` or by mvn.",
)


@contextmanager
def broker_failures() -> Iterator[None]:
    """Raise what is wrong with a broker, its directory or its jars as a `Failure`."""
    try:
        yield
    except (BrokerError, JarsUnavailable) as error:
        raise Failure(str(error)) from None


def start_timeout_option(help_text: str) -> Callable[[F], F]:
    """Return the option of a command that waits for a start; the command gets `start_timeout_s`."""
    return click.option(
        "--start-timeout",
        "start_timeout_s",
        type=Seconds(min=1),
        default=START_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help=help_text,
    )


@click.group()
def broker() -> None:
    """Run an Apache Kafka on this machine, to try things out; needs Java 17.

    Example: holdfast broker start
    """


@broker.command()
@_data_dir_option
@click.option("--brokers", type=click.IntRange(1, 9), default=1, show_default=True, help="Number of brokers.")
@kafka_home_option
@start_timeout_option("How long it may take to start.")
@json_option
def start(data_dir: Path | None, brokers: int, kafka_home: Path | None, start_timeout_s: float, as_json: bool) -> None:
    """Start it, and print its bootstrap servers; the first start fetches Kafka's jars (55 MB).

    How far it is goes to standard error.

    Example: holdfast broker start
    """
    with broker_failures():
        data_dir = data_dir or _default_dir()
        if (running := detached_bootstrap_servers(data_dir)) is not None:
            say(f"A Kafka runs in {data_dir} already.")
            _tell(running, as_json)
            return
        with showing_start(brokers) as on_step:
            servers = start_detached(
                data_dir,
                brokers=brokers,
                unpacked_kafka=kafka_home,
                start_timeout_s=start_timeout_s,
                on_step=on_step,
            )
    _tell(servers, as_json)


@broker.command()
@_data_dir_option
def stop(data_dir: Path | None) -> None:
    """Stop it; its data stays.

    Example: holdfast broker stop
    """
    with broker_failures():
        data_dir = data_dir or _default_dir()
        was_running = stop_detached(data_dir)
    say("Stopped." if was_running else f"No Kafka runs in {data_dir}.")


@broker.command()
@_data_dir_option
@json_option
def status(data_dir: Path | None, as_json: bool) -> None:
    """Print its bootstrap servers, if it runs.

    Example: holdfast broker status
    """
    with broker_failures():
        data_dir = data_dir or _default_dir()
        running = detached_bootstrap_servers(data_dir)
    if running is None:
        raise Failure(f"No Kafka runs in {data_dir}; `holdfast broker start` starts one.", Exit.NOT_FOUND)
    _tell(running, as_json)


def _tell(bootstrap_servers: str, as_json: bool) -> None:
    if as_json:
        print_json({"bootstrap_servers": bootstrap_servers})
    else:
        click.echo(bootstrap_servers)


def _default_dir() -> Path:
    return cache_dir() / "broker"
