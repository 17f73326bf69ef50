"""What the demonstration shows: bars on a terminal, lines elsewhere, and tables in the end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from demo.takeover import Takeover
from demo.verdict import Check, LogContents
from demo.worker import Ledger
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED

_LINES_PER_RUN: Final = 10


class Display:
    """Shows how far the partitions are, and says what happens."""

    def __init__(self, console: Console, partitions: int, records: int) -> None:
        self._console = console
        self._finished = [0] * partitions
        self._total = partitions * records
        self._lines = 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks = [self._progress.add_task(f"partition {index}", total=records) for index in range(partitions)]

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    @property
    def share_finished(self) -> float:
        """How much of all work is done, 0 to 1."""
        return sum(self._finished) / self._total

    def progressed(self, partition: int, finished: int) -> None:
        """Show that so many records of a partition are finished."""
        self._finished[partition] = finished
        self._progress.update(self._tasks[partition], completed=finished)
        if not self._console.is_terminal and self.share_finished * _LINES_PER_RUN >= self._lines + 1:
            self._lines = int(self.share_finished * _LINES_PER_RUN)
            self.say(f"  {sum(self._finished):,} of {self._total:,} orders finished")

    def say(self, text: str) -> None:
        """Write a line above the bars."""
        # A terminal would break it in a word, and in a file it is to stay whole.
        self._console.print(text, soft_wrap=not self._console.is_terminal)


def show_orders(console: Console, ledgers: Mapping[int, Ledger], contents: LogContents) -> None:
    """Show what became of the orders of each partition, and how often they were delivered."""
    table = Table("partition", "orders", "acknowledged", "archived", "deliveries", "writes", title="The orders")
    for partition, ledger in ledgers.items():
        states = Counter(delivery.delivery_state for delivery in contents.deliveries[partition].values())
        numbers = (states.total(), states[ACKNOWLEDGED], states[ARCHIVED], ledger.deliveries.total(), ledger.writes)
        table.add_row(str(partition), *(f"{number:,}" for number in numbers))
    _show(console, table)
    table = Table("deliveries", "orders", Column(min_width=40), title="How often an order was delivered")
    counted = Counter(delivery.delivery_count for known in contents.deliveries.values() for delivery in known.values())
    for deliveries, orders in sorted(counted.items()):
        table.add_row(str(deliveries), f"{orders:,}", "█" * max(1, round(40 * orders / counted.total())))
    _show(console, table)
    given = sum(ledger.deliveries.total() for ledger in ledgers.values())
    lost = given - sum(deliveries * orders for deliveries, orders in counted.items())
    if lost:
        console.print(f"{lost} more deliveries were cut short when worker A died, and do not count.")


def show_log(console: Console, contents: LogContents) -> None:
    """Show what lies in the state topic."""
    table = Table("kind", "records", "bytes", title="What lies in the log")
    for kind, records in contents.kinds.most_common():
        table.add_row(kind, f"{records:,}", f"{contents.size_bytes[kind]:,}")
    table.add_row("void", f"{contents.void_records:,}", "")
    _show(console, table)
    epochs = ", ".join(f"{records:,} under {epoch}" for epoch, records in sorted(contents.owner_epochs.items()))
    console.print(f"Records by owner epoch: {epochs}.")


def show_takeover(console: Console, takeover: Takeover) -> None:
    """Show who serves what the dead node served, and how long nobody did."""
    table = Table(
        "log partition", "records", "served again after", "by node", title=f"What node {takeover.node_id} served"
    )
    for each in takeover.taken:
        name = f"busiest: {each.log_partition}" if each.log_partition == takeover.busiest else str(each.log_partition)
        table.add_row(name, f"{each.records:,}", f"{each.after_s:.1f} s", str(each.node_id))
    _show(console, table)


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Show what was to be proved."""
    console.print()
    for check in checks:
        console.print(
            f"[green]✓[/] {check.claim}" if check.holds else f"[bold red]✗ {check.claim}[/]",
            soft_wrap=not console.is_terminal,
        )
        for detail in check.details:
            console.print(f"  {detail}", soft_wrap=True)


def _show(console: Console, table: Table) -> None:
    for column in table.columns[: None if table.columns[-1].header else -1]:
        column.justify = "right"
    console.print()
    console.print(table)
