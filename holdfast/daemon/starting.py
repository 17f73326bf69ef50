"""What a node answers while it starts: it listens first, so that each client connection gets an answer at once.

It serves no share partition and owns no log partition yet; commands that need neither work already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.api.results import StateRequest, StateResponse
from holdfast.daemon.admin.commands import NodeCommands, NodeView, StartingCommands
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.server.admin import AdminCommand
from holdfast.daemon.server.cluster_view import Node, StateTopicView
from holdfast.daemon.share.metrics import ShareMetrics
from holdfast.daemon.share.service import ShareService
from holdfast.daemon.topics.cluster_queries import TopicLookUps
from holdfast.records.keys import SharePartitionKey
from holdfast.runtime.state_machine import Operation


class StartingView:
    """The cluster while this node starts (`server.cluster_view.ClusterView`): nothing of it is known but this node."""

    cluster_id: str | None = None
    state_topic: StateTopicView | None = None

    def __init__(self, find_this_node: Callable[[], Node]) -> None:
        """Show where clients reach this node, which is known once it listens."""
        self._find_this_node = find_this_node

    @property
    def nodes(self) -> tuple[Node, ...]:
        """This node."""
        return (self._find_this_node(),)

    def owner(self, partition: int) -> Node | None:
        """Return None: no log partition is owned."""
        return None

    def owner_epoch(self, partition: int) -> int:
        """Return -1: none is known."""
        return -1


class StartingShareCalls:
    """The five share-state calls while the node starts (`server.share_calls.ShareCalls`): refused by a service not started."""

    def __init__(self, metrics: ShareMetrics, clock_ms: Callable[[], float], internal_errors: InternalErrors) -> None:
        self._service = ShareService(_NoPartitions(), metrics, clock_ms, internal_errors)
        self.partition_for: Callable[[SharePartitionKey], int] = self._service.partition_for

    def handle(
        self, api_key: int, request: StateRequest, respond: Callable[[StateResponse], None], caller: str
    ) -> None:
        """Answer a call: the share partition is not available yet."""
        self._service.handle(api_key, request, respond)


class _NoPartitions:
    """The runtime of a service that is never started, and so refuses every call itself."""

    def write_many(self, operations: Sequence[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run nothing."""
        raise AssertionError("a service that was not started runs no operation")


def starting_commands(
    node: NodeView, look_ups: TopicLookUps, share_calls: StartingShareCalls
) -> Mapping[str, AdminCommand]:
    """Return the admin commands of a node that starts, by name."""
    return {**NodeCommands(node, *look_ups, share_calls).table(), **StartingCommands().table()}
