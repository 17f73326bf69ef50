"""What librdkafka's objects hold, in our own forms."""

from struct import pack
from typing import Any, cast

from confluent_kafka import Message, Uuid

from holdfast.records.header import HEADER_NAME


def header_of(message: Message) -> bytes | None:
    """Return the `hf` header of a message; of several the last one, as Kafka's clients do."""
    headers: Any = message.headers()
    if not headers:
        return None
    return next((cast("bytes | None", value) for name, value in reversed(headers) if name == HEADER_NAME), None)


def topic_id_bytes(topic_id: Uuid) -> bytes:
    """Return the 16 bytes of an id; librdkafka's text form is no help, for it uses another alphabet than Kafka's."""
    halves: Any = topic_id  # the stubs lack its getters
    high, low = halves.get_most_significant_bits(), halves.get_least_significant_bits()
    return pack(">qq", high, low)
