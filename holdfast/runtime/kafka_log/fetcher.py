"""Follows log partitions, with one incremental fetch session per broker (`fetch_session`), on the event loop.

Two of them work for a node: one for loads, which end where the log ended, and one for tails, which don't; so no load stands before a tail.
A batch that equals, byte for byte, the oldest one we sent and have not met is told as ours without being taken apart.
A leader that says where a batch of ours lies, below the high watermark, says what lies there.
Where the tail stands just there, the batch is met without a fetch; so while ours land, brokers are asked once in a while what others wrote.
Everything else is decoded and told in slices of bounded size; between slices the rest of the node has its turn.
What is wrong with one partition is told to that partition, and the others of the same answer go on.

Source: KIP-320 (truncation).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from holdfast.kafka.leaders import Brokers
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.requests import Fetched
from holdfast.kafka.throttle import Throttle
from holdfast.metrics.registry import Counter
from holdfast.runtime.kafka_log.accumulator import SentBatch
from holdfast.runtime.kafka_log.bugs import BugReports
from holdfast.runtime.kafka_log.fetch_session import FetchSession, Followed, FollowerConfig
from holdfast.runtime.kafka_log.record_batches import (
    BATCH_HEAD,
    BATCH_HEAD_BYTES,
    LENGTH_OFFSET,
    DamagedBatch,
    decode,
    take,
)
from holdfast.runtime.log import LogListener, LogRecord, ReadError


class Follower:
    """Follows partitions until their end, or until they are forgotten."""

    def __init__(
        self,
        purpose: str,
        config: FollowerConfig,
        brokers: Brokers,
        listener: Callable[[], LogListener],
        sent: Callable[[int], deque[SentBatch]],
        ended: Callable[[int, int, int, int], None],
        met: Callable[[SentBatch], None] = lambda _: None,
        heard: Callable[[int, float], None] | None = None,
        throttled_ms: Counter | None = None,
        internal_errors: Counter | None = None,
    ) -> None:
        """Prepare; a session starts with the first partition.

        Args:
            purpose: names the connections, which are not shared with another purpose.
            config: bounds.
            brokers: who leads what.
            listener: who is told what was read.
            sent: batches of a partition that this node sent and has not met, oldest first.
            ended: told (partition, instance, next offset, leader epoch of the batch below it, -1 if not known) when a
                partition was followed to its end.
            met: told each sent batch that was met as it was sent.
            heard: told (broker id, when the request left by the loop's clock) with every answer of a broker.
            throttled_ms: counts the time for which brokers asked not to be asked.
            internal_errors: counts bugs of ours.
        """
        self._purpose = purpose
        self._ended = ended
        self._met = met
        self._heard = heard
        now_s = asyncio.get_running_loop().time
        self._throttle = Throttle(config.throttle_max_ms, throttled_ms or Counter(), now_s)
        self._bugs = BugReports(internal_errors or Counter())
        self._config = config
        self._brokers = brokers
        self._listener = listener
        self._sent = sent
        self._followed: dict[int, Followed] = {}
        self._sessions: dict[int, FetchSession] = {}
        self.landings = 0  #: batches of ours that were met without a fetch
        self._search: asyncio.Task[None] | None = None  #: for leaders of partitions that have none now
        brokers.on_change(self._share_out)

    def follow(
        self, partition: int, instance: int, offset: int, end_offset: int | None = None, last_epoch: int = -1
    ) -> None:
        """Tell what lies at and behind an offset, and before an end if there is one, under an instance.

        With the leader epoch of the batch below the offset, the first fetch tells whether that batch was truncated meanwhile.
        """
        self._followed[partition] = Followed(instance, offset, end_offset, last_epoch)
        self._share_out()

    def forget(self, partition: int) -> None:
        """Follow a partition no more."""
        if self._followed.pop(partition, None) is not None:
            self._share_out()

    def landed(self, partition: int, batch: SentBatch, base_offset: int) -> None:
        """Learn where a batch of ours lies, below the high watermark; it is met now if nothing lies between."""
        followed, waiting = self._followed.get(partition), self._sent(partition)
        if followed is None:
            return
        if (
            waiting
            and waiting[0] is batch
            and followed.is_checked  # else the log may have lost what was told, and have grown to this offset again
            and followed.leader_epoch in (-1, self._brokers.leaders.get(partition, (-1, -1))[1])
            and base_offset == followed.offset
            and self._listener().own_records_read(
                partition, followed.instance, base_offset, batch.record_count, batch.first_header
            )
        ):
            self._meet(batch, waiting)
            followed.offset = followed.batch_end_offset = base_offset + batch.record_count
            followed.last_epoch, followed.landed_header = -1, batch.last_header
            self.landings += 1
        elif not any(sent is batch for sent in waiting):
            return  # a fetch was faster
        elif base_offset < followed.offset:
            self.forget(partition)
            text = f"what was written now lies at offset {base_offset}, below {followed.offset}: the log was truncated"
            self._listener().read_failed(partition, followed.instance, ReadError(text, is_alarm=True))
        else:
            self._fetch_soon(partition)

    def _meet(self, batch: SentBatch, waiting: deque[SentBatch]) -> None:
        if waiting and waiting[0] is batch:  # else whoever was told gave the partition up
            waiting.popleft()
        self._met(batch)

    def reach(self, partition: int, offset: int) -> None:
        """Fetch soon what lies below an offset, unless that is told with batches of ours which are on their way."""
        followed = self._followed.get(partition)
        if followed is not None and followed.offset < offset and not self._sent(partition):
            self._fetch_soon(partition)

    def _fetch_soon(self, partition: int) -> None:
        session = self._sessions.get(self._brokers.leaders.get(partition, (-1, -1))[0])
        if session is not None:
            session.changed.set()

    async def close(self) -> None:
        """Stop every session."""
        self._followed.clear()
        tasks = [session.task for session in self._sessions.values()]
        if self._search is not None:
            tasks.append(self._search)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _share_out(self) -> None:
        """Give each partition to the session of its leader."""
        by_broker: dict[int, dict[int, Followed]] = {}
        for partition, followed in self._followed.items():
            leader = self._brokers.leaders.get(partition)
            if leader is not None:
                by_broker.setdefault(leader[0], {})[partition] = followed
            elif self._search is None or self._search.done():
                self._search = asyncio.get_running_loop().create_task(
                    self._search_leaders(), name=f"holdfast-{self._purpose}-search"
                )
        for broker_id in by_broker.keys() - self._sessions.keys():
            self._sessions[broker_id] = FetchSession(
                self, self._purpose, broker_id, self._config, self._brokers, self._throttle, self._heard
            )
        for broker_id, session in self._sessions.items():
            session.wanted = by_broker.get(broker_id, {})
            session.changed.set()

    async def _search_leaders(self) -> None:
        while not self._followed.keys() <= self._brokers.leaders.keys():
            await self.ask_leaders()

    async def ask_leaders(self) -> None:
        """Ask anew who leads, after a pause; a failure leaves what was known."""
        pause_s = self._config.retry_backoff_ms / 1_000
        await asyncio.sleep(pause_s)
        has_failed = False
        try:
            await self._brokers.refresh()
        except Exception as failure:  # its session goes on, and asks again
            self._bugs.explain(failure, "asking who leads failed")
            has_failed = True
        if has_failed:
            await asyncio.sleep(pause_s)

    def meet(self, partition: int, followed: Followed, fetched: Fetched) -> Iterator[None]:
        """Tell what a fetch brought; yields where others may have a turn.

        Raises:
            DamagedBatch: the batch where the partition stands cannot be taken apart; what lies before it was told.
        """
        listener = self._listener()
        if self._followed.get(partition) is not followed:
            return
        if fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
            raise DamagedBatch("the broker cannot read it")
        if fetched.error_code or fetched.is_diverging:
            self._fail(partition, followed, _read_error(fetched, followed.offset))
            return
        followed.is_checked |= followed.asked_offset == followed.offset
        data, at, end, told, slice_max = fetched.records, 0, len(fetched.records), 0, self._config.slice_records_max
        next_offset = followed.asked_offset
        is_behind_batch = next_offset == followed.batch_end_offset  # else the first one may begin below
        while at < end:
            # Of the first batch a broker sends all or nothing; others may be cut short, and are fetched again.
            head = BATCH_HEAD.unpack_from(data, at) if at + BATCH_HEAD_BYTES <= end else None
            size = LENGTH_OFFSET + head[1] if head is not None else BATCH_HEAD_BYTES
            stop = at + size
            if head is None or stop > end:
                if at == 0:
                    raise DamagedBatch(f"its head says {size} bytes, and {end} came")
                break
            base_offset, last_offset = head[0], head[0] + head[6]
            if size < BATCH_HEAD_BYTES or last_offset < next_offset or (is_behind_batch and base_offset < next_offset):
                raise DamagedBatch(
                    f"its head says {size} bytes and offsets {base_offset} to {last_offset}, behind offset {next_offset}"
                )
            next_offset, is_behind_batch = last_offset + 1, True
            landed_header = followed.landed_header if followed.asked_offset < followed.offset else None
            if landed_header is not None and next_offset >= followed.offset:
                if next_offset > followed.offset or not _ends_with(data[at:stop], last_offset, landed_header):
                    self._fail(partition, followed, _truncated(followed.offset))
                    return
                followed.is_checked, followed.last_epoch, followed.landed_header = True, head[2], None
            if last_offset < followed.offset:  # met when it landed, while this fetch was under way or before it
                at = stop
                continue
            followed.landed_header = None
            sent = self._sent(partition)
            own = sent[0] if sent else None
            if (
                own
                and data[at + BATCH_HEAD_BYTES : stop] == own.body
                and base_offset >= followed.offset
                and head[6] + 1 == own.record_count
                and listener.own_records_read(
                    partition, followed.instance, base_offset, own.record_count, own.first_header
                )
            ):
                self._meet(own, sent)
                followed.offset, followed.last_epoch = last_offset + 1, head[2]
                followed.batch_end_offset = followed.offset
            else:
                records = decode(data[at:stop], followed.offset)
                # A batch may hold ten thousand records, so it is taken apart in slices too.
                while few := take(records, slice_max, last_offset):
                    if told >= slice_max:
                        told = 0
                        yield
                        if self._followed.get(partition) is not followed:
                            return
                    # While others had their turn, the answer to our Produce may have told where it lies.
                    if few[0].offset < followed.offset:
                        few = [record for record in few if record.offset >= followed.offset]
                        if not few:
                            continue
                    _drop_met(sent, few)
                    followed.offset, followed.last_epoch = few[-1].offset + 1, head[2]
                    listener.records_read(partition, followed.instance, few)
                    told += len(few)
                if followed.offset <= last_offset + 1:  # or it landed meanwhile, and more of ours behind it
                    followed.offset, followed.last_epoch, followed.landed_header = last_offset + 1, head[2], None
                followed.batch_end_offset = followed.offset
                listener.position_reached(partition, followed.instance, followed.offset)
            if self._followed.get(partition) is not followed:
                return
            at = stop
        if followed.end_offset is not None and followed.offset >= followed.end_offset:
            self.forget(partition)
            self._ended(partition, followed.instance, followed.offset, followed.last_epoch)

    def note_damage(self, partition: int, followed: Followed, why: str) -> None:
        """Take note of a damaged batch where a partition stands, which is fetched once more; the second time is an alarm."""
        if self._followed.get(partition) is not followed:
            return
        if followed.damaged_offset != followed.offset:  # on its way, maybe, or in one broker's copy only
            followed.damaged_offset = followed.offset
            followed.asked_offset = -1
            return
        self._fail(partition, followed, _damage_error(followed.offset, why))

    def fail_alone(self, partition: int, followed: Followed, bug: Exception) -> None:
        """End the reading of a partition over which something of ours failed; it loads again."""
        self._bugs.report(bug, f"reading partition {partition} failed")
        self.fail(partition, followed, repr(bug))

    def fail(self, partition: int, followed: Followed, why: str) -> None:
        """End the reading of a partition, which loads again."""
        if self._followed.get(partition) is followed:
            self._fail(partition, followed, ReadError(why, is_alarm=False))

    def _fail(self, partition: int, followed: Followed, error: ReadError) -> None:
        self.forget(partition)
        self._listener().read_failed(partition, followed.instance, error)


def _ends_with(batch: bytes, last_offset: int, header: bytes) -> bool:
    """Tell whether the last record of a batch is ours of this header, which no two records of a log share."""
    return [record.header for record in take(decode(batch, last_offset), 1, last_offset)] == [header]


def _drop_met(sent: deque[SentBatch], records: list[LogRecord]) -> None:
    """Forget sent batches that were met record by record, because the broker compressed them again."""
    headers = {record.header for record in records} if sent else ()
    while sent and sent[0].first_header in headers:
        sent.popleft()


def _read_error(fetched: Fetched, offset: int) -> ReadError:
    if fetched.is_diverging:
        return _truncated(offset)
    if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # Cut or lost: the next load compares the log's bounds with what was committed, and knows.
        return ReadError(f"offset {offset} is out of range", is_alarm=False)
    return ReadError(f"the broker answered error {fetched.error_code}", is_alarm=False)


def _truncated(offset: int) -> ReadError:
    return ReadError(f"the log was truncated below offset {offset}", is_alarm=True)


def _damage_error(offset: int, why: str) -> ReadError:
    return ReadError(f"the record batch at offset {offset} is damaged: {why}", is_alarm=True)
