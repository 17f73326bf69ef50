"""Follows log partitions: one incremental fetch session per broker, on the event loop.

Two of them work for a node: one for loads, which end where the log ended, and one for tails, which don't; so no load stands before a tail.
A batch that equals, byte for byte, the oldest one we sent and have not met is told as ours without being taken apart.
A leader that says where a batch of ours lies, below the high watermark, says what lies there.
Where the tail stands just there, the batch is met without a fetch; so while ours land, brokers are asked once in a while what others wrote.
Everything else is decoded and told in slices of bounded size; between slices the rest of the node has its turn.
What is wrong with one partition is told to that partition, and the others of the same answer go on.

Source: KIP-227 (fetch sessions), KIP-320 (truncation).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.runtime import kafka_frames as frames
from holdfast.runtime.broker_connection import BrokerConnection, ConnectionFailed
from holdfast.runtime.brokers import STALE_LEADER, Brokers
from holdfast.runtime.kafka_frames import Fetched, FetchTarget
from holdfast.runtime.lanes import SentBatch
from holdfast.runtime.log import LogListener, LogRecord, ReadError
from holdfast.runtime.metrics import Counter
from holdfast.runtime.record_batches import BATCH_HEAD, BATCH_HEAD_BYTES, LENGTH_OFFSET, DamagedBatch, decode, take
from holdfast.runtime.throttle import Throttle

_OFFSET_OUT_OF_RANGE = 1
_CORRUPT_MESSAGE = 2
_SESSION_EPOCH_MAX = 2**31 - 1
_SESSION_LOST = frozenset({70, 71, 106})


class FollowerConfig(NamedTuple):
    """Bounds of a follower."""

    wait_ms: int  #: how long a broker may hold an empty fetch; the longest time between two
    bytes_max: int
    partition_bytes_max: int
    slice_records_max: int  #: decoded records told at a time
    retry_backoff_ms: int = 50
    throttle_max_ms: int = 300_000  #: the longest that a broker is not asked because it says so


class _Followed:
    """One partition as a follower sees it."""

    __slots__ = (
        "asked_offset",
        "batch_end_offset",
        "damaged_offset",
        "end_offset",
        "fed_by",
        "instance",
        "is_checked",
        "last_epoch",
        "offset",
    )

    def __init__(self, instance: int, offset: int, end_offset: int | None, last_epoch: int) -> None:
        self.instance = instance
        self.offset = offset
        self.end_offset = end_offset  #: behind the last record to be told; None: never
        self.last_epoch = last_epoch  #: leader epoch of the batch below `offset`; -1: not known
        self.is_checked = last_epoch < 0  #: no fetch has to tell any more whether that batch was truncated
        self.asked_offset = -1  #: what the broker's session knows; -1: nothing
        self.batch_end_offset = -1  #: behind the last batch; a fetch from there brings none that begins before
        self.damaged_offset = -1  #: where a damaged batch was found first
        self.fed_by = -1  #: number of the fetch that last brought something


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
        heard: Callable[[int, float], None] = lambda *_: None,
        throttled_ms: Counter | None = None,
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
        """
        self._purpose = purpose
        self._ended = ended
        self._met = met
        self._heard = heard
        now_s = asyncio.get_running_loop().time
        self._throttle = Throttle(config.throttle_max_ms, throttled_ms or Counter(), now_s)
        self._config = config
        self._brokers = brokers
        self._listener = listener
        self._sent = sent
        self._followed: dict[int, _Followed] = {}
        self._sessions: dict[int, _Session] = {}
        self._landings = 0  #: batches of ours that were met without a fetch
        self._search: asyncio.Task[None] | None = None  #: for leaders of partitions that have none now
        brokers.on_change(self._share_out)

    def follow(
        self, partition: int, instance: int, offset: int, end_offset: int | None = None, last_epoch: int = -1
    ) -> None:
        """Tell what lies at and behind an offset, and before an end if there is one, under an instance.

        With the leader epoch of the batch below the offset, the first fetch tells whether that batch was truncated meanwhile.
        """
        self._followed[partition] = _Followed(instance, offset, end_offset, last_epoch)
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
            and followed.is_checked  # else the log may have lost what a load told, and have grown to this offset again
            and base_offset == followed.offset
            and self._listener().own_records_read(
                partition, followed.instance, base_offset, batch.record_count, batch.first_header
            )
        ):
            self._meet(batch, waiting)
            followed.offset = followed.batch_end_offset = base_offset + batch.record_count
            followed.last_epoch = -1
            self._landings += 1
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
        by_broker: dict[int, dict[int, _Followed]] = {}
        for partition, followed in self._followed.items():
            leader = self._brokers.leaders.get(partition)
            if leader is not None:
                by_broker.setdefault(leader[0], {})[partition] = followed
            elif self._search is None or self._search.done():
                self._search = asyncio.get_running_loop().create_task(
                    self._search_leaders(), name=f"holdfast-{self._purpose}-search"
                )
        for broker_id in by_broker.keys() - self._sessions.keys():
            self._sessions[broker_id] = _Session(self, broker_id)
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
        except Exception:  # nobody answered, or nothing that can be read
            has_failed = True
        if has_failed:
            await asyncio.sleep(pause_s)

    def meet(self, partition: int, followed: _Followed, fetched: Fetched) -> Iterator[None]:
        """Tell what a fetch brought; yields where others may have a turn.

        Raises:
            DamagedBatch: the batch where the partition stands cannot be taken apart; what lies before it was told.
        """
        listener = self._listener()
        if self._followed.get(partition) is not followed:
            return
        if fetched.error_code == _CORRUPT_MESSAGE:
            raise DamagedBatch("the broker cannot read it")
        if fetched.error_code or fetched.is_diverging:
            self._fail(partition, followed, _read_error(fetched, followed.offset))
            return
        followed.is_checked = True
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
            if last_offset < followed.offset:  # met when it landed, while this fetch was under way
                at = stop
                continue
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
                if followed.offset <= last_offset:
                    followed.offset, followed.last_epoch = last_offset + 1, head[2]
                followed.batch_end_offset = followed.offset
                listener.position_reached(partition, followed.instance, followed.offset)
            if self._followed.get(partition) is not followed:
                return
            at = stop
        if followed.end_offset is not None and followed.offset >= followed.end_offset:
            self.forget(partition)
            self._ended(partition, followed.instance, followed.offset, followed.last_epoch)

    def note_damage(self, partition: int, followed: _Followed, why: str) -> None:
        """Take note of a damaged batch where a partition stands, which is fetched once more; the second time is an alarm."""
        if self._followed.get(partition) is not followed:
            return
        if followed.damaged_offset != followed.offset:  # on its way, maybe, or in one broker's copy only
            followed.damaged_offset = followed.offset
            followed.asked_offset = -1
            return
        self._fail(partition, followed, _damage_error(followed.offset, why))

    def fail_alone(self, partition: int, followed: _Followed, bug: Exception) -> None:
        """End the reading of a partition over which something of ours failed; it loads again."""
        if self._followed.get(partition) is followed:
            self._fail(partition, followed, ReadError(repr(bug), is_alarm=False))

    def _fail(self, partition: int, followed: _Followed, error: ReadError) -> None:
        self.forget(partition)
        self._listener().read_failed(partition, followed.instance, error)


class _Session:
    """The fetches to one broker."""

    def __init__(self, follower: Follower, broker_id: int) -> None:
        self.wanted: dict[int, _Followed] = {}
        self.changed = asyncio.Event()  #: there is something to be fetched that the last fetch did not ask for
        self._landings = 0  #: that the follower had counted when this session looked last
        self._follower = follower
        self._broker_id = broker_id
        self._session_id = 0
        self._epoch = 0
        self._known: dict[int, _Followed] = {}
        self._fetches = 0
        self.task = asyncio.get_running_loop().create_task(
            self._run(), name=f"holdfast-{follower._purpose}-{broker_id}"
        )

    async def _run(self) -> None:
        follower = self._follower
        while True:
            if not self.wanted:
                self.changed.clear()
                await self.changed.wait()
                continue
            if (throttled_s := follower._throttle.wait_s(self._broker_id)) > 0:
                await asyncio.sleep(throttled_s)
                continue
            try:
                wait_ms = await self._pause()
                connection = await follower._brokers.connection(self._broker_id, follower._purpose)
                is_stale = await self._fetch(connection, wait_ms)
            except ConnectionFailed:
                is_stale = True
                self._forget_session()
            except Exception as bug:  # a bug stops the partitions of this session, which load again; never the session
                is_stale = True
                self._forget_session()
                for partition, followed in list(self.wanted.items()):
                    follower.fail_alone(partition, followed, bug)
            if is_stale:
                await follower.ask_leaders()

    async def _pause(self) -> int:
        """Wait while a fetch would only bring what is met without one; returns how long the broker may hold the next one."""
        follower = self._follower
        if follower._landings == self._landings:
            return follower._config.wait_ms
        self._landings = follower._landings
        try:
            async with asyncio.timeout(follower._config.wait_ms / 1_000):
                await self.changed.wait()
        except TimeoutError:
            # A fetch that a broker holds is looked at with every batch that lands.
            return 0
        return follower._config.wait_ms

    async def _fetch(self, connection: BrokerConnection, wait_ms: int) -> bool:
        """Fetch once and tell what came; returns whether the leaders should be asked for anew."""
        follower, config = self._follower, self._follower._config
        self.changed.clear()
        forgotten = [partition for partition in self._known if partition not in self.wanted]
        targets = []
        wanted = list(self.wanted.items())
        if self._epoch == 0:
            # A broker serves the first ones first; within a session it sees to turns itself.
            wanted.sort(key=lambda each: each[1].fed_by)
        self._fetches += 1
        for partition, followed in wanted:
            if self._known.get(partition) is not followed or followed.asked_offset != followed.offset:
                leader_epoch = follower._brokers.leaders.get(partition, (-1, -1))[1]
                targets.append(FetchTarget(partition, leader_epoch, followed.offset, followed.last_epoch))
                followed.asked_offset = followed.offset
        asked = self._known = dict(self.wanted)
        api, version = frames.FETCH
        body = frames.encode_fetch(
            follower._brokers.topic,
            (self._session_id, self._epoch),
            wait_ms,
            config.bytes_max,
            config.partition_bytes_max,
            targets,
            forgotten,
        )
        sent_s = asyncio.get_running_loop().time()
        data = await connection.exchange(api, version, body, is_flexible=True)
        error_code, session_id, found = frames.decode_fetched(data)
        follower._heard(self._broker_id, sent_s)
        follower._throttle.told(self._broker_id, frames.throttle_ms(frames.FETCH, data))
        if error_code:
            self._forget_session()
            return error_code not in _SESSION_LOST
        if session_id == 0 or self._epoch == _SESSION_EPOCH_MAX:
            self._forget_session()  # the broker keeps no session for us: ask for everything each time
        else:
            self._session_id = session_id
            self._epoch += 1
        is_stale = False
        for fetched in found:
            met = asked.get(fetched.partition)  # and not of an instance that came while the answer was under way
            if met is None or self.wanted.get(fetched.partition) is not met:  # another broker leads it since
                continue
            if fetched.error_code in STALE_LEADER:
                met.asked_offset = -1
                is_stale = True
                continue
            if fetched.records:
                met.fed_by = self._fetches
            try:
                for _ in follower.meet(fetched.partition, met, fetched):
                    await asyncio.sleep(0)
                    if self.wanted.get(fetched.partition) is not met:
                        break
            except DamagedBatch as damage:
                follower.note_damage(fetched.partition, met, str(damage))
                is_stale = True
            except Exception as bug:  # the other partitions of this answer go on
                follower.fail_alone(fetched.partition, met, bug)
        return is_stale

    def _forget_session(self) -> None:
        self._session_id = self._epoch = 0
        self._known = {}


def _drop_met(sent: deque[SentBatch], records: list[LogRecord]) -> None:
    """Forget sent batches that were met record by record, because the broker compressed them again."""
    headers = {record.header for record in records} if sent else ()
    while sent and sent[0].first_header in headers:
        sent.popleft()


def _read_error(fetched: Fetched, offset: int) -> ReadError:
    if fetched.is_diverging:
        return ReadError(f"the log was truncated below offset {offset}", is_alarm=True)
    if fetched.error_code == _OFFSET_OUT_OF_RANGE:
        # Cut or lost: the next load compares the log's bounds with what was committed, and knows.
        return ReadError(f"offset {offset} is out of range", is_alarm=False)
    return ReadError(f"the broker answered error {fetched.error_code}", is_alarm=False)


def _damage_error(offset: int, why: str) -> ReadError:
    return ReadError(f"the record batch at offset {offset} is damaged: {why}", is_alarm=True)
