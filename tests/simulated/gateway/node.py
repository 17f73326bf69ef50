"""One process of a gateway: the real calls, sessions, leader and share partitions on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.daemon.access.audit import Client
from holdfast.delivery.sessions import ShareSessions
from holdfast.delivery.share_partition.values import ACQUIRED
from holdfast.gateway.consumers import ConsumerCalls, LeaderPlace
from holdfast.gateway.leading.leader import Leader
from holdfast.gateway.leading.led_partition import Ended, Given, LedPartition, Wanted
from holdfast.gateway.leading.starts import Starts
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.kafka.connection_options import Address
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.topics.topic_ends import Answer, Ends, Leaders, Led, Place
from holdfast.metrics.line_limit import LineLimiter
from holdfast.metrics.registry import Registry
from holdfast.records.share.keys import SharePartitionKey
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.gateway.misses import check_nobody_misses, waiting_for
from tests.simulated.gateway.records import SimulatedReader
from tests.simulated.gateway.states import Access

if TYPE_CHECKING:
    from tests.simulated.gateway.world import GatewayWorld

#: It must be suspicious of itself when it stood still for so long.
_LONG_S = 3.0
_WATCH_S = 0.2
_LOCK_ENDS_LATE_S = 0.5
#: A reader brings records sooner, and no timer wakes by chance those whom an event should have woken.
_BESIDE_RECORDS_S = 0.7
_BROKER = ("broker", 9092)
_NOT_HERE = Ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads")


class _Standing(NamedTuple):
    """How far a share partition is while somebody waits; each read, which takes up to 0.3 s, moves it."""

    #: The first that a fetch would bring.
    offset: int
    #: The first that is available, though the log may have no record there any more.
    available: int
    #: The begin of the gap that a load left.
    hole: int
    #: The first that was never acquired: it moves with the log's start, and over offsets that have no record.
    new: int


class WatchedLeader(Leader):
    """A leader whose ledger learns when records are acquired."""

    def __init__(self, node: GatewayNode, *parts: Any) -> None:
        super().__init__(*parts)
        self._node = node

    def lead(self, key: SharePartitionKey) -> LedPartition | Ended:
        """See `Leader.lead`."""
        led = super().lead(key)
        if isinstance(led, LedPartition) and self._node.world.ledger.learn_led(self._node, led):
            led.give = partial(self._give, led, led.give)  # type: ignore[method-assign]
        return led

    def _give(self, led: LedPartition, give: Callable[[Wanted, int, int], Given | None], *wish: Any) -> Given | None:
        given = give(*wish)
        if given is not None:
            self._node.world.ledger.lock(led, wish[0].member_id, given.ranges)
        return given


class GatewayNode:
    """A process; its parts ask it what it leads, and where logs begin and end."""

    def __init__(self, world: GatewayWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.loop = world.timeline.make_loop()
        self.is_dead = False
        #: When it stood still last, until when.
        self.frozen_s = self.thawed_s = -1.0
        #: All that was accepted or rejected before it went on, if it stood still for long.
        self.settled_before: dict[SharePartitionKey, set[int]] = {}
        #: First and end offsets that brokers told it of each partition.
        self.told_bounds: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        #: The epoch under which it knows itself to lead each partition.
        self.epochs: dict[int, int] = {}
        self.readers: dict[bool, SimulatedReader] = {}
        self.access = Access(self)
        #: How far share partitions were while somebody waited beside records, and since when.
        self._seen: dict[LedPartition, tuple[_Standing, float]] = {}
        world.timeline.after(_WATCH_S, self.watch)
        asyncio._set_running_loop(self.loop)
        try:
            starts = Starts(self, lambda: int(world.timeline.now_s * 1_000))
            metrics = GatewayMetrics(Registry(), LineLimiter(lambda: int(world.timeline.now_s * 1_000)))
            self.sessions = ShareSessions(100)
            self.leader = WatchedLeader(
                self, self.access, self, self._reader_of, starts, world.config_of, 1_000, metrics, self.sessions
            )
            self.calls = ConsumerCalls(self.leader, self.sessions, Places(self), world.config_of)
        finally:
            asyncio._set_running_loop(None)

    def run(self, call: Callable[[], object]) -> None:
        """Call on its loop, unless it is dead."""
        if not self.is_dead:
            self.loop.call_soon(call)

    def learn_epoch(self, partition: int, epoch: int | None) -> None:
        """Learn that it leads a partition under an epoch, or no more."""

        def learn() -> None:
            if epoch is None:
                self.epochs.pop(partition, None)
            else:
                self.epochs[partition] = epoch
            self.leader.look_at_leadership(partition)

        self.run(learn)

    def freeze(self) -> None:
        """Let it stand still."""
        self.loop.is_frozen, self.frozen_s = True, self.world.timeline.now_s

    def thaw(self) -> None:
        """Let it go on."""
        if not self.loop.is_frozen:
            return
        self.loop.is_frozen = False
        self.thawed_s = self.world.timeline.now_s
        if self.thawed_s - self.frozen_s >= _LONG_S:
            self.settled_before = {key: {*settled} for key, settled in self.world.ledger.settled.items()}

    def die(self) -> None:
        """Lose it."""
        self.is_dead = True
        self.world.timeline.end(self.loop)
        self.loop.dispose()

    def watch(self) -> None:
        """See now and then that locks end in time, and that nobody waits beside records."""
        world, now_s = self.world, self.world.timeline.now_s
        if self.is_dead:
            return
        world.timeline.after(_WATCH_S, self.watch)
        if self.loop.is_frozen or now_s - self.thawed_s < _LOCK_ENDS_LATE_S:
            self._seen.clear()
            return
        if not self.loop._ready:  # type: ignore[attr-defined]  # of BaseEventLoop
            check_nobody_misses(self)
        seen: dict[LedPartition, tuple[_Standing, float]] = {}
        for led in [led for of_group in self.leader._by_group.values() for led in of_group.values()]:
            for batch in led.core.window.batches:
                for run in batch.runs:
                    if (
                        run.state == ACQUIRED
                        and not run.is_lock_over
                        and run.lock_until_ms < (now_s - _LOCK_ENDS_LATE_S) * 1_000
                    ):
                        violate(Invariant.LOCKS_END, f"{run.first} to {run.last} of {led.key} at {self.name}")
            if led.is_loading or not any(True for _ in waiting_for(self, led)):
                continue
            standing = self._find_available(led)
            if standing.offset < 0:
                continue
            before = self._seen.get(led)
            seen[led] = before if before is not None and before[0] == standing else (standing, now_s)
            if now_s - seen[led][1] >= _BESIDE_RECORDS_S:
                violate(Invariant.NOBODY_WAITS_BESIDE_RECORDS, f"{standing} of {led.key} at {self.name}")
        self._seen = seen

    def _find_available(self, led: LedPartition) -> _Standing:
        """Return the first offset that a fetch would bring, or -1, and what may have to be read before it."""
        window, log = led.core.window, self.world.logs[led.key.partition]
        config = self.world.config_of(led.key.group_id)
        end = log.last_stable_offset if config.is_committed else log.end

        def is_there(offset: int) -> bool:
            return offset < end and log.is_wanted(offset, is_committed=config.is_committed)

        first, hole, new = -1, window.gap_start(), led.core.first_new_offset
        for batch in window.batches:
            for run in batch.runs:
                if run.is_available() and run.last >= window.start_offset:
                    first = first if first >= 0 else run.first
                    for offset in range(max(run.first, window.start_offset), run.last + 1):
                        if is_there(offset):
                            return _Standing(offset, first, hole, new)
        if window.end_offset - window.start_offset + 1 >= config.partition_max_record_locks:
            return _Standing(-1, first, hole, new)
        offset = min((each for each in log.records if each >= new and is_there(each)), default=-1)
        return _Standing(offset, first, hole, new)

    def check_at_rest(self) -> None:
        """See that nothing is left when all sessions are gone."""
        left = {
            "sessions": len(self.sessions),
            "partitions of sessions": self.sessions.place_count,
            "fetches that wait": self.calls.waiting_count,
            "share partitions": len(self.leader),
            "groups": len(self.leader._by_group),
            "deadlines": len(self.leader._deadlines._entries),
            "readers": sum(len(reader.open_readers) for reader in self.readers.values()),
            "calls": self.access.unanswered,
        }
        if any(left.values()):
            violate(Invariant.NOTHING_IS_LEFT, f"{self.name}: {left}")

    # ---- what its parts ask ------------------------------------------------------------------------------------------

    def _reader_of(self, is_committed: bool) -> SimulatedReader:
        if is_committed not in self.readers:
            self.readers[is_committed] = SimulatedReader(self, is_committed=is_committed)
        return self.readers[is_committed]

    def log_partition(self, topic_id: bytes, partition: int) -> int:
        """See `gateway.leading.leader.Leadership`."""
        return partition

    def leader_epoch(self, topic_id: bytes, partition: int) -> int | Ended:
        """See `gateway.leading.leader.Leadership`."""
        return self.epochs.get(partition, _NOT_HERE)

    async def find_leaders(self, places: Collection[Place]) -> Leaders:
        """See `gateway.leading.starts.EndSource`: one broker leads all."""
        return Leaders({_BROKER: {place: Led(0, "orders") for place in sorted(places)}}, {})

    async def query_leader(self, address: Address, led: Mapping[Place, Led], first: int) -> dict[Place, Answer]:
        """See `gateway.leading.starts.EndSource`."""
        random = self.world.random_of("ends")
        chance = 1.0 if self.world.is_calm else random.random()
        await asyncio.sleep(random.choice((0.0, 0.01, 0.3)))
        found = {}
        for place in led:
            log = self.world.logs[place[1]]
            ends = Ends(-1, -1, "no leader") if chance < 0.15 else Ends(log.start, log.end)
            self.told_bounds[place[1]].add((ends.first_offset, ends.end_offset))
            found[place] = Answer(ends, chance < 0.1)
        return found


class Places:
    """The topics that a node offers (`gateway.consumers.Topics`)."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node

    def refuse_read(self, caller: Client, topic_id: bytes, partition: int) -> Ended | None:
        """See `Topics.refuse_read`."""
        if partition >= len(self._node.world.logs):
            return Ended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        return None

    def rights(self, caller: Client) -> str:
        """See `Topics.rights`."""
        return caller.principal

    def leader(self, topic_id: bytes, partition: int) -> LeaderPlace:
        """See `Topics.leader`."""
        node, epoch = self._node.world.leaders[partition]
        return LeaderPlace(self._node.world.nodes.index(node), epoch, None)
