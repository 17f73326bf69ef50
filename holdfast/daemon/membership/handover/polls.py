"""Queries to the nodes whose word is wanted about log partitions on their way, again and again for as long as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from holdfast.daemon.membership.handover.former_owners import FormerOwners
from holdfast.daemon.server.cluster_view import Node


class Queries(Protocol):
    """The way to other nodes."""

    async def query(self, node: Node) -> Mapping[int, int] | None:
        """Return the owner epochs of the log partitions for which a node names itself, -1 where it does not serve yet.

        None: it did not answer in time.
        """

    def forget(self, node: Node) -> None:
        """Give up what is kept for queries to a node."""


class Polls:
    """One poll for each node that is to be queried; it ends when nothing is to be learned from that node."""

    def __init__(
        self,
        former: FormerOwners,
        queries: Queries,
        run: Callable[[Coroutine[Any, Any, None]], object],
        pause: Callable[[int], Awaitable[object]],
        now_ms: Callable[[], int],
        *,
        interval_ms: int,
    ) -> None:
        """Poll nobody.

        Args:
            former: says whom to query, and takes the answers.
            queries: makes the queries, each in bounded time.
            run: lets a poll run beside everything else.
            pause: waits for so many ms.
            now_ms: the clock.
            interval_ms: between an answer and the next query.
        """
        self._former = former
        self._queries = queries
        self._run = run
        self._pause = pause
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._polled: set[Node] = set()

    def begin(self) -> None:
        """Poll the nodes that are to be queried, and are not polled yet."""
        for node in sorted(self._former.to_query() - self._polled):
            self._polled.add(node)
            self._run(self._poll(node))

    async def _poll(self, node: Node) -> None:
        try:
            while node in self._former.to_query():
                sent_ms = self._now_ms()
                led = await self._queries.query(node)
                if led is None:
                    self._former.unanswered(node)
                else:
                    self._former.answered(node, led, sent_ms)
                self.begin()  # the word of the new owner may be wanted now
                await self._pause(self._interval_ms)
        finally:
            self._polled.discard(node)
            self._queries.forget(node)
