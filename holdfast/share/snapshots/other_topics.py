"""Other state topics, of which the snapshot topic has messages: their snapshots are dead only when they are gone beyond doubt.

They may be what a recreated topic left, or those of another log that shares the snapshot topic, which is not meant to be.
"""

from collections.abc import Callable
from typing import Final

from holdfast.daemon.topics.metadata_cache import Refresh
from holdfast.daemon.topics.metadata_image import MetadataImage
from holdfast.share.missing_topics import MissingTopics

#: State topics that are queried; the snapshots of more stay.
_TOPICS_MAX: Final = 1_000


class OtherTopics:
    """The knowledge of the cluster about other state topics (`TopicUser`)."""

    def __init__(self, cluster_id: str, grace_ms: int, note_shared: Callable[[bytes], None]) -> None:
        """Create a user of topics that knows no other state topic yet.

        Args:
            cluster_id: of the cluster that holds the log, the only one whose answers count.
            grace_ms: for how long each refresh must say that there is no such topic, until it is gone.
            note_shared: takes the id of one that exists, once.
        """
        self._note_shared = note_shared
        self._wanted: set[bytes] = set()
        #: Ids of the topics that are wanted.
        self._missing = MissingTopics(cluster_id, grace_ms)
        self._shared: set[bytes] = set()

    def is_gone(self, topic_id: bytes, now_ms: int) -> bool:
        """Tell whether the cluster has had no topic of an id for long enough; it is queried from the first call on.

        Args:
            topic_id: of a message of the snapshot topic.
            now_ms: on the clock of `Refresh.at_ms`.
        """
        if len(self._wanted) < _TOPICS_MAX:
            self._wanted.add(topic_id)
        return self._missing.is_gone(topic_id, now_ms)

    def topics_in_use(self) -> set[bytes]:
        """See `TopicUser.topics_in_use`."""
        return self._wanted

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        """See `TopicUser.refreshed`."""
        if not self._missing.observe(refresh, self._wanted):
            return
        for topic_id in self._wanted & refresh.existing_ids - self._shared:
            self._shared.add(topic_id)
            self._note_shared(topic_id)
