"""Fixtures of the ring that runs Java."""

import uuid
from typing import NamedTuple

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from holdfast.records.keys import format_topic_id
from tests.real.shared_kafka import NewTopicFactory, kafka, new_topic, topic

__all__ = ["coordinator", "group_id", "kafka", "new_topic", "share_topic_id", "topic"]

SHARE_TOPIC_PARTITIONS = 40


class Address(NamedTuple):
    """Where a coordinator is asked for."""

    host: str
    port: int


@pytest.fixture(params=["apache-kafka"])
def coordinator(request: pytest.FixtureRequest, kafka: str) -> Address:
    """Give the address of each share coordinator that must answer alike."""
    addresses = {"apache-kafka": lambda: kafka}
    host, port = addresses[request.param]().rsplit(":", 1)
    return Address(host, int(port))


@pytest.fixture
def group_id() -> str:
    """Give the id of a share group that no other test has."""
    return f"group-{uuid.uuid4()}"


@pytest.fixture
def share_topic_id(kafka: str, new_topic: NewTopicFactory) -> str:
    """Create a topic of `SHARE_TOPIC_PARTITIONS` and give its id in Kafka's text form."""
    name = new_topic(partitions=SHARE_TOPIC_PARTITIONS)
    admin = AdminClient({"bootstrap.servers": kafka})
    told = admin.describe_topics(TopicCollection([name]))[name].result(timeout=30).topic_id
    halves = (told.get_most_significant_bits(), told.get_least_significant_bits())
    return format_topic_id(b"".join(half.to_bytes(8, "big", signed=True) for half in halves))
