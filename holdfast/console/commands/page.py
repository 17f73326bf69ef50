"""`holdfast page`: the share groups of any Kafka 4 in a browser, read-only, served on loopback by this process."""

import asyncio
import secrets
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING, Final

import click

from holdfast.console.importing import importing
from holdfast.console.options import STATE_TOPIC_DEFAULT, kafka_options, kafka_properties
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import say
from holdfast.console.sources.brokers_or_nodes import node_instead
from holdfast.console.sources.state_topics import KAFKA_STATE_TOPIC
from holdfast.distribution import how_to_install
from holdfast.kafka.addresses import Address, format_address, parse_address
from holdfast.kafka.connection_options import connection_options
from holdfast.kafka.errors import PropertyRefused

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from holdfast.page.kafka_page import KafkaPage
    from holdfast.page.source import PageSource

#: Kinds of bugs that are told of: paths are what clients choose.
_BUGS_MAX: Final = 20
#: Connections that the kernel keeps while there is no room for them; more have to knock again after a second.
_BACKLOG: Final = 1_024


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="The address at which the page is served, one of this host's loopback; port 0 is a free one.",
)
@click.option(
    "--topic",
    "read_topic",
    metavar="STATE_TOPIC",
    help="The topic that holds states: it is found without this where it has its usual name.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name besides localhost by which a proxy calls the page, as a node's http.allowed.hosts; may be given again.",
)
@click.option(
    "--history-dir",
    envvar="HOLDFAST_COMPACTION_HISTORY_DIR",
    show_envvar=True,
    metavar="PATH_OR_URI",
    help="Place of the history that a compaction job keeps of the topic, its `compaction.history.dir`: timelines go on in it where "
    "the log begins. Needs the extra `history`.",
)
@kafka_options
def page(
    listen: str,
    read_topic: str | None,
    allowed_hosts: Sequence[str],
    history_dir: str | None,
    bootstrap_server: str,
    properties: Sequence[str],
) -> None:
    """Serve a page that shows the share groups of a Kafka 4: what is in the queue, what is stuck, and what became of a record.

    It reads `__share_group_state`, in which Kafka's brokers keep the state of share groups, or the state topic of a Holdfast.
    It joins no group, commits nothing, and sends no request that changes anything. No node is needed.
    It prints its address and runs until Ctrl-C. All who reach the address read along, so it is one of loopback only.

    Example: holdfast page --bootstrap-server 127.0.0.1:9092
    """
    address = _loopback(listen)
    named = kafka_properties(bootstrap_server, properties)
    try:
        options = connection_options(named)
    except PropertyRefused as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None
    if failure := node_instead(named):
        raise failure
    topics = (KAFKA_STATE_TOPIC, STATE_TOPIC_DEFAULT) if read_topic is None else (read_topic,)
    make_app = _import_web()
    from holdfast.page.kafka_page import KafkaPage
    from holdfast.page.past import History

    source = KafkaPage(
        options,
        topics,
        bootstrap=bootstrap_server,
        now_ms=lambda: time.time_ns() // 1_000_000,
        run_id=secrets.token_hex(4),
        history=History(history_dir, "--history-dir") if history_dir else None,
    )
    app = make_app(source, ("localhost", *allowed_hosts), _Bugs().tell)
    with _listening(address) as listener:
        asyncio.run(_serve(source, app, listener, bootstrap_server))


async def _serve(source: "KafkaPage", app: "ASGIApp", listener: socket.socket, servers: str) -> None:
    """Serve until a signal comes; a second one ends the process at once."""
    from holdfast.page.web.server import PageServer

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        for number in (SIGINT, SIGTERM):
            loop.remove_signal_handler(number)
        ended.set()

    for number in (SIGINT, SIGTERM):
        loop.add_signal_handler(number, end)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(source.run(), name="holdfast-page-follower")
        click.echo(f"http://{format_address(*listener.getsockname()[:2])}/")
        say(f"It shows the share groups of {servers}, and ends with Ctrl-C.")
        await PageServer(app, listener).serve(ended)
        following.cancel()


class _Bugs:
    """Tells of errors that are mistakes of ours: of each kind once, however often a browser asks again."""

    def __init__(self) -> None:
        self._told: set[tuple[type[Exception], str]] = set()

    def tell(self, error: Exception, path: str) -> None:
        """Tell of an error at a path."""
        kind = type(error), path
        if kind not in self._told and len(self._told) < _BUGS_MAX:
            self._told.add(kind)
            lines = "".join(traceback.format_exception(error)).rstrip()
            say(f"The page failed at {path!r}, which is a bug of Holdfast; please report it with these lines.\n{lines}")


def _import_web() -> "Callable[[PageSource, Sequence[str], Callable[[Exception, str], None]], ASGIApp]":
    """Return what makes the application.

    Raises:
        Failure: something that it needs is not installed.
    """
    try:
        with importing():
            from holdfast.page.web.app import make_app
    except ImportError as missing:
        raise Failure(f"{missing.name} is not installed; {how_to_install('page')}.", Exit.WRONG_USAGE) from None
    return make_app


def _loopback(listen: str) -> Address:
    """Return the address to listen at.

    Raises:
        Failure: it is none of loopback.
    """
    try:
        host, port = parse_address(listen)
    except ValueError:
        raise Failure(f"--listen {listen} is not HOST:PORT, as in 127.0.0.1:0.", Exit.WRONG_USAGE) from None
    host = "127.0.0.1" if host == "localhost" else host
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise Failure(
            f"--listen {listen} is not an address of loopback, and the page has no logins; "
            "reach it from elsewhere by ssh -L, or by a proxy that has logins.",
            Exit.WRONG_USAGE,
        )
    return host, port


@contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        listener = socket.create_server(address, family=family, backlog=_BACKLOG)
    except OSError as error:
        text = f"{format_address(*address)} cannot be listened at ({error.strerror or error}); see --listen."
        raise Failure(text, Exit.FAILED) from None
    with listener:
        yield listener
