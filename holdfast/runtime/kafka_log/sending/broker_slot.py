"""The Produce requests to one broker: their batches, their connections, and the time when the next one may be sent."""

import asyncio
from typing import Final, final

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.metadata import Leader
from holdfast.runtime.kafka_log.linger import Linger
from holdfast.runtime.kafka_log.sent_batches import SentBatch

#: Name of the connection for batches that are sent again, which never wait for another request.
_RETRIES: Final = "produce-again"


@final
class ProduceConnection:
    """One of the connections to one broker; a request has it exclusively, except for retries, which share one."""

    __slots__ = ("_opened", "purpose")

    def __init__(self, purpose: str) -> None:
        """Keep the name of the connection."""
        self.purpose = purpose
        #: The connection that was open at the last look; it may be closed by now.
        self._opened: BrokerConnection | None = None

    def find_open(self, brokers: Brokers, broker_id: int | None) -> BrokerConnection | None:
        """Return the connection to a broker if it is open; a broker id of None stands for an unknown leader."""
        connection = self._opened
        if connection is not None and connection.is_open:
            return connection
        if broker_id is None:
            return None
        self._opened = connection = brokers.open_connection(broker_id, self.purpose)
        return connection


@final
class BrokerSlot:
    """The connections to one broker and the pace of its requests; on each connection a broker answers in order."""

    __slots__ = ("_connections", "free", "linger")

    def __init__(self, connections: int, linger: Linger) -> None:
        """Set the number of connections, each of which is opened when it is first used."""
        self._connections = connections
        #: The connections without a request, the last used one at the end.
        self.free = [ProduceConnection(f"produce-{number}") for number in range(connections)]
        self.linger = linger

    @property
    def ready_s(self) -> float:
        """Return when the broker may get its next request even for few records, by the loop's clock; 0: at once."""
        return self.linger.end_s if len(self.free) < self._connections else self.linger.patient_until_s

    @property
    def is_patient(self) -> bool:
        """Tell whether its next request may be sent sooner if enough records wait."""
        return len(self.free) == self._connections and self.linger.patient_until_s > 0


@final
class PendingBatch:
    """A batch on its way to a partition, until it is acknowledged or given up."""

    def __init__(self, partition: int, sent: SentBatch, expires_s: float) -> None:
        """Keep a batch that was just made, and is given up at `expires_s` by the loop's clock."""
        self.partition = partition
        self.sent = sent
        self.expires_s = expires_s
        #: Offset of its first record, once it is acknowledged.
        self.base_offset = -1
        #: Why the last attempt to send it failed.
        self.failure = ""
        #: The timer that gives it up; None before the first retry.
        self.end: asyncio.Handle | None = None
        #: It was acknowledged or given up; a later answer is ignored.
        self.is_over = False

    def finish(self) -> None:
        """Mark it as acknowledged or given up."""
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
        #: None: no broker is known to lead the partitions.
        self.broker_id = broker_id
        self.connection = connection
        #: The slot that gets the connection back; None: it has it back, or this is a retry, on the connection that all retries share.
        self.slot = slot
        #: It was sent and has no answer yet.
        self.is_in_flight = False
        self.batches = batches
        #: Number of records when the request was made, including batches that were given up later.
        self.records = records


def leader_id(leaders: dict[int, Leader], partition: int) -> int | None:
    """Return the broker that leads a partition; None: not known."""
    led = leaders.get(partition)
    return None if led is None else led[0]


def make_retry(broker_id: int | None, batches: list[PendingBatch]) -> ProduceRequest:
    """Return a request that sends batches again, on the connection to a broker that all retries share."""
    return ProduceRequest(broker_id, ProduceConnection(_RETRIES), None, batches, 0)
