"""The parts of a node that people and clients query."""

from typing import NamedTuple

from holdfast.daemon.brokers.watch import BrokerWatch
from holdfast.daemon.membership.allotment import Allotment, NodeClusterView
from holdfast.daemon.partitions.partitions import Partitions
from holdfast.daemon.topics.metadata_cache import ClusterMetadata


class NodeParts(NamedTuple):
    """The parts of a node that has found its log, which people and clients query."""

    view: NodeClusterView
    allotment: Allotment
    partitions: Partitions
    watch: BrokerWatch
    metadata: ClusterMetadata
