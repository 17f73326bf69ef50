"""What Metadata and FindCoordinator need to know: the nodes, the state topic, and the owner of each log partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Node(NamedTuple):
    """A node, and where clients reach it."""

    node_id: int
    host: str
    port: int


class StateTopicView(Protocol):
    """The topic that holds the log."""

    @property
    def name(self) -> str:
        """Name of the topic."""

    @property
    def topic_id(self) -> bytes:
        """Id of the topic, 16 bytes."""

    @property
    def partition_count(self) -> int:
        """Number of log partitions."""


class ClusterView(Protocol):
    """The nodes, and the owner of each log partition, as of now."""

    @property
    def cluster_id(self) -> str | None:
        """Id of the Kafka cluster that holds the log, None before it is known."""

    @property
    def nodes(self) -> Sequence[Node]:
        """Live nodes, this one included."""

    @property
    def state_topic(self) -> StateTopicView | None:
        """The state topic, None before it is known."""

    def owner(self, partition: int) -> Node | None:
        """Return the live node that should own a log partition, or None."""

    def owner_epoch(self, partition: int) -> int:
        """Return the owner epoch under which a log partition is owned; -1: it is not known."""
