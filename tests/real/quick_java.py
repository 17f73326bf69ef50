"""What makes JVMs of tests start sooner: `python -m tests.real.quick_java` keeps the classes of a broker and of Spark as in memory.

Half of what a broker or a job costs until it works is to read, check and link the same classes, 7,000 and 14,000. `make test` lets it be
done once, while the compiler is busy; whoever runs a test alone does without, and sees no difference but the time.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import FAST_START, EmbeddedKafka
from holdfast.compaction.spark.home import use_home_without_zips
from tests.real.job import quick_spark
from tests.waiting import PATIENCE_S

#: Of this Java and these jars; a JVM that has others goes on without it.
CLASSES: Final = Path(__file__).parents[2] / "build" / "kafka-classes.jsa"
#: Options of the JVM of a broker or of one of Kafka's tools.
QUICK_KAFKA: Final = (*FAST_START, *([f"-XX:SharedArchiveFile={CLASSES}"] if CLASSES.exists() else []))

#: How many moves each of two logs has that Spark folds.
_MOVES: Final = 60


def main() -> int:
    """Let a broker serve a job, and both JVMs write down the classes that they have in the end; returns the exit code."""
    written = CLASSES.with_suffix(".new")
    written.parent.mkdir(exist_ok=True)
    written.unlink(missing_ok=True)
    kafka = EmbeddedKafka(jvm_options=[*FAST_START, f"-XX:ArchiveClassesAtExit={written}"], stop_timeout_s=PATIENCE_S)
    with kafka, TemporaryDirectory(prefix="holdfast-") as directory:
        _write_classes_of_spark(kafka.bootstrap_servers, Path(directory))
        kafka.stop()
    written.rename(CLASSES)
    return 0


def _write_classes_of_spark(bootstrap_servers: str, directory: Path) -> None:
    """Let a job fold two logs, and its JVM write down its classes."""
    use_home_without_zips(quick_spark.HOME)
    # It imports Spark, which finds its home then.
    from tests.real.job.folded_logs import FoldedLogs

    topics = [NewTopic("logs", 2, 1), NewTopic("snapshots", 2, 1, config={"cleanup.policy": "compact"})]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE_S)
    logs = FoldedLogs(bootstrap_servers, "logs", "snapshots", directory, 2)
    logs.grow(_MOVES)
    written = quick_spark.CLASSES.with_suffix(".new")
    written.unlink(missing_ok=True)
    java = {
        "spark.driver.extraJavaOptions": f"{quick_spark.QUICK_JAVA} -Xlog:disable -XX:ArchiveClassesAtExit={written}"
    }
    assert logs.fold(replace(logs.config, spark_properties={**quick_spark.QUICK, **java}))
    quick_spark.end_java(PATIENCE_S)
    written.rename(quick_spark.CLASSES)


if __name__ == "__main__":
    sys.exit(main())
