"""A topic as librdkafka's admin client describes it, in our own form."""

from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from holdfast.kafka.librdkafka_types import TopicDescription, topic_id_bytes


class DescribedTopic(NamedTuple):
    """Id and size of a topic."""

    topic_id: bytes
    partition_count: int
    #: The lowest of all partitions.
    replication_factor: int


def find_topic(admin: AdminClient, name: str, timeout_ms: int) -> DescribedTopic | None:
    """Return a topic by its name, None when there is none.

    Raises:
        KafkaException: no broker describes it, which says nothing about it.
    """
    try:
        # The future has no name here: it holds its exception, whose traceback holds this frame, which would hold the future. The
        # client would live on until that circle is collected, and with it what librdkafka says in an outage.
        found: TopicDescription = admin.describe_topics(TopicCollection([name]), request_timeout=timeout_ms / 1_000)[
            name
        ].result()
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return DescribedTopic(
        topic_id_bytes(found.topic_id),
        len(found.partitions),
        min((len(partition.replicas) for partition in found.partitions), default=0),
    )
