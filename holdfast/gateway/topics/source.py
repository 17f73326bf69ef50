"""The Kafka cluster, as it is asked about topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from holdfast.kafka.metadata import TopicRef, TopicSummary
from holdfast.kafka.topics.metadata_client import MetadataClient, Summaries


class TopicSource(Protocol):
    """The Kafka cluster, as it is queried."""

    async def summarize(self, topics: Collection[TopicRef] | None) -> Summaries:
        """Return topics as one broker knows them, None: all; raises ConnectionFailed."""

    async def confirm(self, topic_ids: Mapping[str, bytes]) -> Mapping[str, TopicSummary]:
        """Return topics, by names that had these ids, as all brokers know them; those about which they do not agree are left out.

        Raises ConnectionFailed.
        """

    def move_on(self) -> None:
        """Query another broker next."""

    def close(self) -> None:
        """Close the connection."""


class ClusterTopics:
    """The topics of a real cluster (`TopicSource`)."""

    def __init__(self, client: MetadataClient) -> None:
        self._cluster = client.cluster
        self.summarize = client.summarize
        self.move_on = client.move_on
        self.close = client.close

    async def confirm(self, topic_ids: Mapping[str, bytes]) -> Mapping[str, TopicSummary]:
        """See `TopicSource.confirm`."""
        cluster = self._cluster
        for name, topic_id in topic_ids.items():
            cluster.want(name, topic_id)
        try:
            uncertain = await cluster.look_up(topic_ids)
            views = {name: cluster.topics[name] for name in topic_ids if name not in uncertain}
        finally:
            for name in topic_ids:
                cluster.forget(name)
        return {name: view.summary for name, view in views.items()}
