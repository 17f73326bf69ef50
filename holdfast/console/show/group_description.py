"""A share group for people: its sums, and a line for each of its share partitions; printed once, or drawn on a screen."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.console.show.group_lag import unknown_lines
from holdfast.console.show.output import counted, time_text
from holdfast.console.show.tables import Column, escaped, facts_lines, table_lines
from holdfast.records.share.group_lag import LagTotals, Row

SHARE_PARTITION_COLUMNS: Final = (
    Column("topic"),
    Column("partition", is_number=True),
    Column("start", is_number=True, dropped_as=1),
    Column("oldest", is_number=True),
    Column("end", is_number=True, dropped_as=2),
    Column("lag", is_number=True),
    Column("in flight", is_number=True),
    Column("deliveries (records)"),
)


class Look(NamedTuple):
    """A share group as it was at one moment."""

    at_ms: int
    group: str
    rows: Sequence[Row]
    totals: LagTotals
    gaps: Sequence[str] = ()  #: what keeps it from being complete, in sentences


def group_facts(look: Look) -> dict[str, object]:
    """Return the sums of a group."""
    totals = look.totals
    return {
        "group": look.group,
        "lag": totals.lag_text(),
        "in flight": totals.in_flight,
        "share partitions": f"{totals.share_partitions} ({counted(len(totals.topics), 'topic')})",
        "owners": ", ".join(sorted({row["owner"] or "unknown" for row in look.rows})),
    }


def share_partition_cells(row: Row) -> tuple[object, ...]:
    """Return the cells of a share partition."""
    counts = ", ".join(f"{count} ({records})" for count, records in row["delivery_counts"].items())
    return (
        row["topic"] or row["topic_id"],
        row["partition"],
        row["start_offset"],
        row["oldest_unfinished_offset"],
        "unknown" if row["end_offset"] is None else row["end_offset"],
        "unknown" if row["lag"] is None else row["lag"],
        row["in_flight"],
        counts or None,
    )


def screen_lines(
    look: Look, trouble: str, width: int, height: int, *, emphasize: Callable[[str], str] = str
) -> list[str]:
    """Return a group as lines of a screen: where not all share partitions fit, those whose records are tried most often.

    Args:
        look: the newest one.
        trouble: why there is no newer one; empty where there is none.
        width: of the screen, in characters.
        height: of the screen, in lines.
        emphasize: makes a title stand out.
    """
    foot = ["", *(escaped(line) for line in _foot(look, trouble))]
    if not look.rows:
        return [*foot[1:], f"There is no state of the group {escaped(look.group)} any more."][:height]
    head = [*facts_lines(group_facts(look), width, emphasize=emphasize), ""]
    room = max(height - len(head) - len(foot), 0)
    table = _table(look.rows, width, emphasize)
    if len(table) > room:
        urgent = sorted(look.rows, key=_urgency)
        titles = len(_table((), width, emphasize))
        lines_of_a_row = max(1, -(-(len(table) - titles) // len(look.rows)))
        shown = max((room - titles - 1) // lines_of_a_row, 0)
        table = _table(urgent[:shown], width, emphasize)
        left_out = counted(len(urgent) - shown, "share partition")
        table.append(f"{left_out} more; those whose records are tried most often come first.")
    return [*head, *table, *foot][:height]


def _table(rows: Sequence[Row], width: int, emphasize: Callable[[str], str]) -> list[str]:
    return list(table_lines(SHARE_PARTITION_COLUMNS, map(share_partition_cells, rows), width, emphasize=emphasize))


def _foot(look: Look, trouble: str) -> Iterator[str]:
    yield f"As of {time_text(look.at_ms)}. Ctrl-C ends it."
    if trouble:
        yield f"There are no newer numbers: {trouble}"
    yield from unknown_lines(look.totals.unknown)
    yield from (f"{gap}." for gap in look.gaps)


def _urgency(row: Row) -> tuple[int, int]:
    return -row["delivery_count_max"], -(row["lag"] or 0)
