"""Topics by their names, for people; the log has their ids."""

from time import monotonic
from typing import Final

from holdfast.console.outcomes import Failure
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.records.keys import SharePartitionKey, format_key

#: How often at most Kafka is asked again, for ids that it did not know: of topics that were made since, or are deleted.
_ASK_EVERY_S: Final = 5.0


class TopicNameCache:
    """Names of topics as Kafka has them now, asked for with the first that is shown."""

    def __init__(self, kafka: KafkaReader | None) -> None:
        """Ask nothing yet.

        Args:
            kafka: whom to ask; without it topics are shown by their ids.
        """
        self._kafka = kafka
        self._names: dict[bytes, str] = {}
        self._asked_s: float | None = None

    def shown(self, key: SharePartitionKey) -> str:
        """Return a share partition as `group:topic:partition`, its topic by its name where Kafka knows it, else by its id."""
        if key.topic_id not in self._names:
            self._ask()
        name = self._names.get(key.topic_id)
        return format_key(key) if name is None else f"{key.group_id}:{name}:{key.partition}"

    def _ask(self) -> None:
        if self._kafka is None or (self._asked_s is not None and monotonic() - self._asked_s < _ASK_EVERY_S):
            return
        self._asked_s = monotonic()
        try:
            self._names |= self._kafka.topic_names()
        except Failure:
            # A name is a help, and what is shown is told by the log; whoever reads on from there says that Kafka is away.
            return
