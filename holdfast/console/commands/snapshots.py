"""`holdfast snapshots`: what is in the snapshot store, and whether it agrees with the log."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from holdfast.console.options import (
    OFFSET,
    PARTITION,
    SNAPSHOT_TOPIC_DEFAULT,
    json_option,
    kafka_options,
    kafka_properties,
    split_key,
    state_topic_option,
)
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import print_facts, print_json, print_rows, state_data, state_facts
from holdfast.console.show.tables import Column, escaped
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.console.sources.snapshot_reader import PartitionSnapshots, SnapshotReader
from holdfast.records.errors import RecordError
from holdfast.records.share.keys import SharePartitionKey, format_key, log_partition
from holdfast.records.share.snapshot_store.entries import decode_entry

_LIST_COLUMNS: Final = {
    "partition": Column("partition", is_number=True),
    "manifest": Column("manifest", is_number=True),
    "lag": Column("lag", is_number=True),
    "live_keys": Column("live keys", is_number=True),
    "entries": Column("entries", is_number=True),
    "bytes": Column("bytes", is_number=True),
    "verified": Column("verified"),
    "why_not": Column("why not", is_detail=True),
}
_VERIFY_COLUMNS: Final = {
    "partition": Column("partition", is_number=True),
    "manifest": Column("manifest", is_number=True),
    "compared": Column("compared", is_number=True),
    "differences": Column("differences", is_number=True),
    "open_question": Column("open question", is_detail=True),
}

_partitions_argument = click.argument("only", nargs=-1, type=PARTITION, metavar="[PARTITION]...")


class OpenTopics(NamedTuple):
    """The topics that a command reads."""

    kafka: KafkaReader
    reader: SnapshotReader

    def each(self, only: Sequence[int]) -> Iterator[PartitionSnapshots]:
        """Yield the snapshots of the log partitions named, or of all."""
        if absent := sorted(each for each in only if each >= self.reader.partition_count):
            raise Failure(
                f"The state topic has no partition {absent[0]}; it has 0 to {self.reader.partition_count - 1}.",
                Exit.NOT_FOUND,
            )
        for index in sorted(set(only)) or range(self.reader.partition_count):
            yield self.reader.read(index)


def _topic_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the topics; the command gets `topics` in their place."""

    @kafka_options
    @state_topic_option
    @click.option(
        "--snapshot-topic",
        envvar="HOLDFAST_SNAPSHOTS_TOPIC",
        show_envvar=True,
        default=SNAPSHOT_TOPIC_DEFAULT,
        show_default=True,
        metavar="TOPIC",
        help="The topic that the Spark job writes to.",
    )
    @wraps(command)
    def with_topics(
        bootstrap_server: str,
        properties: Sequence[str],
        state_topic: str,
        snapshot_topic: str,
        **arguments: Any,  # noqa: ANN401
    ) -> None:
        with _open_topics(kafka_properties(bootstrap_server, properties), state_topic, snapshot_topic) as topics:
            command(topics=topics, **arguments)

    return with_topics


@contextmanager
def _open_topics(properties: dict[str, str], state_topic: str, snapshot_topic: str) -> Iterator[OpenTopics]:
    with KafkaReader(properties) as kafka:
        yield OpenTopics(kafka, SnapshotReader(kafka, state_topic, snapshot_topic))


@click.group()
def snapshots() -> None:
    """Look into the snapshot store, which `holdfast compact` writes: nothing is changed.

    Example: holdfast snapshots list --bootstrap-server 127.0.0.1:9092
    """


@snapshots.command("list")
@_partitions_argument
@json_option
@_topic_options
def list_snapshots(only: Sequence[int], as_json: bool, topics: OpenTopics) -> None:
    """Show the newest manifest of each log partition, what belongs to it, and whether a load would begin with it.

    The lag is the number of offsets behind the manifest, up to the end of the log.

    Example: holdfast snapshots list 0 1
    """
    rows = []
    for held in topics.each(only):
        covered_offset = held.newest_manifest()
        why_not = "there is no manifest that the log still reaches"
        live_keys = None
        if covered_offset is not None:
            why_not = topics.reader.refusal(held, covered_offset)
            try:
                live_keys = held.snapshots.manifest(covered_offset).live_count
            except RecordError as error:
                why_not = str(error)
        rows.append(
            {
                "partition": held.log_partition,
                "manifest": covered_offset,
                "lag": None if covered_offset is None else held.log.end - 1 - covered_offset,
                "live_keys": live_keys,
                "entries": len(held.snapshots),
                "bytes": held.size_bytes,
                "verified": not why_not,
                "why_not": why_not or None,
            }
        )
    if as_json:
        print_json(rows)
    else:
        print_rows(_LIST_COLUMNS, rows)


@snapshots.command()
@click.argument("keys", nargs=-1, required=True, metavar="GROUP:TOPIC:PARTITION...")
@click.option("--at-offset", type=OFFSET, help="The newest entry at or before this offset of the log.")
@json_option
@_topic_options
def show(keys: Sequence[str], at_offset: int | None, as_json: bool, topics: OpenTopics) -> None:
    """Show the newest entry of share partitions. TOPIC is a name or an id.

    Example: holdfast snapshots show orders-workers:orders:0 --at-offset 1200
    """
    found = [_entry_data(_parse_key(topics.kafka, text), at_offset, topics.reader) for text in keys]
    if as_json:
        print_json(found)
    else:
        for index, (text, data) in enumerate(zip(keys, found, strict=True)):
            if index:
                click.echo()
            facts = {name.replace("_", " "): value for name, value in data.items() if name != "state"}
            # As the user named it: with the name of its topic.
            print_facts(facts | {"share partition": text})
            if data["state"] is not None:
                print_facts(state_facts(data["state"]))
    if missing := [data["share_partition"] for data in found if data["covered_offset"] is None]:
        raise Failure(f"The snapshot topic has no entry of {', '.join(missing)}.", Exit.NOT_FOUND)


@snapshots.command()
@_partitions_argument
@json_option
@_topic_options
def verify(only: Sequence[int], as_json: bool, topics: OpenTopics) -> None:
    """Recompute the newest manifest of each log partition and its entries from the log, and compare.

    Ends with exit code 7 if anything differs, and then prints both.

    Example: holdfast snapshots verify --json
    """
    rows = []
    differences = []
    for held in topics.each(only):
        covered_offset = held.newest_manifest()
        row: dict[str, Any] = {"partition": held.log_partition, "manifest": covered_offset}
        if covered_offset is None:
            row |= {"compared": 0, "differences": 0, "open_question": "there is no manifest that the log still reaches"}
        else:
            verdict = topics.reader.verify(held, covered_offset)
            row |= {
                "compared": verdict.compared,
                "differences": len(verdict.differences),
                "open_question": verdict.open_question or None,
            }
            differences += [{"partition": held.log_partition, **each._asdict()} for each in verdict.differences]
        rows.append(row)
    if as_json:
        print_json({"partitions": rows, "differences": differences})
    else:
        print_rows(_VERIFY_COLUMNS, rows)
        for difference in differences:
            click.echo(f"\nPartition {difference['partition']}, {escaped(difference['subject'])}:")
            click.echo(f"  in the topic: {difference['in_topic']}\n  from the log: {difference['from_log']}")
    if differences:
        raise Failure(
            f"The snapshot topic and the log differ in {len(differences)} places; nodes go by the log. "
            "Stop the job, delete the snapshot topic and the job's checkpoint directory, and start the job again.",
            Exit.DIFFERENT,
        )


def _entry_data(key: SharePartitionKey, at_offset: int | None, reader: SnapshotReader) -> dict[str, Any]:
    held = reader.read(log_partition(key, reader.partition_count, reader.placement))
    entries = [
        entry for entry in held.snapshots.entries_of(key) if at_offset is None or entry.covered_offset <= at_offset
    ]
    data: dict[str, Any] = {"share_partition": format_key(key), "log_partition": held.log_partition}
    if not entries:
        return data | {"covered_offset": None, "state": None}
    try:
        snapshot, update_count, snapshot_offset = decode_entry(entries[-1].value_bytes)
    except RecordError as error:
        raise Failure(f"The entry of {format_key(key)} at offset {entries[-1].covered_offset}: {error}") from None
    return data | {
        "covered_offset": entries[-1].covered_offset,
        "update_count": update_count,
        "snapshot_offset": snapshot_offset,
        "is_deleted": snapshot is None,
        "state": None if snapshot is None else state_data(snapshot),
    }


def _parse_key(kafka: KafkaReader, text: str) -> SharePartitionKey:
    group, topic, partition = split_key(text)
    return SharePartitionKey(group, kafka.find_topic_id(topic), partition)
