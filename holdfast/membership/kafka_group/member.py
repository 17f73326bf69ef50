"""A member of a group on a real group coordinator: the event loop around `lifecycle`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.membership.checks import check_protocol_type
from holdfast.membership.coordinator import Coordinator, LeaveListener, LossListener
from holdfast.membership.effects import (
    METHODS,
    Callback,
    Complete,
    Effect,
    ForgetCoordinator,
    LeavePrepare,
    Lost,
    Perform,
    Prepare,
    Report,
    Run,
    Send,
)
from holdfast.membership.errors import CallbackFailed, MemberClosed
from holdfast.membership.generation import Generation
from holdfast.membership.kafka_group.group_link import GroupLink
from holdfast.membership.lifecycle import MemberLifecycle
from holdfast.membership.metrics import MembershipMetrics
from holdfast.membership.requests import Request
from holdfast.membership.settings import MembershipSettings
from holdfast.membership.states import State
from holdfast.metrics.registry import Registry

#: Takes level, event and fields of a log line.
NoteLine = Callable[[str, str, dict[str, object]], None]


def _drop_line(level: str, event: str, fields: dict[str, object]) -> None:
    """Write nothing: what a program must know reaches it as an error."""


class Member:
    """The place of a program in its group; for one event loop.

    The program calls `ensure_active` or `poll` again and again, from one task. In between heartbeats go on by themselves.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        options: ConnectionOptions,
        settings: MembershipSettings,
        *,
        random: Random | None = None,
        registry: Registry | None = None,
        note: NoteLine = _drop_line,
    ) -> None:
        """Describe the member; nothing is connected before the first `ensure_active` or `poll`.

        Args:
            coordinator: what this program does as a member.
            options: how to connect to the cluster.
            settings: of the group and of this member.
            random: jitter of back-offs; a new one where none is given.
            registry: where to count; a new one where none is given.
            note: takes log lines.

        Raises:
            InvalidMetadata: the coordinator's protocol type is empty.
        """
        check_protocol_type(coordinator.protocol_type)
        self._coordinator = coordinator
        self._note = note
        self._loop = asyncio.get_running_loop()
        metrics = MembershipMetrics(registry or Registry(), self._heartbeat_age_s)
        jitter = (random or Random()).random
        self._life = MemberLifecycle(settings, coordinator.metadata, jitter, metrics)
        self._link = GroupLink(options, settings, coordinator.protocol_type, metrics.throttle_time_ms)
        #: Requests and callbacks; somebody must hold them.
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: Set when anything happens, and then replaced.
        self._event = asyncio.Event()
        #: Raised in the next turn; of several, the first.
        self._error: Exception | None = None
        #: A bug of ours; raised in every turn from then on.
        self._bug: BaseException | None = None
        self._is_closed = False
        #: `close` has done all that it does.
        self._has_ended = False
        #: The method of the program that runs, or ran last.
        self._callback_name = ""

    @property
    def generation(self) -> Generation:
        """Return the generation that the member joined last; without a number while it is in none."""
        return self._life.generation

    @property
    def generation_if_stable(self) -> Generation | None:
        """Return the generation whose assignment this program has taken over; None from the first moment of a rejoin until then."""
        return self._life.generation_if_stable

    @property
    def member_id(self) -> str:
        """Return the id by which the group knows this member; empty: by none."""
        return self._life.generation.member_id

    @property
    def heartbeat_age_s(self) -> float:
        """Return the seconds since the last answered heartbeat left, or the coordinator answered a join; 0 outside a generation."""
        return self._heartbeat_age_s()

    @property
    def state(self) -> State:
        """Return the state of the member in its group."""
        return self._life.state

    async def ensure_active(self, timeout_ms: int) -> bool:
        """Join or rejoin if that is due, and wait until an assignment is taken over; return whether it was.

        A request in flight when the time is over goes on, and the next call goes on with it. With 0, it takes one turn and does not wait.

        Raises:
            MembershipFailed: the group coordinator refuses for good; every later call raises it again.
            CallbackFailed: a callback raised; the next call goes on after a back-off.
            InvalidMetadata: what the coordinator says of this member cannot be sent.
            InvalidAssignment: what the coordinator, as leader, assigned cannot be sent.
            MemberClosed: the member was closed.
        """
        deadline_ms = self._now_ms() + timeout_ms
        while True:
            self._take_turn()
            if self._life.is_active:
                return True
            now_ms, next_turn_ms = self._now_ms(), self._life.next_turn_ms
            if now_ms >= deadline_ms:
                await asyncio.sleep(0)
                return False
            await self._wait_event(min(deadline_ms, next_turn_ms) if next_turn_ms > now_ms else deadline_ms)

    async def poll(self, timeout_ms: int) -> bool:
        """Do as `ensure_active`, and then wait until the member must act again, no longer than to the next heartbeat.

        Raises: as `ensure_active`.
        """
        deadline_ms = self._now_ms() + timeout_ms
        is_active = await self.ensure_active(timeout_ms)
        now_ms, next_tick_ms = self._now_ms(), self._life.next_tick_ms
        if is_active and now_ms < deadline_ms:
            await self._wait_event(deadline_ms if next_tick_ms is None else min(deadline_ms, next_tick_ms))
        return self._life.is_active

    def request_rejoin(self, reason: str) -> None:
        """Have the next `ensure_active` or `poll` join again; from any callback, too.

        The others join again, too, if this is the leader or its metadata says something new; else the same generation comes back.
        Within the first heartbeat of a generation it waits for a back-off, so that members that always want another assignment keep none
        from working.
        """
        self._learn(self._life.request_rejoin(reason, self._now_ms()))

    async def leave(self, *, keeps_place: bool = True) -> None:
        """Leave the group: `on_leave_prepare` runs, then LeaveGroup is sent; the next `ensure_active` joins again.

        Bounded by the callback and `request.timeout.ms`. With `keeps_place`, a static member sends no LeaveGroup: its place and its
        assignment wait for it within its session.

        Raises:
            CallbackFailed: the callback raised; the member has left all the same.
        """
        self._learn(self._life.leave(keeps_place=keeps_place))
        while self._bug is None and self._life.is_busy:
            await self._wait_event(None)
        # A JoinGroup that was given up would be answered before any other.
        self._link.disconnect()
        self._raise_error()

    async def close(self, timeout_ms: int, *, keeps_place: bool = True) -> None:
        """Leave and end; when the time is over, what has not ended is cancelled. Afterwards nothing is sent and no callback begins.

        A callback that swallows its cancellation is waited for as long again, and named in a line; what comes of it changes nothing.
        `keeps_place` is that of `leave`.

        Raises:
            CallbackFailed: `on_leave_prepare` raised; the member is closed all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._error = None
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self.leave(keeps_place=keeps_place)
        except TimeoutError:
            self._note("warning", "group_leave_timed_out", {"within_ms": timeout_ms})
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            try:
                if self._tasks:
                    _, left = await asyncio.wait(self._tasks, timeout=timeout_ms / 1_000)
                    if left:
                        self._note("error", "group_callback_not_cancelled", {"callback": self._callback_name})
            finally:
                self._has_ended = True
                self._link.close()
                self._wake()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _heartbeat_age_s(self) -> float:
        return self._life.session.age_ms(self._now_ms()) / 1_000 if self._life.generation.is_joined else 0.0

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    def _take_turn(self) -> None:
        if self._is_closed:
            raise MemberClosed("the member is closed")
        self._carry_out(self._life.turn(self._now_ms()))
        self._carry_out(self._life.tick(self._now_ms()))
        self._raise_error()
        if self._life.failure is not None and not self._life.is_busy:
            raise self._life.failure

    def _raise_error(self) -> None:
        if self._bug is not None:
            raise self._bug
        error, self._error = self._error, None
        if isinstance(error, CallbackFailed):
            raise error from error.error
        if error is not None:
            raise error

    async def _wait_event(self, until_ms: int | None) -> None:
        """Wait until anything happens, or until a time."""
        event = self._event
        try:
            async with asyncio.timeout_at(None if until_ms is None else until_ms / 1_000):
                await event.wait()
        except TimeoutError:
            return

    def _tick(self) -> None:
        self._learn(self._life.tick(self._now_ms()))

    def _learn(self, effects: list[Effect]) -> None:
        """Carry out what an event made necessary, and wake who waits for any; nothing once the member has ended."""
        if self._has_ended:
            return
        self._carry_out(effects)
        self._wake()

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._start(self._exchange(effect.request), "holdfast-group-request")
            elif isinstance(effect, Run):
                self._start(self._run(effect.callback), "holdfast-group-callback")
            elif isinstance(effect, ForgetCoordinator):
                self._link.forget()
            elif isinstance(effect, Report):
                self._error = self._error or effect.error
            else:
                self._note(effect.level, effect.event, effect.fields)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        next_tick_ms = self._life.next_tick_ms
        self._timer = None if next_tick_ms is None else self._loop.call_at(next_tick_ms / 1_000, self._tick)

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            # A fault of others is an answer. The program must not wait for an answer that will not come.
            self._bug = bug
            self._wake()

    async def _exchange(self, request: Request) -> None:
        answer = await self._link.exchange(request)
        self._learn(self._life.answered(request, answer, self._now_ms()))

    async def _run(self, callback: Callback) -> None:
        self._callback_name = METHODS[type(callback)]
        try:
            result = await self._call(callback)
        except Exception as error:  # the program may raise anything
            self._learn(self._life.callback_raised(error, self._now_ms()))
        else:
            self._learn(self._life.callback_returned(result, self._now_ms()))

    async def _call(self, callback: Callback) -> Mapping[str, bytes] | None:
        coordinator = self._coordinator
        match callback:
            case Prepare():
                await coordinator.on_join_prepare(callback.generation_id, callback.member_id)
            case Perform():
                return await coordinator.perform_assignment(*callback)
            case Complete():
                await coordinator.on_join_complete(*callback)
            case LeavePrepare():
                if isinstance(coordinator, LeaveListener):
                    await coordinator.on_leave_prepare(callback.generation_id, callback.member_id)
            case Lost():
                if isinstance(coordinator, LossListener):
                    await coordinator.on_lost(callback.reason)
        return None
