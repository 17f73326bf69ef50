"""One member of a group, from its first join to its leave: events in, effects out; no I/O, no clock.

The program's *turn* is where a rejoin begins and where an assignment is handed over.
All else goes on between turns: heartbeats, answers to what is in flight, the leader's assignment, the word that the place was lost.

Source: Apache Kafka `AbstractCoordinator`; KIP-345 (static members), KIP-394 (MEMBER_ID_REQUIRED), KIP-814 (assignment kept).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import final

from holdfast.backoff import Backoff
from holdfast.kafka.protocol.error_codes import error_name
from holdfast.membership.callbacks import Callbacks
from holdfast.membership.checks import check_assignments, check_protocols
from holdfast.membership.effects import (
    METHODS,
    Callback,
    Complete,
    Effect,
    ForgetCoordinator,
    LeavePrepare,
    Lost,
    Note,
    Perform,
    Prepare,
    Report,
    Send,
)
from holdfast.membership.errors import (
    AT_ONCE,
    CallbackFailed,
    InvalidAssignment,
    MembershipError,
    MembershipFailed,
    Reaction,
    reaction_to,
)
from holdfast.membership.generation import NO_ID, Generation
from holdfast.membership.metrics import MembershipMetrics
from holdfast.membership.rejoin import Rejoin, RejoinCause
from holdfast.membership.requests import (
    Answer,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Refused,
    Request,
    Synced,
    SyncGroup,
)
from holdfast.membership.session import Session
from holdfast.membership.settings import MembershipSettings
from holdfast.membership.states import Assigned, State, check_transition


@final
class MemberLifecycle:
    """One member; each event returns what it made necessary, in order."""

    def __init__(
        self,
        settings: MembershipSettings,
        metadata: Callable[[], Sequence[tuple[str, bytes]]],
        jitter: Callable[[], float],
        metrics: MembershipMetrics,
    ) -> None:
        """Create a member that is outside the group.

        Args:
            settings: of this member.
            metadata: says what each JoinGroup says of this member.
            jitter: returns from 0 to 1.
            metrics: count what happens.
        """
        self._settings = settings
        self._metadata = metadata
        self._metrics = metrics
        #: One of `TRANSITIONS`.
        self.state = State.UNJOINED
        #: Changes as one value: when JoinGroup is answered, when the place is lost, and when the member has left.
        self.generation = Generation.NONE
        #: Why the group coordinator refused for good; nothing is sent after that.
        self.failure: MembershipFailed | None = None
        #: Heartbeats of the generation; of no meaning outside one.
        self.session = Session(settings, jitter)
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, jitter)
        self._rejoin = Rejoin()
        #: By kind: the request whose answer counts. One that is not here any more was given up.
        self._in_flight: dict[type[Request], Request] = {}
        self._callbacks = Callbacks()
        #: `on_join_prepare` has returned, and no assignment was handed over since.
        self._is_prepared = False
        #: None outside STABLE.
        self._assigned: Assigned | None = None
        #: An assignment was handed to the program, whether it took it or not, and not given up or lost since.
        self._holds = False
        #: When the join in flight began, and when its JoinGroup or SyncGroup left.
        self._began_ms = 0
        self._sent_ms = 0
        #: The refusal of the last join in flight: an outage should be one line, not one for each try.
        self._refused_with: int | None = None
        self._effects: list[Effect] = []

    @property
    def generation_if_stable(self) -> Generation | None:
        """Return the generation, while its assignment is the one that the program works by; else None."""
        return self.generation if self._assigned is not None and self._assigned.is_delivered else None

    @property
    def is_active(self) -> bool:
        """Tell whether the program has an assignment and nothing waits for its turn."""
        return self.generation_if_stable is not None and self._rejoin.cause is None and self._callbacks.is_idle

    @property
    def is_busy(self) -> bool:
        """Tell whether the member is about to leave, or a callback runs."""
        return self.state is State.LEAVING or not self._callbacks.is_idle

    @property
    def next_turn_ms(self) -> int:
        """Return the time of the next turn that may find new work, if no other event comes before."""
        return self._backoff.until_ms()

    @property
    def next_tick_ms(self) -> int | None:
        """Return when the next tick is due; None: no session runs."""
        if not self._has_session():
            return None
        expires_ms = self.session.expires_ms
        return expires_ms if self._heartbeat_in_flight() else min(self.session.due_ms, expires_ms)

    # ---- events ------------------------------------------------------------------------------------------------------

    def turn(self, now_ms: int) -> list[Effect]:
        """Begin a join that is due, try one again, or hand an assignment over."""
        self._check_session(now_ms)
        if self.failure is None and self._callbacks.is_idle and self._backoff.is_over(now_ms):
            if self.state is State.JOINING:
                self._go_on_joining(now_ms)
            elif self.state is State.UNJOINED or (self.state is State.STABLE and self._is_rejoin_due()):
                self._begin_join(now_ms)
            elif self._assigned is not None and not self._assigned.is_delivered:
                self._deliver(self._assigned.assignment)
        return self._take_effects()

    def tick(self, now_ms: int) -> list[Effect]:
        """Send a heartbeat that is due, and notice that the session is over."""
        self._check_session(now_ms)
        if self._has_session() and now_ms >= self.session.due_ms and not self._heartbeat_in_flight():
            self._metrics.heartbeat_lateness.record(self.session.on_sent(now_ms))
            self._metrics.heartbeats.value += 1
            self._send(Heartbeat(self.generation))
        return self._take_effects()

    def answered(self, request: Request, answer: Answer, now_ms: int) -> list[Effect]:
        """Take the answer to a request; one that was sent under an earlier generation, or given up, changes nothing."""
        if self._in_flight.get(type(request)) is request:
            del self._in_flight[type(request)]
            if request.generation != self.generation:
                self._note("debug", "group_answer_outdated", sent_under=str(request.generation))
            elif isinstance(request, Heartbeat):
                self._on_heartbeat_answer(answer, now_ms)
            elif isinstance(request, LeaveGroup):
                self._on_left(answer)
            else:
                self._on_join_answer(answer, now_ms)
        return self._take_effects()

    def callback_returned(self, result: Mapping[str, bytes] | None, now_ms: int) -> list[Effect]:
        """Take the end of the callback that ran; only `Perform` has a result."""
        callback, generation = self._callbacks.end()
        is_current = generation == self.generation
        if isinstance(callback, Prepare):
            self._is_prepared = self.state is State.JOINING
        elif isinstance(callback, Perform) and is_current and self.state is State.SYNCING:
            self._hand_in(callback, result or {}, now_ms)
        elif isinstance(callback, Complete) and is_current and self._assigned is not None:
            self._assigned.is_delivered = True
            self._metrics.rebalances.value += 1
            self._metrics.rebalance_latency.record(now_ms - self._began_ms)
            self._pace_rejoin(now_ms)
        self._after_callback(callback, now_ms)
        return self._take_effects()

    def callback_raised(self, error: Exception, now_ms: int) -> list[Effect]:
        """Take the failure of the callback that ran."""
        callback, generation = self._callbacks.end()
        self._report(CallbackFailed(METHODS[type(callback)], error))
        if isinstance(callback, Perform) and generation == self.generation and self.state is State.SYNCING:
            self._try_again("the assignment failed", now_ms)
        elif isinstance(callback, Prepare | Complete):
            self._metrics.failed_rebalances.value += 1
            self._backoff.fail(now_ms)
        self._after_callback(callback, now_ms)
        return self._take_effects()

    def request_rejoin(self, reason: str, now_ms: int) -> list[Effect]:
        """Join again at the next turn; after a back-off, if the generation has not lived for one heartbeat."""
        self._note("info", "group_rejoin_requested", reason=reason)
        is_first = self._rejoin.cause is None
        self._rejoin.request(RejoinCause.REQUESTED, reason)
        if is_first and self.generation_if_stable is not None:
            self._pace_rejoin(now_ms)
        return self._take_effects()

    def leave(self, *, keeps_place: bool) -> list[Effect]:
        """Leave: `LeavePrepare`, then LeaveGroup, unless a static member keeps its place; nothing for who is no member."""
        if self.state is not State.LEAVING:
            is_static = self._settings.group_instance_id is not None
            is_joining = self._in_flight.pop(JoinGroup, None) is not None
            self._in_flight.pop(SyncGroup, None)
            # The group knows a static member by its instance id as soon as it joins.
            if self.generation.has_member_id or (is_static and is_joining):
                self._to(State.LEAVING)
                self._assigned, self._holds = None, False
                self._run(LeavePrepare(self.generation.id, self.generation.member_id, keeps_place and is_static))
            else:
                self._end_membership()
        return self._take_effects()

    def _is_rejoin_due(self) -> bool:
        # The program gets to see each new assignment, but for one that the group has given up already.
        return self._rejoin.cause is RejoinCause.GROUP or (self._rejoin.cause is not None and not self._is_prepared)

    def _pace_rejoin(self, now_ms: int) -> None:
        """Have a rejoin that the program wishes for wait, unless the generation has lived for a heartbeat."""
        is_new = self._assigned is not None and not self._assigned.is_settled
        if is_new and self._rejoin.cause is RejoinCause.REQUESTED:
            self._backoff.fail(now_ms)

    # ---- joining -----------------------------------------------------------------------------------------------------

    def _begin_join(self, now_ms: int) -> None:
        if self._rejoin.cause is not None:
            self._metrics.rejoins[self._rejoin.cause].value += 1
        self._note("info", "group_join_started", reason=self._rejoin.reason or "the member is new")
        self._to(State.JOINING)
        self._began_ms = now_ms
        self._refused_with = self._assigned = None
        self._go_on_joining(now_ms)

    def _go_on_joining(self, now_ms: int) -> None:
        if JoinGroup in self._in_flight:
            return
        if not self._is_prepared:
            self._run(Prepare(self.generation.id, self.generation.member_id))
            return
        try:
            protocols = check_protocols(self._metadata())
        except Exception as error:  # the program may raise anything
            self._metrics.failed_rebalances.value += 1
            self._backoff.fail(now_ms)
            self._report(error if isinstance(error, MembershipError) else CallbackFailed("metadata", error))
            return
        self._sent_ms = now_ms
        self._send(JoinGroup(self.generation, protocols, self._rejoin.reason))
        self._rejoin.on_join_sent()

    def _on_join_answer(self, answer: Answer, now_ms: int) -> None:
        """Take an answer to JoinGroup or SyncGroup."""
        if isinstance(answer, Joined):
            self._metrics.join_time.record(now_ms - self._sent_ms)
            self.generation = Generation(answer.generation_id, answer.member_id, answer.protocol)
            self.session.renew(now_ms)
            self._to(State.SYNCING)
            is_leader = answer.leader_id == answer.member_id
            self._note("info", "group_joined", leader=answer.leader_id)
            if is_leader and not answer.is_assignment_kept:
                self._run(Perform(answer.leader_id, answer.protocol, answer.members))
            else:
                self._sync((), now_ms)
        elif isinstance(answer, Synced):
            self._metrics.sync_time.record(now_ms - self._sent_ms)
            self.session.renew(now_ms)
            self._to(State.STABLE)
            self._assigned = Assigned(answer.assignment)
            # Before the program learns of it: what it wishes for then stays.
            self._rejoin.on_assigned()
        elif isinstance(answer, Refused):
            self._on_join_refused(answer, now_ms)

    def _on_join_refused(self, refused: Refused, now_ms: int) -> None:
        reaction = reaction_to(refused.error_code)
        if reaction is Reaction.TAKE_MEMBER_ID and self.state is State.JOINING:
            self.generation = Generation(NO_ID, refused.member_id, None)
            self._backoff.fail(now_ms, is_first_free=True)
            self._go_on_joining_if_due(now_ms)
            return
        self._metrics.failed_rebalances.value += 1
        if self.state is State.SYNCING:
            self._to(State.JOINING)
        if reaction is not Reaction.GIVE_UP:
            level = "debug" if reaction in AT_ONCE or refused.error_code == self._refused_with else "info"
            self._refused_with = refused.error_code
            wait_ms = self._backoff.fail(now_ms, is_first_free=reaction in AT_ONCE)
            self._note(level, "group_join_refused", again_in_ms=wait_ms, **_reason(refused))
        self._react(reaction, refused)
        self._go_on_joining_if_due(now_ms)

    def _hand_in(self, performed: Perform, assignments: Mapping[str, bytes], now_ms: int) -> None:
        try:
            checked = check_assignments(performed.members, assignments)
        except InvalidAssignment as error:
            self._report(error)
            self._try_again("the assignment is invalid", now_ms)
        else:
            self._sync(checked, now_ms)

    def _sync(self, assignments: tuple[tuple[str, bytes], ...], now_ms: int) -> None:
        self._sent_ms = now_ms
        self._send(SyncGroup(self.generation, assignments))

    def _try_again(self, reason: str, now_ms: int) -> None:
        """Go back to before JoinGroup, after a back-off."""
        self._metrics.failed_rebalances.value += 1
        self._metrics.rejoins[RejoinCause.FAILED].value += 1
        self._rejoin.request(RejoinCause.FAILED, reason)
        self._backoff.fail(now_ms)
        self._to(State.JOINING)

    def _deliver(self, assignment: bytes) -> None:
        # Another join is another chance to give up what this assignment may have begun.
        self._is_prepared, self._holds = False, True
        generation = self.generation
        self._run(Complete(generation.id, generation.member_id, generation.protocol or "", assignment))

    def _go_on_joining_if_due(self, now_ms: int) -> None:
        is_free = self._callbacks.is_idle and self._backoff.is_over(now_ms)
        if is_free and self.state is State.JOINING and self._is_prepared:
            self._go_on_joining(now_ms)

    # ---- the session -------------------------------------------------------------------------------------------------

    def _has_session(self) -> bool:
        """Tell whether heartbeats must be sent: the coordinator itself waits while it has a JoinGroup or SyncGroup of ours."""
        is_answering = any(kind in self._in_flight for kind in (JoinGroup, SyncGroup, LeaveGroup))
        return self.generation.is_joined and not is_answering

    def _heartbeat_in_flight(self) -> bool:
        heartbeat = self._in_flight.get(Heartbeat)
        return heartbeat is not None and heartbeat.generation == self.generation

    def _check_session(self, now_ms: int) -> None:
        if self._has_session() and now_ms >= self.session.expires_ms:
            self._lose(self.generation.left(), f"no heartbeat was answered for {self._settings.session_timeout_ms} ms")

    def _on_heartbeat_answer(self, answer: Answer, now_ms: int) -> None:
        if not isinstance(answer, Refused):
            self.session.on_answered()
            if self._assigned is not None and self._assigned.is_delivered:
                self._assigned.is_settled = True
                self._backoff.reset()
            return
        reaction = reaction_to(answer.error_code)
        if reaction is Reaction.REJOIN:
            self.session.on_answered()
            if self.state is State.STABLE:
                self._rejoin.request(RejoinCause.GROUP, "the group rebalances")
        elif reaction in (Reaction.WAIT, Reaction.LOOK_UP):
            wait_ms = self.session.on_failed(now_ms)
            self._note("debug", "group_heartbeat_refused", again_in_ms=wait_ms, **_reason(answer))
        elif JoinGroup in self._in_flight:
            # It may have come after JoinGroup, which ended its generation; a member that is none hears it in that answer, too.
            self._note("debug", "group_answer_outdated", sent_under=str(self.generation))
            return
        self._react(reaction, answer)

    def _react(self, reaction: Reaction, refused: Refused) -> None:
        """Do what an error demands, for any request that it answers."""
        if reaction is Reaction.LOOK_UP:
            self._effects.append(ForgetCoordinator())
        elif reaction is Reaction.FORGET_GENERATION:
            self._lose(self.generation.left(), f"the group is beyond {self.generation}")
        elif reaction is Reaction.FORGET_MEMBER:
            self._lose(Generation.NONE, f"the group does not know member {self.generation.member_id}")
        elif reaction is Reaction.GIVE_UP:
            self.failure = MembershipFailed(self._settings.group_id, refused.error_code, refused.message)
            self._note("error", "group_membership_refused", why=str(self.failure))
            self._lose(Generation.NONE, str(self.failure))
            if self.state is State.JOINING:
                self._to(State.UNJOINED)

    def _lose(self, generation: Generation, reason: str) -> None:
        """Handle the loss of the generation; the program learns of it if it has an assignment."""
        if self.generation.is_joined:
            self._note("warning", "group_place_lost", why=reason)
        self.generation = generation
        self._assigned = None
        self._rejoin.request(RejoinCause.LOST, reason)
        if self.state is State.STABLE:
            self._to(State.UNJOINED)
        elif self.state is State.SYNCING:
            self._to(State.JOINING)
        elif self.state is State.LEAVING and self._in_flight.pop(LeaveGroup, None) is not None:
            self._end_membership()
        if self._holds:
            self._holds = False
            self._run(Lost(reason))

    # ---- leaving -----------------------------------------------------------------------------------------------------

    def _on_left(self, answer: Answer) -> None:
        if isinstance(answer, Refused):
            self._note("info", "group_leave_refused", **_reason(answer))
        self._end_membership()

    def _end_membership(self) -> None:
        if self.state is not State.UNJOINED:
            self._note("info", "group_left")
            self._to(State.UNJOINED)
        self.generation = Generation.NONE
        self._rejoin.clear()
        self._assigned, self._is_prepared, self._holds = None, False, False

    # ---- small ones --------------------------------------------------------------------------------------------------

    def _run(self, callback: Callback) -> None:
        self._effects += self._callbacks.run(callback, self.generation)

    def _after_callback(self, callback: Callback, now_ms: int) -> None:
        if isinstance(callback, LeavePrepare):
            if not callback.keeps_place and self.generation.member_id == callback.member_id:
                self._send(LeaveGroup(self.generation, "the member leaves"))
            else:
                self._end_membership()
        self._effects += self._callbacks.run_next(self.generation)
        self._go_on_joining_if_due(now_ms)

    def _to(self, state: State) -> None:
        check_transition(self.state, state)
        self.state = state

    def _send(self, request: Request) -> None:
        self._in_flight[type(request)] = request
        self._effects.append(Send(request))

    def _report(self, error: MembershipError) -> None:
        raised = error.error if isinstance(error, CallbackFailed) else error
        self._note("error", "group_callback_failed", error=str(error), exc_info=raised)
        self._effects.append(Report(error))

    def _note(self, level: str, event: str, **fields: object) -> None:
        where = {"group": self._settings.group_id, "generation": str(self.generation)}
        self._effects.append(Note(level, event, where | fields))

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _reason(refused: Refused) -> dict[str, object]:
    return {"error": error_name(refused.error_code), "why": refused.message}
