"""`holdfast groups` and `holdfast state list`: share partitions with state, and how far each group is."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, wraps
from itertools import chain
from typing import Any, Final

import click

from holdfast.console.lazy_commands import LazyCommands
from holdfast.console.options import address_option, is_typed, json_option, kafka_options, kafka_properties
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.group_description import (
    SHARE_PARTITION_COLUMNS,
    Look,
    group_facts,
    share_partition_cells,
)
from holdfast.console.show.group_lag import (
    GroupFilter,
    Source,
    list_with_lag,
    say_unknown,
    share_partition_text,
)
from holdfast.console.show.group_watch import check_screen, watch
from holdfast.console.show.output import counted, print_facts, print_json, print_table, say
from holdfast.console.show.tables import Column
from holdfast.console.sources.log_states import LogSource
from holdfast.console.sources.node_states import NodeSource
from holdfast.page.likeness import nearest
from holdfast.records.share.group_lag import LagTotals, Row

_GROUP_COLUMNS: Final = (
    Column("group"),
    Column("topics", is_number=True, dropped_as=1),
    Column("share partitions", is_number=True, dropped_as=2),
    Column("lag", is_number=True),
    Column("in flight", is_number=True),
    Column("most deliveries", is_number=True, dropped_as=3),
)
_STATE_COLUMNS: Final = (
    Column("share partition"),
    Column("start", is_number=True, dropped_as=2),
    Column("oldest", is_number=True),
    Column("lag", is_number=True),
    Column("in flight", is_number=True),
    Column("most deliveries", is_number=True, dropped_as=5),
    Column("epochs", dropped_as=4),
    Column("log partition", is_number=True, dropped_as=3),
    Column("owner", dropped_as=1),
)
#: Rows from which the widths are taken, so that the others are printed as they come: a page of a node.
_ROWS_MEASURED: Final = 1_000

_only_topic_option = click.option(
    "--only-topic", metavar="NAME_OR_ID", help="Only the share partitions of this topic, by its name or its id."
)


def _with_source(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a node or a log; the command gets `source` in their place."""

    @click.option(
        "--topic",
        "read_topic",
        metavar="STATE_TOPIC",
        help="Query no node, and read this state topic: `__share_group_state` of an Apache Kafka 4 cluster, or that of a "
        "Holdfast whose node is down. With --bootstrap-server it is found without this.",
    )
    @json_option
    @address_option
    @kafka_options
    @wraps(command)
    def with_source(
        read_topic: str | None,
        address: str,
        bootstrap_server: str,
        properties: Sequence[str],
        **arguments: Any,  # noqa: ANN401
    ) -> None:
        are_brokers_named = is_typed("bootstrap_server")
        if read_topic is None and not are_brokers_named:
            command(source=NodeSource(address), **arguments)
            return
        if is_typed("address"):
            option = "--bootstrap-server" if are_brokers_named else "--topic"
            raise Failure(
                f"--address names a node, and {option} a Kafka to read instead of one; leave one of them out.",
                Exit.WRONG_USAGE,
            )
        command(source=LogSource(kafka_properties(bootstrap_server, properties), read_topic), **arguments)

    return with_source


@click.group(commands=LazyCommands({"kafka": "kafka_groups:kafka"}))
def groups() -> None:
    """Show how far share groups are: those of any Kafka 4 by --bootstrap-server, or those that a node holds.

    Example: holdfast groups list --bootstrap-server 127.0.0.1:9092
    """


@groups.command("list")
@_only_topic_option
@_with_source
def list_groups(only_topic: str | None, as_json: bool, source: Source) -> None:
    """Show each group with its lag, and how many of its records are in flight.

    With --bootstrap-server no node is queried: the state is read from `__share_group_state`, in which Kafka's brokers keep it.
    The lag counts the records from the start offsets to the ends of the topics that are not finished (acknowledged or archived).
    In flight are those of them that lie before the last one that the state names.
    A record that was given out for the first time is in no state before it is answered, so it counts as lag alone.

    Example: holdfast groups list --bootstrap-server 127.0.0.1:9092
    """
    by_group: dict[str, LagTotals] = {}
    for row in chain.from_iterable(list_with_lag(source, GroupFilter(topic=only_topic))):
        by_group.setdefault(row["group"], LagTotals()).add(row)
    if as_json:
        print_json([{"group": group} | totals.data() for group, totals in sorted(by_group.items())])
    else:
        rows = [_group_row(group, totals) for group, totals in sorted(by_group.items())]
        print_table(_GROUP_COLUMNS, rows)
    _say_rest(by_group.values(), source.gaps())


@groups.command()
@click.argument("group")
@_only_topic_option
@click.option("--watch", "is_watched", is_flag=True, help="Draw it again every two seconds, until interrupted.")
@_with_source
def describe(group: str, only_topic: str | None, is_watched: bool, as_json: bool, source: Source) -> None:
    """Show how far a group is in each partition: start offset, the oldest record that is not finished, lag, delivery counts.

    The last column counts the records that were tried and are not finished, by their delivery counts.
    --watch needs a terminal; where not all partitions fit, it shows those whose records are tried most often.
    Ctrl-C ends --watch, with exit code 0, and the last numbers stay.

    Example: holdfast groups describe orders-workers
    """
    if is_watched and as_json:
        raise Failure("--watch draws for people, and --json is for programs; leave one of them out.", Exit.WRONG_USAGE)
    look = partial(_look, source, GroupFilter(group, only_topic))
    if is_watched:
        check_screen()
        # Ctrl-C is how it ends, and may come before the first numbers do.
        with suppress(KeyboardInterrupt):
            found = look()
            if not found.rows:
                _end(found, source)
            if (last := watch(found, look)).rows:
                _print_description(last)
        return
    found = look()
    if as_json and found.rows:
        print_json({"group": group} | found.totals.data() | {"states": found.rows})
    elif found.rows:
        _print_description(found)
    _end(found, source)


def _look(source: Source, wanted: GroupFilter) -> Look:
    """Look at a group.

    Raises:
        Failure: there is no such group, or nothing answers.
    """
    totals = LagTotals()
    rows = list(totals.adding(chain.from_iterable(list_with_lag(source, wanted))))
    assert wanted.group is not None
    return Look(time.time_ns() // 1_000_000, wanted.group, rows, totals, source.gaps())


def _print_description(look: Look) -> None:
    print_facts(group_facts(look))
    click.echo()
    print_table(SHARE_PARTITION_COLUMNS, map(share_partition_cells, look.rows))


def _end(look: Look, source: Source) -> None:
    """Print what is unknown of a group, and end with a failure where something is missing, or the group."""
    _say_rest([look.totals], look.gaps)
    if not look.rows:
        like = nearest(look.group, {row["group"] for row in chain.from_iterable(source.pages(GroupFilter()))})
        meant = f"did you mean {' or '.join(map(repr, like))}?" if like else "`holdfast groups list` shows all."
        raise Failure(f"There is no state of the group {look.group!r}; {meant}", Exit.NOT_FOUND)


@click.command("list")
@click.option("--group", help="Only the share partitions of this group.")
@_only_topic_option
@_with_source
def list_states(group: str | None, only_topic: str | None, as_json: bool, source: Source) -> None:
    """Show the share partitions that the nodes hold: offsets, lag, delivery counts, state epoch/leader epoch, log partition, owner.

    They come as they are read, in the order of their groups; with --json each is a line.
    A narrow terminal shows fewer columns; --json has more than any.
    The list is empty for a --group without state, with exit code 0; `holdfast groups describe` ends with 6 there.

    Example: holdfast state list --group orders-workers
    """
    totals = LagTotals()
    rows = totals.adding(chain.from_iterable(list_with_lag(source, GroupFilter(group, only_topic))))
    if as_json:
        for row in rows:
            print_json(row, is_line=True)
    else:
        print_table(_STATE_COLUMNS, map(_state_row, rows), rows_measured=_ROWS_MEASURED)
    say(f"{counted(totals.share_partitions, 'share partition')}.")
    _say_rest([totals], source.gaps())


def _say_rest(totals: Iterable[LagTotals], gaps: Sequence[str]) -> None:
    """Print what is unknown, and end with a failure where something is missing."""
    say_unknown(sum((each.unknown for each in totals), start=LagTotals().unknown))
    if gaps:
        raise Failure(". ".join(gaps) + ".")


def _group_row(group: str, totals: LagTotals) -> tuple[object, ...]:
    return (
        group,
        len(totals.topics),
        totals.share_partitions,
        totals.lag_text(),
        totals.in_flight,
        totals.delivery_count_max,
    )


def _state_row(row: Row) -> tuple[object, ...]:
    return (
        share_partition_text(row),
        row["start_offset"],
        row["oldest_unfinished_offset"],
        "unknown" if row["lag"] is None else row["lag"],
        row["in_flight"],
        row["delivery_count_max"],
        f"{row['state_epoch']}/{row['leader_epoch']}",
        row["log_partition"],
        row["owner"],
    )
