"""What librdkafka's messages hold, for those who read a topic through it."""

from typing import Any, cast

from confluent_kafka import Message

from holdfast.records.header import HEADER_NAME


def header_of(message: Message) -> bytes | None:
    """Return the `hf` header of a message; of several the last one, as Kafka's clients do."""
    headers: Any = message.headers()
    if not headers:
        return None
    return next((cast("bytes | None", value) for name, value in reversed(headers) if name == HEADER_NAME), None)
