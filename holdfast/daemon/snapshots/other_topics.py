"""Other state topics, of which the snapshot topic has messages: their snapshots are dead only when they are gone beyond doubt.

They may be what a recreated topic left, or those of another log that shares the snapshot topic, which is not meant to be.
"""

from collections.abc import Callable
from typing import Final

from holdfast.daemon.topics.metadata_cache import Refresh
from holdfast.daemon.topics.metadata_image import MetadataImage

#: State topics that are queried; the snapshots of more stay.
_TOPICS_MAX: Final = 1_000


class OtherTopics:
    """What the cluster says of other state topics (`TopicUser`)."""

    def __init__(self, grace_ms: int, note_shared: Callable[[bytes], None]) -> None:
        """Begin with none.

        Args:
            grace_ms: for how long each refresh must say that there is no such topic, until it is gone.
            note_shared: takes the id of one that exists, once.
        """
        self._grace_ms = grace_ms
        self._note_shared = note_shared
        self._wanted: set[bytes] = set()
        #: By id, since when each refresh was answered UNKNOWN_TOPIC_ID; any other answer, or none, is no evidence.
        self._missing_since_ms: dict[bytes, int] = {}
        self._shared: set[bytes] = set()

    def is_gone(self, topic_id: bytes, now_ms: int) -> bool:
        """Tell whether the cluster has had no topic of an id for long enough; it is queried from the first call on.

        Args:
            topic_id: of a message of the snapshot topic.
            now_ms: on the clock of `Refresh.at_ms`.
        """
        if len(self._wanted) < _TOPICS_MAX:
            self._wanted.add(topic_id)
        since_ms = self._missing_since_ms.get(topic_id)
        return since_ms is not None and now_ms - since_ms >= self._grace_ms

    def topics_in_use(self) -> set[bytes]:
        """See `TopicUser.topics_in_use`."""
        return self._wanted

    def refreshed(self, image: MetadataImage, refresh: Refresh) -> None:
        """See `TopicUser.refreshed`."""
        for topic_id in self._wanted & refresh.unknown_ids:
            self._missing_since_ms.setdefault(topic_id, refresh.at_ms)
        for topic_id in self._wanted - refresh.unknown_ids if refresh.is_full else refresh.existing_ids:
            self._missing_since_ms.pop(topic_id, None)
        for topic_id in self._wanted & refresh.existing_ids - self._shared:
            self._shared.add(topic_id)
            self._note_shared(topic_id)
