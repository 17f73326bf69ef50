"""Printing: data goes to standard output, as a table for people or as JSON for scripts, and the rest to standard error."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from holdfast.records.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from holdfast.records.replay import ShareState
from holdfast.records.values import Snapshot

#: Delivery states by name, as Kafka calls them.
STATE_NAMES = {AVAILABLE: "available", ACKNOWLEDGED: "acknowledged", ARCHIVED: "archived"}

_BATCH_TEXT = "{first_offset}-{last_offset}:{delivery_state}:{delivery_count}"

#: Width of a table that no terminal bounds.
_FILE_WIDTH = 400


def say(text: str) -> None:
    """Tell the person something that is not data."""
    click.echo(text, err=True)


def print_json(data: Any) -> None:  # noqa: ANN401
    """Print one JSON document."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[str] = ()) -> None:
    """Print rows under their columns.

    Args:
        columns: their names.
        rows: a cell for each; None is shown as a dash.
        numbers: columns to be aligned right.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    right = set(numbers)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    _console().print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and their values, one a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, _cell(value))
    _console().print(table)


def batch_data(batch: StateBatch) -> dict[str, object]:
    """Return a state batch for JSON."""
    return {
        "first_offset": batch.first_offset,
        "last_offset": batch.last_offset,
        "delivery_state": STATE_NAMES.get(batch.delivery_state, batch.delivery_state),
        "delivery_count": batch.delivery_count,
    }


def batch_text(batch: StateBatch) -> str:
    """Return a state batch in the form in which `holdfast state write --batch` takes it."""
    return _BATCH_TEXT.format(**batch_data(batch))


def state_data(state: Snapshot | ShareState) -> dict[str, object]:
    """Return the state of a share partition for JSON."""
    fields = {name: value for name, value in state._asdict().items() if name in Snapshot._fields}
    return fields | {"state_batches": [batch_data(batch) for batch in state.state_batches]}


def state_facts(data: Mapping[str, Any]) -> dict[str, object]:
    """Return what `state_data` gives as facts for people: times as text, batches in the form of `batch_text`."""
    facts = {name: value for name, value in data.items() if name != "state_batches"}
    facts |= {name: time_text(value) for name, value in facts.items() if name.endswith("_ms")}
    batches = "\n".join(_BATCH_TEXT.format(**batch) for batch in data["state_batches"])
    return {name.removesuffix("_ms").replace("_", " "): value for name, value in facts.items()} | {
        "state batches": batches or None
    }


def time_text(timestamp_ms: int) -> str:
    """Return a time in ISO 8601, in UTC and to the millisecond."""
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _console() -> Console:
    # With `emoji` a group id such as team:100 would become a picture. A table in a file or a pipe is cut nowhere.
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False, width=width)
