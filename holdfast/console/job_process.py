"""The snapshot job in this process, from its settings to its end, and what it shows meanwhile."""

import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import IO, Final, TypeAlias

import click
import structlog
from confluent_kafka import KafkaException
from rich.live import Live

from holdfast.compaction.child_lines import ChildLines
from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError
from holdfast.compaction.group import topics_of
from holdfast.compaction.progress import Progress, to_json
from holdfast.compaction.report import BatchReport
from holdfast.compaction.spark.py_files import write_py_files
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.job_progress import line_of, view_of
from holdfast.daemon.settings.logging import LibraryLines, configure_logging
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.settings.sources import ConfigError, load_settings
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError, ensure_snapshot_topic
from holdfast.daemon.topics.state_topic import TopicMissing, describe_topic
from holdfast.distribution import how_to_install
from holdfast.jars.errors import BrokerError
from holdfast.jars.java import java
from holdfast.kafka.connection import ConnectionFailed
from holdfast.kafka.librdkafka import KafkaClients

__all__ = [
    "compact_until_stopped",
    "json_lines",
    "lines",
    "settings_of",
    "settings_of_the_node",
    "terminal",
    "write_py_files",
]

_log = structlog.get_logger(__name__)

#: Modules that come with the extra, and what their packages are called.
_PACKAGES: Final = {"pyspark": "pyspark", "pandas": "pandas", "pyarrow": "pyarrow", "google.protobuf": "protobuf"}

_STDERR: Final = 2
#: Hadoop also writes one slash where others write three.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

#: Shows how far the run is: before its first batch, and after each.
Show: TypeAlias = Callable[[], None]
#: Gives what shows a run, for as long as the job runs, and configures where log lines go.
Output: TypeAlias = Callable[[Settings, Progress], AbstractContextManager[Show]]


def settings_of(config: Path | None, flags: Mapping[str, object]) -> Settings:
    """Return the settings from all sources.

    Raises:
        Failure: one is wrong.
    """
    # It listens nowhere, so what the environment of a node says about that must not be asked to fit.
    nowhere = {"listen": "127.0.0.1:0"}
    try:
        return load_settings(config, os.environ, nowhere | dict(flags)).settings
    except ConfigError as error:
        raise Failure(str(error), Exit.WRONG_USAGE) from None


def settings_of_the_node(stream: IO[bytes]) -> Settings:
    """Return the settings that a node wrote, and end this process when the node is gone: when the stream ends.

    Whatever the job does then bears repetition, and another one may begin any moment.
    """
    settings = load_settings(flags=json.loads(stream.readline()) | {"log_format": "json"}).settings

    def watch() -> None:
        stream.read()
        os._exit(Exit.FAILED)

    threading.Thread(target=watch, name="watch-the-node", daemon=True).start()
    return settings


def compact_until_stopped(settings: Settings, *, once: bool, output: Output) -> None:
    """Run the job until it is told to stop or, with `once`, has come to the log's end.

    Raises:
        Failure: something is missing, wrong or broken, or, with `once`, a log partition stands still before its end.
    """
    config, progress = _config_of(settings), Progress()
    if config.master is not None:
        # PySpark asks the environment for it, whatever its properties say.
        python = config.spark_properties.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
        os.environ["PYSPARK_PYTHON"] = python
    with output(settings, progress) as show:
        _check_environment()
        _ensure_topic(settings)
        from holdfast.compaction.job import run

        def on_progress(report: BatchReport) -> None:
            _tell(report, progress)
            progress.take(report)
            show()

        with _with_py_files(config) as complete:
            said = LibraryLines(settings.logging.library_lines_per_minute_max)

            def job(stop: threading.Event) -> None:
                topics = topics_of(complete, said)
                progress.offsets_to_fold = topics.offsets_to_fold()
                show()
                run(complete, topics, once=once, on_progress=on_progress, stop=stop)

            _in_thread(job)
    if once and progress.stopped:
        places = (
            f"log partition {each.log_partition} stands still at offset {each.stopped_offset} ({each.stopped_reason})"
            for each in progress.stopped
        )
        raise Failure(f"The job cannot read on: {', '.join(places)}; upgrade it and run it again.")


# ---- what it needs ---------------------------------------------------------------------------------------------------


def _config_of(settings: Settings) -> CompactionConfig:
    compaction, properties = settings.compaction, dict(settings.kafka.properties)
    if not compaction.checkpoint_dir:
        raise Failure("compaction.checkpoint.dir is not set; name a directory for the job's state.", Exit.WRONG_USAGE)
    if not settings.snapshots.topic:
        raise Failure("snapshots.topic is empty; name a topic for the job to write to.", Exit.WRONG_USAGE)
    return CompactionConfig(
        bootstrap_servers=properties.pop("bootstrap.servers"),
        kafka_properties=properties,
        state_topic=settings.log.state_topic,
        snapshot_topic=settings.snapshots.topic,
        group=compaction.group,
        checkpoint_dir=_absolute(compaction.checkpoint_dir),
        history_dir=_absolute(compaction.history_dir),
        # `spark-submit` has started Java already, and told it where to compute.
        master=None if "PYSPARK_GATEWAY_PORT" in os.environ else compaction.master,
        spark_properties=dict(settings.spark.properties),
        state_partitions=compaction.state_partitions,
        offsets_per_trigger_max=compaction.offsets_per_trigger_max,
        trigger_interval_ms=compaction.trigger_interval_ms,
        worker_start_attempts_max=compaction.worker_start_attempts_max,
        admin_timeout_ms=settings.log.admin_timeout_ms,
    )


def _absolute(place: str) -> str:
    return place if not place or _URI.match(place) else str(Path(place).absolute())


def _check_environment() -> None:
    absent = [package for module, package in _PACKAGES.items() if not _is_installed(module)]
    if absent:
        raise Failure(
            f"The snapshot job needs {', '.join(absent)}, not installed here; {how_to_install('spark')}.",
            Exit.REFUSED_TO_START,
        )
    try:
        java("The snapshot job")
    except BrokerError as error:
        raise Failure(str(error), Exit.REFUSED_TO_START) from None


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _ensure_topic(settings: Settings) -> None:
    log, bootstrap = settings.log, settings.kafka.properties["bootstrap.servers"]
    try:
        with KafkaClients(settings.kafka.properties).admin() as admin:
            state, _ = describe_topic(admin, log.state_topic, log.admin_timeout_ms)
            for finding in ensure_snapshot_topic(admin, state, settings.snapshots, log, bootstrap):
                _log.warning("snapshot_topic_weakened", finding=str(finding))
    except TopicMissing as missing:
        raise Failure(f"{missing} A node makes it when it starts; see state_topic.", Exit.NOT_FOUND) from None
    except SnapshotTopicError as unfit:
        raise Failure(str(unfit), Exit.REFUSED_TO_START) from None
    except ConnectionFailed as error:
        raise Failure(f"Kafka cannot be reached: {error}; see kafka.bootstrap.servers.", Exit.UNREACHABLE) from None
    except KafkaException as error:
        raise Failure(f"The Kafka client refused its settings: {error.args[0].str()}.", Exit.WRONG_USAGE) from None


@contextmanager
def _with_py_files(config: CompactionConfig) -> Iterator[CompactionConfig]:
    """Give a config with which Spark's workers on other machines get our code."""
    is_at_hand = config.master is None or config.master.startswith("local")
    if is_at_hand or "spark.submit.pyFiles" in config.spark_properties:
        yield config
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-py-files-") as directory:
        path = Path(directory) / "holdfast.zip"
        write_py_files(path)
        # Executors get it from Spark; the Python that Spark runs beside the driver for a moment, from the environment.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
        yield replace(config, spark_properties={**config.spark_properties, "spark.submit.pyFiles": str(path)})


# ---- running it ------------------------------------------------------------------------------------------------------


def _in_thread(job: Callable[[threading.Event], None]) -> None:
    """Run the job in a thread, so that signals reach us and not Spark, which would end the batch at the first.

    Raises:
        Failure: the job cannot go on.
    """
    stop, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            job(stop)
        except BaseException as failure:
            failures.append(failure)

    def ask_to_stop(number: int, _: object) -> None:
        # The second signal finds the default action restored and ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    earlier = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        thread = threading.Thread(target=work, name="holdfast-compaction")
        thread.start()
        thread.join()
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    for failure in failures:
        if isinstance(failure, (CompactionError, BrokerError, ConfigError)):
            raise Failure(str(failure)) from None
        raise failure


def _tell(report: BatchReport, progress: Progress) -> None:
    """Say what an admin should know of a batch, once."""
    known = {partition.log_partition for partition in progress.stopped}
    for partition in report.partitions:
        if partition.cut_at is not None:
            _log.warning(
                "the log was cut past the job, which begins this log partition afresh",
                log_partition=partition.log_partition,
                offset=partition.cut_at,
            )
        if partition.stopped_reason is not None and partition.log_partition not in known:
            _log.error(
                "a log partition stands still for the job, which cannot read on",
                log_partition=partition.log_partition,
                offset=partition.stopped_offset,
                why=partition.stopped_reason,
            )


# ---- what it shows ---------------------------------------------------------------------------------------------------


@contextmanager
def json_lines(settings: Settings, progress: Progress) -> Iterator[Show]:
    """Print each report as a line of JSON; lines of Spark's go to standard error as they are."""
    configure_logging(settings.logging)
    yield lambda: click.echo(json.dumps(to_json(progress.last))) if progress.last is not None else None


@contextmanager
def lines(settings: Settings, progress: Progress) -> Iterator[Show]:
    """Print a line of text for each batch, after one on standard error about what lies ahead."""
    with _lines_of_spark(settings) as stderr:
        configure_logging(settings.logging, stderr)
        yield lambda: click.echo(line_of(progress), file=stderr if progress.last is None else None)


@contextmanager
def terminal(settings: Settings, progress: Progress) -> Iterator[Show]:
    """Keep a table up to date on the terminal; log lines scroll above it."""
    began_s = monotonic()
    # What it shows is asked for with each refresh: Spark takes its time, and is seen to take it.
    with Live(get_renderable=lambda: view_of(progress, monotonic() - began_s), redirect_stdout=False) as live:
        # `Live` has put a stream in the place of stderr that prints above the table.
        configure_logging(settings.logging.model_copy(update={"log_format": "console"}), sys.stderr)
        with _lines_of_spark(settings):
            yield live.refresh


@contextmanager
def _lines_of_spark(settings: Settings) -> Iterator[IO[str]]:
    """Give standard error, while what Spark's processes write to it comes out as log lines of ours."""
    reader, writer = os.pipe()
    forward = ChildLines(_log)

    def pump() -> None:
        with os.fdopen(reader, errors="replace") as pipe:
            for line in pipe:
                forward(line)

    with os.fdopen(os.dup(_STDERR), "w", buffering=1) as stderr:
        os.dup2(writer, _STDERR)
        os.close(writer)
        # Java keeps its end open until this process is gone, so nobody waits for the last line.
        threading.Thread(target=pump, name="lines-of-spark", daemon=True).start()
        try:
            yield stderr
        finally:
            os.dup2(stderr.fileno(), _STDERR)
            configure_logging(settings.logging)
