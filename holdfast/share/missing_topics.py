"""Topics that a cluster does not know any more: gone when every refresh has said so for the time of grace.

An unclear answer is no evidence, and neither is one of another cluster: either ends an absence.
A refresh that did not request a topic says nothing about it.

Pure: time comes with the refreshes and as an argument.
"""

from collections.abc import Container, Set

from holdfast.daemon.topics.metadata_cache import Refresh


class MissingTopics:
    """The absence of topics: since when every refresh has said that one cluster does not know them.

    Args:
        cluster_id: of the only cluster whose answers count.
        grace_ms: for how long a topic is missing until it is gone.
    """

    def __init__(self, cluster_id: str, grace_ms: int) -> None:
        self._cluster_id = cluster_id
        self._grace_ms = grace_ms
        #: By id, since when every refresh that requested it was answered UNKNOWN_TOPIC_ID.
        self._since_ms: dict[bytes, int] = {}

    @property
    def topic_ids(self) -> Set[bytes]:
        """Return the topics that are missing, also those that are not gone yet."""
        return self._since_ms.keys()

    def observe(self, refresh: Refresh, watched: Set[bytes]) -> bool:
        """Observe one refresh; return whether it is of this cluster, because one of another says nothing about it.

        Args:
            refresh: one that says anything else of a topic, or comes from another cluster, ends its absence.
            watched: the topics whose absence may begin.
        """
        if refresh.cluster_id != self._cluster_id:
            self._since_ms.clear()
            return False
        for topic_id in refresh.existing_ids | refresh.unclear_ids:
            self._since_ms.pop(topic_id, None)
        for topic_id in refresh.unknown_ids & watched:
            self._since_ms.setdefault(topic_id, refresh.at_ms)
        return True

    def is_gone(self, topic_id: bytes, now_ms: int) -> bool:
        """Tell whether a topic has been missing for the time of grace; `now_ms` is on the clock of `Refresh.at_ms`."""
        since_ms = self._since_ms.get(topic_id)
        return since_ms is not None and now_ms - since_ms >= self._grace_ms

    def keep_only(self, topic_ids: Container[bytes]) -> None:
        """Forget the absence of all other topics."""
        for topic_id in [each for each in self._since_ms if each not in topic_ids]:
            del self._since_ms[topic_id]
