"""What the wire calls Metadata and FindCoordinator need to know of nodes, the state topic and who owns what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Node(NamedTuple):
    """Say where clients reach a node."""

    node_id: int
    host: str
    port: int


class StateTopicView(Protocol):
    """Name the topic that holds the log."""

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
    """Show the nodes and who owns which log partition, as of now."""

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
        """Return the live node that should own a log partition, None when there is none."""
