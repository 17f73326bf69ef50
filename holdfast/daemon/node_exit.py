"""How a node ends."""

from enum import IntEnum
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException


class NodeExit(IntEnum):
    """How a node ends; `console.outcomes.Exit` has the same codes for all commands."""

    #: A stop was requested, and every step of it succeeded.
    STOPPED = 0
    #: A stop was requested, and a step of it failed or did not end in time.
    FAILED_TO_STOP = 1
    #: A setting is wrong: a property of the Kafka client, a node id that another node has, or another membership than those who serve.
    WRONG_USAGE = 2
    #: The state topic or the cluster cannot be used; the log line above says what repairs it.
    REFUSED = 3
    #: Another node took over what this one owned, or serves it and was not to be replaced.
    SUPERSEDED = 4


class Refused(Protocol):
    """What a part of a node calls when the node must not serve, and so ends."""

    def __call__(self, why: str, *, is_setting_wrong: bool) -> None:
        """End the node: `WRONG_USAGE` where a setting is wrong, else `SUPERSEDED`."""


def explain(refusal: Exception) -> str:
    """Return why a node could not start, for people."""
    if isinstance(refusal, KafkaException):
        error: KafkaError = refusal.args[0]
        return f"the Kafka client refused its settings or its work: {error.str()}"
    return str(refusal)
