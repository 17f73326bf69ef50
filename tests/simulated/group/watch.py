"""What a member must not do, kept beside it in code of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from holdfast.daemon.membership.division.assignment import Assignment, AssignmentError, decode_assignment
from holdfast.daemon.membership.division.metadata import EAGER
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership.effects import Callback, Complete, Effect, Lost, Note, Perform, Prepare
from holdfast.membership.errors import MembershipFailed
from holdfast.membership.requests import Answer, Heartbeat, Joined, JoinGroup, Refused, Request, Synced
from holdfast.membership.states import State as MemberState
from holdfast.runtime.partition.states import State
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.group.naming import NamingWatch

if TYPE_CHECKING:
    from tests.simulated.group.member import GroupMember

#: More JoinGroups than this of one member within a second are a loop.
JOINS_PER_S_MAX = 12
#: How late something may be, beside the slices in which time passes.
SLACK_MS = 150
#: Of the settings of members.
SESSION_MS, RETRY_MAX_MS = 3_000, 1_000
#: In which one that is to join again does so: the longest pauses of the node and of the core, and some slices.
REJOIN_MAX_MS = 5_000
#: In which what is assigned is begun, as long as nothing else happens: the time for the config topic, and some slices.
BEGIN_MAX_MS = 2_500
#: In which an assignment that was not taken over is delivered again, by a process that runs.
REDELIVERY_MS = 3_000


class SeenAtJoin(NamedTuple):
    """What a member had seen when it sent a JoinGroup."""

    #: The highest ownership generation.
    generation: int
    config_offset: int
    #: In which of the logs under the name of the config topic that offset lies; -1: it had read none.
    config_made: int


class MemberWatch:
    """The membership of one process, watched."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self.naming = NamingWatch(member)
        self.running: Callback | None = None
        self.duties: tuple[str, ...] = ()
        #: The highest ownership generation that it was given, or seen in a log.
        self.generation_seen = 0
        #: The newest that was delivered and good.
        self._assigned: Assignment | None = None
        self._protocol = ""
        self._has_failed = False
        self._begun: set[int] = set()
        self._begun_generation = 0
        #: When each log partition was assigned to somebody else.
        self._dropped_ms: dict[int, int] = {}
        self._joins_ms: deque[int] = deque(maxlen=JOINS_PER_S_MAX)
        self._joins_in_flight: list[Request] = []
        #: The answer to the last JoinGroup, and whether its assignment was performed.
        self._joined: Joined | None = None
        self._has_performed = False
        self._is_prepared = False
        #: Readings of the config topic that had begun when the callback began.
        self._looks_before = 0
        self._has_wish = False
        self._is_lost = False
        self._stale_since_ms: int | None = None
        #: Since when it runs, is stable, and has not taken its assignment over.
        self._undelivered_ms: int | None = None
        self._before: object = None
        #: For so long it has run, by the time of the world.
        self._ran_ms = 0
        self._checked_ms = member.world.now_ms
        #: By that time: since when it works on by an assignment while it is to join again, and while it has not begun all of it.
        self._unheard_ms: int | None = None
        self._unbegun_ms: int | None = None
        #: By its own clock: when the request left that was the last to be answered, when the last heartbeat left, and until
        #: when the next one has, because that one came to nothing.
        self._heard_ms = self._heartbeat_ms = 0
        self._heartbeat_due_ms: int | None = None

    def _slack_ms(self) -> int:
        return SLACK_MS + self._member.world.time_slice_ms

    def _fail(self, invariant: Invariant, text: str) -> None:
        violate(invariant, f"{self._member.node.name} {text}")

    # ---- requests and answers ----------------------------------------------------------------------------------------

    def sent(self, request: Request) -> None:
        """Look at a request that leaves."""
        member, now_ms = self._member, self._member.world.now_ms
        if isinstance(request, Heartbeat) and not request.generation.is_joined:
            self._fail(Invariant.HEARTBEATS_GO_ON, "sends a heartbeat of no generation")
        if isinstance(request, Heartbeat):
            self._heartbeat_ms, self._heartbeat_due_ms = member.now_ms(), None
        if not isinstance(request, JoinGroup):
            return
        if not self._is_prepared:
            self._fail(Invariant.CALLBACKS_IN_ORDER, "joins before on_join_prepare has returned")
        if self._joins_in_flight:
            self._fail(Invariant.ONE_JOIN_AT_A_TIME, f"sends {request} beside {self._joins_in_flight}")
        self._joins_in_flight.append(request)
        if len(self._joins_ms) == JOINS_PER_S_MAX and now_ms - self._joins_ms[0] < 1_000:
            self._fail(Invariant.NO_HOT_REJOIN, f"sends more than {JOINS_PER_S_MAX} JoinGroups in a second")
        self._joins_ms.append(now_ms)
        self._has_wish = False
        config = member.config
        member.world.seen_at_join[request.protocols] = SeenAtJoin(self.generation_seen, config.offset, config.made)
        is_eager = self._protocol == EAGER and self._assigned is not None and not self._has_failed
        if is_eager and self._begun:
            self._fail(Invariant.EAGER_GIVES_UP_FIRST, f"joins while it holds {sorted(self._begun)}")

    def before_answer(self, request: Request, answer: Answer) -> None:
        """Look at the member before it takes an answer."""
        life = self._member.life
        if request in self._joins_in_flight:
            self._joins_in_flight.remove(request)
        is_current = request.generation == life.generation
        if isinstance(answer, Joined) and is_current:
            self._joined, self._has_performed = answer, False
        self._before = None if is_current else self._look()
        if is_current:
            self._hear(request, answer)

    def _hear(self, request: Request, answer: Answer) -> None:
        now_ms = self._member.now_ms()
        if isinstance(answer, Refused) and answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._heartbeat_due_ms = now_ms + RETRY_MAX_MS if isinstance(request, Heartbeat) else None
        elif isinstance(request, Heartbeat):
            self._heard_ms = max(self._heard_ms, self._heartbeat_ms)
        elif isinstance(answer, Joined | Synced):
            self._heard_ms = now_ms

    def after_answer(self, effects: list[Effect]) -> None:
        """See that an answer of an earlier generation has changed nothing."""
        if self._before is None:
            return
        self._member.world.count("answer of an earlier generation")
        if self._look() != self._before or any(not isinstance(effect, Note) for effect in effects):
            self._fail(Invariant.OUTDATED_CHANGES_NOTHING, f"was {self._before} and is {self._look()}, {effects}")

    def _look(self) -> object:
        life = self._member.life
        session = (life.session.expires_ms, life.session.due_ms)
        return life.state, life.generation, life.generation_if_stable, life.is_active, session, life.next_turn_ms

    # ---- callbacks ---------------------------------------------------------------------------------------------------

    def began(self, callback: Callback) -> None:
        """Look at a callback that is to run."""
        if self.running is not None:
            self._fail(Invariant.CALLBACKS_IN_ORDER, f"runs {callback} beside {self.running}")
        self.running = callback
        self._undelivered_ms = None
        if isinstance(callback, Perform):
            joined = self._joined
            if joined is None or joined.leader_id != joined.member_id or self._has_performed:
                self._fail(Invariant.ONE_LEADER, f"performs the assignment, and its coordinator said {joined}")
            self._has_performed = True
        elif isinstance(callback, Prepare | Complete):
            self._is_prepared = False
            self._looks_before = self._member.config.follower.begun

    def ended(self, error: Exception | None) -> None:
        """Take note of the end of the callback that runs."""
        if isinstance(self.running, Prepare) and error is None:
            self._is_prepared = True
            if self._member.config.follower.begun == self._looks_before:
                self._fail(Invariant.JOINS_WITH_A_LOOK, "is about to join without a look at the config topic")
        self._is_lost |= isinstance(self.running, Lost)
        if isinstance(self.running, Complete) and error is None and not self._has_failed:
            self._stale_since_ms = None
        self.running = None

    def delivered(self, callback: Complete) -> None:
        """Take note of an assignment that the program of the member gets to see: no planted fault comes before."""
        if callback.generation_id != self._member.life.generation.id:
            self._fail(Invariant.CALLBACKS_IN_ORDER, f"is given {callback} in {self._member.life.generation}")
        found = decode_assignment(callback.assignment)
        self.generation_seen = max(self.generation_seen, found.map.generation)
        self._protocol = callback.protocol
        self._has_failed = found.error is not AssignmentError.NONE
        if self._has_failed:
            self._member.world.count("assignment failed")
            return
        before = self._assigned
        self._assigned, self._is_lost = found, False
        now_ms = self._member.now_ms()
        for task in set(before.work.tasks if before is not None else ()) - set(found.work.tasks):
            self._dropped_ms[task] = now_ms
            self._member.world.count("log partition moves")
        for task in found.work.tasks:
            self._dropped_ms.pop(task, None)

    def wished(self) -> None:
        """Take note of a wish to join again."""
        self._has_wish = True

    def failed(self, failure: MembershipFailed) -> None:
        """See that the group had a reason to refuse."""
        # A first JoinGroup of a static member that is given up and comes late takes the place of the one sent after it.
        # So does one of a process before that comes late, or that a broker knows which coordinated then and does not know that it is over.
        member, world = self._member, self._member.world
        has_reason = member.link.has_given_up_join or member.node.name in world.late_joins or world.brokers.formers > 0
        is_replaced = failure.error_code == ErrorCode.FENCED_INSTANCE_ID and has_reason
        if not is_replaced:
            self._fail(Invariant.NOBODY_IS_REFUSED, f"is refused: {failure}")

    # ---- work --------------------------------------------------------------------------------------------------------

    def begins(self, tasks: Collection[int], generation: int) -> None:
        """See that what begins is assigned, and that the config topic was read far enough for it."""
        new = set(tasks) - self._begun
        self._begun.update(tasks)
        if generation < self._begun_generation:
            self._fail(Invariant.GENERATIONS_RISE, f"begins {tasks} under {generation} after {self._begun_generation}")
        self._begun_generation = generation
        found = self._assigned
        if found is None or not new <= set(found.work.tasks) or (new and generation != found.map.generation):
            self._fail(Invariant.WORK_IS_ASSIGNED, f"begins {sorted(new)} under {generation}, and was given {found}")
            return
        if new and self._member.config.offset < found.config_offset:
            text = f"begins {sorted(new)} at config offset {self._member.config.offset}, not {found.config_offset}"
            self._fail(Invariant.BEHIND_WAITS, text)

    def loads(self, task: int) -> None:
        """See that what is loaded was begun, and not given up since."""
        if task not in self._begun:
            self._fail(Invariant.WORK_IS_ASSIGNED, f"loads {task}, and holds {sorted(self._begun)}")

    def releases(self, tasks: Collection[int]) -> None:
        """See that nothing is handed over that is not held."""
        if not set(tasks) <= self._begun:
            self._fail(
                Invariant.GIVEN_UP_ONCE, f"hands {sorted(set(tasks) - self._begun)} over, which it does not hold"
            )

    def ends(self, tasks: Collection[int]) -> None:
        """See that nothing is given up that is not held."""
        if not set(tasks) <= self._begun:
            self._fail(Invariant.GIVEN_UP_ONCE, f"gives up {sorted(set(tasks) - self._begun)}, which it does not hold")
        self._begun.difference_update(tasks)

    def superseded(self, task: int, generation: int, *, was_ours: bool) -> None:
        """Take note that another node has taken a log partition."""
        self.generation_seen = max(self.generation_seen, generation)
        if not was_ours:
            self._begun.discard(task)
        self._member.world.count("taken by surprise" if was_ours else "taken as planned")

    # ---- by the clock ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Look at a process that has just done all that is due."""
        member, life = self._member, self._member.life
        now_ms = member.now_ms()
        next_tick_ms = life.next_tick_ms
        if next_tick_ms is not None and next_tick_ms <= now_ms:
            self._fail(Invariant.HEARTBEATS_GO_ON, f"has a heartbeat or the end of a session due since {next_tick_ms}")
        if life.is_active and self._has_wish:
            self._fail(Invariant.WISHES_STAY, "wished to join again, and works on as if it had not")
        self._ran_ms += min(member.world.now_ms - self._checked_ms, member.world.time_slice_ms)
        self._checked_ms = member.world.now_ms
        self._check_session(now_ms)
        self._check_wish()
        self._check_delivery(now_ms)
        self._check_work(now_ms)
        self._check_map(now_ms)
        self.naming.check(now_ms, self._ran_ms)

    def _check_session(self, now_ms: int) -> None:
        life = self._member.life
        if life.state is not MemberState.STABLE:
            self._heartbeat_due_ms = None
            return
        if now_ms - self._heard_ms > SESSION_MS + self._slack_ms():
            self._fail(Invariant.SESSIONS_END, f"is in {life.generation}, and was answered at {self._heard_ms} ms last")
        if self._heartbeat_due_ms is not None and now_ms > self._heartbeat_due_ms + self._slack_ms():
            self._fail(Invariant.HEARTBEATS_GO_ON, f"was to try again by {self._heartbeat_due_ms}, and has not")

    def _check_wish(self) -> None:
        """See that who is to join again does so, and that who is not works by all of its assignment."""
        member, found = self._member, self._assigned
        needs_rejoin = member.coordinator.needs_rejoin or self._has_failed
        if not (member.life.is_active and needs_rejoin):
            self._unheard_ms = None
        elif self._unheard_ms is None:
            self._unheard_ms = self._ran_ms
        elif self._ran_ms - self._unheard_ms > REJOIN_MAX_MS:
            self._fail(Invariant.WISHES_STAY, f"is to join again, and has not for {REJOIN_MAX_MS} ms")
        is_at_work = found is not None and member.life.is_active and not needs_rejoin
        if found is None or not is_at_work or self._begun.issuperset(found.work.tasks):
            self._unbegun_ms = None
        elif self._unbegun_ms is None:
            self._unbegun_ms = self._ran_ms
        elif self._ran_ms - self._unbegun_ms > BEGIN_MAX_MS:
            self._fail(Invariant.WORK_IS_BEGUN, f"has begun {sorted(self._begun)} of {found.work}")

    def _check_delivery(self, now_ms: int) -> None:
        life = self._member.life
        is_open = life.state is MemberState.STABLE and life.generation_if_stable is None and self.running is None
        if not is_open:
            self._undelivered_ms = None
        elif self._undelivered_ms is None:
            self._undelivered_ms = now_ms
        elif now_ms - self._undelivered_ms > REDELIVERY_MS:
            self._fail(Invariant.DELIVERED_AGAIN, f"has an undelivered assignment since {self._undelivered_ms}")

    def _check_work(self, now_ms: int) -> None:
        assigned = () if self._assigned is None else self._assigned.work.tasks
        # One that failed may load again by itself, under what it had, before it is its turn; this node is its owner in both.
        waiting = self._member.node.waiting()
        for index, partition in self._member.node.runtime.partitions.items():
            if partition.state not in (State.ACTIVE, State.LOADING):
                continue
            is_due = index in self._begun and index in assigned and index not in waiting
            if is_due and partition.generation != self._begun_generation:
                text = f"has {index} under {partition.generation}, not {self._begun_generation}"
                self._fail(Invariant.WORK_IS_ASSIGNED, text)
            if index in assigned:
                continue
            since_ms = self._dropped_ms.get(index)
            if since_ms is None or now_ms - since_ms > self._member.handover_ms + self._slack_ms():
                self._fail(
                    Invariant.HANDED_OVER_IN_TIME,
                    f"is {partition.state.value} for {index}, not its own since {since_ms}",
                )

    def _check_map(self, now_ms: int) -> None:
        member = self._member
        if not member.coordinator.needs_rejoin:
            self._stale_since_ms = None
        elif self._stale_since_ms is None:
            self._stale_since_ms = now_ms
        if member.coordinator.needs_rejoin:
            for index in range(len(member.world.topic.partitions)):
                if member.view.owner(index) == member.place and not member.node.serves(index):
                    self._fail(Invariant.NAMES_WHAT_IT_SERVES, f"names itself for {index}, which it does not serve")
        since_ms = self._stale_since_ms
        is_too_old = since_ms is not None and now_ms - since_ms > member.stale_map_max_ms + self._slack_ms()
        if not self._is_lost and not is_too_old:
            return
        for index in range(len(member.world.topic.partitions)):
            owner = member.view.owner(index)
            if owner is not None and (owner != member.place or not member.node.serves(index)):
                why = "before its session was lost" if self._is_lost else f"{since_ms}, which is too old"
                self._fail(Invariant.MAP_IS_OF_THE_SESSION, f"names {owner} for {index}, from a map of {why}")
