"""How Produce requests go to one broker: of what, over which connections, and when the next one may leave."""

import asyncio
from typing import NamedTuple, final

from holdfast.runtime.kafka_log.linger import Linger
from holdfast.runtime.kafka_log.sent_batches import SentBatch

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

    def ready_s(self, records: int) -> float:
        """Return from when on the broker may get another request, with so many records, by the loop's clock; 0 where nothing waits."""
        if len(self.free) < self._connections:
            return self.linger.end_s
        return 0.0 if self.linger.is_large_enough(records) else self.linger.patient_until_s


@final
class PendingBatch:
    """A batch on its way to a partition, until it is acknowledged or given up."""

    def __init__(self, partition: int, data: bytes, sent: SentBatch, expires_s: float) -> None:
        """Begin with one that was just made, and is given up at `expires_s` by the loop's clock."""
        self.partition = partition
        self.data = data
        self.sent = sent
        self.expires_s = expires_s
        #: Why it was not appended when it was sent last.
        self.failure = ""
        #: Gives it up when its time is over; None while it was sent once only.
        self.end: asyncio.Handle | None = None
        #: It was acknowledged or given up; an answer that comes later says nothing.
        self.is_over = False


class ProduceRequest(NamedTuple):
    """Batches on their way to one broker."""

    #: None: no broker is known to lead them.
    broker_id: int | None
    #: Names the connection.
    purpose: str
    #: Gets the connection back; None: they are sent again, on a connection that all retries share.
    slot: BrokerSlot | None
    batches: list[PendingBatch]
    #: The number of records when it was made, of batches that were given up since, too.
    records: int = 0
