"""When the state of a topic may go: only after its deletion was seen beyond doubt.

Outside a broker, absence is no evidence: an ACL may be missing, the cluster may be the wrong one, a restore may be in progress.
So a topic counts as deleted only when its id was once seen, or its state is in this cluster's log,
and Metadata by id has answered UNKNOWN_TOPIC_ID in every refresh for the time of grace, from the cluster to which the log belongs.
If that would take too large a share of all keys at once, nothing is removed before an admin agrees.

Pure: time comes with the refreshes and as an argument.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.daemon.topics.metadata_cache import Refresh
from holdfast.share.missing_topics import MissingTopics
from holdfast.share.settings import DeletedTopicSettings


class CleanUp(NamedTuple):
    """The state of these topics may be removed."""

    #: Not empty.
    topic_ids: frozenset[bytes]
    key_count: int


class CleanUpStopped(NamedTuple):
    """The state of these topics would be removed, but they are too many to believe."""

    topic_ids: frozenset[bytes]
    key_count: int
    total_count: int
    #: The alarm, with the command that ends it.
    text: str


class DeletedTopics:
    """The deletion of topics of one cluster, as far as its metadata has shown it.

    Args:
        settings: the time of grace, and the largest share that goes without an admin.
        cluster_id: the one that the log's checkpoints carry.
    """

    def __init__(self, settings: DeletedTopicSettings, cluster_id: str) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        #: Absence of topics that were seen.
        self._missing = MissingTopics(cluster_id, settings.deleted_topic_grace_ms)
        #: Ids that existed in this cluster once.
        self._seen: set[bytes] = set()
        #: Ids whose state may go, and that no refresh has shown otherwise since; all of them are missing.
        self._gone: set[bytes] = set()
        #: Ids whose removal an admin has agreed to.
        self._accepted: set[bytes] = set()

    def count_as_seen(self, topic_ids: Iterable[bytes]) -> None:
        """Count topics of which the log holds state as seen, although no refresh has requested them yet.

        No state is accepted for a topic that the cluster does not know, and the log's checkpoints name this cluster.
        So a topic that was deleted while no node was up loses its state as any other, after the time of grace.
        A log that an admin has accepted as it is may come from elsewhere: its topics must be seen first.
        """
        self._seen.update(topic_ids)

    def observe(self, refresh: Refresh) -> None:
        """Observe one refresh; one that says something else of a topic, or comes from another cluster, ends its absence."""
        if self._missing.observe(refresh, self._seen):
            self._seen |= refresh.existing_ids
        self._gone.intersection_update(self._missing.topic_ids)

    def decide(self, key_counts: Mapping[bytes, int], now_ms: int) -> CleanUp | CleanUpStopped | None:
        """Return which state may be removed now; None where there is nothing to do.

        Args:
            key_counts: the number of live keys by topic id, of all topics of which this node holds state;
                what was known of other topics is forgotten.
            now_ms: on the clock of `Refresh.at_ms`.
        """
        self._forget_all_but(key_counts)
        missing = self._missing
        gone = frozenset(topic_id for topic_id in missing.topic_ids if missing.is_gone(topic_id, now_ms))
        if not gone:
            return None
        key_count = sum(key_counts[topic_id] for topic_id in gone)
        total_count = sum(key_counts.values())
        unaccepted_count = sum(key_counts[topic_id] for topic_id in gone - self._accepted)
        if unaccepted_count <= self._settings.deleted_topic_max_share * total_count:
            self._gone |= gone
            return CleanUp(gone, key_count)
        text = (
            f"{unaccepted_count} of {total_count} share partitions belong to {len(gone - self._accepted)} topics that cluster "
            f"{self._cluster_id} does not know any more, a larger share than deleted_topic_max_share allows "
            f"({self._settings.deleted_topic_max_share}); if they were really deleted, "
            "`holdfast topics accept-deleted --reason …` lets their state go"
        )
        return CleanUpStopped(gone, key_count, total_count, text)

    def still_gone(self, topic_ids: frozenset[bytes]) -> frozenset[bytes]:
        """Return those of which the rest of the state may go as well: no refresh said anything else since that was decided."""
        return topic_ids & self._gone

    def accept(self, topic_ids: frozenset[bytes]) -> None:
        """Let the state of these topics go, however large their share; they must still be missing when it does."""
        self._accepted |= topic_ids & self._missing.topic_ids

    def _forget_all_but(self, key_counts: Mapping[bytes, int]) -> None:
        self._seen.intersection_update(key_counts)
        self._missing.keep_only(key_counts)
        self._gone.intersection_update(key_counts)
        # A topic that came back was not deleted, although an admin said so; a later absence is decided from scratch.
        self._accepted.intersection_update(self._missing.topic_ids)
