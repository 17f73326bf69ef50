"""Medians, spread and ratios of the runs at the gateway, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from benchmarks.gateway.loads import MARKS, Mark

_OURS, _BASE = "gateway", "kafka"
_SIDES: Final = (_OURS, "gateway-2", _BASE)
_COLUMNS: Final = (
    ("records_per_s", "records/s"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("new_ms", "new group ms"),
    ("known_ms", "known group ms"),
)


def mark_table(runs: Sequence[dict[str, Any]], marks: Sequence[Mark] = MARKS) -> str:
    """Return which marks are reached; those for which nothing was measured are left out."""
    lines = [
        "| mark, as a ratio to a stock broker | wanted | found | reached | gateway | broker | processor time ÷ |",
        "|---|--:|--:|---|--:|--:|--:|",
    ]
    for mark in marks:
        own, base = (_values(runs, mark.load, who, mark.column) for who in (_OURS, _BASE))
        if not own or not base:
            continue
        ratio = median(own) / median(base)
        is_reached = ratio <= mark.limit if mark.is_upper else ratio >= mark.limit
        sign = "≤" if mark.is_upper else "≥"
        lines.append(
            f"| {mark.text} | {sign} {mark.limit} | {_number(ratio)} | {'yes' if is_reached else 'no'} "
            f"| {_spread(own)} | {_spread(base)} | {_cost(runs, mark.load)} |"
        )
    return "\n".join(lines) + "\n"


def run_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return one row for each load and side: medians, and the least and the greatest value."""
    heads = [text for _, text in _COLUMNS]
    lines = [
        f"| load | who | {' | '.join(heads)} | servers' µs a record | the node's | records a poll | errors |",
        f"|---|---|{'--:|' * (len(heads) + 4)}",
    ]
    for load in dict.fromkeys(run["load"] for run in runs):
        for who in _SIDES:
            columns = (*(column for column, _ in _COLUMNS), "cpu_us", "node_us", "records_per_poll")
            values = [_values(runs, load, who, column) for column in columns]
            if any(values):
                cells = " | ".join(_spread(found) if found else "" for found in values)
                errors = sum(_values(runs, load, who, "errors"))
                lines.append(f"| {load} | {who} | {cells} | {errors:.0f} |")
    return "\n".join(lines) + "\n"


def _cost(runs: Sequence[dict[str, Any]], load: str) -> str:
    own, base = (_values(runs, load, who, "cpu_us") for who in (_OURS, _BASE))
    return _number(median(own) / median(base)) if own and base else ""


def _values(runs: Sequence[dict[str, Any]], load: str, who: str, column: str) -> list[float]:
    return [run[column] for run in runs if run["load"] == load and run["contender"] == who and column in run]


def _spread(values: Sequence[float]) -> str:
    return f"{_number(median(values))} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
