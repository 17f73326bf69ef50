"""What a node does as a member of its group: the protocol of nodes behind the callbacks of `membership`.

Nothing here waits for a clock: what drives it (`membership.group_member`) calls `tick` and asks `take_rejoin`.

    joins again:   on_join_prepare → (leader) perform_assignment → on_join_complete
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import structlog

from holdfast.daemon.membership.division.assignment import Assignment, encode_assignment
from holdfast.daemon.membership.division.bounds import (
    FORMER_OWNERS_MAX,
    GENERATION_MAX,
)
from holdfast.daemon.membership.division.leader import LastDivision, assign_all, refuse_all
from holdfast.daemon.membership.division.metadata import (
    COOPERATIVE,
    EAGER,
    PROTOCOL_TYPE,
    MemberMetadata,
    encode_metadata,
    is_eager,
    protocol_names,
)
from holdfast.daemon.membership.division.ownership_map import OwnershipMap, Work
from holdfast.daemon.membership.division.readings import read_assignment, read_meeting
from holdfast.daemon.membership.division.rows import describe_members
from holdfast.daemon.membership.holdings import Holdings
from holdfast.daemon.membership.map_view import MapView
from holdfast.daemon.membership.reactions import REACTIONS, Situation, judge, needs_rejoin
from holdfast.daemon.membership.rebalance_watch import RebalanceWatch
from holdfast.daemon.membership.rejoins import Rejoins
from holdfast.daemon.partitions.description import describe_elsewhere
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.addresses import format_address
from holdfast.membership import JoinedMember
from holdfast.records.log.checkpoint import Placement

_log = structlog.get_logger(__name__)

#: A broker has all that another client has read of a topic, but for the moment after its leader has changed.
_UNHEARD_MS: Final = 2_000
#: Why the group rebalances, where this member has not caused it.
_BY_OTHERS: Final = "another member, or the broker"


class ConfigSource(Protocol):
    """The config topic, as one node reads it; it is followed all the time."""

    @property
    def offset(self) -> int:
        """Up to which it was read, inclusive; -1: nothing. The leader divides for the highest that a member has."""

    @property
    def is_current(self) -> bool:
        """Whether the last refresh has reached the end that the topic had, or found that there is no topic."""

    async def refresh(self, offset: int, timeout_ms: int) -> int:
        """Read to its end, and at least to this offset, for as long as it may take; returns up to which it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProtocolConfig:
    """How a node takes part in its group."""

    #: Every log partition is a task.
    partition_count: int
    #: See `MemberMetadata.machine`.
    machine: str
    #: Duties that this node can do, sorted.
    duties_offered: tuple[str, ...]
    #: `cooperative` or `eager`.
    rebalance_protocol: str
    rebalance_delay_ms: int
    handover_timeout_ms: int
    #: How long a node may take to read the config topic as far as its group has; then it goes on with what it read.
    config_timeout_ms: int = 10_000
    #: Whenever it stops, its place and its work wait for it within its session.
    keeps_place: bool


class GroupPlace(NamedTuple):
    """Where a member stands in its group."""

    #: -1: it has joined no group, or lost its session.
    group_generation: int = -1
    member_id: str = ""
    #: Of the assignment in effect; empty before the first.
    protocol: str = ""


class CoordinatorPorts(NamedTuple):
    """The calls of a node that its protocol makes."""

    now_ms: Callable[[], int]
    #: Takes everybody who is a member by a new map.
    members_seen: Callable[[Iterable[Node]], None]
    #: Takes why this node gets no work before its first assignment, and where the node is that has its id.
    refused: Callable[[str, Node | None], None]
    #: Returns the placement of the log; it is known before the node joins.
    placement: Callable[[], Placement]


class NodeCoordinator:
    """The protocol of a node (`membership.Coordinator`)."""

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        config: NodeProtocolConfig,
        holdings: Holdings,
        view: MapView,
        config_source: ConfigSource,
        rejoins: Rejoins,
        rebalances: RebalanceWatch,
        ports: CoordinatorPorts,
    ) -> None:
        """Belong to no group yet.

        Args:
            config: how it takes part.
            holdings: what it holds.
            view: what it shows to clients.
            config_source: the config topic.
            rejoins: when it joins again.
            rebalances: how often the group rebalances.
            ports: the calls that it makes.
        """
        self._node = view.this_node
        self._config = config
        self._holdings = holdings
        self._view = view
        self._config_source = config_source
        self._rejoins = rejoins
        self._rebalances = rebalances
        self._now_ms, self._members_seen, self._refused, self._placement = ports
        self._place = GroupPlace()
        self._is_rebalancing = False
        #: Why this member has caused the rebalance that is about to come.
        self._cause = _BY_OTHERS
        #: The newest one that could be carried out.
        self._assignment: Assignment | None = None
        self._assigned_ms = 0
        #: The newest one could not.
        self._has_failed = False
        #: Why; a clause.
        self._why_failed = ""
        #: Highest ownership generation seen in assignments and logs.
        self._generation_seen = 0
        #: Under which one another node took each log partition last, as far as this one has seen it.
        self._taken_under: dict[int, int] = {}
        #: Log partitions whose leading brokers do not answer this node, as it says when it joins; see `reach_changed`.
        self.out_of_reach: frozenset[int] = frozenset()
        #: Until when the config topic is to be read far enough for what waits; None: nothing waits.
        self._behind_until_ms: int | None = None
        #: When what waits for absent nodes is divided, by the leader; None: nothing waits.
        self._delay_ends_ms: int | None = None

    # ---- joining (membership.Coordinator) ------------------------------------------------------------------

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Return what this node says of itself under each protocol that it speaks, the best first."""
        assignment = self._assignment
        work, generation = (Work(), 0) if assignment is None else (assignment.work, assignment.map.generation)
        data = encode_metadata(
            MemberMetadata(
                self._node,
                self._config.machine,
                self._config_source.offset,
                generation,
                self._generation_seen,
                work.tasks,
                work.duties,
                self._config.duties_offered,
                self._view.may_serve(self._holdings.held)[:FORMER_OWNERS_MAX],
                tuple(sorted(self.out_of_reach)),
            )
        )
        protocols = (EAGER,) if self._config.rebalance_protocol == "eager" else (COOPERATIVE, EAGER)
        return [(name, data) for name in protocol_names(*protocols, placement=self._placement())]

    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        """Take a fresh look at the config topic; under the eager protocol, give up what is held."""
        self._place = self._place._replace(group_generation=generation, member_id=member_id)
        self._is_rebalancing = True
        self._rejoins.joining()
        self._show_staleness()
        self._count_rebalance()
        if is_eager(self._place.protocol) and self._assignment is not None and not self._has_failed:
            tasks, duties = self._holdings.revoke()
            _log.info("work_revoked", log_partitions=list(tasks), duties=list(duties), protocol=EAGER)
        await self._config_source.refresh(-1, self._config.config_timeout_ms)

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        """Divide the log partitions and duties among the members as their leader."""
        config = self._config
        meeting = read_meeting(leader_id, members)
        wanted = meeting.config_offset
        held = await self._catch_up(wanted)
        _log.info("assignment_started", members=len(members), config_offset_wanted=wanted, config_offset=held)
        if held < wanted and self._config_source.is_current:
            ahead = sorted(each for each, said in meeting.members.items() if said.config_offset > held)
            _log.error("config_offset_implausible", members=ahead, config_offset=held, config_offset_claimed=wanted)
        elif held < wanted:
            assignments = refuse_all(meeting, held)
            _log.error("assignment_refused", why="config mismatch", config_offset_wanted=wanted, config_offset=held)
            return self._hand_out(leader_id, protocol, assignments)
        assignments = assign_all(
            meeting,
            range(config.partition_count),
            held,
            self._last_division(),
            config.rebalance_delay_ms,
            config.handover_timeout_ms,
        )
        return self._hand_out(leader_id, protocol, assignments)

    async def _catch_up(self, wanted: int) -> int:
        """Read the config topic as far as a member says that it has, and return up to which it was read.

        Where it ends before that, no more than a moment is waited: the broker may have to hear of what the member has read.
        """
        source, timeout_ms = self._config_source, self._config.config_timeout_ms
        if source.offset < wanted:
            await source.refresh(wanted, min(_UNHEARD_MS, timeout_ms))
            if source.offset < wanted and not source.is_current:
                await source.refresh(wanted, timeout_ms)
        return source.offset

    def _hand_out(self, leader_id: str, protocol: str, assignments: Mapping[str, Assignment]) -> dict[str, bytes]:
        for member_id, assignment in sorted(assignments.items()):
            tasks, duties = assignment.work
            _log.debug(
                "work_assigned",
                member=member_id,
                log_partitions=list(tasks),
                duties=list(duties),
                error=assignment.error.name,
            )
        generation = max(each.map.generation for each in assignments.values())
        _log.info("assignment_finished", leader=leader_id, protocol=protocol, ownership_generation=generation)
        return {member_id: encode_assignment(each) for member_id, each in assignments.items()}

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        """React to the assignment, by the table in `membership.reactions`."""
        found, why = read_assignment(assignment, self._config.partition_count)
        situation = judge(found, self._config_source.offset, generation, self._place.group_generation)
        reaction = REACTIONS[situation]
        if situation is Situation.OUTDATED:
            _log.info("assignment_outdated", generation=generation, newest=self._place.group_generation)
            return
        self._place = GroupPlace(generation, member_id, protocol)
        self._is_rebalancing = False
        self._has_failed = reaction.joins_again
        self._why_failed = f": {why}" if reaction.joins_again else ""
        if found is not None:
            self._generation_seen = max(self._generation_seen, found.map.generation)
        if reaction.is_adopted and found is not None:
            self._adopt(found, begins_at_once=reaction.begins_at_once)
        if reaction.joins_again:
            _log.error("assignment_failed", why=why, situation=situation.value)
            self._rejoins.request(f"the assignment failed: {why}", self._now_ms())
        if found is not None and situation is Situation.REFUSED and self._assignment is None:
            self._refused(why, found.map.place_of(self._node.node_id))
        self._show_staleness()

    async def on_leave_prepare(self, generation: int, member_id: str) -> None:
        """Let everything go to the members that stay; it is served until they take it.

        A lone member keeps it to its end, and so does one whose place is kept.
        """
        if self._view.map is not None and not (self._is_alone or self._config.keeps_place):
            self._holdings.release_all(self._now_ms())
            self._view.set_stale(is_stale=True)  # it has no part in what the group agrees on from now on

    @property
    def _is_alone(self) -> bool:
        known = self._view.map
        return known is not None and len(known.members) == 1 and not self.needs_rejoin

    async def on_lost(self, reason: str) -> None:
        """Forget the map of the session that was lost; what is served is served on until another node takes it."""
        _log.info("membership_lost", why=reason, log_partitions=len(self._holdings.tasks))
        self._place = GroupPlace(protocol=self._place.protocol)
        self._is_rebalancing = True
        self._view.drop()
        self._show_staleness()

    # ---- carrying it out -------------------------------------------------------------------------------------------

    def _adopt(self, found: Assignment, *, begins_at_once: bool) -> None:
        now_ms, generation = self._now_ms(), found.map.generation
        self._assignment, self._assigned_ms = found, now_ms
        self._members_seen(found.map.nodes)
        self._view.adopt(found.map)
        self._rejoin_if_moved(found.map)
        gone, dropped = self._holdings.change(found.work, generation, now_ms, begins_at_once=begins_at_once)
        self._behind_until_ms = None if begins_at_once else now_ms + self._config.config_timeout_ms
        wait_ms = min((each.wait_ms for each in found.map.absent), default=None)
        # A static member that led, and comes back under another member id, leads on (KIP-814).
        is_leader = found.leader == self._node
        self._delay_ends_ms = now_ms + wait_ms if is_leader and wait_ms is not None else None
        _log.info(
            "assignment_adopted",
            leader=found.leader_id,
            generation=self._place.group_generation,
            ownership_generation=generation,
            protocol=self._place.protocol,
            log_partitions=list(found.work.tasks),
            duties=list(found.work.duties),
            given_up=gone,
            duties_given_up=dropped,
            config_offset_wanted=found.config_offset,
            config_offset=self._config_source.offset,
        )
        for task in found.work.tasks:
            self._rejoin_if_outranked(task)

    def superseded(self, task: int, generation: int) -> bool:
        """Take in that a log partition was taken under an ownership generation; returns whether this node was to keep it."""
        self._generation_seen = max(self._generation_seen, min(generation, GENERATION_MAX))
        self._taken_under[task] = generation
        was_ours = self._holdings.superseded(task)
        if was_ours and not self._is_rebalancing:
            self._rejoin_if_outranked(task)
        return was_ours

    def _rejoin_if_outranked(self, task: int) -> None:
        """Have the group divide under a higher generation, if the newest assignment gives us a log partition that it cannot take."""
        generation, found = self._taken_under.get(task, 0), self._assignment
        if found is not None and found.map.generation <= generation < GENERATION_MAX:
            self._request_rejoin(f"log partition {task} was taken under ownership generation {generation}")

    def reach_changed(self, out_of_reach: frozenset[int]) -> None:
        """Have the group give other members what this one cannot reach, or count on this one again."""
        lost, found = sorted(out_of_reach - self.out_of_reach), sorted(self.out_of_reach - out_of_reach)
        self.out_of_reach = out_of_reach
        if lost:
            _log.info("log_out_of_reach", log_partitions=lost)
        else:
            _log.info("log_in_reach_again", log_partitions=found)
        if self._assignment is not None:
            what = f"log partitions {lost} are out of reach" if lost else f"log partitions {found} are in reach again"
            self._request_rejoin(what)

    def tick(self) -> None:
        """Do what is due: begin what had to wait, divide what waited for absent nodes, give up what nobody has taken."""
        now_ms = self._now_ms()
        expired = self._holdings.end_expired(now_ms)
        if expired:
            _log.warning("handover_expired", log_partitions=expired)
        found, until_ms = self._assignment, self._behind_until_ms
        if found is not None and until_ms is not None:
            if self._config_source.offset >= found.config_offset:
                self._behind_until_ms = None
                self._holdings.begin_waiting()
            elif now_ms >= until_ms:
                self._behind_until_ms = None
                wanted, held = found.config_offset, self._config_source.offset
                _log.error("config_behind", config_offset_wanted=wanted, config_offset=held)
                self._request_rejoin(f"the config topic was read to offset {held}, and {wanted} is wanted")
        if self._delay_ends_ms is not None and now_ms >= self._delay_ends_ms:
            self._delay_ends_ms = None
            self._request_rejoin("what absent nodes had has waited for rebalance_delay_ms")

    def _rejoin_if_moved(self, divided: OwnershipMap) -> None:
        """Have the group divide again, if the map has another address: a static member that comes back gets the one from before it."""
        place, ours = divided.place_of(self._node.node_id), self._node
        if place not in (None, ours):
            former, address = format_address(*place[1:]), format_address(*ours[1:])
            self._request_rejoin(f"the map has this node at {former}, and it is at {address}")

    def take_rejoin(self) -> str:
        """Return why it is time to join again, once; empty if it is not."""
        reason = "" if self._is_rebalancing else self._rejoins.take_due(self._now_ms())
        if reason:
            self._cause = reason
        return reason

    def _request_rejoin(self, reason: str) -> None:
        self._rejoins.request(reason, self._now_ms())
        self._show_staleness()

    def _show_staleness(self) -> None:
        self._view.set_stale(is_stale=self.needs_rejoin)

    def _count_rebalance(self) -> None:
        reasons = self._rebalances.count(self._cause, self._now_ms())
        self._cause = _BY_OTHERS
        if reasons is not None:
            _log.error("rebalances_exceeded", reasons=reasons)

    def _last_division(self) -> LastDivision | None:
        view = self._view
        if view.map is None:
            return None
        return LastDivision(view.map, self._now_ms() - self._assigned_ms)

    # ---- what others look at ---------------------------------------------------------------------------------------

    @property
    def needs_rejoin(self) -> bool:
        """Whether this member is to join again, or does."""
        return needs_rejoin(
            group_rebalances=self._is_rebalancing,
            has_assignment=self._assignment is not None,
            has_failed=self._has_failed,
            is_requested=self._rejoins.is_requested,
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is due within moments: this member does all that it is assigned, and nobody is to take over what it had.

        The wait for an absent node goes on for minutes.
        """
        return not (self.needs_rejoin or self._behind_until_ms is not None or self._holdings.released)

    def why_not_ready(self) -> str:
        """Return what keeps this member from working by an assignment; empty where it does, with or without work."""
        if self._assignment is None:
            return f"the node has no assignment of its group yet{self._why_failed}"
        return "the node waits for the config topic" if self._behind_until_ms is not None else ""

    @property
    def config_offset(self) -> int:
        """The offset up to which this node has read the config topic."""
        return self._config_source.offset

    def describe_members(self) -> list[dict[str, Any]]:
        """Return the members of the group for people, as the last map has them; absent nodes, too."""
        known, found = self._view.map, self._assignment
        if known is None or found is None:
            return []
        return describe_members(known, found.leader_id, self._node, "rejoining" if self.needs_rejoin else "stable")

    def describe_elsewhere(self) -> list[dict[str, Any]]:
        """Return the log partitions that this node neither is to have nor still serves, for people, as the last map has them."""
        known, ours = self._view.map, {*self._holdings.tasks, *self._holdings.released}
        if known is None:
            return []
        return [
            describe_elsewhere(index, known.owner(index), self._node, known.generation)
            for index in range(self._config.partition_count)
            if index not in ours
        ]
