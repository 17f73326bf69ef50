"""`holdfast dev`: a Kafka of one broker, a node and a topic, in the foreground, to try Holdfast out."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Final

import click

from holdfast.broker import FAST_START, EmbeddedKafka, find_java
from holdfast.broker.errors import in_directory
from holdfast.broker.properties import HOST, is_free
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
from holdfast.kafka.addresses import parse_address
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.metadata import is_topic_name

KAFKA_PORT_DEFAULT: Final = 9092
_STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.1


@click.command()
@click.option(
    "--topic", "topics", multiple=True, default=("orders",), show_default=True, help="A topic to make; may be repeated."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where all of it is kept, and found again by the next start. Default: a temporary directory that goes at the end.",
)
@click.option(
    "--listen",
    envvar="HOLDFAST_LISTEN",
    show_envvar=True,
    default=ADDRESS_DEFAULT,
    show_default=True,
    metavar="HOST:PORT",
    help="Where the node listens.",
)
@click.option(
    "--kafka-port",
    envvar="HOLDFAST_DEV_KAFKA_PORT",
    show_envvar=True,
    type=click.IntRange(1, 65_535),
    default=KAFKA_PORT_DEFAULT,
    show_default=True,
    help=f"Where Kafka listens, on {HOST}.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    metavar="N",
    help="Run so many nodes behind that address, each at a port of its own, the next ones after it.",
)
@kafka_home_option
@start_timeout_option(120.0, "How long Kafka and the node may each take to start.")
@json_option
def dev(
    topics: Sequence[str],
    data_dir: Path | None,
    listen: str,
    kafka_port: int,
    workers: int,
    kafka_home: Path | None,
    start_timeout_s: float,
    as_json: bool,
) -> None:
    """Run a Kafka of one broker, a node on it and a topic, until Ctrl-C ends them all; needs Java 17.

    It says what to type next, in another terminal. For production there is `holdfast serve`.

    Example: holdfast dev
    """
    _check(topics, listen, kafka_port, workers)
    with broker_failures(), one_interrupt(SIGINT, SIGTERM, SIGHUP), ExitStack() as running:
        try:
            kafka, node = _start(running, data_dir, listen, kafka_port, workers, kafka_home, start_timeout_s)
            made = [make_topic(_clients(kafka), name, 1, CLUSTERS_DEFAULT, start_timeout_s).topic for name in topics]
            node.wait_ready(start_timeout_s)
            _tell(kafka, node, [topic.name for topic in made], data_dir is not None, as_json)
            _wait_for_an_end(kafka, node)
        except KeyboardInterrupt:
            say("Ending.")


def _check(topics: Sequence[str], listen: str, kafka_port: int, workers: int) -> None:
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
    ports = ((kafka_port, "--kafka-port"), *((port, "--listen") for port in (listen_port, *of_workers)))
    for port, option in ports:
        if not is_free(port):
            raise Failure(f"Something listens on port {port} already; end it, or name another port by {option}.")


def _ports_of_workers(port: int, workers: int) -> Sequence[int]:
    # The settings of a node take half a second to import.
    from holdfast.workers.plan import PlanRefused, ports_after

    try:
        return ports_after("--listen", port, workers)
    except PlanRefused as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None


def _start(
    running: ExitStack,
    data_dir: Path | None,
    listen: str,
    kafka_port: int,
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
        port=kafka_port,
        unpacked_kafka=kafka_home,
        jvm_options=FAST_START,
        start_timeout_s=start_timeout_s,
    )
    # What a clean stop would save is about to be removed, where the directory is a temporary one.
    running.callback(kafka.stop if data_dir is not None else kafka.kill)
    say("Starting Kafka …")
    kafka.start()
    say("Starting the node …")
    node = NodeProcess(listen, kafka.bootstrap_servers, directory / "node.log", workers)
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
        print_json({"bootstrap_servers": kafka.bootstrap_servers, "address": node.address, "topics": topics})
        return
    place = node.log_file.parent
    named = f"--group workers --topic {topics[0]} --partition 0"
    lines = [
        f"Kafka listens on {kafka.bootstrap_servers}, the node on {node.address}, and there is the topic {', '.join(topics)}.",
        f"All is kept in {place}." if is_kept else f"All is in {place} and goes at the end (--data-dir keeps it).",
        "",
        "In another terminal:",
        "",
        f"  export HOLDFAST_KAFKA_BOOTSTRAP_SERVERS={kafka.bootstrap_servers}",
        *([f"  export HOLDFAST_ADDRESS={node.address}"] if node.address != ADDRESS_DEFAULT else []),
        f"  holdfast state init {named} --start-offset 0",
        f"  holdfast state write {named} --batch 0-9:acknowledged:1 --batch 10-19:available:2 --beyond-the-end",
        f"  holdfast state read {named}",
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
