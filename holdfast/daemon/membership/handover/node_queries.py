"""For which log partitions another node names itself, by its answer to Kafka's own Metadata: it leads them.

The leader epoch of the answer is the owner epoch, which a node that only loads does not know yet.
"""

import asyncio
from contextlib import suppress
from functools import partial

import structlog

from holdfast.daemon.server.cluster_view import Node
from holdfast.daemon.server.other_nodes import NodeOptions
from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.errors import ConnectionFailed, PropertyRefused
from holdfast.kafka.exchange import exchange
from holdfast.kafka.metadata import query

_log = structlog.get_logger(__name__)


class NodeQueries:
    """Queries over one connection for each node, which is kept until the node is forgotten (`polls.Queries`)."""

    def __init__(self, state_topic: str, client_properties_file: str, timeout_ms: int) -> None:
        """Prepare.

        Args:
            state_topic: name of the log.
            client_properties_file: how nodes are reached; see `other_nodes.NodeOptions`.
            timeout_ms: bound of each query, connecting included.
        """
        self._state_topic = state_topic
        self._options = NodeOptions(client_properties_file)
        self._timeout_ms = timeout_ms
        self._connections: dict[Node, BrokerConnection] = {}

    async def query(self, node: Node) -> dict[int, int] | None:
        """See `Queries.query`."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                answer = await query(partial(exchange, await self._to(node)), [self._state_topic])
        except (TimeoutError, ConnectionFailed, PropertyRefused) as failure:
            self.forget(node)
            _log.debug("former_owner_unanswered", node=node.node_id, why=str(failure) or type(failure).__name__)
            return None
        found = answer.topics.get(self._state_topic)
        leaders = {} if found is None else found.leaders
        return {partition: epoch for partition, (leader, epoch) in leaders.items() if leader == node.node_id}

    def forget(self, node: Node) -> None:
        """See `Queries.forget`."""
        with suppress(KeyError):
            self._connections.pop(node).close()

    async def _to(self, node: Node) -> BrokerConnection:
        connection = self._connections.get(node)
        if connection is None or not connection.is_open:
            address = node.host, node.port
            options = self._options.to(address)
            connection = self._connections[node] = await BrokerConnection.open(address, options, self._timeout_ms)
        return connection
