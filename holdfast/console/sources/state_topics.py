"""Which topic of a cluster holds states, found where a command names only brokers, and which does not."""

from contextlib import suppress
from typing import Final

from holdfast.console.options import STATE_TOPIC_DEFAULT
from holdfast.console.outcomes import Exit, Failure
from holdfast.console.show.output import say
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.console.sources.log_reader import LogEntry

#: The topic in which the brokers of Apache Kafka 4.1 and newer keep the state of share groups.
KAFKA_STATE_TOPIC: Final = "__share_group_state"


def find_state_topic(kafka: KafkaReader) -> str:
    """Return the state topic of a cluster whose name is known: Kafka's own where there is one, else that of a Holdfast.

    Raises:
        Failure: no broker answers, the topics may not be described, or there is none of them.
    """
    if not kafka.has_topic(KAFKA_STATE_TOPIC):
        if kafka.has_topic(STATE_TOPIC_DEFAULT):
            return STATE_TOPIC_DEFAULT
        if not kafka.has_share_groups():
            raise Failure(
                "This Kafka is too old for share groups: brokers of Apache Kafka 4.1 and newer have them. It has no state topic of a "
                f"Holdfast either, {STATE_TOPIC_DEFAULT}; name one that is called otherwise.",
                Exit.NOT_FOUND,
            )
        raise Failure(
            f"This cluster has no share groups yet: it has neither {KAFKA_STATE_TOPIC}, which brokers make when a share group is first "
            f"used, nor {STATE_TOPIC_DEFAULT} of a Holdfast; name a state topic that is called otherwise.",
            Exit.NOT_FOUND,
        )
    with suppress(Failure):  # the other one need not be described
        if kafka.has_topic(STATE_TOPIC_DEFAULT):
            say(
                f"{KAFKA_STATE_TOPIC} is read; this Kafka has the state topic of a Holdfast as well, {STATE_TOPIC_DEFAULT}."
            )
    return KAFKA_STATE_TOPIC


def no_state_topic(topic: str, first: LogEntry, step: str = "Name the topic that holds states.") -> Failure:
    """Return the failure for a topic whose first record is none of a coordinator; `step` says what to do."""
    return Failure(
        f"{topic} is no state topic: its record at offset {first.offset} of partition {first.partition} is none of a "
        f"coordinator. {step}",
        Exit.WRONG_USAGE,
    )
