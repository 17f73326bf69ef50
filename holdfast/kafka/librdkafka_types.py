"""Types of librdkafka's Python client that its stubs do not export; the one place that imports them from where they are.

`tests/pure/kafka/test_borrowed.py` says what of them must stay as it is.
"""

from collections.abc import Callable
from struct import pack
from typing import Any, Final

from confluent_kafka import Uuid
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import EarliestSpec, LatestSpec, OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic

__all__ = [
    "ConfigResource",
    "NewTopic",
    "OffsetSpec",
    "ResourceType",
    "TopicDescription",
    "earliest_offset",
    "latest_offset",
    "topic_id_bytes",
]


# Their constructors have no types.
earliest_offset: Final[Callable[[], OffsetSpec]] = EarliestSpec
latest_offset: Final[Callable[[], OffsetSpec]] = LatestSpec


def topic_id_bytes(topic_id: Uuid) -> bytes:
    """Return the 16 bytes of an id; librdkafka's text form is no help, for it uses another alphabet than Kafka's."""
    halves: Any = topic_id  # the stubs lack its getters
    high, low = halves.get_most_significant_bits(), halves.get_least_significant_bits()
    return pack(">qq", high, low)
