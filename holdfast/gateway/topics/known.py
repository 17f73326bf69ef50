"""The topics that are offered and known, by name and by id.

A topic that is known stays so until all brokers say that it is gone, or that its name belongs to another one: a broker that is cut off
answers with the past.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from holdfast.daemon.server.topics_view import ShownTopic
from holdfast.gateway.topics.patterns import Offer
from holdfast.kafka.metadata import RESERVED_IDS, TopicSummary


class KnownTopics:
    """The topics of an offer, as brokers describe them."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self.by_name: dict[str, ShownTopic] = {}
        self.by_id: dict[bytes, ShownTopic] = {}
        #: Known topics of which one broker said that they are gone, or others.
        self._doubted: dict[str, bytes] = {}
        self._changed: set[str] = set()
        self._listeners: list[Callable[[Collection[str]], None]] = []

    def on_change(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call a listener with the names of topics that came, went, were made again, or got more partitions."""
        self._listeners.append(listener)

    def tell_changes(self) -> None:
        """Call those who listen, if there is something to tell."""
        changed, self._changed = self._changed, set()
        if changed:
            for listener in self._listeners:
                listener(changed)

    def learn(self, topic: TopicSummary) -> bool:
        """Learn what one broker says of a topic; returns whether that is one to offer."""
        name, topic_id, partition_count, is_internal, error_code = topic
        if error_code or is_internal or topic_id in RESERVED_IDS or not self._offer.has(name):
            return False
        known = self.by_name.get(name)
        if known is not None and known.topic_id != topic_id:
            self._doubted[name] = known.topic_id
        elif known is None or known.partition_count < partition_count:  # partitions are never taken away
            self._keep(ShownTopic(name, topic_id, partition_count))
        return True

    def doubt_all_but(self, found: Collection[str]) -> None:
        """Doubt what one broker did not name when it was asked for all."""
        self._doubted |= {name: topic.topic_id for name, topic in self.by_name.items() if name not in found}

    def take_doubted(self) -> Mapping[str, bytes]:
        """Return the ids that names had about which all brokers must be asked, each once."""
        doubted, self._doubted = self._doubted, {}
        return doubted

    def learn_certain(self, topic: TopicSummary, name: str, id_before: bytes) -> None:
        """Learn what all brokers say of a name that was doubted."""
        if topic.is_missing or (not topic.error_code and topic.topic_id != id_before):
            del self.by_id[self.by_name.pop(name).topic_id]
            self._changed.add(name)
            self.learn(topic)

    def _keep(self, topic: ShownTopic) -> None:
        assert topic.name is not None
        self.by_name[topic.name] = self.by_id[topic.topic_id] = topic
        self._changed.add(topic.name)
