"""A queue worker: it leads some share partitions and keeps all their delivery state through the daemon.

It can be cancelled at any moment, and then leaves nothing behind but what was written.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]

from demo.orders import DELIVERIES_MAX, Order, parse_order
from demo.share_partition import SharePartition
from holdfast.client import Client, ClientSettings, connect
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.combining import combine

GROUP: Final = "demo-orders"
STATE_EPOCH: Final = 1

#: Patient enough for a daemon that is killed and started again.
PATIENT: Final = ClientSettings(attempts_max=100, retry_backoff_max_ms=500, request_timeout_ms=5_000)
_ACQUIRE_MAX: Final = 10
_START_STRIDE: Final = 100
_PROCESSING_S: Final = (0.02, 0.25)
_FETCH_TIMEOUT_MS: Final = 200


class Ledger:
    """What the daemon has answered for, kept apart from it: the measure of everything read later."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.batches: tuple[StateBatch, ...] = ()
        self.writes = 0  #: answered
        self.outstanding: tuple[int, Sequence[StateBatch]] | None = None  #: sent and not answered: it may count, or not
        self.deliveries: Counter[int] = Counter()  #: by offset; each time a record was really given to the work

    def after(self, start_offset: int, batches: Sequence[StateBatch]) -> tuple[int, tuple[StateBatch, ...]]:
        """Return start offset and batches after one more write."""
        return start_offset, tuple(combine(self.batches, batches, start_offset))

    def answered(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        """Keep a state that the daemon has answered for."""
        self.start_offset, self.batches, self.outstanding = start_offset, tuple(batches), None

    def agrees_with(self, start_offset: int, batches: Sequence[StateBatch]) -> bool:
        """Tell whether a state that was read is what was answered, with or without the outstanding write."""
        possible = [(self.start_offset, tuple(self.batches))]
        if self.outstanding is not None:
            possible.append(self.after(*self.outstanding))
        return (start_offset, tuple(batches)) in possible


class Worker:
    """One worker."""

    def __init__(
        self,
        name: str,
        daemons: Sequence[str],
        bootstrap_servers: str,
        topic: tuple[str, bytes],
        ledgers: dict[int, Ledger],
        records: int,
        about_to_write: Callable[[], None],
        progressed: Callable[[int, int], None],
    ) -> None:
        """Describe a worker.

        Args:
            name: for people.
            daemons: host:port of each node.
            bootstrap_servers: of Kafka.
            topic: name and id.
            ledgers: of the partitions that it leads; a successor is given those of its predecessor.
            records: how many each partition has.
            about_to_write: called before each write.
            progressed: called with (partition, records finished) after each write.
        """
        self.name = name
        self.restored: dict[int, bool] = {}  #: by partition: did the state read agree with the ledger?
        self._daemons = daemons
        self._bootstrap_servers = bootstrap_servers
        self._topic, self._topic_id = topic
        self._ledgers = ledgers
        self._records = records
        self._about_to_write = about_to_write
        self._progressed = progressed
        self._random = Random(name)

    async def run(self) -> None:
        """Work until every record of its partitions is finished."""
        async with connect(self._daemons, PATIENT) as client, asyncio.TaskGroup() as leading:
            for partition in self._ledgers:
                leading.create_task(self._lead(client, partition))

    async def _lead(self, client: Client, partition: int) -> None:
        ledger = self._ledgers[partition]
        summary = await client.read_summary(GROUP, self._topic_id, partition)
        # The next leader epoch fences the former leader, should it only have been asleep.
        leader_epoch = summary.leader_epoch + 1
        found = await client.read(GROUP, self._topic_id, partition, leader_epoch)
        self.restored[partition] = ledger.agrees_with(found.start_offset, found.state_batches)
        ledger.answered(found.start_offset, found.state_batches)
        share = SharePartition(found.start_offset, found.state_batches, DELIVERIES_MAX, _START_STRIDE)
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap_servers, enable_auto_commit=False)
        await consumer.start()
        try:
            source = TopicPartition(self._topic, partition)
            consumer.assign([source])
            consumer.seek(source, found.start_offset)
            orders: dict[int, Order] = {}
            while share.start_offset + share.finished_behind_start() < self._records:
                acquired = share.acquire(orders, _ACQUIRE_MAX)
                if not acquired:
                    for fetched in (await consumer.getmany(timeout_ms=_FETCH_TIMEOUT_MS)).values():
                        orders |= {record.offset: parse_order(record.value) for record in fetched}
                    continue
                ledger.deliveries.update(offset for offset, _ in acquired)
                outcomes = await asyncio.gather(
                    *(self._process(orders[offset], deliveries) for offset, deliveries in acquired)
                )
                settled = share.settle({offset: done for (offset, _), done in zip(acquired, outcomes, strict=True)})
                await self._write(client, partition, leader_epoch, share, settled)
        finally:
            await consumer.stop()

    async def _process(self, order: Order, deliveries: int) -> bool:
        """Do the work of one order; returns whether it succeeded."""
        await asyncio.sleep(self._random.uniform(*_PROCESSING_S))
        return deliveries >= order.succeeds_at

    async def _write(
        self, client: Client, partition: int, leader_epoch: int, share: SharePartition, settled: list[StateBatch]
    ) -> None:
        """Write down what is settled; the start offset moves with the next write, so that the log has every record."""
        ledger, start_offset = self._ledgers[partition], share.start_offset
        complete = share.finished_behind_start()
        ledger.outstanding = start_offset, settled
        self._about_to_write()
        await client.write(GROUP, self._topic_id, partition, STATE_EPOCH, leader_epoch, start_offset, settled, complete)
        ledger.answered(*ledger.after(start_offset, settled))
        ledger.writes += 1
        self._progressed(partition, start_offset + complete)
        share.move_start()
