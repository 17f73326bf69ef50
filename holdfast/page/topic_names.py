"""The names of topics by their ids: an id has one name for ever, which brokers that are silent do not change; pure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.kafka.topics.topic_ends import NO_SUCH_ID, TopicEnds


class TopicNames:
    """Names as they were last known."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def take(self, found: Mapping[bytes, TopicEnds]) -> None:
        """Take what brokers said of some topics."""
        for topic_id, (name, partitions) in found.items():
            if name is not None:
                self._names[topic_id] = name
            elif any(each.problem == NO_SUCH_ID for each in partitions.values()):
                self._names.pop(topic_id, None)

    def find(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None: it is not known, or the topic was deleted."""
        return self._names.get(topic_id)
