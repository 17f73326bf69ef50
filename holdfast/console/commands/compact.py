"""`holdfast compact`: the compaction job, in this process."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.console.options import split_assignment
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import say


@click.command()
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file of settings.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="One setting; wins over all others.")
@click.option("--once", is_flag=True, help="Fold the log to its end as it is now, and end; for cron.")
@click.option("--master", metavar="URL", help="Spark's master, as in spark://host:7077; wins over compaction.master.")
@click.option("--json", "as_json", is_flag=True, help="Print the report of each batch as a line of JSON.")
@click.option(
    "--write-py-files",
    "py_files",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Write the zip of our code that Spark's workers need, and do nothing else.",
)
@click.option("--supervised", is_flag=True, hidden=True, help="Take the settings from the node that runs this job.")
def compact(
    config: Path | None,
    assignments: Sequence[str],
    once: bool,
    master: str | None,
    as_json: bool,
    py_files: Path | None,
    supervised: bool,
) -> None:
    """Run compaction: the Spark job that folds the log into the snapshot store and the history.

    The settings are those of the node; `compaction.checkpoint.dir` is needed.
    SIGTERM and Ctrl-C let the running batch finish; a second one ends it at once, which loses nothing.
    The page Compaction says what it needs and how to run it on a cluster.

    Example: holdfast compact --once --set kafka.bootstrap.servers=127.0.0.1:9092 --set compaction.checkpoint.dir=/tmp/c
    """
    # The job's modules take a second to import, which no other command should wait for.
    from holdfast.console import job_output, job_process

    if py_files is not None:
        try:
            job_process.write_py_files(py_files)
        except OSError as error:
            raise Failure(f"The zip cannot be written: {error}.") from None
        say(f"Wrote {py_files}.")
        return
    if supervised:
        settings = job_process.settings_of_the_node(sys.stdin.buffer)
        output = job_output.json_lines
    else:
        flags = dict(split_assignment(text, "--set") for text in assignments) | (
            {} if master is None else {"compaction.master": master}
        )
        settings = job_process.settings_of(config, flags)
        output = job_output.json_lines if as_json else job_output.terminal if sys.stdout.isatty() else job_output.lines
    job_process.compact_until_stopped(settings, once=once, output=output)
    sys.exit(Exit.DONE)
