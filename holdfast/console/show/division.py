"""The log partitions and the nodes that divide them, for people: first whether all is well, then a table."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.console.show.output import counted, print_rows, say, time_text
from holdfast.console.show.tables import Column

_PARTITION_COLUMNS: Final = {
    "partition": Column("partition", is_number=True),
    "state": Column("state"),
    "owner": Column("owner"),
    "owner_address": Column("address", dropped_as=4),
    "owner_epoch": Column("owner epoch", is_number=True, dropped_as=2),
    "generation": Column("generation", is_number=True, dropped_as=3),
    "written": Column("written", is_number=True),
    "committed": Column("committed", is_number=True),
    "log_start": Column("log start", is_number=True, dropped_as=1),
    "keys": Column("keys", is_number=True),
}
#: Those of most use, which are shown without --wide.
_PARTITION_COLUMNS_NEEDED: Final = ("partition", "state", "owner", "owner_address")
_MEMBER_COLUMNS: Final = {
    "node_id": Column("node id", is_number=True),
    "address": Column("address"),
    "state": Column("state"),
    "is_leader": Column("leader"),
    "is_ready": Column("ready"),
    "version": Column("version", dropped_as=6),
    "generation": Column("generation", is_number=True, dropped_as=5),
    "heartbeat_age_ms": Column("last heartbeat", dropped_as=4),
    "config_offset": Column("config offset", is_number=True, dropped_as=3),
    "log_partitions": Column("log partitions", is_detail=True),
    "duties": Column("duties"),
    "member_id": Column("member id", dropped_as=2),
    "group_instance_id": Column("instance id", dropped_as=1),
}
_HAND_OVER_COLUMNS: Final = {
    "at_ms": Column("when"),
    "log_partition": Column("partition", is_number=True),
    "from_node": Column("from node"),
    "to_node": Column("to node"),
    "owner_epoch": Column("owner epoch", is_number=True),
    "generation": Column("generation", is_number=True, dropped_as=1),
    "load_ms": Column("load ms", is_number=True),
    "why": Column("why", is_detail=True),
}
#: Those of most use, which are shown without --wide.
_MEMBER_COLUMNS_NEEDED: Final = ("node_id", "address", "state", "is_ready", "version", "log_partitions", "duties")

Row = Mapping[str, Any]


def how_many_serve(partitions: Sequence[Row], statuses: Iterable[Row]) -> str:
    """Return whether all is well, in one sentence; else which log partitions do not serve, by their states.

    Args:
        partitions: as their owners have them.
        statuses: of the nodes that answered; one may lack its brokers, and serves nothing then although it has log partitions.
    """
    if not partitions:
        return "The node starts, and knows no log partitions yet."
    others: dict[str, list[str]] = {}
    for row in partitions:
        if row["state"] != "active":
            others.setdefault(row["state"], []).append(str(row["partition"]))
    alarmed = [str(row["partition"]) for row in partitions if row["is_alarmed"]]
    serving = len(partitions) - sum(map(len, others.values()))
    problems = [
        f"{', '.join(numbers)} {'is' if len(numbers) == 1 else 'are'} {state}" for state, numbers in others.items()
    ]
    problems += [f"an alarm is on for {', '.join(alarmed)}"] if alarmed else []
    counts = f"{serving} of {counted(len(partitions), 'log partition')}"
    if problems:
        return f"{counts} serve{'s' * (serving == 1)}; {'; '.join(problems)}."
    why_not = [
        f"node {status['node_id']} is not ready: {status['why_not_ready']}"
        for status in statuses
        if not status["is_ready"]
    ]
    if why_not:
        return f"{counts} {'is' if serving == 1 else 'are'} active; {'; '.join(why_not)}."
    return f"{counts} serve{'s' * (serving == 1)}, and no alarm is on."


def print_partitions(partitions: Iterable[Row], *, is_wide: bool) -> None:
    """Print the log partitions as a table, then why those do not serve that do not."""
    rows = list(partitions)
    print_rows(_PARTITION_COLUMNS if is_wide else _only(_PARTITION_COLUMNS, _PARTITION_COLUMNS_NEEDED), rows)
    same: dict[tuple[str, str], list[int]] = {}  # log partitions by what is printed of them
    for row in rows:
        failure = row["failure"]
        if row["is_alarmed"] and "`holdfast partitions" not in failure:  # most alarms name the command that ends them
            failure += "; the page Alarms and alerts says what ends it"
        if failure:
            same.setdefault((row["state"], failure), []).append(row["partition"])
    for (state, failure), numbers in same.items():
        which = f"Partition {numbers[0]} is" if len(numbers) == 1 else f"Partitions {', '.join(map(str, numbers))} are"
        say(f"{which} {state}: {failure}.")


def print_hand_overs(hand_overs: Iterable[Row]) -> None:
    """Print hand-overs of log partitions as a table."""
    print_rows(_HAND_OVER_COLUMNS, ({**row, "at_ms": time_text(row["at_ms"])} for row in hand_overs))


def how_many_are_ready(members: Sequence[Row]) -> str:
    """Return whether all is well with the nodes, in one sentence; else which of them are not ready."""
    if not members:
        return "The node knows no members: it is not in its group, as at a start or while Kafka does not answer."
    ready = sum(row["is_ready"] is True for row in members)
    problems = [f"node {row['node_id']} {_why_not_ready(row)}" for row in members if row["is_ready"] is not True]
    problems += ["the group divides the log again"] if any(row["state"] == "rejoining" for row in members) else []
    all_of_them = f"{ready} of {counted(len(members), 'node')} {'is' if ready == 1 else 'are'} ready"
    return "; ".join((all_of_them, *problems)) + "."


def print_members(members: Iterable[Row], *, is_wide: bool) -> None:
    """Print the nodes as a table."""
    columns = _MEMBER_COLUMNS if is_wide else _only(_MEMBER_COLUMNS, _MEMBER_COLUMNS_NEEDED)
    print_rows(columns, map(_member_cells, members))


def _only(columns: Mapping[str, Column], names: Iterable[str]) -> Mapping[str, Column]:
    return {name: columns[name] for name in names}


def _why_not_ready(row: Row) -> str:
    return "is not ready" if row["is_ready"] is False else str(row["is_ready_unknown"]).removeprefix("it ")


def _member_cells(row: Row) -> Row:
    lists = {name: ", ".join(map(str, row[name])) or None for name in ("log_partitions", "duties")}
    return {
        **row,
        **lists,
        "is_leader": "yes" if row["is_leader"] else None,
        "is_ready": _or_why(row, "is_ready"),
        "heartbeat_age_ms": _or_why(row, "heartbeat_age_ms", lambda age: f"{age / 1_000:.1f} s ago"),
        "config_offset": _or_why(row, "config_offset"),
    }


def _or_why(row: Row, name: str, form: Callable[[Any], object] = lambda value: value) -> object:
    """Return a cell, or why it is not known."""
    why = row[f"{name}_unknown"]
    return form(row[name]) if why is None else f"unknown: {why}"
