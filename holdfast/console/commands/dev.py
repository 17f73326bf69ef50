"""`holdfast dev`: a Kafka of one broker, a node and a topic, in the foreground, to try Holdfast out."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Final, NamedTuple

import click

from holdfast.broker import FAST_START, EmbeddedKafka, find_java
from holdfast.broker.errors import in_directory
from holdfast.broker.properties import HOST, choose_ports, is_free
from holdfast.console.commands.broker import broker_failures, kafka_home_option, start_timeout_option
from holdfast.console.commands.topics import CLUSTERS_DEFAULT, TOPIC_NAMES, make_topic
from holdfast.console.interrupts import one_interrupt
from holdfast.console.node_process import NodeProcess
from holdfast.console.options import ADDRESS_DEFAULT, json_option
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import print_json, say
from holdfast.jars.cache import kafka_home as cached_kafka
from holdfast.jars.errors import LockHeld
from holdfast.jars.locks import file_lock
from holdfast.kafka.addresses import format_address, parse_address
from holdfast.kafka.librdkafka import IN_ORDER, KafkaClients, Record, write_in_order
from holdfast.kafka.metadata import is_topic_name

KAFKA_PORT_DEFAULT: Final = 9092
#: That of a node's setting `http.listen`.
HTTP_PORT_DEFAULT: Final = 9592
#: Records of a new topic, so that a group has records to read.
_RECORDS: Final = 100
_STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.1


@click.command()
@click.option(
    "--topic", "topics", multiple=True, default=("orders",), show_default=True, help="A topic to make; may be repeated."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for all data, which the next start finds again. Default: a temporary directory that goes at the end.",
)
@click.option(
    "--listen",
    envvar="HOLDFAST_LISTEN",
    show_envvar=True,
    default=ADDRESS_DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    help="Address at which the node listens.",
)
@click.option(
    "--http-port",
    type=click.IntRange(1, 65_535),
    help=f"Port of the node's health and metrics, on {HOST}.  [default: {HTTP_PORT_DEFAULT}, or a free one]",
)
@click.option(
    "--kafka-port",
    envvar="HOLDFAST_DEV_KAFKA_PORT",
    show_envvar=True,
    type=click.IntRange(1, 65_535),
    default=KAFKA_PORT_DEFAULT,
    show_default=True,
    help=f"Port at which Kafka listens, on {HOST}.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    metavar="N",
    help="Run this number of nodes at that address; each also has a port of its own, from the next one on.",
)
@kafka_home_option
@start_timeout_option("How long Kafka and the node may each take to start.")
@json_option
def dev(
    topics: Sequence[str],
    data_dir: Path | None,
    listen: str,
    http_port: int | None,
    kafka_port: int,
    workers: int,
    kafka_home: Path | None,
    start_timeout_s: float,
    as_json: bool,
) -> None:
    """Run a Kafka of one broker, a node on it and a topic of 100 records, until Ctrl-C ends them all; needs Java 17.

    It says what to type next, in another terminal. For production there is `holdfast serve`.

    Example: holdfast dev
    """
    _check(topics, listen, http_port, kafka_port, workers)
    with broker_failures(), one_interrupt(SIGINT, SIGTERM, SIGHUP), ExitStack() as running:
        try:
            http_address = format_address(HOST, http_port or _choose_http_port())
            places = _Places(listen, http_address, kafka_port)
            kafka, node = _start(running, data_dir, places, workers, kafka_home, start_timeout_s)
            made = [_make_topic(_clients(kafka), name, start_timeout_s) for name in topics]
            node.wait_ready(start_timeout_s)
            _tell(kafka, node, made, data_dir is not None, as_json)
            _wait_for_an_end(kafka, node)
        except KeyboardInterrupt:
            say("Ending.")


def _check(topics: Sequence[str], listen: str, http_port: int | None, kafka_port: int, workers: int) -> None:
    """Check names and addresses before anything is started.

    Raises:
        Failure: a name or an address is wrong, or an address is taken.
    """
    for name in topics:
        if not is_topic_name(name):
            raise Failure(f"{name!r} is no topic's name; {TOPIC_NAMES}.", Exit.WRONG_USAGE)
    try:
        _, listen_port = parse_address(listen)
    except ValueError as error:
        raise Failure(f"--listen is {listen!r}; {error}.", Exit.WRONG_USAGE) from None
    if listen_port == 0:
        # Kafka has no such port either: the address is waited for and printed as it is named.
        raise Failure(
            f"--listen is {listen!r}, which leaves the port open; name one from 1 to 65535.", Exit.WRONG_USAGE
        )
    of_workers = _ports_of_workers(listen_port, workers) if workers > 1 else ()
    ports = [(kafka_port, "--kafka-port"), *((port, "--listen") for port in (listen_port, *of_workers))]
    if http_port is not None:
        ports.append((http_port, "--http-port"))
    for port, option in ports:
        if not is_free(port):
            raise Failure(f"Something listens on port {port} already; end it, or name another port by {option}.")


def _choose_http_port() -> int:
    """Return the usual port where it is free: with another one the lines of the pages would query another node."""
    return HTTP_PORT_DEFAULT if is_free(HTTP_PORT_DEFAULT) else choose_ports(1)[0].broker


def _make_topic(clients: KafkaClients, name: str, timeout_s: float) -> str:
    """Make a topic that has records, and return its name; one that exists is left as it is.

    Raises:
        Failure: Kafka refused, or takes no records.
    """
    topic, is_new = make_topic(clients, name, 1, CLUSTERS_DEFAULT, timeout_s)
    if is_new:
        timeout_ms = round(timeout_s * 1_000)
        records = (Record(name, 0, str(number).encode(), b"{}") for number in range(_RECORDS))
        producer = clients.producer({**IN_ORDER, "message.timeout.ms": timeout_ms})
        if error := write_in_order(producer, records, timeout_ms):
            raise Failure(f"The topic {name} takes no records ({error.str()}).")
    return topic.name


def _ports_of_workers(port: int, workers: int) -> Sequence[int]:
    # The settings of a node take half a second to import.
    from holdfast.workers.plan import PlanRefused, ports_after

    try:
        return ports_after("--listen", port, workers)
    except PlanRefused as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None


class _Places(NamedTuple):
    """The addresses at which the parts listen."""

    listen: str
    http_address: str
    kafka_port: int


def _start(
    running: ExitStack,
    data_dir: Path | None,
    places: _Places,
    workers: int,
    kafka_home: Path | None,
    start_timeout_s: float,
) -> tuple[EmbeddedKafka, NodeProcess]:
    """Start both, and leave it to `running` to end them."""
    find_java()
    cached_kafka(kafka_home)  # what is fetched now is not waited for below
    directory = running.enter_context(_directory(data_dir))
    try:
        with in_directory(directory):
            running.enter_context(file_lock(directory / "dev.lock", timeout_s=0))
    except LockHeld:
        raise Failure(
            f"Another `holdfast dev` runs in {directory}; end it, or name another directory by --data-dir."
        ) from None
    kafka = EmbeddedKafka(
        data_dir=directory / "kafka",
        port=places.kafka_port,
        unpacked_kafka=kafka_home,
        jvm_options=FAST_START,
        start_timeout_s=start_timeout_s,
    )
    # A clean stop saves data, and a temporary directory is about to be removed with it.
    running.callback(kafka.stop if data_dir is not None else kafka.kill)
    say("Starting Kafka …")
    kafka.start()
    say("Starting the node …")
    node = NodeProcess(places.listen, places.http_address, kafka.bootstrap_servers, directory / "node.log", workers)
    running.callback(node.stop, _STOP_TIMEOUT_S)
    with in_directory(directory):
        node.start()
    return kafka, node


@contextmanager
def _directory(kept: Path | None) -> Iterator[Path]:
    """Give the directory for all of it; a temporary one stays where something failed, for it holds the reason."""
    if kept is not None:
        with in_directory(kept):
            kept.mkdir(parents=True, exist_ok=True)
        yield kept.absolute()
        return
    with in_directory("A temporary directory"):
        temporary = Path(tempfile.mkdtemp(prefix="holdfast-dev-"))
    yield temporary
    shutil.rmtree(temporary, ignore_errors=True)


def _clients(kafka: EmbeddedKafka) -> KafkaClients:
    return KafkaClients({"bootstrap.servers": kafka.bootstrap_servers})


def _tell(kafka: EmbeddedKafka, node: NodeProcess, topics: Sequence[str], is_kept: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "bootstrap_servers": kafka.bootstrap_servers,
                "address": node.address,
                "http_address": node.http_address,
                "topics": topics,
            }
        )
        return
    place = node.log_file.parent
    named = f"--group workers --topic {topics[0]} --partition 0"
    lines = [
        f"Kafka listens on {kafka.bootstrap_servers}, the node on {node.address}, and there is the topic {', '.join(topics)}.",
        f"Share consumers in any language get its records at {node.address} (bootstrap.servers).",
        f"The node's health and metrics are at http://{node.http_address}/ready and /metrics.",
        f"All is kept in {place}." if is_kept else f"All is in {place} and goes at the end (--data-dir keeps it).",
        "",
        "In another terminal:",
        "",
        f"  export HOLDFAST_KAFKA_BOOTSTRAP_SERVERS={kafka.bootstrap_servers}",
        *([f"  export HOLDFAST_ADDRESS={node.address}"] if node.address != ADDRESS_DEFAULT else []),
        f"  holdfast state init {named} --start-offset 0",
        f"  holdfast state write {named} --batch 0-9:acknowledged:1 --batch 10-19:available:2",
        "  holdfast groups describe workers",
        f"  curl --silent 'http://{node.http_address}/api/v1/share-partitions?group=workers'",
        "",
        "Ctrl-C here ends all of it.",
    ]
    click.echo("\n".join(lines))


def _wait_for_an_end(kafka: EmbeddedKafka, node: NodeProcess) -> None:
    """Wait until one of them has ended.

    Raises:
        Failure: Kafka or the node ended by itself.
    """
    (broker,) = kafka.nodes
    while True:
        if broker.pid() is None:
            raise Failure(
                f"Kafka ended by itself ({broker.failure_line()}), so the node is ended, too; see {broker.directory}."
            )
        if (end := node.end()) is not None:
            raise Failure(f"{end} So Kafka is ended, too.", more_lines=node.last_lines())
        time.sleep(_POLL_S)
