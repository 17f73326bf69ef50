"""The config topic as commands change it: made when it is missing, checked, and written.

All functions block while Kafka answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from holdfast.daemon.config_topic.values import PARTITION
from holdfast.daemon.topics.state_topic import (
    TopicMissing,
    command_to_alter,
    describe_topic,
    until_known,
    why_not_created,
)
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.librdkafka import IN_ORDER, KafkaClients, Record, create_topic, find_topic, who, write_in_order
from holdfast.kafka.librdkafka_types import NewTopic
from holdfast.kafka.protocol.denials import acl_remedy

#: Lets the cluster decide how many copies there are.
_CLUSTERS_DEFAULT: Final = -1


class ConfigTopicError(Exception):
    """The config topic cannot be used; the text says why and what mends it."""


def ensure_config_topic(clients: KafkaClients, name: str, state_topic: str, timeout_ms: int) -> None:
    """Make the config topic if it is missing, with as many copies as the state topic has, and check it.

    Raises:
        ConfigTopicError: it cannot be made, or what is written to it would be lost.
        ConnectionFailed: no broker would describe it.
        KafkaException: a property of the client is wrong.
    """
    with clients.admin() as admin:
        try:
            _check(admin, name, timeout_ms)
            return
        except TopicMissing:
            _make(admin, name, _copies_of(admin, state_topic, timeout_ms), timeout_ms)
        try:
            until_known(timeout_ms, _check, admin, name, timeout_ms)
        except TopicMissing:
            raise ConfigTopicError(
                f"The config topic {name} was made, but no broker knows it yet; try again."
            ) from None


def write_values(clients: KafkaClients, topic: str, values: Mapping[str, str | None], timeout_ms: int) -> None:
    """Write values by the names of their settings, None to unset one, in order.

    Raises:
        ConfigTopicError: Kafka did not take all of them in time; those before may hold.
        KafkaException: a property of the client is wrong.
    """
    producer = clients.producer({**IN_ORDER, "message.timeout.ms": timeout_ms})
    records = [
        Record(topic, PARTITION, name.encode(), None if text is None else text.encode())
        for name, text in values.items()
    ]
    if error := write_in_order(producer, records, timeout_ms):
        remedy = acl_remedy(error.code(), "Write", f"topic {topic}", clients.principal)
        raise ConfigTopicError(f"The config topic {topic} was not written whole: {error.str()}{remedy}.")


def _check(admin: AdminClient, name: str, timeout_ms: int) -> None:
    topic, config = describe_topic(admin, name, timeout_ms)
    if topic.partition_count != 1:
        raise ConfigTopicError(
            f"The topic {name} has {topic.partition_count} partitions, and settings have an order in one alone; "
            "name another with --config-topic and config.topic."
        )
    if config["cleanup.policy"] != "compact":
        command = command_to_alter("HOST:PORT", name, "cleanup.policy", "compact")
        raise ConfigTopicError(
            f"The topic {name} has cleanup.policy={config['cleanup.policy']}: settings would go by age; mend it with: {command}"
        )


def _copies_of(admin: AdminClient, state_topic: str, timeout_ms: int) -> int:
    try:
        found = find_topic(admin, state_topic, timeout_ms)
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        remedy = acl_remedy(cause.code(), "Describe", f"topic {state_topic}", who(admin))
        raise ConnectionFailed(f"the topic {state_topic} cannot be described: {cause.str()}{remedy}") from None
    return _CLUSTERS_DEFAULT if found is None else found.replication_factor


def _make(admin: AdminClient, name: str, replication_factor: int, timeout_ms: int) -> None:
    topic = NewTopic(
        name, num_partitions=1, replication_factor=replication_factor, config={"cleanup.policy": "compact"}
    )
    refusal = create_topic(admin, topic, timeout_ms)
    if refusal is not None:
        raise ConfigTopicError(
            f"The config topic {name} cannot be made: {why_not_created(refusal, topic, who(admin))}."
        )
