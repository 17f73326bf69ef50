"""`holdfast find`: who coordinates share partitions, groups and transactions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import click
from click.core import ParameterSource

from holdfast.client import Client
from holdfast.console.options import (
    address_option,
    ask_brokers,
    find_topic_id,
    json_option,
    kafka_options,
    kafka_properties,
    query_node,
    split_key,
)
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import print_json, print_table
from holdfast.console.show.tables import Column
from holdfast.console.sources.kafka_reader import READ_TIMEOUT_S, KafkaReader
from holdfast.kafka.addresses import format_address
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Found, Key, KeyType
from holdfast.kafka.protocol.error_codes import ErrorCode, error_name
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.keys import SharePartitionKey, format_key, log_partition

Row = dict[str, object]

#: How the error of a key begins whose topic there is not.
_NO_TOPIC: Final = f"{error_name(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}: "


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option(
    "--type",
    "key_type",
    type=click.Choice([each.name.lower() for each in KeyType]),
    default=KeyType.SHARE.name.lower(),
    show_default=True,
    help="Kind of the keys: share partitions as GROUP:TOPIC:PARTITION, or ids of groups or of transactions.",
)
@json_option
@address_option
@kafka_options
@click.pass_context
def find(
    context: click.Context,
    keys: Sequence[str],
    key_type: str,
    as_json: bool,
    address: str,
    bootstrap_server: str,
    properties: Sequence[str],
) -> None:
    """Show which node or broker coordinates share partitions, groups or transactions. TOPIC is a name or an id.

    Share partitions are looked up at a node, or with --bootstrap-server at the brokers of a Kafka; all else at the brokers.
    Its exit code is 6 where there is no such topic, and 1 where a key has no coordinator otherwise; the table says why.

    Example: holdfast find orders-workers:orders:0 orders-workers:orders:1
    """
    is_kafka = context.get_parameter_source("bootstrap_server") is ParameterSource.COMMANDLINE
    if key_type == KeyType.SHARE.name.lower() and not is_kafka:
        rows = query_node(address, lambda client: _find_at_node(client, keys))
    else:
        rows = _find_at_brokers(KeyType[key_type.upper()], keys, kafka_properties(bootstrap_server, properties))
    if as_json:
        print_json(rows)
    else:
        # As the user named them: with the names of their topics.
        print_table(
            (
                "share partition" if key_type == KeyType.SHARE.name.lower() else key_type,
                "coordinator",
                Column("log partition", is_number=True),
                Column("error", is_detail=True),
            ),
            [(key, *list(row.values())[1:]) for key, row in zip(keys, rows, strict=True)],
        )
    if errors := [str(row["error"]) for row in rows if row["error"]]:
        what = "share partition" if key_type == KeyType.SHARE.name.lower() else key_type
        if all(error.startswith(_NO_TOPIC) for error in errors):
            raise Failure("There is no such topic; name topics of this cluster, or their ids.", Exit.NOT_FOUND)
        hint = "; `holdfast partitions` shows why" if what == "share partition" and not is_kafka else ""
        raise Failure(f"Not every {what} has a coordinator{hint}.")


async def _find_at_node(client: Client, keys: Sequence[str]) -> list[Row]:
    async def find_topic(topic: str) -> bytes | Failure:
        try:
            return await find_topic_id(client, topic)
        except Failure as failure:
            return _missing(failure)

    parsed = [split_key(key) for key in keys]
    topics = {topic: await find_topic(topic) for topic in dict.fromkeys(topic for _, topic, _ in parsed)}
    known = _known(keys, topics)
    status = await client.admin("status")
    # A node of a version that knows no placement has a log that lies by group.
    partition_count, placement = status["log_partitions"], status.get("placement", Placement.BY_GROUP.value)
    rows: list[Row] = []
    for key, answer in zip(known, await client.find(known), strict=True):
        is_found = isinstance(answer[0], str)
        rows.append(
            {
                "key": format_key(key),
                "coordinator": format_address(*cast("tuple[str, int]", answer)) if is_found else None,
                "log_partition": log_partition(key, partition_count, Placement(placement)) if placement else None,
                "error": None if is_found else f"{error_name(int(answer[0]))}: {answer[1]}",
            }
        )
    return _with_missing(keys, topics, rows)


def _find_at_brokers(key_type: KeyType, keys: Sequence[str], properties: dict[str, str]) -> list[Row]:
    topics = _topics_at_brokers(keys, properties) if key_type is KeyType.SHARE else None
    texts = keys if topics is None else map(format_key, _known(keys, topics))
    wanted = [Key(key_type, text) for text in texts]
    found = ask_brokers(properties, lambda links: Coordinators(links).find_within(wanted, READ_TIMEOUT_S))
    rows = [_row(key, each) for key, each in zip(wanted, found, strict=True)]
    return rows if topics is None else _with_missing(keys, topics, rows)


def _topics_at_brokers(keys: Sequence[str], properties: dict[str, str]) -> dict[str, bytes | Failure]:
    parsed = [split_key(key) for key in keys]
    topics: dict[str, bytes | Failure] = {}
    with KafkaReader(properties) as reader:
        for topic in dict.fromkeys(topic for _, topic, _ in parsed):
            try:
                topics[topic] = reader.find_topic_id(topic)
            except Failure as failure:
                topics[topic] = _missing(failure)
    return topics


def _missing(failure: Failure) -> Failure:
    """Return a failure if it says that there is no such topic, and raise it if it says anything else."""
    if failure.exit_code != Exit.NOT_FOUND:
        raise failure
    return failure


def _known(keys: Sequence[str], topics: Mapping[str, bytes | Failure]) -> list[SharePartitionKey]:
    """Return the share partitions whose topics there are."""
    parsed = [(group, topics[topic], partition) for group, topic, partition in map(split_key, keys)]
    return [SharePartitionKey(group, topic, index) for group, topic, index in parsed if isinstance(topic, bytes)]


def _with_missing(keys: Sequence[str], topics: Mapping[str, bytes | Failure], found: Iterable[Row]) -> list[Row]:
    """Return a row for each key: of those whose topics there are what was found, in their order, of the others why not."""
    remaining = iter(found)
    rows: list[Row] = []
    for key in keys:
        topic = topics[split_key(key)[1]]
        if isinstance(topic, Failure):
            error = f"{_NO_TOPIC}{topic.message}"
            rows.append({"key": key, "coordinator": None, "log_partition": None, "error": error})
        else:
            rows.append(next(remaining))
    return rows


def _row(key: Key, found: Found) -> Row:
    error = f"{error_name(found.error_code)}: {found.error_message or 'the server gave no reason'}"
    return {
        "key": key.text,
        "coordinator": None if found.error_code else format_address(*found.address),
        # Which partition of Kafka's own topics holds a key, the brokers do not say.
        "log_partition": None,
        "error": error if found.error_code else None,
    }
