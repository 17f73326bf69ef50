"""A consumer: its sessions with nodes, the records that it holds, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from holdfast.api import share_acknowledge, share_fetch
from holdfast.api.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from holdfast.api.share_consumer import (
    ACCEPT,
    FINAL_EPOCH,
    FIRST_EPOCH,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgedRange,
    NamedPartition,
    NamedTopics,
)
from holdfast.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.gateway.states import WRITE_TIMEOUT_S
from tests.world.samples import TOPIC

if TYPE_CHECKING:
    from tests.simulated.gateway.node import GatewayNode
    from tests.simulated.gateway.world import GatewayWorld

_THINKING_S = (0.0, 0.005, 0.05, 0.05, 0.5, 3.0)
_WAITS_MS = (0, 100, 500, 500, 5_000)
#: A request's acknowledgements wait for the Write on its way, and for their own.
_SLACK_S = 2 * WRITE_TIMEOUT_S + 1.5
_ROUNDING_S = 1e-6


class Connection:
    """A connection of a member to a node; what is sent over it arrives in order."""

    def __init__(self, world: GatewayWorld, node: GatewayNode, member: Member) -> None:
        self.world = world
        self.node = node
        self._member = member
        world.connections.append(self)
        self.is_open = True
        #: The node has noticed its end.
        self.is_over = False
        self._arrives_s = 0.0

    def send(self, call: Callable[[], object]) -> None:
        """Let the node do something as soon as the network lets it."""
        timeline = self.world.timeline
        delay_s = self.world.random.choice((0.0, 0.001, 0.001, 0.05))
        self._arrives_s = max(self._arrives_s, timeline.now_s + delay_s)
        timeline.after(self._arrives_s - timeline.now_s, partial(self.node.run, call))

    def close(self) -> None:
        """End it; the node notices soon."""
        if self.is_open:
            self.is_open = False
            self.send(self._end)

    def _end(self) -> None:
        self.is_over = True
        self.node.calls.connection_closed(self)
        self.world.ledger.forget(self.node, self._member.group_id, self._member.member_id)


class SentRequest:
    """A request, as the gateway sees it (`gateway.consumers.Caller`)."""

    principal = "User:member"
    client_address = "client:1"

    def __init__(self, connection: Connection, what: str, wait_s: float) -> None:
        self.connection = connection
        self.what = what
        self.answers = 0
        self.arrived_s = -1.0
        self._world = connection.world
        self._wait_s = wait_s

    def wait(self, answer_now: Callable[[], None]) -> bool:
        """See `Caller.wait`."""
        return self.connection.is_open and self._world.random.random() < 0.97

    def arrive(self, call: Callable[[], object]) -> None:
        """Be carried out; its answer must come in time."""
        self.arrived_s = self._world.timeline.now_s
        self._world.requests.append(self)
        self._world.timeline.after(self._wait_s + _SLACK_S, self._check)
        call()

    def answered(self) -> None:
        """Learn of its answer."""
        self.answers += 1
        if self.answers > 1:
            violate(Invariant.ANSWERED_ONCE, self.what)

    def _check(self) -> None:
        node, now_s = self.connection.node, self._world.timeline.now_s
        if self.answers or node.is_dead:
            return
        if node.loop.is_frozen:
            self._world.timeline.after(self._wait_s + _SLACK_S, self._check)
        elif now_s - node.thawed_s < self._wait_s + _SLACK_S:
            self._world.timeline.after(node.thawed_s + self._wait_s + _SLACK_S - now_s + 0.001, self._check)
        else:
            violate(Invariant.WAITS_ARE_BOUNDED, f"{self.what} is not answered after {self._wait_s + _SLACK_S} s")


class Session:
    """A session of the member with a node, as the member sees it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        #: Sent with the next request.
        self.epoch = FIRST_EPOCH
        self.places: set[int] = set()
        self.under_way = 0
        #: The last fetch waited in vain, to its end.
        self.has_nothing = False


class Member:
    """A member of a group."""

    def __init__(self, world: GatewayWorld, group_id: str, number: int) -> None:
        self._world = world
        self._random = world.random_of(f"member {group_id} {number}")
        self.group_id = group_id
        self.member_id = f"member {group_id} {number}"
        self.sessions: dict[GatewayNode, Session] = {}
        #: Offsets by the node that gave them and the partition.
        self.held: dict[tuple[GatewayNode, int], set[int]] = {}
        #: A good one sends one request at a time, and accepts all.
        self.is_good = False
        #: It learns of new leaders late.
        self.is_slow = world.random_of("slow members").random() < 0.3
        self.is_stopped = False
        world.timeline.after(self._random.random(), self._live)

    # ---- its life ----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        if self.is_stopped:
            return
        leaders = dict.fromkeys(node for node, _ in self._world.leaders)
        if self.is_slow and not self.is_good:  # it goes by the leaders that it knew
            leaders |= dict.fromkeys(self.sessions)
        for node in leaders:
            session = self.sessions.get(node)
            if session is None:
                self._begin(node)
            elif not session.under_way or (not self.is_good and self._random.random() < 0.1):
                self._act(session)
        pause_s = self._random.choice(_THINKING_S) if not self.is_good else 0.01
        if self.is_good and all(session.under_way for session in self.sessions.values()):
            pause_s = 0.1
        self._world.timeline.after(pause_s, self._live)

    def _begin(self, node: GatewayNode, connection: Connection | None = None) -> None:
        session = self.sessions[node] = Session(connection or Connection(self._world, node, self))
        led = [index for index, (leader, _) in enumerate(self._world.leaders) if leader is node]
        everything = list(range(len(self._world.logs)))
        places = led if self.is_good or self._random.random() < 0.8 else self._random.sample(everything, 1)
        session.places = set(places)
        self._fetch(session, [(each, ()) for each in sorted(session.places)])

    def _act(self, session: Session) -> None:
        chance = 0.0 if self.is_good else self._random.random()
        node = session.connection.node
        if chance < 0.55:
            led = {index for index, (leader, _) in enumerate(self._world.leaders) if leader is node}
            new = led - session.places if self.is_good or chance < 0.3 else set()
            session.places |= new
            acknowledged = self._say(node) if self.is_good or self._random.random() < 0.6 else {}
            forgotten = self._random.sample(sorted(session.places), 1) if session.places and chance > 0.5 else []
            if forgotten:
                session.places -= set(forgotten)
                self._world.count("partition forgotten")
            named = [(each, acknowledged.get(each, ())) for each in sorted(new | acknowledged.keys())]
            session.places |= acknowledged.keys() - set(forgotten)
            self._fetch(session, named, forgotten)
        elif chance < 0.82:
            self._acknowledge(session, [*self._say(node).items()])
        elif chance < 0.87:
            self._acknowledge(session, [*self._say(node, RENEW).items()], is_renew=True)
        elif chance < 0.9:
            session.epoch += self._random.choice((1, -1, 5))
            self._world.count("wrong session epoch")
            self._fetch(session, [])
        elif chance < 0.94:
            self._leave(session)
        elif chance < 0.96:
            self._world.count("session begun again")
            self._begin(node, session.connection if self._random.random() < 0.5 else None)
            if self._random.random() < 0.7:
                session.connection.close()
        else:
            self._cut(session)

    def _leave(self, session: Session) -> None:
        node = session.connection.node
        session.epoch = FINAL_EPOCH
        said = [*self._say(node).items()] if self._random.random() < 0.5 else []
        self._world.count("session ended")
        if self._random.random() < 0.3:
            self._fetch(session, said)
        else:
            self._acknowledge(session, said)
        self._forget(session)

    def _cut(self, session: Session) -> None:
        self._world.count("connection cut")
        session.connection.close()
        self._forget(session)
        if self._random.random() < 0.5:
            self._lose(session.connection.node)

    def _forget(self, session: Session) -> None:
        node = session.connection.node
        if self.sessions.get(node) is session:
            del self.sessions[node]

    def _lose(self, node: GatewayNode) -> None:
        for place in [place for place in self.held if place[0] is node]:
            del self.held[place]

    def node_died(self, node: GatewayNode) -> None:
        """Learn that a node is gone."""
        session = self.sessions.pop(node, None)
        if session is not None:
            session.connection.is_open = False
        if self._random.random() < 0.5:
            self._lose(node)
        else:  # it acknowledges at the next leader
            leader = self._world.leaders[0][0]
            for place in [place for place in self.held if place[0] is node]:
                self.held.setdefault((leader, place[1]), set()).update(self.held.pop(place))

    def become_good(self) -> None:
        """Be a consumer as one wishes it, from now on."""
        for session in [*self.sessions.values()]:
            self._cut(session)
        self.held.clear()
        self.is_good = True

    @property
    def has_nothing(self) -> bool:
        """Tell whether there is nothing for it: each node that leads has let it wait in vain, to the end of its time.

        An answer that came at once says nothing: some requests may not wait.
        """
        sessions = [self.sessions.get(node) for node, _ in self._world.leaders]
        return all(session is not None and session.has_nothing for session in sessions)

    def wait_again(self) -> None:
        """Count nothing that it waited for before."""
        for session in self.sessions.values():
            session.has_nothing = False

    def stop(self) -> None:
        """End all sessions."""
        for session in [*self.sessions.values()]:
            if self._random.random() < 0.5:
                self._leave(session)
                if self._random.random() < 0.5:
                    session.connection.close()
            else:
                self._cut(session)
        self.is_stopped = True

    # ---- what it says ------------------------------------------------------------------------------------------------

    def _say(self, node: GatewayNode, kind: int = -1) -> dict[int, tuple[AcknowledgedRange, ...]]:
        """Return acknowledgements of some of what it holds, which it holds no more then."""
        said = {}
        is_committed = self._world.config_of(self.group_id).is_committed
        for (of, partition), offsets in sorted(self.held.items(), key=lambda each: each[0][1]):
            if of is not node or not offsets:
                continue
            log = self._world.logs[partition]
            some = sorted(offsets) if self.is_good or self._random.random() < 0.6 else self._some(offsets)
            types = {}
            for offset in some:
                if kind >= 0:
                    types[offset] = kind
                elif not log.is_wanted(offset, is_committed=is_committed):
                    types[offset] = GAP
                elif self.is_good:
                    types[offset] = ACCEPT
                else:
                    types[offset] = self._random.choice((ACCEPT, ACCEPT, ACCEPT, REJECT, RELEASE))
            if kind < 0 and (self.is_good or self._random.random() < 0.9):
                offsets.difference_update(some)
            said[partition] = _as_ranges(types, by_offset=self._random.random() < 0.3)
        return said

    def _some(self, offsets: set[int]) -> list[int]:
        ordered = sorted(offsets)
        first = self._random.randrange(len(ordered))
        return ordered[first : first + self._random.randint(1, len(ordered))]

    def _fetch(
        self,
        session: Session,
        named: list[tuple[int, tuple[AcknowledgedRange, ...]]],
        forgotten: list[int] | None = None,
    ) -> None:
        random, world = self._random, self._world
        wait_ms = 20_000 if self.is_good else random.choice(_WAITS_MS)
        topics = _topics(named)
        request = ShareFetchRequest(
            self.group_id,
            self.member_id,
            session.epoch,
            topics,
            [(TOPIC, forgotten)] if forgotten else [],
            wait_ms,
            1,
            random.choice((1, 400, 50_000)),
            random.choice((1, 10, 500)),
            random.choice((1, 10, 500)),
            random.choice((0, 1)),
        )
        what = f"{world.timeline.now_s:.3f} s: {self.member_id} fetches with epoch {session.epoch}"
        sent = SentRequest(session.connection, what, wait_ms / 1_000)
        node = session.connection.node

        def respond(pieces: list[Any]) -> None:
            sent.answered()
            response = share_fetch.decode_response(b"".join(pieces))
            world.say(lambda: f"answer to {what}: {_told(response)}")
            world.ledger.take_fetch(node, self.group_id, self.member_id, topics, request.max_records, response)
            if request.session_epoch == FINAL_EPOCH and not response.error_code:
                world.ledger.leave(node, self.group_id, self.member_id)
            has_waited = world.timeline.now_s - sent.arrived_s >= wait_ms / 1_000 - _ROUNDING_S
            world.after_network(lambda: self._take_fetch(session, response, has_waited=has_waited))

        self._send(session, sent, topics, lambda: node.calls.fetch(sent, request, respond))

    def _acknowledge(
        self, session: Session, named: list[tuple[int, tuple[AcknowledgedRange, ...]]], *, is_renew: bool = False
    ) -> None:
        world, node, version = self._world, session.connection.node, 2
        topics = _topics(named)
        request = ShareAcknowledgeRequest(self.group_id, self.member_id, session.epoch, topics, is_renew)
        what = f"{world.timeline.now_s:.3f} s: {self.member_id} acknowledges with epoch {session.epoch}"
        sent = SentRequest(session.connection, what, 0)

        def respond(data: bytes) -> None:
            sent.answered()
            response = share_acknowledge.decode_response(version, data)
            world.say(lambda: f"answer to {what}: {response}")
            world.ledger.take_acknowledge(node, self.group_id, self.member_id, topics, response, sent.arrived_s)
            if request.session_epoch == FINAL_EPOCH and not response.error_code:
                world.ledger.leave(node, self.group_id, self.member_id)
            world.after_network(lambda: self._take_acknowledge(session, response))

        self._send(session, sent, topics, lambda: node.calls.acknowledge(sent, version, request, respond))

    def _send(self, session: Session, sent: SentRequest, topics: NamedTopics, call: Callable[[], object]) -> None:
        session.under_way += 1
        node = session.connection.node
        session.epoch = session.epoch + 1 if session.epoch != FINAL_EPOCH else FINAL_EPOCH
        self._world.say(lambda: f"{sent.what}: {topics}")

        def arrive() -> None:
            if not sent.connection.is_over:
                self._world.ledger.unlock(node, self.group_id, self.member_id, topics)
                sent.arrive(call)

        session.connection.send(arrive)

    def _take_fetch(self, session: Session, response: ShareFetchResponse, *, has_waited: bool) -> None:
        node = session.connection.node
        if not session.connection.is_open:
            return
        session.under_way -= 1
        if response.error_code:
            self._world.count(f"fetch refused: {response.error_code}")
            self._forget(session)
            return
        is_clean = True
        for _, partitions in response.topics:
            for each in partitions:
                if each.error_code or each.acknowledge_error_code:
                    is_clean = False
                    self._world.count(f"fetch: {each.error_code}, acknowledged: {each.acknowledge_error_code}")
                if each.error_code == _NOT_LEADER:
                    session.places.discard(each.partition)
                for first, last, _ in each.acquired:
                    self.held.setdefault((node, each.partition), set()).update(range(first, last + 1))
        has_records = any(each.acquired for _, partitions in response.topics for each in partitions)
        session.has_nothing = is_clean and not has_records and has_waited

    def _take_acknowledge(self, session: Session, response: ShareAcknowledgeResponse) -> None:
        if not session.connection.is_open:
            return
        session.under_way -= 1
        if response.error_code:
            self._world.count(f"acknowledge refused: {response.error_code}")
            self._forget(session)
            return
        for _, partitions in response.topics:
            for each in partitions:
                self._world.count(f"acknowledged: {each.error_code}")


_NOT_LEADER = 6


def _topics(named: list[tuple[int, tuple[AcknowledgedRange, ...]]]) -> NamedTopics:
    return [(TOPIC, [NamedPartition(partition, batches) for partition, batches in named])] if named else []


def _as_ranges(types: dict[int, int], *, by_offset: bool) -> tuple[AcknowledgedRange, ...]:
    """Return acknowledgements of offsets in ranges: of one type each, or with a type for each offset."""
    ranges = []
    for _, neighbours in groupby(enumerate(sorted(types)), key=lambda each: each[1] - each[0]):
        offsets = [offset for _, offset in neighbours]
        if by_offset:
            ranges.append(AcknowledgedRange(offsets[0], offsets[-1], bytes(types[each] for each in offsets)))
            continue
        for kind, of_kind in groupby(offsets, key=lambda each: types[each]):
            some = list(of_kind)
            ranges.append(AcknowledgedRange(some[0], some[-1], bytes([kind])))
    return tuple(ranges)


def _told(response: ShareFetchResponse) -> str:
    parts = [
        f"{each.partition}: {each.error_code} {[tuple(one) for one in each.acquired]} {each.acknowledge_error_code}"
        for _, partitions in response.topics
        for each in partitions
    ]
    return f"{response.error_code} {'; '.join(parts)}"
