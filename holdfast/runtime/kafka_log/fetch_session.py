"""The incremental fetch session with one broker, for one follower.

A broker that keeps no session is asked for everything each time; what is wrong with one partition is told of it alone.

Source: KIP-227 (fetch sessions).
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from holdfast.kafka.connection import BrokerConnection
from holdfast.kafka.errors import ConnectionFailed, UnreadableAnswer
from holdfast.kafka.leaders import Brokers
from holdfast.kafka.protocol import requests as frames
from holdfast.kafka.protocol.error_codes import FETCH_SESSION_LOST, STALE_LEADER
from holdfast.kafka.protocol.requests import Fetched, FetchTarget
from holdfast.kafka.throttle import Throttle
from holdfast.runtime.kafka_log.record_batches import DamagedBatch

_SESSION_EPOCH_MAX = 2**31 - 1


class FollowerConfig(NamedTuple):
    """Bounds of a follower."""

    wait_ms: int  #: how long a broker may hold an empty fetch; the longest time between two
    bytes_max: int
    partition_bytes_max: int
    slice_records_max: int  #: decoded records told at a time
    retry_backoff_ms: int = 50
    throttle_max_ms: int = 300_000  #: the longest that a broker is not asked because it says so


class Followed:
    """One partition as a follower sees it."""

    __slots__ = (
        "asked_offset",
        "batch_end_offset",
        "damaged_offset",
        "end_offset",
        "fed_by",
        "instance",
        "is_checked",
        "landed_header",
        "last_epoch",
        "leader_epoch",
        "offset",
    )

    def __init__(self, instance: int, offset: int, end_offset: int | None, last_epoch: int) -> None:
        self.instance = instance
        self.offset = offset
        self.end_offset = end_offset  #: behind the last record to be told; None: never
        self.last_epoch = last_epoch  #: leader epoch of the batch below `offset`; -1: not known
        self.is_checked = last_epoch < 0  #: no fetch has to tell any more whether that batch was truncated
        #: of the record below `offset`, if it is ours and landed, so that no fetch has told its leader epoch; else None
        self.landed_header: bytes | None = None
        self.leader_epoch = -1  #: under which the last fetch was sent; -1: there was none
        self.asked_offset = -1  #: what the broker's session knows; -1: nothing
        self.batch_end_offset = -1  #: behind the last batch; a fetch from there brings none that begins before
        self.damaged_offset = -1  #: where a damaged batch was found first
        self.fed_by = -1  #: number of the fetch that last brought something

    def fetch_offset(self, leader_epoch: int) -> int:
        """Return where the next fetch begins, from a leader of this epoch.

        A leader that was elected since may have lost what landed; so that is fetched again and looked at, before anything counts.
        """
        if self.leader_epoch not in (-1, leader_epoch):
            self.is_checked, self.asked_offset = False, -1
        self.leader_epoch = leader_epoch
        return self.offset if self.is_checked or self.landed_header is None else self.offset - 1


class SessionOwner(Protocol):
    """Who is told what a session brought."""

    landings: int  #: batches of ours that were found without a fetch so far

    def meet(self, partition: int, followed: Followed, fetched: Fetched) -> Iterator[None]:
        """See `Follower.meet`."""

    def note_damage(self, partition: int, followed: Followed, why: str) -> None:
        """See `Follower.note_damage`."""

    def fail(self, partition: int, followed: Followed, why: str) -> None:
        """See `Follower.fail`."""

    def fail_alone(self, partition: int, followed: Followed, bug: Exception) -> None:
        """See `Follower.fail_alone`."""

    async def ask_leaders(self) -> None:
        """See `Follower.ask_leaders`."""


class FetchSession:
    """The fetches to one broker, from its making until its task is cancelled."""

    def __init__(
        self,
        owner: SessionOwner,
        purpose: str,
        broker_id: int,
        config: FollowerConfig,
        brokers: Brokers,
        throttle: Throttle,
        heard: Callable[[int, float], None] | None,
    ) -> None:
        """Begin; nothing is fetched while nothing is `wanted`.

        Args:
            owner: is told what came.
            purpose: names the connection and the task.
            broker_id: of the broker.
            config: bounds.
            brokers: who leads what.
            throttle: how long no broker is to be asked.
            heard: told (broker id, when the request left by the loop's clock) with every answer.
        """
        self.wanted: dict[int, Followed] = {}  #: what the broker leads, by partition
        self.changed = asyncio.Event()  #: there is something to be fetched that the last fetch did not ask for
        self._landings = 0  #: that the owner had counted when this session looked last
        self._owner = owner
        self._purpose = purpose
        self._broker_id = broker_id
        self._config = config
        self._brokers = brokers
        self._throttle = throttle
        self._heard = heard
        self._session_id = 0
        self._epoch = 0
        self._known: dict[int, Followed] = {}
        self._fetches = 0
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
            except UnreadableAnswer as unreadable:  # another fetch would get the same, so the partitions load again
                is_stale = True
                self._forget_session()
                for partition, followed in list(self.wanted.items()):
                    owner.fail(partition, followed, str(unreadable))
            except ConnectionFailed:
                is_stale = True
                self._forget_session()
            except Exception as bug:  # a bug stops the partitions of this session, which load again; never the session
                is_stale = True
                self._forget_session()
                for partition, followed in list(self.wanted.items()):
                    owner.fail_alone(partition, followed, bug)
            if is_stale:
                await owner.ask_leaders()

    async def _pause(self) -> int:
        """Wait while a fetch would only bring what is met without one; returns how long the broker may hold the next one."""
        owner = self._owner
        if owner.landings == self._landings:
            return self._config.wait_ms
        self._landings = owner.landings
        try:
            async with asyncio.timeout(self._config.wait_ms / 1_000):
                await self.changed.wait()
        except TimeoutError:
            # A fetch that a broker holds is looked at with every batch that lands.
            return 0
        return self._config.wait_ms

    async def _fetch(self, connection: BrokerConnection, wait_ms: int) -> bool:
        """Fetch once and tell what came; returns whether the leaders should be asked for anew."""
        owner, config = self._owner, self._config
        self.changed.clear()
        forgotten = [partition for partition in self._known if partition not in self.wanted]
        targets = []
        wanted = list(self.wanted.items())
        if self._epoch == 0:
            # A broker serves the first ones first; within a session it sees to turns itself.
            wanted.sort(key=lambda each: each[1].fed_by)
        self._fetches += 1
        for partition, followed in wanted:
            leader_epoch = self._brokers.leaders.get(partition, (-1, -1))[1]
            offset = followed.fetch_offset(leader_epoch)
            if self._known.get(partition) is not followed or followed.asked_offset != offset:
                targets.append(FetchTarget(partition, leader_epoch, offset, followed.last_epoch))
                followed.asked_offset = offset
        asked = self._known = dict(self.wanted)
        api, version = frames.FETCH
        body = frames.encode_fetch(
            self._brokers.topic,
            (self._session_id, self._epoch),
            wait_ms,
            config.bytes_max,
            config.partition_bytes_max,
            targets,
            forgotten,
        )
        sent_s = asyncio.get_running_loop().time()
        data = await connection.exchange(api, version, body, is_flexible=True)
        answer = frames.read_answer(frames.decode_fetched, data)
        if self._heard is not None:
            self._heard(self._broker_id, sent_s)
        self._throttle.told(self._broker_id, answer.throttle_ms)
        if answer.error_code:
            self._forget_session()
            return answer.error_code not in FETCH_SESSION_LOST
        if answer.session_id == 0 or self._epoch == _SESSION_EPOCH_MAX:
            self._forget_session()  # the broker keeps no session for us: ask for everything each time
        else:
            self._session_id = answer.session_id
            self._epoch += 1
        is_stale = False
        for fetched in answer.partitions:
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
                for _ in owner.meet(fetched.partition, met, fetched):
                    await asyncio.sleep(0)
                    if self.wanted.get(fetched.partition) is not met:
                        break
            except DamagedBatch as damage:
                owner.note_damage(fetched.partition, met, str(damage))
                is_stale = True
            except Exception as bug:  # the other partitions of this answer go on
                owner.fail_alone(fetched.partition, met, bug)
        return is_stale

    def _forget_session(self) -> None:
        self._session_id = self._epoch = 0
        self._known = {}
