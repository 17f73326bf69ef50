"""`holdfast dump`: the microscope for state topics."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from signal import SIGINT
from threading import Event
from typing import Any, Final

import click

from holdfast.console.interrupts import set_by
from holdfast.console.options import (
    DIGITS_MAX,
    INT64_MAX,
    OFFSET,
    PARTITION,
    json_option,
    kafka_options,
    kafka_properties,
)
from holdfast.console.show.output import batch_data, batch_text, print_json, print_table, say, time_text
from holdfast.console.show.tables import Column
from holdfast.console.sources.kafka_reader import Stopped
from holdfast.console.sources.log_reader import LogEntry, LogReader, LogSelection
from holdfast.console.sources.state_topics import KAFKA_STATE_TOPIC, find_state_topic, no_state_topic
from holdfast.console.sources.topic_names import TopicNameCache
from holdfast.kafka.topic_ids import format_topic_id
from holdfast.records.log.checkpoint import Checkpoint
from holdfast.records.share.values import Snapshot, Update

_KINDS: Final = ("snapshot", "update", "tombstone", "checkpoint", "noop", "unknown", "undecodable")
#: Their widths hold what is usual, for those who follow a log, of which no row is known when the titles are printed.
_COLUMNS: Final = (
    Column("partition", is_number=True),
    Column("offset", is_number=True),
    Column("time", width=24),
    Column("counts"),
    Column("epoch", is_number=True, dropped_as=2),
    Column("sequence", is_number=True, dropped_as=1),
    Column("kind", width=10),
    Column("share partition", width=20, is_detail=True),
    Column("value", width=60, is_detail=True),
)
#: Records from which the widths are taken, where all of them are there already.
_ROWS_MEASURED: Final = 100
_BATCHES_SHOWN: Final = 8
_FOLLOW_EVERY_S: Final = 0.2


class TimeType(click.ParamType[int]):
    """A time, as ISO 8601 (UTC where no zone is given) or in milliseconds since 1970."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return it in milliseconds since 1970."""
        if isinstance(value, int) or (value.isdecimal() and len(value) <= DIGITS_MAX):
            return int(value)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time, as in 2026-01-31T12:00:00Z or 1769860800000", param, ctx)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)


@click.command()
@click.argument("topic", required=False)
@kafka_options
@click.option("--partition", "partitions", type=PARTITION, multiple=True, help="Only this log partition.")
@click.option("--from-offset", type=OFFSET, default=0, help="Leave out the records before.")
@click.option("--from-time", type=TimeType(), default=0, help="Leave out the records before (ISO 8601, or ms).")
@click.option("--kind", "kinds", type=click.Choice(_KINDS), multiple=True, help="Only records of this kind.")
@click.option("--limit", type=click.IntRange(1, INT64_MAX), help="Largest number of records.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@json_option
def dump(
    topic: str | None,
    bootstrap_server: str,
    properties: Sequence[str],
    partitions: Sequence[int],
    from_offset: int,
    from_time: int,
    kinds: Sequence[str],
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the records of a state topic: ours, or a broker's own `__share_group_state`, in either codec.

    Without TOPIC it is Kafka's own where the cluster has one, else `__holdfast_share_state`.
    It says of each record whether it counts, and under which owner epoch and sequence it was written.
    Nothing is changed. With --json each record is a line. Ctrl-C ends --follow, with exit code 0.

    Example: holdfast dump __holdfast_share_state --bootstrap-server 127.0.0.1:9092 --kind update --limit 20
    """
    wanted = LogSelection(partitions, from_offset, from_time)
    with (
        set_by(*([SIGINT] if follow else [])) as is_interrupted,
        closing(
            LogReader(kafka_properties(bootstrap_server, properties), topic or KAFKA_STATE_TOPIC, is_interrupted)
        ) as reader,
    ):
        if topic is None:
            reader.topic = find_state_topic(reader.kafka)
        read = _entries(reader, wanted, is_interrupted if follow else None)
        counted = _Counted(
            islice((entry for entry in of_coordinator(read, reader.topic) if not kinds or entry.kind in kinds), limit)
        )
        if as_json:
            for entry in counted:
                print_json(entry_data(entry), is_line=True)
        else:
            print_entries(counted, TopicNameCache(reader.kafka), rows_measured=0 if follow else _ROWS_MEASURED)
        void = f", of which {counted.void} do not count" if counted.void else ""
        say(f"{counted.total} records{void}.")


def print_entries(entries: Iterable[LogEntry], names: TopicNameCache, rows_measured: int = _ROWS_MEASURED) -> None:
    """Print records as a table, each as it comes.

    Args:
        entries: the records.
        names: of topics.
        rows_measured: see `print_table`; 0 where the next record may take long.
    """
    print_table(_COLUMNS, (_row(entry, names) for entry in entries), rows_measured=rows_measured)


def entry_data(entry: LogEntry) -> dict[str, object]:
    """Return a record for JSON."""
    return {
        "partition": entry.partition,
        "offset": entry.offset,
        "timestamp_ms": entry.timestamp_ms,
        "kind": entry.kind,
        "codec": entry.codec or None,
        "counts": entry.counts,
        "owner_epoch": entry.owner_epoch,
        "sequence": entry.sequence,
        "size_bytes": entry.size_bytes,
        "group_id": entry.key and entry.key.group_id,
        "topic_id": entry.key and format_topic_id(entry.key.topic_id),
        "share_partition": entry.key and entry.key.partition,
        "value": None if entry.value is None else _value_data(entry.value),
        "problem": entry.problem,
    }


def entry_text(entry: LogEntry) -> str:
    """Return the value of a record as text."""
    value = entry.value
    if isinstance(value, Checkpoint):
        reason = f", accepted: {value.reason}" if value.reason else ""
        return f"node {value.node_id}, generation {value.generation}, attempt {value.attempt_id.hex()[:8]}{reason}"
    if value is None:
        return entry.problem or ""
    parts = [f"snapshot epoch {value.snapshot_epoch}"]
    if isinstance(value, Snapshot):
        parts.append(f"state epoch {value.state_epoch}")
    if value.leader_epoch != -1:
        parts.append(f"leader epoch {value.leader_epoch}")
    if value.start_offset != -1:
        parts.append(f"start {value.start_offset}")
    if value.delivery_complete_count != -1:
        parts.append(f"complete {value.delivery_complete_count}")
    parts += [batch_text(batch) for batch in value.state_batches[:_BATCHES_SHOWN]]
    if (more := len(value.state_batches) - _BATCHES_SHOWN) > 0:
        parts.append(f"and {more} batches more")
    return ", ".join(parts)


class _Counted:
    """Records, counted as they are yielded."""

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self.total = self.void = 0
        self._entries = entries

    def __iter__(self) -> Iterator[LogEntry]:
        for entry in self._entries:
            self.total += 1
            self.void += not entry.counts
            yield entry


def _entries(reader: LogReader, wanted: LogSelection, until: Event | None) -> Iterator[LogEntry]:
    """Yield what is in the log, and then what is appended, until an interrupt ends the following."""
    try:
        yield from reader.read(wanted)
        while until is not None and not until.wait(_FOLLOW_EVERY_S):
            yield from reader.read(wanted)
    except Stopped:
        return


def of_coordinator(entries: Iterator[LogEntry], topic: str) -> Iterator[LogEntry]:
    """Yield the records of a topic, unless the first one is none of a coordinator.

    A record of a node has a header, however damaged it is; records of brokers are in one topic.

    Raises:
        Failure: it is no state topic.
    """
    for number, entry in enumerate(entries):
        if number == 0 and entry.kind == "undecodable" and entry.owner_epoch is None and topic != KAFKA_STATE_TOPIC:
            raise no_state_topic(topic, entry)
        yield entry


def _row(entry: LogEntry, names: TopicNameCache) -> tuple[object, ...]:
    return (
        entry.partition,
        entry.offset,
        time_text(entry.timestamp_ms),
        "yes" if entry.counts else "VOID",
        entry.owner_epoch,
        entry.sequence,
        entry.kind,
        entry.key and names.shown(entry.key),
        entry_text(entry),
    )


def _value_data(value: Snapshot | Update | Checkpoint) -> dict[str, object]:
    data = {name: part.hex() if isinstance(part, bytes) else part for name, part in value._asdict().items()}
    if not isinstance(value, Checkpoint):
        data["state_batches"] = [batch_data(batch) for batch in value.state_batches]
    return data
