"""The display of the compaction job: a line for each batch, or a table that follows the run."""

from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.compaction.progress import RunProgress
from holdfast.compaction.report import BatchReport

#: Log partitions that are shown by name: those furthest behind.
_LAGS_MAX: Final = 8


def line_of(progress: RunProgress) -> str:
    """Return one line about the last batch, or about the wait for the first one."""
    report = progress.last
    if report is None:
        return _waiting_text(progress)
    return (
        f"batch {report.batch_id}: {report.records:,} records in {report.duration_ms / 1_000:.2f} s "
        f"({progress.records_per_second:,.0f}/s), {report.entries:,} snapshots, {report.manifests:,} manifests, "
        f"lag {sum(report.lag.values()):,}, {progress.keys:,} share partitions, {bytes_text(report.bytes_in)} in, "
        f"{bytes_text(report.bytes_out)} out, ratio {progress.compaction_ratio:.1f}"
    )


def view_of(progress: RunProgress, elapsed_s: float = 0.0) -> RenderableType:
    """Return the table of a run that began `elapsed_s` ago."""
    report, totals = progress.last, progress.totals
    if report is None:
        return Text(f"{_waiting_text(progress)} {elapsed_s:,.0f} s so far.", style="dim")
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="bold")
    facts.add_column(justify="right")
    facts.add_column(style="dim")
    steps = f"fold {_seconds(report.fold_ms)}, snapshots {_seconds(report.snapshots_ms)}, history {_seconds(report.history_ms)}"
    facts.add_row("batches", f"{totals.batches:,}", f"the last one is number {report.batch_id}")
    if progress.offsets_to_fold is not None:
        facts.add_row(
            "folded", f"{totals.records:,}", f"records, of {progress.offsets_to_fold:,} that waited at the start"
        )
    facts.add_row("input rate", f"{progress.records_per_second:,.0f}/s", f"{totals.records:,} records in all")
    facts.add_row("batch time", _seconds(report.duration_ms), steps)
    facts.add_row("share partitions", f"{progress.keys:,}", "with state")
    facts.add_row("snapshots", f"{totals.entries:,}", f"and {totals.manifests:,} manifests")
    facts.add_row("history", f"{totals.history_rows:,}", "rows")
    facts.add_row("bytes in", bytes_text(totals.bytes_in), "keys and values of the log")
    facts.add_row("bytes out", bytes_text(totals.bytes_out), f"compaction ratio {progress.compaction_ratio:.1f}")
    facts.add_row("lag", f"{sum(report.lag.values()):,}", _lag_text(report))
    parts: list[RenderableType] = [facts]
    if progress.waiting_count:
        parts.append(
            Text(
                f"{progress.waiting_count:,} share partitions wait for a snapshot, for the log was pruned past them.",
                "yellow",
            )
        )
    parts += [
        Text(
            f"Log partition {partition.log_partition} is stopped at offset {partition.stopped_offset}: {partition.stopped_reason}.",
            "red",
        )
        for partition in progress.stopped
    ]
    return Group(*parts)


def bytes_text(count: float) -> str:
    """Return a number of bytes with the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1_024
    return f"{count:,.1f} TiB"


def _waiting_text(progress: RunProgress) -> str:
    to_fold = progress.offsets_to_fold
    if to_fold is None:
        return "The job looks up how far it is."
    if to_fold == 0:
        return "Spark starts; the log has nothing new so far."
    return f"Spark starts; {to_fold:,} records wait up to the log's end."


def _lag_text(report: BatchReport) -> str:
    behind = sorted(((lag, partition) for partition, lag in report.lag.items() if lag), reverse=True)
    if not behind:
        return "records; at the end of every log partition"
    named = ", ".join(f"{partition}: {lag:,}" for lag, partition in behind[:_LAGS_MAX])
    return f"records; by log partition {named}{', …' if len(behind) > _LAGS_MAX else ''}"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1_000:.2f} s"
