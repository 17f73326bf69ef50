"""The Kafka cluster under both contenders: its own coordinator is one of them, its log carries the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.client import Address, BenchmarkError, wait_until
from benchmarks.share_state import TOPIC_PARTITIONS
from holdfast.broker import EmbeddedKafka

#: What Kafka's own start script gives its JVM (heap apart, where three brokers share the machine).
JVM_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
HEAP_MIB: Final = {1: 1024, 3: 512}
TOPIC: Final = "holdfast-benchmark"

_ADMIN_TIMEOUT_S: Final = 30.0


@contextmanager
def running_kafka(brokers: int, log_settings: Path | None = None) -> Iterator[EmbeddedKafka]:
    """Run a cluster with Kafka's defaults for as long as the context lasts.

    Args:
        brokers: 1 or 3.
        log_settings: a log4j file in place of the embedded broker's own.
    """
    options = list(JVM_OPTIONS)
    if log_settings:
        options.append(f"-Dlog4j2.configurationFile={log_settings}")
    with EmbeddedKafka(brokers=brokers, jvm_options=options, heap_mib=HEAP_MIB[brokers]) as kafka:
        yield kafka


def first_address(kafka: EmbeddedKafka) -> Address:
    """Return where one of the brokers listens."""
    host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
    return Address(host, int(port))


def broker_pids(kafka: EmbeddedKafka) -> list[int]:
    """Return the process ids of the brokers that run."""
    return [pid for node in kafka.nodes if (pid := node.pid())]


def create_topic(kafka: EmbeddedKafka) -> bytes:
    """Create the topic whose share partitions are under load and return its id (16 bytes)."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3})
    replicas = len(kafka.nodes)
    admin.create_topics([NewTopic(TOPIC, num_partitions=TOPIC_PARTITIONS, replication_factor=replicas)])[TOPIC].result(
        timeout=_ADMIN_TIMEOUT_S
    )
    return wait_until("The first sight of the topic", partial(_topic_id_if_known, kafka, TOPIC))


def _topic_id_if_known(kafka: EmbeddedKafka, topic: str) -> bytes | None:
    """Return the id of a topic, or None while the broker that is asked has not heard of it."""
    try:
        return topic_id_of(kafka, topic)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def topic_id_of(kafka: EmbeddedKafka, topic: str) -> bytes:
    """Return the id (16 bytes) of a topic.

    Raises:
        BenchmarkError: it has none.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(timeout=_ADMIN_TIMEOUT_S)
    if described.topic_id is None:
        raise BenchmarkError(f"The topic {topic} has no id.")
    halves = described.topic_id.get_most_significant_bits(), described.topic_id.get_least_significant_bits()
    return b"".join((half % (1 << 64)).to_bytes(8, "big") for half in halves)


def leaders_of(kafka: EmbeddedKafka, topic: str) -> dict[int, int]:
    """Return the broker that leads each partition of a topic, as soon as each has a leader."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3})

    def find() -> dict[int, int] | None:
        described = admin.list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic]
        leaders = {partition: metadata.leader for partition, metadata in described.partitions.items()}
        return leaders if leaders and min(leaders.values()) >= 0 else None

    return wait_until(f"The leaders of {topic}", find)
