"""Topics by their names, for people; the log has their ids."""

from time import monotonic
from typing import Final

from holdfast.console.outcomes import Failure
from holdfast.console.sources.kafka_reader import KafkaReader
from holdfast.records.share.keys import SharePartitionKey, format_key

#: How often at most names are requested again, for ids that Kafka did not know: of topics created since, or deleted.
_REFRESH_EVERY_S: Final = 5.0


class TopicNameCache:
    """Names of topics as Kafka has them now, requested when the first is shown."""

    def __init__(self, kafka: KafkaReader | None) -> None:
        """Choose the cluster.

        Args:
            kafka: the cluster; None: topics are shown by their ids.
        """
        self._kafka = kafka
        self._names: dict[bytes, str] = {}
        self._refreshed_s: float | None = None

    def shown(self, key: SharePartitionKey) -> str:
        """Return a share partition as `group:topic:partition`, its topic by its name where Kafka knows it, else by its id."""
        if key.topic_id not in self._names:
            self._refresh()
        name = self._names.get(key.topic_id)
        return format_key(key) if name is None else f"{key.group_id}:{name}:{key.partition}"

    def _refresh(self) -> None:
        if self._kafka is None or (
            self._refreshed_s is not None and monotonic() - self._refreshed_s < _REFRESH_EVERY_S
        ):
            return
        self._refreshed_s = monotonic()
        try:
            self._names |= self._kafka.topic_names()
        except Failure:
            # Ids do for names, and a command that goes on reading fails by itself if Kafka is away.
            return
