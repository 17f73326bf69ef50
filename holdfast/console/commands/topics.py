"""`holdfast topics create`: a topic to try things out with, as `kafka-topics.sh` would make it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import click
from confluent_kafka import KafkaError, KafkaException

from holdfast.console.options import Seconds, ask_brokers, dry_run_option, json_option, kafka_options, kafka_properties
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import counted, print_json, say
from holdfast.console.show.waiting import waiting_for
from holdfast.console.sources.brokers_or_nodes import node_instead
from holdfast.console.sources.kafka_reader import READ_TIMEOUT_S
from holdfast.daemon.topics.state_topic import StateTopic, TopicMissing, describe_topic, until_known
from holdfast.kafka.discovery.links import Links
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.kafka.librdkafka_types import NewTopic
from holdfast.kafka.topic_ids import format_topic_id

#: The number that lets the cluster decide.
CLUSTERS_DEFAULT: Final = -1

TOPIC_NAMES: Final = "a name has 1 to 249 letters, digits, dots, underscores and hyphens"
#: librdkafka's bound.
_TIMEOUT_S_MAX: Final = 3_600
_ENDINGS: Final = {
    KafkaError.INVALID_REPLICATION_FACTOR: ("the cluster has fewer brokers than copies are requested", Exit.FAILED),
    KafkaError.TOPIC_EXCEPTION: (TOPIC_NAMES, Exit.WRONG_USAGE),
}


class Made(NamedTuple):
    """A topic that exists."""

    topic: StateTopic
    is_new: bool


@click.command("create")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, 100_000), help="Number of partitions.  [default: 1]")
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 1_000),
    help="Copies of each partition.  [default: as the cluster is set]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0.1, _TIMEOUT_S_MAX),
    default=READ_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long Kafka may take; an address that refuses the connection is not waited for.",
)
@dry_run_option
@json_option
@kafka_options
def create_topic(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    timeout_s: float,
    dry_run: bool,
    as_json: bool,
    bootstrap_server: str,
    properties: Sequence[str],
) -> None:
    """Make a topic in Kafka; one that exists is left as it is.

    Its exit code is 7 where the topic exists with another number of partitions than --partitions says.

    Example: holdfast topics create orders --partitions 3
    """
    of_clients = kafka_properties(bootstrap_server, properties)
    clients = KafkaClients(of_clients)
    copies = "as many copies as the cluster is set to" if replication_factor is None else f"{replication_factor} copies"
    if dry_run:
        say(
            f"The topic {name} would be made with {counted(partitions or 1, 'partition')} and {copies}, unless it exists."
        )
        say("Nothing was changed (--dry-run).")
        return
    # An admin client of librdkafka would wait for a broker until the time is over, and not say why none came.
    ask_brokers(of_clients, Links.any, round(timeout_s * 1_000))
    with waiting_for(bootstrap_server):
        try:
            topic, is_new = make_topic(
                clients, name, partitions or 1, replication_factor or CLUSTERS_DEFAULT, timeout_s
            )
        except Failure as failure:
            # Any broker was reachable, and librdkafka may have taken a node among them.
            if failure.exit_code == Exit.FAILED and (instead := node_instead(of_clients)):
                raise instead from None
            raise
    if as_json:
        print_json(
            {
                "name": name,
                "topic_id": format_topic_id(topic.topic_id),
                "partitions": topic.partition_count,
                "replication_factor": topic.replication_factor,
                "is_new": is_new,
            }
        )
    else:
        what = "The topic {} is made, with {}." if is_new else "The topic {} exists already, with {}."
        say(what.format(name, counted(topic.partition_count, "partition")))
    if partitions not in (None, topic.partition_count):
        raise Failure(
            f"{name} has {counted(topic.partition_count, 'partition')}, not {partitions}; "
            f"choose another name, or leave --partitions out.",
            Exit.DIFFERENT,
        )


def make_topic(clients: KafkaClients, name: str, partitions: int, replication_factor: int, timeout_s: float) -> Made:
    """Make a topic unless it exists, and return it when a broker knows it.

    Raises:
        Failure: Kafka refused, or cannot be reached.
    """
    try:
        with clients.admin() as admin:
            wanted = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor)
            made = admin.create_topics([wanted], operation_timeout=timeout_s, request_timeout=timeout_s)[name]
            is_new = _is_new(name, made.exception(), clients.bootstrap_servers)
            timeout_ms = round(timeout_s * 1_000)
            topic, _ = until_known(timeout_ms, describe_topic, admin, name, timeout_ms)
    except (ConnectionFailed, TopicMissing) as error:
        raise Failure(f"The topic {name} was made, but cannot be seen: {error}") from None
    except KafkaException as error:
        raise Failure(f"A property of Kafka is wrong: {error.args[0].str()}.", Exit.WRONG_USAGE) from None
    return Made(topic, is_new)


def _is_new(name: str, problem: BaseException | None, bootstrap_servers: str) -> bool:
    """Return the result of creating a topic.

    Raises:
        Failure: it was not made, and does not exist.
    """
    if problem is None:
        return True
    if not isinstance(problem, KafkaException):
        raise problem
    error: KafkaError = problem.args[0]
    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return False
    if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        raise Failure(
            f"No broker at {bootstrap_servers} answers ({error.str()}); is --bootstrap-server right? "
            "`holdfast dev` starts a Kafka to try things out.",
            Exit.UNREACHABLE,
        )
    why, code = _ENDINGS.get(error.code(), (error.str().rstrip("."), Exit.FAILED))
    raise Failure(f"The topic {name!r} cannot be made: {why}.", code)
