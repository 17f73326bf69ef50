"""A client and the nodes that it talks to."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.api.results import (
    PartitionResult,
)
from holdfast.client import (
    Client,
    ClientSettings,
)
from holdfast.client.client import parse_address
from holdfast.client.nodes import Nodes
from holdfast.daemon.server.admin import AdminCommand
from holdfast.daemon.server.cluster_view import Node
from holdfast.records.share.keys import SharePartitionKey
from tests.world.serving import Served, serve

OTHER_TOPIC_ID = bytes(16)
Answer = Callable[[int, SharePartitionKey, Any], PartitionResult]


@dataclass
class World:
    client: Client
    served: list[Served]
    #: Seconds that the client waited between tries.
    waits: list[float]

    def asked(self, node: int = 0) -> list[list[int]]:
        """Return the partitions of each request that reached a node."""
        return [
            [asked.partition for _, partitions in request.topics for asked in partitions]
            for _, request in self.served[node].service.requests
        ]


@asynccontextmanager
async def world(
    answer: Answer | None = None,
    node_count: int = 1,
    commands: Mapping[str, AdminCommand] | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """Give a client of some nodes, which own the log partitions in turn and answer with what `answer` returns."""
    waits: list[float] = []

    async def sleep(wait_s: float) -> None:
        waits.append(wait_s)

    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(serve(commands=commands)) for _ in range(node_count)]
        nodes = [Node(index, "127.0.0.1", each.server.port) for index, each in enumerate(served)]
        for each in served:
            each.cluster.nodes = nodes
            each.service.answer = answer
        made = ClientSettings(**settings)
        known = Nodes([parse_address(served[0].address)], made)
        client = Client(known, made, sleep=sleep, randomness=random.Random(1))
        stack.callback(client.close)
        yield World(client, served, waits)
