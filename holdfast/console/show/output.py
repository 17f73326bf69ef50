"""Printing: data goes to standard output, as a table for people or as JSON for scripts, and the rest to standard error."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click

from holdfast.console.show.tables import Column, escaped, facts_lines, table_lines
from holdfast.records.share.batches import STATE_NAMES, StateBatch
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot

_BATCH_TEXT = "{first_offset}-{last_offset}:{delivery_state}:{delivery_count}"

#: Characters that JSON leaves as they are and that act on a terminal: control characters, line ends, and the direction of writing.
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def say(text: str) -> None:
    """Print a message of one line, which is no data, to standard error."""
    click.echo(escaped(text), err=True)


def print_json(data: Any, *, is_line: bool = False) -> None:  # noqa: ANN401
    """Print one JSON document, over several lines or on one."""
    text = json.dumps(data, indent=None if is_line else 2, ensure_ascii=not _is_unicode())
    click.echo(text if text.isprintable() else _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_table(
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[str] = (),
    rows_measured: int | None = None,
) -> None:
    """Print rows under their columns; on a terminal as `tables` says, elsewhere each as one line, whole.

    Args:
        columns: titles, and how each is shown.
        rows: a cell for each; None is shown as a dash.
        numbers: columns to be aligned right, of those that are given by their titles alone.
        rows_measured: number of rows from which the widths are taken, so that the others can be printed as they come; without
            it, all.
    """
    shown = [each if isinstance(each, Column) else Column(each, is_number=each in numbers) for each in columns]
    for line in table_lines(shown, rows, _width(), rows_measured=rows_measured, emphasize=emphasis()):
        click.echo(line)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and their values, one a line."""
    for line in facts_lines(facts, _width(), emphasize=emphasis()):
        click.echo(line)


def print_rows(columns: Mapping[str, Column], rows: Iterable[Mapping[str, object]]) -> None:
    """Print rows of data as a table; `columns` says under which names of theirs its cells are found."""
    print_table(list(columns.values()), ([row[name] for name in columns] for row in rows))


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
    """Return what `state_data` gives as facts for people: times as text, batches in the form of `batch_text`, -1 as unknown."""
    facts: dict[str, object] = {name: known_number(data[name]) for name in data if name != "state_batches"}
    facts |= {name: time_text(data[name]) for name in facts if name.endswith("_ms")}
    return {name.removesuffix("_ms").replace("_", " "): value for name, value in facts.items()} | {
        "state batches": batch_texts(data) or None
    }


def batch_texts(data: Mapping[str, Any]) -> list[str]:
    """Return the state batches of what `state_data` gives, each in the form of `batch_text`."""
    return [_BATCH_TEXT.format(**batch) for batch in data["state_batches"]]


def known_number(number: int) -> int | None:
    """Return a number of the protocol, in which -1 stands for one that is not known or not decided."""
    return None if number == -1 else number


def counted(count: int, thing: str) -> str:
    """Return a number of things."""
    return f"{count} {thing}{'s' * (count != 1)}"


def time_text(timestamp_ms: int) -> str:
    """Return a time in ISO 8601, in UTC and to the millisecond."""
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def emphasis() -> Callable[[str], str]:
    """Return what makes a text stand out, where that is wanted (see no-color.org) and can be seen."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return str if is_plain else partial(click.style, bold=True)


def _is_unicode() -> bool:
    """Tell whether standard output has all characters; the escapes of JSON are others than those that it would put in."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


def _width() -> int | None:
    """Return how much a line of the terminal holds, or None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
