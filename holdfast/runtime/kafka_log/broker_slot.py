"""How Produce requests go to one broker: over which connections, and when the next one may leave."""

from holdfast.runtime.kafka_log.linger import Linger

#: The connection for batches that are sent again, which are never kept waiting for another request.
RETRY_CONNECTION = "produce-again"


class BrokerSlot:
    """The connections to one broker and the pace of its requests; a broker answers one after the other on each of them."""

    __slots__ = ("_connections", "free", "linger")

    def __init__(self, connections: int, linger: Linger) -> None:
        """Begin with all of some connections free; each is opened when it is first used."""
        self._connections = connections
        #: The purposes of the connections without a request, the last one used on top.
        self.free = [f"produce-{number}" for number in range(connections)]
        self.linger = linger

    @property
    def ready_s(self) -> float:
        """From when on the broker may get another request, by the loop's clock; an idle one never waits."""
        return 0.0 if len(self.free) == self._connections else self.linger.end_s
