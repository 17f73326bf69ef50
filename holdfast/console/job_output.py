"""The output of `holdfast compact` while the job runs: lines of JSON, lines of text, or a table on the terminal.

Each form also says where log lines go, and how the lines are handled that Spark's processes write to standard error.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import IO, Final, TypeAlias

import click
import structlog
from rich.live import Live

from holdfast.compaction.child_lines import ChildLines
from holdfast.compaction.progress import RunProgress, to_json
from holdfast.console.show.job_progress import line_of, view_of
from holdfast.daemon.settings.logging import configure_logging
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.settings.secrets import secrets_of
from holdfast.hidden_texts import HIDDEN_TEXTS

_STDERR: Final = 2

#: Shows how far the run is: before its first batch, and after each.
Show: TypeAlias = Callable[[], None]
#: Gives what shows a run, for as long as the job runs.
Output: TypeAlias = Callable[[Settings, RunProgress], AbstractContextManager[Show]]

_log = structlog.get_logger(__name__)


@contextmanager
def json_lines(settings: Settings, progress: RunProgress) -> Iterator[Show]:
    """Print each report as a line of JSON; lines of Spark's go to standard error as they are."""
    configure_logging(settings.logging, secrets=secrets_of(settings))
    yield lambda: click.echo(json.dumps(to_json(progress.last))) if progress.last is not None else None


@contextmanager
def lines(settings: Settings, progress: RunProgress) -> Iterator[Show]:
    """Print a line of text for each batch, after one on standard error about what lies ahead."""
    with _forwarding_stderr(settings) as stderr:
        configure_logging(settings.logging, stderr, secrets=secrets_of(settings))
        yield lambda: click.echo(line_of(progress), file=stderr if progress.last is None else None)


@contextmanager
def terminal(settings: Settings, progress: RunProgress) -> Iterator[Show]:
    """Keep a table up to date on the terminal; log lines scroll above it."""
    began_s = monotonic()
    # The view is built again with each refresh, so that the seconds count up while Spark starts.
    with Live(get_renderable=lambda: view_of(progress, monotonic() - began_s), redirect_stdout=False) as live:
        # `Live` has replaced stderr with a stream that prints above the table.
        logging = settings.logging.model_copy(update={"log_format": "console"})
        configure_logging(logging, sys.stderr, secrets=secrets_of(settings))
        with _forwarding_stderr(settings):
            yield live.refresh


@contextmanager
def _forwarding_stderr(settings: Settings) -> Iterator[IO[str]]:
    """Give standard error, while what Spark's processes write to it is logged by us, line by line."""
    reader, writer = os.pipe()
    forward = ChildLines(_log, HIDDEN_TEXTS.hide)

    def pump() -> None:
        with os.fdopen(reader, errors="replace") as pipe:
            for line in pipe:
                forward(line)

    with os.fdopen(os.dup(_STDERR), "w", buffering=1) as stderr:
        os.dup2(writer, _STDERR)
        os.close(writer)
        # Java keeps its end open until this process has ended, so the last line is not waited for.
        threading.Thread(target=pump, name="spark-lines", daemon=True).start()
        try:
            yield stderr
        finally:
            os.dup2(stderr.fileno(), _STDERR)
            configure_logging(settings.logging, secrets=secrets_of(settings))
