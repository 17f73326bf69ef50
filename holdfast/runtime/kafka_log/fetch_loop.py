"""The fetches from one broker, one at a time, for one fetcher; an error of one partition is reported to that partition only."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from holdfast.kafka.brokers.broker_connection import BrokerConnection
from holdfast.kafka.brokers.throttle import Throttle
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer
from holdfast.kafka.protocol import requests
from holdfast.kafka.protocol.error_codes import FETCH_SESSION_LOST, STALE_LEADER, ErrorCode
from holdfast.kafka.protocol.requests import Fetched
from holdfast.runtime.kafka_log.fetch_session import FetchSession, PartitionFetch
from holdfast.runtime.kafka_log.record_batches import DamagedBatch
from holdfast.runtime.log_protocol import LogRecord

#: An answer above this size takes so long to decode that its records are handled in the next turn of the loop.
_LARGE_ANSWER_BYTES: Final = 262_144


class FetcherConfig(NamedTuple):
    """Bounds of a fetcher."""

    #: Time for which a broker may hold an empty fetch; the longest time between two fetches.
    fetch_wait_ms: int
    fetch_bytes_max: int
    fetch_partition_bytes_max: int
    #: Size of one record batch without its compression.
    fetch_batch_bytes_max: int
    #: Decoded records reported at a time.
    slice_records_max: int
    #: Longest time for which a broker is sent nothing because it asks for that.
    throttle_max_ms: int
    retry_backoff_ms: int = 50


class FetchOwner(Protocol):
    """The receiver of fetched partitions."""

    #: Number of our batches that were read back without a fetch.
    acknowledged_batches: int

    def deliver(
        self, partition: int, fetch: PartitionFetch, fetched: Fetched
    ) -> Iterator[asyncio.Future[Iterator[LogRecord]] | None]:
        """See `Fetcher.deliver`."""

    def on_damage(self, partition: int, fetch: PartitionFetch, why: str) -> None:
        """See `Fetcher.on_damage`."""

    def fail(self, partition: int, fetch: PartitionFetch, why: str) -> None:
        """See `Fetcher.fail`."""

    def fail_alone(self, partition: int, fetch: PartitionFetch, bug: Exception) -> None:
        """See `Fetcher.fail_alone`."""

    async def refresh_leaders(self) -> None:
        """See `Fetcher.refresh_leaders`."""


class FetchLoop:
    """The fetches to one broker, until the task is cancelled."""

    def __init__(
        self,
        owner: FetchOwner,
        purpose: str,
        broker_id: int,
        config: FetcherConfig,
        brokers: Brokers,
        throttle: Throttle[int],
        on_heard: Callable[[int, float], None] | None,
    ) -> None:
        """Run the fetches in a task; the loop waits while `wanted` is empty.

        Args:
            owner: receives the fetched partitions.
            purpose: names the connection and the task.
            broker_id: the broker.
            config: bounds.
            brokers: the leaders of partitions.
            throttle: the time for which each broker must be sent nothing.
            on_heard: gets (broker id, send time of the request by the loop's clock) with every answer.
        """
        #: Partitions that the broker leads.
        self.wanted: dict[int, PartitionFetch] = {}
        #: There is something to fetch that the last fetch did not request.
        self.changed = asyncio.Event()
        #: Value of the owner's `acknowledged_batches` at the last look.
        self._acknowledged_batches = 0
        self._owner = owner
        self._purpose = purpose
        self._broker_id = broker_id
        self._config = config
        self._brokers = brokers
        self._throttle = throttle
        self._on_heard = on_heard
        self._session = FetchSession()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"holdfast-{purpose}-{broker_id}")

    async def _run(self) -> None:
        owner = self._owner
        while True:
            if not self.wanted:
                self.changed.clear()
                await self.changed.wait()
                continue
            if (throttled_s := self._throttle.wait_s(self._broker_id)) > 0:
                await asyncio.sleep(throttled_s)
                continue
            try:
                wait_ms = await self._pause()
                connection = await self._brokers.connection(self._broker_id, self._purpose)
                is_stale = await self._fetch(connection, wait_ms)
            except UnreadableAnswer as unreadable:  # a second fetch would get the same, so the partitions load again
                is_stale = True
                self._session.reset()
                for partition, fetch in list(self.wanted.items()):
                    owner.fail(partition, fetch, str(unreadable))
            except ConnectionFailed:
                is_stale = True
                self._session.reset()
            except Exception as bug:  # the partitions of this loop fail and load again; the loop goes on
                is_stale = True
                self._session.reset()
                for partition, fetch in list(self.wanted.items()):
                    owner.fail_alone(partition, fetch, bug)
            if is_stale:
                await owner.refresh_leaders()

    async def _pause(self) -> int:
        """Wait while our batches are read back without a fetch; returns the time for which the broker may hold the next fetch."""
        owner = self._owner
        if owner.acknowledged_batches == self._acknowledged_batches:
            return self._config.fetch_wait_ms
        self._acknowledged_batches = owner.acknowledged_batches
        try:
            async with asyncio.timeout(self._config.fetch_wait_ms / 1_000):
                await self.changed.wait()
        except TimeoutError:
            # A broker checks each fetch that it holds with every batch that is appended.
            return 0
        return self._config.fetch_wait_ms

    async def _fetch(self, connection: BrokerConnection, wait_ms: int) -> bool:
        """Fetch once and deliver the answer; returns whether the leaders should be looked up again."""
        config, session = self._config, self._session
        self.changed.clear()
        request = session.next_request(self.wanted, self._brokers.leaders)
        api, version = requests.FETCH
        body = requests.encode_fetch(
            self._brokers.topic,
            request.session,
            wait_ms,
            config.fetch_bytes_max,
            config.fetch_partition_bytes_max,
            request.targets,
            request.forgotten,
        )
        sent_s = asyncio.get_running_loop().time()
        data = await connection.exchange(api, version, body, is_flexible=True)
        answer = requests.read_answer(requests.decode_fetched, data)
        if self._on_heard is not None:
            self._on_heard(self._broker_id, sent_s)
        self._throttle.on_answer(self._broker_id, answer.throttle_ms)
        session.on_answer(answer)
        if answer.error_code:
            return answer.error_code not in FETCH_SESSION_LOST
        is_stale = False
        if len(data) > _LARGE_ANSWER_BYTES:
            await asyncio.sleep(0)
        for fetched in answer.partitions:
            fetch = request.partitions.get(fetched.partition)
            # By now another broker may lead the partition, or another instance may read it.
            if fetch is not None and self.wanted.get(fetched.partition) is fetch:
                is_stale |= await self._deliver(fetch, fetched)
        return is_stale

    async def _deliver(self, fetch: PartitionFetch, fetched: Fetched) -> bool:
        """Deliver the answer for one partition; returns whether its leader should be looked up again."""
        if fetched.error_code in STALE_LEADER:
            fetch.requested_offset = -1
            return True
        if fetched.records:
            self._session.mark_fed(fetch)
        try:
            for awaited in self._owner.deliver(fetched.partition, fetch, fetched):
                await (asyncio.sleep(0) if awaited is None else asyncio.wait([awaited]))
                if self.wanted.get(fetched.partition) is not fetch:
                    break
        except DamagedBatch as damage:
            self._owner.on_damage(fetched.partition, fetch, str(damage))
            return True
        except Exception as bug:  # the other partitions of this answer go on
            self._owner.fail_alone(fetched.partition, fetch, bug)
        # A tail that continues after it asks the broker again, which must not become a loop without a pause.
        return fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
