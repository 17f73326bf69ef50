"""The ledger of a life: who was given which record, what was answered, and what must hold of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.api.share_acknowledge import ShareAcknowledgeResponse
from holdfast.api.share_consumer import ACCEPT, REJECT, RENEW, AcknowledgedRange, NamedTopics
from holdfast.api.share_errors import OTHER_LEADER
from holdfast.api.share_fetch import FetchedPartition, ShareFetchResponse
from holdfast.delivery.share_partition.values import AcquiredRange
from holdfast.gateway.leading.led_partition import LedPartition
from holdfast.kafka.records.batches import iter_batches
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState
from tests.simulated.checks.invariants import Invariant, violate
from tests.world.samples import TOPIC

if TYPE_CHECKING:
    from tests.simulated.gateway.node import GatewayNode
    from tests.simulated.gateway.world import GatewayWorld

_TERMINAL = (ACKNOWLEDGED, ARCHIVED)
_ROUNDING_S = 1e-6


class Lock(NamedTuple):
    """An offset that a member acquired."""

    member_id: str
    until_s: float


class Locks:
    """The locks of one share partition as it was loaded: another one knows nothing of them."""

    def __init__(self, node: GatewayNode, key: SharePartitionKey) -> None:
        self.node = node
        self.key = key
        self.held: dict[int, Lock] = {}
        #: Until when each member has what it acquired last of each offset, unless it acknowledges it.
        self.acquired: dict[tuple[int, str], float] = {}
        #: All that members ever acquired.
        self.ever: set[tuple[int, str]] = set()
        #: The log said that another node leads.
        self.is_fenced = False


class Ledger:
    """A ledger of one life."""

    def __init__(self, world: GatewayWorld) -> None:
        self._world = world
        #: The offset at which each share partition began.
        self.starts: dict[SharePartitionKey, int] = {}
        #: Offsets that were accepted or rejected, and that was answered without an error.
        self.settled: defaultdict[SharePartitionKey, set[int]] = defaultdict(set)
        #: The highest delivery count of each offset that a member acquired.
        self.counts: defaultdict[SharePartitionKey, dict[int, int]] = defaultdict(dict)
        self._locks: dict[LedPartition, Locks] = {}

    def begin(self, node: GatewayNode, key: SharePartitionKey, start: int) -> None:
        """Learn where a group begins: at an end of the log that a broker told."""
        is_latest = self._world.config_of(key.group_id).auto_offset_reset.is_latest
        told = {bounds[is_latest] for bounds in node.told_bounds[key.partition]}
        if start not in told:
            violate(Invariant.NO_RECORD_IS_SKIPPED, f"{key} begins at {start}, and {node.name} was told {sorted(told)}")
        self.starts[key] = start

    # ---- answers, as they leave a node -------------------------------------------------------------------------------

    def take_fetch(
        self,
        node: GatewayNode,
        group_id: str,
        member_id: str,
        topics: NamedTopics,
        records_max: int,
        response: ShareFetchResponse,
    ) -> None:
        """Learn of the answer to a ShareFetch."""
        if response.error_code:
            return
        answered = {each.partition: each for _, partitions in response.topics for each in partitions}
        for each in answered.values():
            self._check_leader(
                each.partition, each.error_code or each.acknowledge_error_code, each.leader_id, each.leader_epoch
            )
        for partition, batches in _named(topics):
            if batches and partition not in answered:
                violate(Invariant.ACKNOWLEDGED_IS_NAMED, f"{member_id} hears nothing of partition {partition}")
            if batches and not answered[partition].acknowledge_error_code:
                self._settle(SharePartitionKey(group_id, TOPIC, partition), batches)
        counts = [sum(last + 1 - first for first, last, _ in each.acquired) for each in answered.values()]
        if sum(counts) - max(counts, default=0) >= records_max:
            violate(Invariant.FETCHES_ARE_BOUNDED, f"{member_id} wants {records_max} and gets {counts}")
        for each in answered.values():
            if each.acquired:
                self._give(node, SharePartitionKey(group_id, TOPIC, each.partition), member_id, each)

    def take_acknowledge(
        self,
        node: GatewayNode,
        group_id: str,
        member_id: str,
        topics: NamedTopics,
        response: ShareAcknowledgeResponse,
        arrived_s: float,
    ) -> None:
        """Learn of the answer to a ShareAcknowledge, which arrived at a time."""
        if response.error_code:
            return
        answered = {each.partition: each for _, partitions in response.topics for each in partitions}
        for partition, batches in _named(topics):
            if partition not in answered:
                violate(Invariant.ACKNOWLEDGED_IS_NAMED, f"partition {partition} is missing in {response}")
            settled = answered[partition]
            self._check_leader(partition, settled.error_code, settled.leader_id, settled.leader_epoch)
            if not answered[partition].error_code:
                key = SharePartitionKey(group_id, TOPIC, partition)
                self._settle(key, batches)
                self._renew(node, key, member_id, batches, arrived_s)

    def _check_leader(self, partition: int, error_code: int, leader_id: int, leader_epoch: int) -> None:
        """See that an answer names the leader where another one leads, and nobody elsewhere."""
        leader, epoch = self._world.leaders[partition]
        leads = (self._world.nodes.index(leader), epoch) if error_code in OTHER_LEADER else (-1, -1)
        if (leader_id, leader_epoch) != leads:
            violate(
                Invariant.LEADER_IS_NAMED, f"{error_code} of {partition} names {leader_id, leader_epoch}, not {leads}"
            )

    def _settle(self, key: SharePartitionKey, batches: Sequence[AcknowledgedRange]) -> None:
        settled, log = self.settled[key], self._world.logs[key.partition]
        is_committed = self._world.config_of(key.group_id).is_committed
        for offset, kind in _offsets(batches):
            if kind in (ACCEPT, REJECT) and log.is_wanted(offset, is_committed=is_committed):
                settled.add(offset)
                self._world.count("accepted" if kind == ACCEPT else "rejected")

    def _give(self, node: GatewayNode, key: SharePartitionKey, member_id: str, given: FetchedPartition) -> None:
        world = self._world
        led = node.leader.find(key)
        is_effective = led is not None and led.leader_epoch >= world.states.fence_of(key)
        config = world.config_of(key.group_id)
        log, settled = world.logs[key.partition], self.settled[key]
        locks = None if led is None else self._locks[led]
        if led is None:
            violate(
                Invariant.GIVEN_BY_ITS_LEADER, f"{key}: {given.acquired} to {member_id}, and {node.name} does not lead"
            )
        if not is_effective:
            world.count("given by a leader of the past")
        data = b"".join(given.records)
        sent = [range(batch.base_offset, batch.last_offset + 1) for batch in iter_batches(memoryview(data), -1)]
        for first, last, count in given.acquired:
            if not 1 <= count <= config.delivery_count_limit:
                violate(Invariant.DELIVERY_COUNT_GROWS, f"{key}: {first} to {last} are given for the {count}th time")
            for offset in range(first, last + 1):
                if offset in log.tainted or not log.is_wanted(offset, is_committed=config.is_committed):
                    continue
                where = f"offset {offset} of {key} to {member_id} by {node.name}"
                if not any(offset in each for each in sent):
                    violate(Invariant.LOCKED_RECORDS_ARE_SENT, where)
                world.count("given" if count == 1 else "given again")
                # A member may say something of what it had before, while the answer that gives it again waits for a Write.
                is_its_word = locks is not None and (offset, member_id) not in locks.acquired
                if is_effective and offset in settled and not is_its_word:
                    violate(Invariant.SETTLED_IS_NOT_GIVEN, where)
                if locks is not None:
                    if (offset, member_id) not in locks.ever:
                        violate(Invariant.GIVEN_BY_ITS_LEADER, f"{where}, which has ended, or the member has left")
                    self._check_lock(locks, offset, member_id, where)

    def _check_lock(self, locks: Locks, offset: int, member_id: str, where: str) -> None:
        """See that an answer gives nothing that another member has; one that stood still may give what it locked long ago."""
        now_s = self._world.timeline.now_s
        if locks.acquired.get((offset, member_id), -1.0) <= now_s:
            self._world.count("given after its lock")
            return
        held = locks.held.get(offset)
        if held is not None and held.member_id != member_id and held.until_s > now_s:
            violate(Invariant.LOCKED_BY_ONE, f"{where}; {held.member_id} has it")

    # ---- locks, as a node makes and ends them ------------------------------------------------------------------------

    def learn_led(self, node: GatewayNode, led: LedPartition) -> bool:
        """Learn of a share partition; return whether it is new."""
        if led in self._locks:
            return False
        self._locks[led] = Locks(node, led.key)
        return True

    def fence(self, node: GatewayNode, key: SharePartitionKey, leader_epoch: int) -> None:
        """Learn that the log tells a node that another one leads."""
        led = node.leader.find(key)
        if led is not None and led.leader_epoch == leader_epoch:
            self._locks[led].is_fenced = True

    def lock(self, led: LedPartition, member_id: str, ranges: Sequence[AcquiredRange]) -> None:
        """Learn that a member acquires offsets: the time of its lock begins now, and not when it hears of it."""
        locks, now_s = self._locks[led], self._world.timeline.now_s
        until_s = self._lock_end_s(led.key, now_s)
        epoch = locks.node.epochs.get(led.key.partition)
        if led.leader_epoch != epoch or locks.is_fenced:
            told = "the log said that another one leads" if locks.is_fenced else f"the node knows {epoch}"
            violate(Invariant.GIVEN_BY_ITS_LEADER, f"{led.key} by {locks.node.name} under {led.leader_epoch}; {told}")
        if locks.node.sessions.find((led.key.group_id, member_id)) is None:
            violate(Invariant.MEMBERS_ACQUIRE, f"{ranges} of {led.key} for {member_id} by {locks.node.name}")
        is_effective = led.leader_epoch >= self._world.states.fence_of(led.key)
        log, settled = self._world.logs[led.key.partition], self.settled[led.key] if is_effective else set[int]()
        counts = self.counts[led.key]
        for first, last, count in ranges:
            for offset in range(first, last + 1):
                # It counts as a delivery also where the member is gone before the answer.
                counts[offset] = max(count, counts.get(offset, 0))
                where = f"offset {offset} of {led.key} by {locks.node.name}"
                if offset in settled and offset not in log.tainted:
                    violate(Invariant.SETTLED_IS_NOT_GIVEN, f"{where}: acquired by {member_id}")
                if (
                    offset in locks.node.settled_before.get(led.key, ())
                    and offset not in self._world.logs[led.key.partition].tainted
                ):
                    violate(Invariant.SETTLED_IS_NOT_GIVEN, f"{where}, which stood still before")
                held = locks.held.get(offset)
                if held is not None and held.until_s > now_s:
                    violate(Invariant.LOCKED_BY_ONE, f"{member_id} acquires {where}; {held.member_id} has it")
                locks.held[offset] = Lock(member_id, until_s)
                locks.acquired[offset, member_id] = until_s
                locks.ever.add((offset, member_id))

    def _renew(
        self,
        node: GatewayNode,
        key: SharePartitionKey,
        member_id: str,
        batches: Sequence[AcknowledgedRange],
        arrived_s: float,
    ) -> None:
        led = node.leader.find(key)
        if led is None:
            return
        locks, until_s = self._locks[led], self._lock_end_s(key, arrived_s)
        for offset, kind in _offsets(batches):
            held = locks.held.get(offset)
            if kind == RENEW and held is not None and held.member_id == member_id and held.until_s < until_s:
                locks.held[offset] = Lock(member_id, until_s)
                self._world.count("lock renewed")

    def _lock_end_s(self, key: SharePartitionKey, began_s: float) -> float:
        """Return until when a lock holds, just below what rounding leaves of it."""
        return began_s + self._world.config_of(key.group_id).record_lock_duration_ms / 1_000 - _ROUNDING_S

    def unlock(self, node: GatewayNode, group_id: str, member_id: str, topics: NamedTopics) -> None:
        """Learn that acknowledgements of a member arrive: it may hold these offsets no more."""
        for partition, batches in _named(topics):
            led = node.leader.find(SharePartitionKey(group_id, TOPIC, partition))
            if led is None:
                continue
            locks = self._locks[led]
            for offset, kind in _offsets(batches):
                if kind != RENEW and offset in locks.held and locks.held[offset].member_id == member_id:
                    del locks.held[offset]
                    del locks.acquired[offset, member_id]

    def leave(self, node: GatewayNode, group_id: str, member_id: str) -> None:
        """Learn that a member is told that it has left: no answer after this one gives it what it had."""
        self.forget(node, group_id, member_id)
        if node.sessions.find((group_id, member_id)) is None:
            for led, locks in self._locks.items():
                if locks.node is node and led.key.group_id == group_id:
                    locks.ever = {each for each in locks.ever if each[1] != member_id}

    def forget(self, node: GatewayNode, group_id: str, member_id: str) -> None:
        """Learn that a session of a member with a node has ended; it keeps what it holds where it has begun another one."""
        if node.sessions.find((group_id, member_id)) is not None:
            return
        for led, locks in self._locks.items():
            if locks.node is node and led.key.group_id == group_id:
                for offset in [offset for offset, lock in locks.held.items() if lock.member_id == member_id]:
                    del locks.held[offset]

    # ---- states ------------------------------------------------------------------------------------------------------

    def check_write(
        self, key: SharePartitionKey, before: ShareState | None, after: ShareState | None, batches: Sequence[StateBatch]
    ) -> None:
        """See that a Write skips no record, and that no count falls."""
        assert before is not None
        assert after is not None
        log, config = self._world.logs[key.partition], self._world.config_of(key.group_id)
        had, has = _expand(before.state_batches), _expand(after.state_batches)
        written = _expand(batches)
        for offset, (state, count) in had.items():
            if offset in has and has[offset][1] < count:
                violate(Invariant.DELIVERY_COUNT_GROWS, f"{key} {offset}: {(state, count)} becomes {has[offset]}")
        for offset in range(before.start_offset, after.start_offset):
            if not log.is_wanted(offset, is_committed=config.is_committed) or offset in log.tainted:
                continue
            state = (written.get(offset) or had.get(offset) or (-1, 0))[0]
            had_state = had.get(offset, (-1, 0))[0]
            if state in _TERMINAL or had_state in _TERMINAL:
                continue
            if self.counts[key].get(offset, 0) >= config.delivery_count_limit:
                self._world.count("given up without a Write")
                continue
            violate(Invariant.NO_RECORD_IS_SKIPPED, f"{key} {offset}, as the start moves to {after.start_offset}")

    def check_end(self) -> None:
        """See that every record has an end, and that what was answered is in the states."""
        world = self._world
        for group_id, partition in sorted(
            {(each.group_id, at) for each in world.members for at in range(len(world.logs))}
        ):
            if SharePartitionKey(group_id, TOPIC, partition) not in self.starts:
                violate(Invariant.RECORDS_ARE_GIVEN, f"group {group_id} never began to read {partition}")
        for key, start in self.starts.items():
            state = world.states.shard.state(key)
            assert state is not None
            log, config = world.logs[key.partition], world.config_of(key.group_id)
            has = _expand(state.state_batches)
            for offset in sorted(log.records):
                if offset < start or offset in log.tainted or offset < state.start_offset:
                    continue
                if not log.is_wanted(offset, is_committed=config.is_committed):
                    continue
                is_terminal = has.get(offset, (-1, 0))[0] in _TERMINAL
                if offset in self.settled[key] and not is_terminal:
                    violate(Invariant.SETTLED_IS_IN_THE_LOG, f"{key} {offset}: {has.get(offset)}")
                if not is_terminal:
                    violate(Invariant.RECORDS_ARE_GIVEN, f"{key} {offset} of {start} to {log.end}: {has.get(offset)}")
            world.count("share partition done with")


def _named(topics: NamedTopics) -> list[tuple[int, Sequence[AcknowledgedRange]]]:
    return [(partition, batches) for _, partitions in topics for partition, batches in partitions]


def _offsets(batches: Sequence[AcknowledgedRange]) -> list[tuple[int, int]]:
    return [
        (offset, types[0] if len(types) == 1 else types[offset - first])
        for first, last, types in batches
        for offset in range(first, last + 1)
    ]


def _expand(batches: Sequence[Any]) -> dict[int, tuple[int, int]]:
    return {offset: (state, count) for first, last, state, count in batches for offset in range(first, last + 1)}
