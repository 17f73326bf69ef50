"""The compaction job in this process, from its settings to its end; `job_output` is what it shows meanwhile."""

import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

import structlog
from confluent_kafka import KafkaException

from holdfast.compaction.config import CompactionConfig
from holdfast.compaction.errors import CompactionError
from holdfast.compaction.group import topics_of
from holdfast.compaction.machine import find_obstacles
from holdfast.compaction.progress import RunProgress
from holdfast.compaction.report import BatchReport
from holdfast.compaction.spark.py_files import write_py_files
from holdfast.compaction.topics import Topics
from holdfast.console.job_output import Output, Show
from holdfast.console.outcomes import Exit, Failure, exit_unanswered, wrong_settings
from holdfast.console.sources.brokers_or_nodes import find_denied_login
from holdfast.daemon.settings.by_name import configure
from holdfast.daemon.settings.file_env_flags import ConfigError
from holdfast.daemon.settings.logging import warn_of_library
from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.snapshot_topic import SnapshotTopicError, ensure_snapshot_topic
from holdfast.daemon.topics.state_topic import TopicMissing, describe_topic
from holdfast.distribution import how_to_install
from holdfast.jars.errors import JarsUnavailable
from holdfast.jars.java import find_spark_java
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.librdkafka import KafkaClients
from holdfast.metrics.line_limit import LineLimiter
from holdfast.node_settings import load_settings

__all__ = ["compact_until_stopped", "settings_of", "settings_of_the_node", "write_py_files"]

_log = structlog.get_logger(__name__)

#: Modules that come with the extra, and what their packages are called.
_PACKAGES: Final = {"pyspark": "pyspark", "pandas": "pandas", "pyarrow": "pyarrow", "google.protobuf": "protobuf"}

#: Hadoop also writes one slash where others write three.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def settings_of(config: Path | None, flags: Mapping[str, object]) -> Settings:
    """Return the settings from all sources.

    Raises:
        Failure: one is wrong.
    """
    # The job listens nowhere, so the address in the environment of a node need not be one of this machine's.
    nowhere = {"listen": "127.0.0.1:0", "http.listen": ""}
    try:
        return load_settings(config, os.environ, nowhere | dict(flags)).settings
    except ConfigError as error:
        raise wrong_settings(error.problems) from None


def settings_of_the_node(stream: IO[bytes]) -> Settings:
    """Return the settings that a node wrote, and end this process when the stream ends, because then the node is gone.

    The job may end in any step: each can be repeated, and another job may begin at once.
    """
    flags = json.loads(stream.readline()) | {"log_format": "json"}
    settings = load_settings(flags=flags).settings

    def watch() -> None:
        stream.read()
        os._exit(Exit.FAILED)

    threading.Thread(target=watch, name="watch-the-node", daemon=True).start()
    return settings


def compact_until_stopped(settings: Settings, *, once: bool, output: Output) -> None:
    """Run the job until a signal stops it or, with `once`, it has reached the log's end.

    Raises:
        Failure: something is missing, wrong or broken, or, with `once`, the fold of a log partition has stopped before its end.
    """
    config, progress = _config_of(settings), RunProgress()
    _choose_python(config)
    with output(settings, progress) as show:
        _check_environment(config)
        if refused := _find_refused_login(settings):
            raise refused
        _ensure_topic(settings)
        with _with_py_files(config) as complete:
            say = partial(warn_of_library, LineLimiter())
            try:
                _run_in_thread(
                    lambda stop: _run(complete, topics_of(complete, say), progress, show, once=once, stop=stop)
                )
            except Failure as failure:
                # A login that is refused from some moment on is a topic that cannot be described, or a failure of Spark's.
                raise _find_refused_login(settings, failure.message) or failure from None
    if once and progress.stopped:
        places = (
            f"log partition {each.log_partition} is stopped at offset {each.stopped_offset} ({each.stopped_reason})"
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
    return configure(
        CompactionConfig,
        settings.compaction,
        settings.log,
        bootstrap_servers=properties.pop("bootstrap.servers"),
        kafka_properties=properties,
        snapshot_topic=settings.snapshots.topic,
        checkpoint_dir=_absolute(compaction.checkpoint_dir),
        history_dir=_absolute(compaction.history_dir),
        # `spark-submit` has started Java already, with the master.
        master=None if "PYSPARK_GATEWAY_PORT" in os.environ else compaction.master,
        spark_properties=dict(settings.spark.properties),
    )


def _choose_python(config: CompactionConfig) -> None:
    """Choose the Python of Spark's workers; PySpark takes it from the environment and ignores its own properties."""
    if config.master is not None:
        python = config.spark_properties.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
        os.environ["PYSPARK_PYTHON"] = python


def _absolute(place: str) -> str:
    return place if not place or _URI.match(place) else str(Path(place).absolute())


def _check_environment(config: CompactionConfig) -> None:
    absent = [package for module, package in _PACKAGES.items() if not _is_installed(module)]
    if absent:
        raise Failure(
            f"The compaction job needs {', '.join(absent)}, not installed here; {how_to_install('spark')}.",
            Exit.REFUSED_TO_START,
        )
    if config.master is None:  # `spark-submit` has found its Java, and it runs
        return
    try:
        find_spark_java()
    except JarsUnavailable as error:
        raise Failure(str(error), Exit.REFUSED_TO_START) from None
    for what, remedy in find_obstacles(config.spark_properties, is_local=config.is_local):
        raise Failure(f"{what}; {remedy}.", Exit.REFUSED_TO_START)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _find_refused_login(settings: Settings, *more_lines: str) -> Failure | None:
    """Return the failure of a login that the brokers refuse, None where they do not; the clients of librdkafka and Java wait and guess."""
    denied = find_denied_login(settings.kafka.properties)
    if denied is None:
        return None
    return Failure(
        f"Kafka refuses the login: {denied}; see the settings that begin with kafka.sasl.", Exit.DENIED, more_lines
    )


def _ensure_topic(settings: Settings) -> None:
    log, bootstrap = settings.log, settings.kafka.properties["bootstrap.servers"]
    try:
        with KafkaClients(settings.kafka.properties).admin() as admin:
            state, _ = describe_topic(admin, log.state_topic, log.request_timeout_ms)
            for finding in ensure_snapshot_topic(admin, state, settings.snapshots, log, bootstrap):
                _log.warning("snapshot_topic_weakened", finding=str(finding))
    except TopicMissing as missing:
        raise Failure(f"{missing} A node makes it when it starts; see state_topic.", Exit.NOT_FOUND) from None
    except SnapshotTopicError as unfit:
        raise Failure(str(unfit), Exit.REFUSED_TO_START) from None
    except ConnectionFailed as error:
        text = f"Kafka cannot be reached: {error}; see kafka.bootstrap.servers."
        raise Failure(text, exit_unanswered(error)) from None
    except KafkaException as error:
        raise Failure(f"The Kafka client refused its settings: {error.args[0].str()}.", Exit.WRONG_USAGE) from None


@contextmanager
def _with_py_files(config: CompactionConfig) -> Iterator[CompactionConfig]:
    """Give a config by which Spark's workers on other machines get our code."""
    is_here = config.master is None or config.is_local
    if is_here or "spark.submit.pyFiles" in config.spark_properties:
        yield config
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-py-files-") as directory:
        path = Path(directory) / "holdfast.zip"
        write_py_files(path)
        # Executors get it from Spark; the Python that Spark runs beside the driver for a moment, from the environment.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
        yield replace(config, spark_properties={**config.spark_properties, "spark.submit.pyFiles": str(path)})


# ---- running it ------------------------------------------------------------------------------------------------------


def _run(
    config: CompactionConfig,
    topics: Topics,
    progress: RunProgress,
    show: Show,
    *,
    once: bool,
    stop: threading.Event,
) -> None:
    """Run the job in this thread, and show how it gets on."""
    from holdfast.compaction.job import run  # it needs PySpark, which may be missing until it was looked for

    def on_progress(report: BatchReport) -> None:
        _log_events(report, progress)
        progress.take(report)
        show()

    progress.offsets_to_fold = topics.offsets_to_fold()
    show()
    run(config, topics, once=once, on_progress=on_progress, stop=stop)


def _run_in_thread(job: Callable[[threading.Event], None]) -> None:
    """Run the job in a thread, so that signals reach this one and not Spark, which would end the batch at the first.

    Raises:
        Failure: the job cannot go on.
    """
    stop, failures = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            job(stop)
        except BaseException as failure:
            failures.append(failure)

    def request_stop(number: int, _: object) -> None:
        # The second signal finds the default action restored and ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    earlier = {number: signal.signal(number, request_stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        thread = threading.Thread(target=work, name="holdfast-compaction")
        thread.start()
        thread.join()
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    for failure in failures:
        if isinstance(failure, (CompactionError, JarsUnavailable, PropertyRefused)):
            raise Failure(str(failure)) from None
        raise failure


def _log_events(report: BatchReport, progress: RunProgress) -> None:
    """Log what a batch has found of log partitions: cut past the job, or stopped since the batch before."""
    known = {partition.log_partition for partition in progress.stopped}
    for partition in report.partitions:
        if partition.cut_at is not None:
            _log.warning("fold_restarted", log_partition=partition.log_partition, offset=partition.cut_at)
        if partition.stopped_reason is not None and partition.log_partition not in known:
            _log.error(
                "fold_stopped",
                log_partition=partition.log_partition,
                offset=partition.stopped_offset,
                why=partition.stopped_reason,
            )
