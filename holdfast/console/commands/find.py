"""`holdfast find`: who coordinates share partitions, groups and transactions."""

from collections.abc import Sequence

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
from holdfast.console.outcomes import Failure
from holdfast.console.show.output import print_json, print_table
from holdfast.console.show.tables import Column
from holdfast.console.sources.kafka_reader import READ_TIMEOUT_S, KafkaReader
from holdfast.kafka.addresses import format_address
from holdfast.kafka.discovery.coordinators import Coordinators
from holdfast.kafka.discovery.find_coordinator import Found, Key, KeyType
from holdfast.kafka.protocol.error_codes import error_name
from holdfast.records.keys import SharePartitionKey, format_key, log_partition

Row = dict[str, object]


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option(
    "--type",
    "key_type",
    type=click.Choice([each.name.lower() for each in KeyType]),
    default=KeyType.SHARE.name.lower(),
    show_default=True,
    help="What the keys are: share partitions as GROUP:TOPIC:PARTITION, or ids of groups or of transactions.",
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
    Its exit code is 1 where a key has no coordinator; the table says why.

    Example: holdfast find orders-workers:orders:0 orders-workers:orders:1
    """
    is_kafka = context.get_parameter_source("bootstrap_server") is ParameterSource.COMMANDLINE
    if key_type == KeyType.SHARE.name.lower() and not is_kafka:
        rows = query_node(address, lambda client: _find_at_node(client, keys))
    else:
        found_type = KeyType[key_type.upper()]
        client_properties = kafka_properties(bootstrap_server, properties)
        texts = _canonical(keys, client_properties) if found_type is KeyType.SHARE else keys
        wanted = [Key(found_type, text) for text in texts]
        found = ask_brokers(client_properties, lambda links: Coordinators(links).find_within(wanted, READ_TIMEOUT_S))
        rows = [_row(key, each) for key, each in zip(wanted, found, strict=True)]
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
    if any(row["error"] for row in rows):
        what = "share partition" if key_type == KeyType.SHARE.name.lower() else key_type
        hint = "; `holdfast partitions` shows why" if what == "share partition" and not is_kafka else ""
        raise Failure(f"Not every {what} has a coordinator{hint}.")


async def _find_at_node(client: Client, keys: Sequence[str]) -> list[Row]:
    parsed = [await _parse_key(client, key) for key in keys]
    partition_count = (await client.admin("status"))["log_partitions"]
    rows: list[Row] = []
    for key, answer in zip(parsed, await client.find(parsed), strict=True):
        is_found = isinstance(answer[0], str)
        rows.append(
            {
                "key": format_key(key),
                "coordinator": f"{answer[0]}:{answer[1]}" if is_found else None,
                "log_partition": log_partition(key, partition_count) if partition_count else None,
                "error": None if is_found else f"{error_name(int(answer[0]))}: {answer[1]}",
            }
        )
    return rows


async def _parse_key(client: Client, text: str) -> SharePartitionKey:
    group, topic, partition = split_key(text)
    return SharePartitionKey(group, await find_topic_id(client, topic), partition)


def _canonical(keys: Sequence[str], properties: dict[str, str]) -> list[str]:
    """Return share keys with the ids of their topics, as the brokers know them.

    Raises:
        Failure: a key is none, the cluster knows no such topic, or no broker answers.
    """
    parsed = [split_key(key) for key in keys]
    with KafkaReader(properties) as reader:
        topic_ids = {topic: reader.find_topic_id(topic) for _, topic, _ in parsed}
    return [format_key(SharePartitionKey(group, topic_ids[topic], partition)) for group, topic, partition in parsed]


def _row(key: Key, found: Found) -> Row:
    error = f"{error_name(found.error_code)}: {found.error_message or 'the server gave no reason'}"
    return {
        "key": key.text,
        "coordinator": None if found.error_code else format_address(*found.address),
        # Which partition of Kafka's own topics holds a key, the brokers do not say.
        "log_partition": None,
        "error": error if found.error_code else None,
    }
