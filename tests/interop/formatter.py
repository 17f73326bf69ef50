"""Apache Kafka's own console consumer and formatter as readers of a state topic."""

import json
import subprocess
from pathlib import Path
from typing import Any

from holdfast.broker import classpath, java

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"


def format_state_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    max_messages: int | None = None,
    idle_timeout_ms: int = 3_000,
    timeout_s: float = 120.0,
) -> list[dict[str, Any]]:
    """Return what Kafka's formatter makes of all records of a topic, those of one partition in order.

    Args:
        bootstrap_servers: of the cluster that holds the topic.
        topic: a state topic, ours (with Kafka's codec) or a broker's own.
        max_messages: stop after so many; without it, when nothing has come for `idle_timeout_ms`.
        idle_timeout_ms: must be long enough to join a consumer group.
        timeout_s: bound of the whole reading.

    Returns:
        for each record that the formatter knows, `{"key": {"type", "data"}, "value": {"version", "data"} or None}`;
        records of other key types are left out.

    Raises:
        RuntimeError: the consumer failed; the text holds its complaint.
    """
    command = [
        *(java(), "-cp", classpath(), "-XX:TieredStopAtLevel=1"),
        f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}",
        *(CONSUMER, "--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--formatter", FORMATTER, "--timeout-ms", str(idle_timeout_ms)),
        *(("--max-messages", str(max_messages)) if max_messages is not None else ()),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
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
