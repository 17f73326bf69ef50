"""Medians, spread and ratios of the runs, as tables in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

#: The contender that the ratios are to.
BASE: Final = "kafka"
OURS: Final = "holdfast"
#: The same daemon as two workers.
WORKERS: Final = "holdfast-2"

_COLUMNS: Final = ("requests_per_s", "keys_per_s", "p50_ms", "p99_ms")
#: Columns in which less is better.
_TIMES: Final = ("p50_ms", "p99_ms")


@dataclass(frozen=True, slots=True)
class Mark:
    """A ratio to Kafka in the same run that is to be reached."""

    text: str
    suite: str
    api: str
    keys: int
    connections: int
    column: str
    limit: float
    is_upper: bool = False
    ours: str = OURS


def _rate_and_p99(text: str, suite: str, keys: int, column: str, limit: float, ours: str = OURS) -> tuple[Mark, Mark]:
    """Return two marks of writes over 64 connections: how many a second, and that their p99 is not above Kafka's."""
    return _and_p99(Mark(text, suite, "write", keys, 64, column, limit, ours=ours))


def _and_p99(mark: Mark) -> tuple[Mark, Mark]:
    """Return a mark of writes, and that their p99 is not above Kafka's."""
    return mark, replace(mark, text="the same: p99", column="p99_ms", limit=1.0, is_upper=True)


MARKS: Final = (
    *_rate_and_p99("RF 1, single-key writes a second, 64 connections", "rf1", 1, "requests_per_s", 1.2),
    *_rate_and_p99("the same writes, two workers", "rf1", 1, "requests_per_s", 1.2, WORKERS),
    *_rate_and_p99("RF 1, keys written a second, 64 connections × 16 keys", "rf1", 16, "keys_per_s", 1.1),
    *_rate_and_p99("the same writes, two workers", "rf1", 16, "keys_per_s", 1.1, WORKERS),
    *_and_p99(Mark("RF 1, p50 of a write on one connection", "rf1", "write", 1, 1, "p50_ms", 1.4, is_upper=True)),
    Mark("RF 1, reads a second, 64 connections", "rf1", "read", 1, 64, "requests_per_s", 0.9),
    *_rate_and_p99("RF 3, single-key writes a second, 64 connections", "rf3", 1, "requests_per_s", 1.2),
    *_rate_and_p99("RF 3, keys written a second, 64 connections × 16 keys", "rf3", 16, "keys_per_s", 1.2),
    *_and_p99(Mark("RF 3, p50 of a write on one connection", "rf3", "write", 1, 1, "p50_ms", 1.2, is_upper=True)),
    Mark("Load of 1,024 share partitions, records a second", "load-1024", "load", 1, 1, "records_per_s", 1.0),
    Mark("Load of 20,000 share partitions, records a second", "load", "load", 1, 1, "records_per_s", 1.0),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table for newcomers: one number of a workload."""

    text: str
    suite: str
    workload: tuple[str, int, int]
    column: str
    unit: str
    ours: str = OURS


_ONE: Final = ("write", 1, 1)
_MANY: Final = ("write", 1, 64)
_MANY_KEYS: Final = ("write", 16, 64)
_LOAD: Final = ("load", 1, 1)

ROWS: Final = (
    Row("Write, one key, 1 connection, RF 1: p50", "rf1", _ONE, "p50_ms", "ms"),
    Row("the same: p99", "rf1", _ONE, "p99_ms", "ms"),
    Row("Write, one key, 64 connections, RF 1", "rf1", _MANY, "requests_per_s", "/s"),
    Row("the same: p99", "rf1", _MANY, "p99_ms", "ms"),
    Row("Write, 16 keys, 64 connections, RF 1", "rf1", _MANY_KEYS, "keys_per_s", "keys/s"),
    Row("Write, one key, 64 connections, RF 1, two workers", "rf1", _MANY, "requests_per_s", "/s", WORKERS),
    Row("Write, 16 keys, 64 connections, RF 1, two workers", "rf1", _MANY_KEYS, "keys_per_s", "keys/s", WORKERS),
    Row("Write, one key, 1 connection, RF 3: p50", "rf3", _ONE, "p50_ms", "ms"),
    Row("the same: p99", "rf3", _ONE, "p99_ms", "ms"),
    Row("Write, one key, 64 connections, RF 3", "rf3", _MANY, "requests_per_s", "/s"),
    Row("the same: p99", "rf3", _MANY, "p99_ms", "ms"),
    Row("Write, 16 keys, 64 connections, RF 3", "rf3", _MANY_KEYS, "keys_per_s", "keys/s"),
    Row("Load of 2,000,000 updates of 1,024 share partitions", "load-1024", _LOAD, "seconds", "s"),
    Row("Load of 2,000,000 updates of 20,000 share partitions", "load", _LOAD, "seconds", "s"),
    Row("the same after pruning", "load", _LOAD, "seconds", "s", "holdfast-pruned"),
    Row("the same from snapshots", "load", _LOAD, "seconds", "s", "holdfast-fast"),
)


def speed_table(results: dict[str, Sequence[dict[str, Any]]]) -> str:
    """Return the medians that newcomers ask for, beside Kafka's, of the worse mix; a row for which nothing was measured is left out."""
    lines = ["| Workload | Holdfast | Apache Kafka | Ratio |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        for _, own, base in _worst_first(_of_workload(results.get(row.suite, ()), row.workload), row.column, row.ours)[
            :1
        ]:
            cells = " | ".join(f"{_number(median(run[row.column] for run in of))} {row.unit}" for of in (own, base))
            lines.append(f"| {row.text} | {cells} | {_ratio(own, base, row.column)} |")
    return "\n".join(lines) + "\n"


def request_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return one row per workload and contender: the median of each number, and its least and greatest value; the worse mix first."""
    lines = [
        "| workload | who | requests/s | keys/s | p50 ms | p99 ms | ratio to Kafka: requests/s, p50 | errors | CPU: generator, servers |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    of_workloads = [
        (workload, of_mix)
        for workload, of_workload in _grouped(runs, ("api", "keys", "connections"))
        for of_mix in sorted(_by_mix(of_workload).values(), key=lambda each: _rank(each, "requests_per_s", OURS))
    ]
    for workload, of_workload in of_workloads:
        base = next((own for (who,), own in _grouped(of_workload, ("contender",)) if who == BASE), None)
        for (who,), own in _grouped(of_workload, ("contender",)):
            ratio = (
                ""
                if base is None or who == BASE
                else f"{_ratio(own, base, 'requests_per_s')}, {_ratio(own, base, 'p50_ms')}"
            )
            cells = " | ".join(_spread(own, column) for column in _COLUMNS)
            cpu = f"{median(run['generator_cpu'] for run in own):.2f}, {median(run['servers_cpu'] for run in own):.2f}"
            errors = sum(run["errors"] for run in own)
            api, keys, connections = workload
            mix = own[0]["mix"]
            lines.append(f"| {api} · {keys} · {connections} · {mix} | {who} | {cells} | {ratio} | {errors} | {cpu} |")
    return "\n".join(lines) + "\n"


def load_table(runs: Sequence[dict[str, Any]]) -> str:
    """Return one row per contender: how fast it loads."""
    lines = [
        "| who | records | seconds | records/s | ratio to Kafka | memory MiB |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    base = [run for run in runs if run["contender"] == BASE]
    for (who,), own in _grouped(runs, ("contender",)):
        ratio = _ratio(own, base, "records_per_s") if base and who != BASE else ""
        lines.append(
            f"| {who} | {own[0]['records']:,} | {_spread(own, 'seconds')} | {_spread(own, 'records_per_s')} "
            f"| {ratio} | {_spread(own, 'contender_memory_mib')} |"
        )
    return "\n".join(lines) + "\n"


def mark_table(results: dict[str, Sequence[dict[str, Any]]]) -> str:
    """Return which marks are reached; those for which nothing was measured are left out."""
    lines = []
    for mark in MARKS:
        chosen = _of_workload(results.get(mark.suite, ()), (mark.api, mark.keys, mark.connections))
        found = _worst_first(chosen, mark.column, mark.ours)
        if not found:
            continue
        (worse, own, base), *others = found
        ratio = median(run[mark.column] for run in own) / median(run[mark.column] for run in base)
        other = ", ".join(f"{_ratio(own, base, mark.column)} ({mix})" for mix, own, base in others)
        is_reached = ratio <= mark.limit if mark.is_upper else ratio >= mark.limit
        sign = "≤" if mark.is_upper else "≥"
        lines.append(
            f"| {mark.text} | {sign} {mark.limit} | {ratio:.2f}{_named(worse)} | {'yes' if is_reached else 'no'} | {other} |"
        )
    if not lines:
        return ""
    return (
        "\n".join(
            [
                "| mark, as a ratio to Kafka | wanted | found with the worse mix | reached | with the other |",
                "|---|--:|--:|---|--:|",
                *lines,
            ]
        )
        + "\n"
    )


def _named(mix: str) -> str:
    """Return a mix as it stands behind a ratio; a load has none."""
    return f" ({mix})" if mix else ""


def _of_workload(runs: Sequence[dict[str, Any]], workload: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [run for run in runs if (run["api"], run["keys"], run["connections"]) == workload]


def _worst_first(
    runs: Sequence[dict[str, Any]], column: str, ours: str
) -> list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """Return (mix, runs of ours, runs of Kafka's) for each mix that both ran, the one with the worst ratio first."""
    found = []
    for mix, of_mix in sorted(_by_mix(runs).items(), key=lambda each: _rank(each[1], column, ours)):
        own, base = ([run for run in of_mix if run["contender"] == who] for who in (ours, BASE))
        if own and base:
            found.append((mix, own, base))
    return found


def _by_mix(runs: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group runs by their mix; a load has none."""
    by_mix: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_mix.setdefault(run.get("mix", ""), []).append(run)
    return by_mix


def _rank(runs: Sequence[dict[str, Any]], column: str, ours: str) -> float:
    """Return how well a contender stands to Kafka in the runs of one mix, higher is better; 0 where one of them did not run."""
    own, base = ([run[column] for run in runs if run["contender"] == who] for who in (ours, BASE))
    if not own or not base:
        return 0.0
    ratio: float = median(own) / median(base)
    return 1 / ratio if column in _TIMES else ratio


def _grouped(
    runs: Sequence[dict[str, Any]], names: tuple[str, ...]
) -> list[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Group runs by some of their fields, in the order in which the groups first appear."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run[name] for name in names), []).append(run)
    return list(groups.items())


def _spread(runs: Sequence[dict[str, Any]], column: str) -> str:
    values = [run[column] for run in runs]
    return f"{_number(median(values))} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(own: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]], column: str) -> str:
    return f"{median(run[column] for run in own) / median(run[column] for run in base):.2f}"
