"""The display of a Kafka that starts: a bar on a terminal, lines elsewhere, on standard error."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.broker import KAFKA_VERSION, OnStep, StartStep
from holdfast.console.show.output import counted, say


@contextmanager
def showing_start(brokers: int) -> Iterator[OnStep]:
    """Give what takes the steps of a start, and shows them as long as the block runs.

    Args:
        brokers: number of brokers that start.
    """
    title = f"Apache Kafka {KAFKA_VERSION} starts"
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        began_s = monotonic()
        say(f"{title}, with {counted(brokers, 'broker')}.")
        yield lambda broker, step: say(f"Broker {broker} {step.value}, after {monotonic() - began_s:.1f} s.")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[step]}"), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(title, total=brokers * len(StartStep), step="")

    def show(broker: int, step: StartStep) -> None:
        # Not before the first step: until then Kafka may be fetched, which has a bar of its own.
        progress.start()
        progress.update(task, advance=1, step=f"broker {broker} {step.value}")

    try:
        yield show
    finally:
        progress.stop()
