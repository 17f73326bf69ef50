"""What is known of the cluster's topics at one moment; each share partition of a request looks its topic up here."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

from holdfast.kafka.topics.metadata_client import TopicAnswers


@final
@dataclass(frozen=True)
class MetadataImage:
    """What was known of the cluster at one moment."""

    #: Grows with every image of a process.
    version: int
    cluster_id: str
    #: Partition count by topic id; never changed.
    topics: dict[bytes, int] = field(default_factory=dict)

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return how many partitions a topic has, or None if it is not known to exist."""
        return self.topics.get(topic_id)


def merge(image: MetadataImage | None, answers: TopicAnswers) -> MetadataImage:
    """Return what is known after some answers: `image` itself if they say nothing new, else the next version.

    A topic that a broker said exists is known with the partition count it said, one whose id is unknown is not known any more,
    and one that is unclear stays as it was. The cluster is that of the answers.
    """
    known = {} if image is None else image.topics
    existing = {topic.topic_id: topic.partition_count for topic in answers.topics}
    is_old = answers.unknown_ids.isdisjoint(known) and all(known.get(key) == size for key, size in existing.items())
    if image is not None and is_old:
        return image  # as a rule; a copy of all that is known would take its time
    kept = {key: count for key, count in known.items() if key not in answers.unknown_ids}
    return _next_image(image, kept | existing, answers.cluster_id)


def keep_only(image: MetadataImage, topic_ids: Collection[bytes]) -> MetadataImage:
    """Return an image that knows these topics at most: `image` itself if it knows no other, else the next version."""
    return _next_image(image, {key: count for key, count in image.topics.items() if key in topic_ids}, image.cluster_id)


def _next_image(image: MetadataImage | None, topics: dict[bytes, int], cluster_id: str) -> MetadataImage:
    if image is not None and topics == image.topics:
        return image
    return MetadataImage(1 if image is None else image.version + 1, cluster_id, topics)
