"""Apache Kafka's own console consumer and formatter as readers of a state topic."""

import json
import subprocess
from pathlib import Path
from typing import Any

from holdfast.broker import find_java, kafka_classpath
from holdfast.console.sources.kafka_reader import KafkaReader
from tests.real.quick_java import QUICK_KAFKA
from tests.waiting import PATIENCE_MS, PATIENCE_S

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"


def format_state_topic(bootstrap_servers: str, topic: str) -> list[dict[str, Any]]:
    """Return what Kafka's formatter makes of all records of a topic, those of one partition in order.

    Args:
        bootstrap_servers: of the cluster that holds the topic.
        topic: a state topic, ours (with Kafka's codec) or a broker's own.

    Returns:
        for each record that the formatter knows, `{"key": {"type", "data"}, "value": {"version", "data"} or None}`;
        records of other key types are left out.

    Raises:
        RuntimeError: the consumer failed; the text holds its complaint.
    """
    while True:
        count = record_count(bootstrap_servers, topic)
        shown = _shown(bootstrap_servers, topic, count)
        # It reads so many records of whatever partitions, so they are all only if none came meanwhile.
        if record_count(bootstrap_servers, topic) == count:
            return shown


def record_count(bootstrap_servers: str, topic: str) -> int:
    """Return how many records a topic of plain records holds."""
    with KafkaReader({"bootstrap.servers": bootstrap_servers}) as reader:
        bounds = [reader.bounds(topic, partition) for partition in reader.partitions(topic)]
    return sum(each.end - each.start for each in bounds)


def _shown(bootstrap_servers: str, topic: str, count: int) -> list[dict[str, Any]]:
    command = [
        *(find_java(), "-cp", kafka_classpath(), *QUICK_KAFKA),
        f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}",
        *(CONSUMER, "--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--formatter", FORMATTER, "--timeout-ms", str(PATIENCE_MS), "--max-messages", str(count)),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    # The consumer ends with status 0 whatever happens; only its last line tells a full reading from a broken one.
    if "Processed a total of" not in shown.stderr:
        raise RuntimeError(f"Kafka's console consumer failed: {shown.stderr[-4000:]}")
    return split_objects(shown.stdout)


def split_objects(text: str) -> list[dict[str, Any]]:
    """Split JSON objects that follow each other without a separator."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    position = 0
    while position < len(text.rstrip()):
        value, position = decoder.raw_decode(text, position)
        found.append(value)
    return found
