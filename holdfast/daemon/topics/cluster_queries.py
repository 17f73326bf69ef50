"""What queries the brokers about the cluster and its topics: for the node itself, and for an admin."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from holdfast.daemon.settings.models import Settings
from holdfast.daemon.topics.name_look_ups import TopicNames
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.topics.metadata_client import MetadataClient
from holdfast.kafka.topics.record_times import RecordTimes
from holdfast.kafka.topics.topic_ends import TopicEndSource


class TopicLookUps(NamedTuple):
    """What queries Kafka about topics for an admin."""

    names: TopicNames
    ends: TopicEndSource


class ClusterQueries(NamedTuple):
    """All queries of a node about its cluster and topics."""

    #: For the metadata image; it also knows the brokers.
    client: MetadataClient
    look_ups: TopicLookUps
    #: For the topics that a tenant shows to clients.
    shown: MetadataClient
    #: When records of users' topics were written.
    record_times: RecordTimes


def make_first_look(settings: Settings, options: ConnectionOptions) -> MetadataClient:
    """Return the client of a start's first query, which says after one request's time that no broker answers."""
    return MetadataClient(options, timeout_ms=settings.log.request_timeout_ms, random=Random())


def make_cluster_queries(settings: Settings, options: ConnectionOptions, now_ms: Callable[[], int]) -> ClusterQueries:
    """Return the queries of a node; nothing connects before it is used.

    Args:
        settings: the node's.
        options: how to connect.
        now_ms: a clock that never goes back.
    """
    metadata = settings.metadata

    def make_client() -> MetadataClient:
        return MetadataClient(options, timeout_ms=metadata.metadata_timeout_ms, random=Random())

    client = make_client()
    # Half the time of an admin command, which then has an answer although a broker is silent.
    timeout_ms = max(1, settings.log.request_timeout_ms // 2)
    names = TopicNames(make_client(), now_ms, timeout_ms=timeout_ms)
    ends = TopicEndSource(client.cluster, timeout_ms=metadata.metadata_timeout_ms)
    times = RecordTimes(client.cluster, timeout_ms=metadata.metadata_timeout_ms)
    return ClusterQueries(client, TopicLookUps(names, ends), make_client(), times)
