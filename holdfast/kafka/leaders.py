"""Who leads which partition of the state topic.

Here it is learned that a leader has moved; in `runtime/kafka_log`, `fetcher.py` gives a log partition to the loop of its new
leader, `sender.py` sends to it what the old one refused, and `list_offsets.py` asks it for the ends that are awaited.
"""

import asyncio
from collections.abc import Callable

from holdfast.kafka.cluster import Cluster
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.errors import ConnectionFailed
from holdfast.kafka.metadata import NO_TOPIC, Leader


class Brokers(Cluster):
    """A cluster, of which one topic is looked up; the leaders of its partitions are at hand."""

    def __init__(self, options: ConnectionOptions, topic: str, timeout_ms: int, wanted_id: bytes = NO_TOPIC) -> None:
        """Prepare.

        Args:
            options: how to connect.
            topic: its name.
            timeout_ms: bound of each query.
            wanted_id: see `Cluster.want`.
        """
        # A node must start, without a config topic as a rule, while a broker is silent that others still name.
        super().__init__(options, timeout_ms, may_lack_ids=False, believes_one=True)
        self.topic = topic
        self.want(topic, wanted_id)
        #: By partition; empty while the topic is missing or hidden.
        self.leaders: dict[int, Leader] = {}
        #: Some broker has named the leaders.
        self.is_known = False
        #: Some broker has known the topic.
        self.has_topic = False
        #: The broker that answered last does not let this client know whether there is such a topic.
        self.is_hidden = False
        #: It says that there is no such topic.
        self.is_missing = False
        self._refreshing: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a listener after every look-up."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Look up who leads; callers meanwhile share one request. Failures leave what was known.

        Raises:
            ConnectionFailed: no broker answered, or none that knows what is known already.
        """
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._find_leaders(), name="holdfast-leaders")
        await asyncio.shield(self._refreshing)

    def close(self) -> None:
        """See `Cluster.close`."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        super().close()

    async def _find_leaders(self) -> None:
        if await self.look_up([self.topic]):
            raise ConnectionFailed(self.uncertainty)
        view = self.topics[self.topic]
        self.leaders = {} if view.error_code else view.leaders
        self.is_known, self.is_hidden, self.is_missing = True, view.is_hidden, view.is_missing
        self.has_topic |= not view.error_code
        for listener in self._listeners:
            listener()
