"""What makes the JVMs of tests start sooner: `python -m tests.real.quick_java` keeps the classes of a broker as they are in memory.

Half of what a broker costs until it answers is to read, check and link the same 7,000 classes. `make test` lets it be done once, while the
compiler is busy; whoever runs a test alone does without, and sees no difference but the time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.broker import FAST_START, EmbeddedKafka
from tests.waiting import PATIENCE_S

#: Of this Java and these jars; a JVM that has others goes on without it.
CLASSES: Final = Path(__file__).parents[2] / "build" / "kafka-classes.jsa"
#: Options of the JVM of a broker or of one of Kafka's tools.
QUICK_KAFKA: Final = (*FAST_START, *([f"-XX:SharedArchiveFile={CLASSES}"] if CLASSES.exists() else []))


def main() -> int:
    """Let a broker serve a topic, and its JVM write down the classes that it has in the end; returns the exit code."""
    written = CLASSES.with_suffix(".new")
    written.parent.mkdir(exist_ok=True)
    written.unlink(missing_ok=True)
    kafka = EmbeddedKafka(jvm_options=[*FAST_START, f"-XX:ArchiveClassesAtExit={written}"], stop_timeout_s=PATIENCE_S)
    with kafka:
        client: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("any", 1, 1)])["any"].result(PATIENCE_S)
        producer = Producer({**client, "enable.idempotence": True})
        producer.produce("any", b"value")
        assert producer.flush(PATIENCE_S) == 0
        kafka.stop()
    written.rename(CLASSES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
