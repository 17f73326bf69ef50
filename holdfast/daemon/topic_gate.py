"""Holds a request that names an unknown topic or partition until the cluster was asked about it; lets all others straight through."""

from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.daemon.cluster import MetadataImage
from holdfast.records.keys import SharePartitionKey
from holdfast.records.results import StateRequest, StateResponse


class TopicLookup(Protocol):
    """What the gate asks of the cluster's metadata."""

    @property
    def image(self) -> MetadataImage | None:
        """The newest image."""

    def want(self, topic_id: bytes, then: Callable[[], None], timeout_ms: int) -> None:
        """Call back when a broker was asked about an id, or in `timeout_ms`."""


class Service(Protocol):
    """What the gate asks of the share service."""

    @property
    def is_active(self) -> bool:
        """Whether calls are taken."""

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the log partition that holds `key`."""

    def handle(self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None]) -> None:
        """Carry out a share-state call."""


class TopicGate:
    """Stands before the share service; a topic made or enlarged a moment ago is found before a call for it is refused."""

    def __init__(self, service: Service, write_timeout_ms: int) -> None:
        self.metadata: TopicLookup | None = None  #: None while the node starts; then nothing is held
        self.partition_for: Callable[[SharePartitionKey], int] = service.partition_for
        self._service = service
        # Half of the deadline, so that the other half is left for the write itself.
        self._timeout_ms = max(1, write_timeout_ms // 2)

    def handle(self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None]) -> None:
        """Carry out a share-state call, after a look-up where one is needed; `respond` is called exactly once."""
        metadata = self.metadata
        if metadata is not None and metadata.image is not None and self._service.is_active:
            unknown = _find_unknown(request, metadata.image.topics)
            if unknown:
                self._look_up(metadata, unknown, lambda: self._service.handle(api_key, request, respond))
                return
        self._service.handle(api_key, request, respond)

    def _look_up(self, metadata: TopicLookup, unknown: set[bytes], then: Callable[[], None]) -> None:
        waiting = len(unknown)

        def answered() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                then()

        for topic_id in unknown:
            metadata.want(topic_id, answered, self._timeout_ms)


def _find_unknown(request: StateRequest, partition_counts: Mapping[bytes, int]) -> set[bytes]:
    """Return the topics that are not known, or not known to have so many partitions."""
    unknown: set[bytes] = set()
    for topic_id, partitions in request.topics:
        count = partition_counts.get(topic_id, 0)
        for asked in partitions:
            if asked.partition >= count:
                unknown.add(topic_id)
                break
    return unknown
