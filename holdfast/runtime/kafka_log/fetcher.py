"""The follower of log partitions on the event loop: one loop of fetches for each broker (`fetch_loop`), which reports the records.

If the leader of a log partition moves, the partition moves from the loop of one broker to that of another (`kafka.cluster`).
A node has two fetchers: one for loads, which end where the log ended, and one for tails, which do not end. So no load delays a tail.

A batch that equals, byte for byte, the oldest batch that we sent and have not read back is reported as ours without decoding it.
A leader that acknowledges a batch of ours at an offset below the high watermark thereby says which records are at that offset.
If the tail has read exactly up to there, the batch counts as read back without a fetch. While our batches are acknowledged, brokers are
therefore fetched from only now and then, for the records of other programs.

Every other batch is decoded and reported in slices of bounded size, and between slices the rest of the node has its turn.
A large batch is decompressed in another thread, because a few bytes can stand for 16 MiB, which take 100 ms.
An error of one partition is reported to that partition, and the others of the same answer continue.

Source: KIP-320 (truncation).
"""

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, TypeAlias

from holdfast.kafka.brokers.throttle import READ_PAUSE_MAX_MS, Throttle
from holdfast.kafka.cluster import Brokers
from holdfast.kafka.protocol.denials import acl_remedy
from holdfast.kafka.protocol.error_codes import ErrorCode, name_and_number
from holdfast.kafka.protocol.requests import Fetched
from holdfast.runtime.kafka_log.bug_reports import BugReports
from holdfast.runtime.kafka_log.fetch_loop import FetcherConfig, FetchLoop
from holdfast.runtime.kafka_log.fetch_session import PartitionFetch
from holdfast.runtime.kafka_log.record_batches import (
    BATCH_HEAD_BYTES,
    DamagedBatch,
    FetchedBatch,
    LargeBatch,
    decode,
    iter_batches,
    take,
)
from holdfast.runtime.kafka_log.sent_batches import SentBatch, SentBatches
from holdfast.runtime.log_protocol import LogListener, LogRecord, ReadError
from holdfast.runtime.metrics import RuntimeMetrics

#: Size up to which a batch is decompressed on the event loop; it takes less than a millisecond.
_DECOMPRESSED_HERE_BYTES_MAX: Final = 256 * 1024

#: Yielded where others may have their turn; a future: until it is done.
Turn: TypeAlias = asyncio.Future[Iterator[LogRecord]] | None


def _ignore_batch(_: SentBatch) -> None:
    """Do nothing about a batch that was read back, where nothing measures it."""


class FetchEvents(NamedTuple):
    """The calls by which a fetcher tells of what came."""

    #: Takes (partition, instance, next offset, leader epoch of the batch below it, -1 if not known) when a partition was followed to
    #: its end.
    on_end: Callable[[int, int, int, int], None]
    #: Takes each sent batch that was read back as it was sent.
    on_read_back: Callable[[SentBatch], None] = _ignore_batch
    #: Takes (broker id, send time of the request by the loop's clock) with every answer of a broker.
    on_heard: Callable[[int, float], None] | None = None


class Fetcher:
    """The follower of partitions until their end, or until they are forgotten."""

    def __init__(
        self,
        purpose: str,
        config: FetcherConfig,
        brokers: Brokers,
        listener: Callable[[], LogListener],
        sent: SentBatches,
        metrics: RuntimeMetrics,
        events: FetchEvents,
    ) -> None:
        """Follow changes of the leaders; a loop of fetches starts with the first partition of its broker.

        Args:
            purpose: names the connections, which are not shared with another purpose.
            config: bounds.
            brokers: the leaders of partitions.
            listener: receives the records.
            sent: batches that this node sent and has not read back.
            metrics: counters.
            events: the calls that tell of what came.
        """
        self._purpose = purpose
        self._on_end, self._on_read_back, self._on_heard = events
        now_s = asyncio.get_running_loop().time
        self._throttle: Throttle[int] = Throttle(
            min(config.throttle_max_ms, READ_PAUSE_MAX_MS), metrics.throttle_time_ms, now_s
        )
        self._bugs = BugReports(metrics.internal_errors)
        self._config = config
        self._brokers = brokers
        self._listener = listener
        self._sent = sent
        self._partitions: dict[int, PartitionFetch] = {}
        self._loops: dict[int, FetchLoop] = {}
        #: Number of our batches that were read back without a fetch.
        self.acknowledged_batches = 0
        #: The search for leaders of partitions without one.
        self._search: asyncio.Task[None] | None = None
        brokers.on_change(self._share_out)

    def follow(
        self, partition: int, instance: int, offset: int, end_offset: int | None = None, last_epoch: int = -1
    ) -> None:
        """Read from an offset, inclusive, up to an end if there is one, exclusive, for an instance.

        With the leader epoch of the batch below the offset, the first fetch shows whether that batch was truncated meanwhile.
        """
        self._partitions[partition] = PartitionFetch(instance, offset, end_offset, last_epoch)
        self._share_out()

    def forget(self, partition: int) -> None:
        """Stop following a partition."""
        if self._partitions.pop(partition, None) is not None:
            self._share_out()

    def on_acknowledged(self, partition: int, batch: SentBatch, base_offset: int) -> None:
        """Handle the offset of a batch of ours below the high watermark; it is read back now if the tail has reached that offset."""
        fetch = self._partitions.get(partition)
        if fetch is None:
            return
        if (
            self._sent.oldest(partition) is batch
            and fetch.is_checked  # otherwise the log may have lost records and have grown to this offset again
            and fetch.leader_epoch in (-1, self._leader_epoch(partition))
            and base_offset == fetch.offset
            and self._listener().own_records_read(
                partition, fetch.instance, base_offset, batch.record_count, batch.first_header
            )
        ):
            self._read_back(partition, batch)
            fetch.acknowledged_to(base_offset + batch.record_count, batch.last_header)
            self.acknowledged_batches += 1
        elif not self._sent.holds(partition, batch):
            return  # a fetch has brought it already
        elif base_offset < fetch.offset:
            self.forget(partition)
            text = f"a new batch is at offset {base_offset}, below {fetch.offset}, which was read before: the log was truncated"
            self._listener().read_failed(partition, fetch.instance, ReadError(text, is_alarm=True))
        else:
            self._fetch_soon(partition)

    def _read_back(self, partition: int, batch: SentBatch) -> None:
        self._sent.remove(partition, batch)
        self._on_read_back(batch)

    def reach(self, partition: int, offset: int) -> None:
        """Fetch soon up to an offset, unless batches of ours in flight will reach it."""
        fetch = self._partitions.get(partition)
        if fetch is not None and fetch.offset < offset and self._sent.oldest(partition) is None:
            self._fetch_soon(partition)

    def _fetch_soon(self, partition: int) -> None:
        led = self._brokers.leaders.get(partition)
        loop = None if led is None else self._loops.get(led[0])
        if loop is not None:
            loop.changed.set()

    async def close(self) -> None:
        """Stop every loop."""
        self._partitions.clear()
        tasks = [loop.task for loop in self._loops.values()]
        if self._search is not None:
            tasks.append(self._search)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # ---- partitions and loops --------------------------------------------------------------------------------------

    def _share_out(self) -> None:
        """Give each partition to the loop of its leader."""
        by_broker: dict[int, dict[int, PartitionFetch]] = {}
        for partition, fetch in self._partitions.items():
            leader = self._brokers.leaders.get(partition)
            if leader is not None:
                by_broker.setdefault(leader[0], {})[partition] = fetch
            elif self._search is None or self._search.done():
                self._search = asyncio.get_running_loop().create_task(
                    self._search_leaders(), name=f"holdfast-{self._purpose}-search"
                )
        for broker_id in by_broker.keys() - self._loops.keys():
            self._loops[broker_id] = FetchLoop(
                self, self._purpose, broker_id, self._config, self._brokers, self._throttle, self._on_heard
            )
        for broker_id, loop in self._loops.items():
            loop.wanted = by_broker.get(broker_id, {})
            loop.changed.set()

    async def _search_leaders(self) -> None:
        while not self._partitions.keys() <= self._brokers.leaders.keys():
            await self.refresh_leaders()

    async def refresh_leaders(self) -> None:
        """Look up the leaders again, after a pause; a failure keeps the known ones."""
        pause_s = self._config.retry_backoff_ms / 1_000
        await asyncio.sleep(pause_s)
        has_failed = False
        try:
            await self._brokers.refresh()
        except Exception as failure:  # the caller's loop goes on, and fetches again
            self._bugs.explain(failure, "looking up leaders failed")
            has_failed = True
        if has_failed:
            await asyncio.sleep(pause_s)

    def _leader_epoch(self, partition: int) -> int:
        led = self._brokers.leaders.get(partition)
        return -1 if led is None else led[1]

    # ---- the answer to a fetch -------------------------------------------------------------------------------------

    def deliver(self, partition: int, fetch: PartitionFetch, fetched: Fetched) -> Generator[Turn, None, None]:
        """Report a fetched partition; yields where others may have their turn.

        Raises:
            DamagedBatch: the batch at the partition's position cannot be decoded; the records before it were reported.
        """
        if not self._is_current(partition, fetch):
            return
        if fetched.error_code or fetched.is_diverging:
            if fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
                raise DamagedBatch("the broker cannot read it")
            if fetch.has_moved_past(fetched.error_code):
                return  # another program deleted the acknowledged records; the next fetch begins after them
            self._fail(partition, fetch, _read_error(fetched, fetch.offset, self._brokers.topic, self._brokers.who()))
            return
        # A log cannot start above its high watermark, so a broker that says so is not believed.
        is_moved = fetch.log_start_offset != fetched.log_start_offset <= fetched.high_watermark
        if is_moved and fetch.end_offset is None:
            fetch.log_start_offset = fetched.log_start_offset
            self._listener().log_start_moved(partition, fetch.instance, fetched.log_start_offset)
        if fetch.awaits_confirmation(fetched.log_start_offset):
            return  # the log reaches this offset; the next fetch brings the record below
        fetch.is_checked |= fetch.requested_offset == fetch.offset
        requested_offset, reported = fetch.requested_offset, 0
        begins_there = requested_offset == fetch.batch_end_offset
        for batch in iter_batches(fetched.records, requested_offset, begins_there=begins_there):
            is_there = yield from self._confirm_acknowledged(fetch, batch)
            if not self._is_current(partition, fetch):
                return
            if not is_there:
                self._fail(partition, fetch, _truncated(fetch.offset))
                return
            if batch.last_offset < fetch.offset:  # it was acknowledged and read back before this answer came
                continue
            if not self._deliver_own(partition, fetch, batch):
                reported = yield from self._deliver_records(partition, fetch, batch, reported)
            if not self._is_current(partition, fetch):
                return
        if fetch.end_offset is not None and fetch.offset >= fetch.end_offset:
            self.forget(partition)
            self._on_end(partition, fetch.instance, fetch.offset, fetch.last_epoch)
            yield None  # a load that ends has used up most of its slice of this turn

    def _is_current(self, partition: int, fetch: PartitionFetch) -> bool:
        """Tell whether a partition is still followed by this fetch; any call to the listener may end that."""
        return self._partitions.get(partition) is fetch

    def _confirm_acknowledged(self, fetch: PartitionFetch, batch: FetchedBatch) -> Generator[Turn, None, bool]:
        """Compare a batch with the acknowledged record below our position that no fetch has shown; False: the log has lost it."""
        header = fetch.acknowledged_header if fetch.requested_offset < fetch.offset else None
        if header is None or batch.last_offset + 1 < fetch.offset:
            return True
        if batch.last_offset + 1 > fetch.offset:
            return False
        records = yield from self._decode(batch, batch.last_offset)
        # No two records of a log have the same header.
        if [record.header for record in take(records, 1, batch.last_offset)] != [header]:
            return False
        fetch.confirm(batch.leader_epoch)
        return True

    def _deliver_own(self, partition: int, fetch: PartitionFetch, batch: FetchedBatch) -> bool:
        """Report a batch as ours if it equals the oldest one that was not read back; returns whether it was ours."""
        own = self._sent.oldest(partition)
        # Copies are compared, because memoryviews are compared item by item: 6 times slower for 200 bytes, 40 times for 20,000.
        if (
            own is None
            or batch.data[BATCH_HEAD_BYTES:] != own.data[BATCH_HEAD_BYTES:]
            or batch.base_offset < fetch.offset
            or batch.last_offset - batch.base_offset + 1 != own.record_count
            or not self._listener().own_records_read(
                partition, fetch.instance, batch.base_offset, own.record_count, own.first_header
            )
        ):
            return False
        self._read_back(partition, own)
        fetch.read_to(batch.last_offset + 1, batch.leader_epoch)
        fetch.batch_end_offset = fetch.offset
        return True

    def _deliver_records(
        self, partition: int, fetch: PartitionFetch, batch: FetchedBatch, reported: int
    ) -> Generator[Turn, None, int]:
        """Report the records of a batch in slices; takes and returns the number of records since others had their turn."""
        listener, slice_max = self._listener(), self._config.slice_records_max
        records = yield from self._decode(batch, fetch.offset)
        if not self._is_current(partition, fetch):
            return reported
        # A batch may hold ten thousand records, so it is decoded in slices, too.
        while few := take(records, slice_max, batch.last_offset):
            if reported >= slice_max:
                reported = 0
                yield None
                if not self._is_current(partition, fetch):
                    return reported
            # While others had their turn, the answer to our Produce may have moved the position.
            if few[0].offset < fetch.offset:
                few = [record for record in few if record.offset >= fetch.offset]
                if not few:
                    continue
            self._sent.remove_read(partition, few)
            fetch.read_to(few[-1].offset + 1, batch.leader_epoch)
            listener.records_read(partition, fetch.instance, few)
            reported += len(few)
        if fetch.offset <= batch.last_offset + 1:  # otherwise later batches of ours were acknowledged meanwhile
            fetch.read_to(batch.last_offset + 1, batch.leader_epoch)
        fetch.batch_end_offset = fetch.offset
        listener.position_reached(partition, fetch.instance, fetch.offset)
        return reported

    def _decode(self, batch: FetchedBatch, from_offset: int) -> Generator[Turn, None, Iterator[LogRecord]]:
        """Return the records of a batch; a large one is decompressed in another thread. See `record_batches.decode`."""
        bytes_max, slice_max = self._config.fetch_batch_bytes_max, self._config.slice_records_max
        try:
            return decode(batch.data, from_offset, min(_DECOMPRESSED_HERE_BYTES_MAX, bytes_max), slice_max)
        except LargeBatch:
            if bytes_max <= _DECOMPRESSED_HERE_BYTES_MAX:
                raise
        loop = asyncio.get_running_loop()
        decoding = loop.run_in_executor(None, decode, batch.data, from_offset, bytes_max, slice_max)
        # The partition may be forgotten meanwhile; then the result, or an exception, is never read.
        decoding.add_done_callback(lambda done: done.cancelled() or done.exception())
        yield decoding
        return decoding.result()

    # ---- errors ----------------------------------------------------------------------------------------------------

    def on_damage(self, partition: int, fetch: PartitionFetch, why: str) -> None:
        """Handle a damaged batch at a partition's position: it is fetched once more, and a second time is an alarm."""
        if not self._is_current(partition, fetch):
            return
        if fetch.damaged_offset != fetch.offset:  # it may be damaged on its way, or only in one broker's copy
            fetch.damaged_offset = fetch.offset
            fetch.requested_offset = -1
            return
        self._fail(partition, fetch, _damage_error(fetch.offset, why))

    def fail_alone(self, partition: int, fetch: PartitionFetch, bug: Exception) -> None:
        """End the reading of a partition after a bug of ours; it loads again."""
        self._bugs.report(bug, f"reading partition {partition} failed")
        self.fail(partition, fetch, repr(bug))

    def fail(self, partition: int, fetch: PartitionFetch, why: str) -> None:
        """End the reading of a partition, which loads again."""
        if self._is_current(partition, fetch):
            self._fail(partition, fetch, ReadError(why, is_alarm=False))

    def _fail(self, partition: int, fetch: PartitionFetch, error: ReadError) -> None:
        self.forget(partition)
        self._listener().read_failed(partition, fetch.instance, error)


def _read_error(fetched: Fetched, offset: int, topic: str, principal: str) -> ReadError:
    if fetched.is_diverging:
        return _truncated(offset)
    if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # Pruned or lost: the next load finds out, because it compares the log's bounds with the committed offset.
        return ReadError(f"offset {offset} is out of range", is_alarm=False)
    remedy = acl_remedy(fetched.error_code, "Read", f"topic {topic}", principal)
    return ReadError(f"the broker answered {name_and_number(fetched.error_code)}{remedy}", is_alarm=False)


def _truncated(offset: int) -> ReadError:
    return ReadError(f"the log was truncated below offset {offset}", is_alarm=True)


def _damage_error(offset: int, why: str) -> ReadError:
    return ReadError(f"the record batch at offset {offset} is damaged: {why}", is_alarm=True)
