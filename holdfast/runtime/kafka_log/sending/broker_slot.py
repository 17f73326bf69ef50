"""How Produce requests go to one broker: of what, over which connections, and when the next one may leave."""

import asyncio
from typing import Final, final

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.leaders import Brokers, Leader
from holdfast.runtime.kafka_log.linger import Linger
from holdfast.runtime.kafka_log.sent_batches import SentBatch

#: Names the connection for batches that are sent again, which are never kept waiting for another request.
_RETRIES: Final = "produce-again"


@final
class ProduceConnection:
    """One of the connections to one broker; a request has it for itself, but for those that are sent again."""

    __slots__ = ("_opened", "purpose")

    def __init__(self, purpose: str) -> None:
        """Begin before it is opened; `purpose` names it."""
        self.purpose = purpose
        #: The one that was found open last; it may be closed since.
        self._opened: BrokerConnection | None = None

    def find_open(self, brokers: Brokers, broker_id: int | None) -> BrokerConnection | None:
        """Return the connection to a broker if it is open; None stands for no broker that is known."""
        connection = self._opened
        if connection is not None and connection.is_open:
            return connection
        if broker_id is None:
            return None
        self._opened = connection = brokers.open_connection(broker_id, self.purpose)
        return connection


@final
class BrokerSlot:
    """The connections to one broker and the pace of its requests; a broker answers one after the other on each of them."""

    __slots__ = ("_connections", "free", "linger")

    def __init__(self, connections: int, linger: Linger) -> None:
        """Begin with all of some connections free; each is opened when it is first used."""
        self._connections = connections
        #: The connections without a request, the last one used on top.
        self.free = [ProduceConnection(f"produce-{number}") for number in range(connections)]
        self.linger = linger

    @property
    def ready_s(self) -> float:
        """From when on the broker may get its next request, however few records wait, by the loop's clock; 0: at once."""
        return self.linger.end_s if len(self.free) < self._connections else self.linger.patient_until_s

    @property
    def is_patient(self) -> bool:
        """Whether its next request may leave sooner, if enough records wait."""
        return len(self.free) == self._connections and self.linger.patient_until_s > 0


@final
class PendingBatch:
    """A batch on its way to a partition, until it is acknowledged or given up."""

    def __init__(self, partition: int, sent: SentBatch, expires_s: float) -> None:
        """Begin with one that was just made, and is given up at `expires_s` by the loop's clock."""
        self.partition = partition
        self.sent = sent
        self.expires_s = expires_s
        #: Of its first record, when it is acknowledged.
        self.base_offset = -1
        #: Why it was not appended when it was sent last.
        self.failure = ""
        #: Gives it up when its time is over; None while it was sent once only.
        self.end: asyncio.Handle | None = None
        #: It was acknowledged or given up; an answer that comes later says nothing.
        self.is_over = False

    def finish(self) -> None:
        """Take note that it was acknowledged or given up."""
        self.is_over = True
        if self.end is not None:
            self.end.cancel()


@final
class ProduceRequest:
    """Batches on their way to one broker."""

    __slots__ = ("batches", "broker_id", "connection", "is_in_flight", "records", "slot")

    def __init__(
        self,
        broker_id: int | None,
        connection: ProduceConnection,
        slot: BrokerSlot | None,
        batches: list[PendingBatch],
        records: int,
    ) -> None:
        """Begin before it is sent."""
        #: None: no broker is known to lead them.
        self.broker_id = broker_id
        self.connection = connection
        #: Gets the connection back; None: it has, or they are sent again, on a connection that all retries share.
        self.slot = slot
        #: It was sent and has no answer.
        self.is_in_flight = False
        self.batches = batches
        #: The number of records when it was made, of batches that were given up since, too.
        self.records = records


def leader_id(leaders: dict[int, Leader], partition: int) -> int | None:
    """Return the broker that leads a partition; None: nobody is known to."""
    led = leaders.get(partition)
    return None if led is None else led[0]


def make_retry(broker_id: int | None, batches: list[PendingBatch]) -> ProduceRequest:
    """Return a request that sends batches again, on the connection to a broker that all retries share."""
    return ProduceRequest(broker_id, ProduceConnection(_RETRIES), None, batches, 0)
