"""The event loop around a member, over a group coordinator that answers when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import NoReturn

import pytest

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import (
    CallbackFailed,
    Generation,
    InvalidMetadata,
    JoinedMember,
    MemberClosed,
    MembershipFailed,
    MembershipSettings,
)
from holdfast.membership.kafka_group import Member
from holdfast.membership.requests import (
    Acknowledged,
    Answer,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Refused,
    Request,
    Synced,
)
from holdfast.membership.states import State
from holdfast.metrics.registry import Registry
from tests.waiting import PATIENCE_MS, in_patience, wait_until

SETTINGS = MembershipSettings(
    group_id="workers",
    session_timeout_ms=PATIENCE_MS,
    rebalance_timeout_ms=PATIENCE_MS,
    heartbeat_interval_ms=5,
    retry_backoff_ms=1,
    retry_backoff_max_ms=2,
)


class Link:
    """A way to a coordinator of a group of one; requests of kinds that are held wait."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.held: dict[type[Request], asyncio.Event] = {}
        self.answers: dict[type[Request], Answer] = {}
        self.bug: Exception | None = None
        self.is_closed = False

    def hold(self, kind: type[Request]) -> Callable[[], None]:
        """Answer no request of a kind until what is returned is called."""
        self.held[kind] = gate = asyncio.Event()
        return gate.set

    async def exchange(self, request: Request) -> Answer:
        self.requests.append(request)
        self.is_closed = False
        if self.bug is not None:
            raise self.bug
        if (gate := self.held.get(type(request))) is not None:
            await gate.wait()
        if (answer := self.answers.get(type(request))) is not None:
            return answer
        if isinstance(request, JoinGroup):
            return Joined(1, "m1", "p", "m1", (JoinedMember("m1", None, b""),), False)
        return Acknowledged() if isinstance(request, Heartbeat | LeaveGroup) else Synced(b"work")

    def forget(self) -> None: ...

    def disconnect(self) -> None:
        self.is_closed = True

    def close(self) -> None:
        self.is_closed = True

    def count(self, kind: type[Request]) -> int:
        return sum(isinstance(request, kind) for request in self.requests)


class Program:
    """A program whose callbacks may raise or hang."""

    protocol_type = "test"

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.raises: list[str] = []
        self.hangs = ""
        self.gate = asyncio.Event()
        #: The callback that hangs swallows its cancellation.
        self.is_stubborn = False

    async def happen(self, name: str) -> None:
        self.happened.append(name)
        if name == self.hangs:
            with suppress(asyncio.CancelledError) if self.is_stubborn else nullcontext():
                await self.gate.wait()
            await self.gate.wait()
        if name in self.raises:
            self.raises.remove(name)
            raise RuntimeError(name)

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        return [("p", b"")]

    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        await self.happen("prepare")

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        await self.happen("perform")
        return {member.member_id: b"" for member in members}

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        await self.happen("complete")

    async def on_leave_prepare(self, generation: int, member_id: str) -> None:
        await self.happen("leave")

    async def on_lost(self, reason: str) -> None:
        await self.happen("lost")


class Made:
    """A member with its program, its coordinator and its log lines."""

    def __init__(self, program: Program | None = None) -> None:
        self.program = program or Program()
        self.lines: list[str] = []
        self.registry = Registry()
        self.member = Member(
            self.program,
            ConnectionOptions(bootstrap=(("nowhere", 1),)),
            SETTINGS,
            registry=self.registry,
            note=lambda level, event, fields: self.lines.append(event),
        )
        self.link = Link()
        self.member._link = self.link  # type: ignore[assignment]  # it stands in for the real one


@asynccontextmanager
async def made() -> AsyncIterator[Made]:
    world = Made()
    try:
        yield world
    finally:
        world.program.gate.set()
        await world.member.close(PATIENCE_MS)


async def poll_forever(member: Member) -> NoReturn:
    while True:
        await member.poll(PATIENCE_MS)


async def test_a_member_joins_and_leaves() -> None:
    async with made() as world:
        assert await world.member.ensure_active(PATIENCE_MS)
        assert world.program.happened == ["prepare", "perform", "complete"]
        assert world.member.generation_if_stable == world.member.generation == Generation(1, "m1", "p")
        assert world.member.member_id == "m1"
        await world.member.leave()
        assert world.program.happened[-1] == "leave"
        assert (world.member.state, world.member.member_id) == (State.UNJOINED, "")
        assert await world.member.ensure_active(PATIENCE_MS)
        assert world.link.count(LeaveGroup) == 1


async def test_a_join_goes_on_when_the_time_to_wait_for_it_is_over() -> None:
    async with made() as world:
        let_join = world.link.hold(JoinGroup)
        while not world.link.requests:
            assert not await world.member.ensure_active(0)
        for timeout_ms in (0, 1, 5):
            assert not await world.member.ensure_active(timeout_ms)
        let_join()
        assert await world.member.ensure_active(PATIENCE_MS)
        assert world.link.count(JoinGroup) == 1
        assert world.program.happened.count("prepare") == 1


async def test_whoever_stops_waiting_stops_no_callback() -> None:
    async with made() as world:
        world.program.hangs = "complete"
        waiting = asyncio.create_task(world.member.ensure_active(PATIENCE_MS))
        await wait_until(lambda: "complete" in world.program.happened)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not await world.member.ensure_active(0)
        assert world.member.generation_if_stable is None
        world.program.gate.set()
        assert await world.member.ensure_active(PATIENCE_MS)
        assert world.program.happened.count("complete") == 1


async def test_heartbeats_go_on_while_a_callback_runs_and_while_nobody_polls() -> None:
    async with made() as world:
        world.program.hangs = "complete"
        assert not await world.member.ensure_active(0)
        await wait_until(lambda: world.member.state is State.STABLE)
        assert not await world.member.ensure_active(0)
        await wait_until(lambda: world.program.happened[-1:] == ["complete"])
        for _ in range(2):
            before = world.link.count(Heartbeat)
            await wait_until(lambda: world.link.count(Heartbeat) > before + 2)  # noqa: B023 # it is waited for at once
            world.program.gate.set()


async def test_a_callback_that_raises_is_raised_once_and_the_member_goes_on() -> None:
    async with made() as world:
        world.program.raises = ["prepare", "perform", "complete"]
        for name, failed in (
            ("on_join_prepare", "prepare"),
            ("perform_assignment", "perform"),
            ("on_join_complete", "complete"),
        ):
            with pytest.raises(CallbackFailed, match=name) as caught:
                await world.member.ensure_active(PATIENCE_MS)
            assert repr(caught.value.__cause__) == f"RuntimeError('{failed}')"
        assert await world.member.ensure_active(PATIENCE_MS)
        assert world.lines.count("group_callback_failed") == 3


async def test_poll_waits_until_the_next_heartbeat_and_joins_when_the_group_does() -> None:
    async with made() as world:
        assert await in_patience(world.member.poll(10 * PATIENCE_MS))
        world.link.answers[Heartbeat] = Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        await wait_until(lambda: world.link.count(Heartbeat) > 1)
        while world.link.count(JoinGroup) == 1:
            await in_patience(world.member.poll(10 * PATIENCE_MS))
            world.link.answers.clear()


async def test_a_wish_wakes_who_waits() -> None:
    async with made() as world:
        assert await world.member.ensure_active(PATIENCE_MS)
        world.member.request_rejoin("news")
        while world.program.happened.count("complete") == 1:
            await world.member.poll(PATIENCE_MS)
        assert dict(world.registry.numbers())["holdfast_rejoins_total{cause=requested}"] == 1


async def test_a_final_error_is_raised_again_and_again_and_nothing_is_sent() -> None:
    async with made() as world:
        assert await world.member.ensure_active(PATIENCE_MS)
        world.link.answers[Heartbeat] = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for _ in range(2):
            with pytest.raises(MembershipFailed, match="GROUP_AUTHORIZATION_FAILED"):
                await poll_forever(world.member)
        assert world.program.happened[-1] == "lost"
        sent = len(world.link.requests)
        with pytest.raises(MembershipFailed):
            await world.member.ensure_active(20)
        assert len(world.link.requests) == sent


async def test_close_is_idempotent_and_nothing_happens_afterwards() -> None:
    world = Made()
    assert await world.member.ensure_active(PATIENCE_MS)
    for _ in range(2):
        await world.member.close(PATIENCE_MS)
    assert world.link.count(LeaveGroup) == 1
    assert world.program.happened.count("leave") == 1
    assert world.link.is_closed
    assert world.member._timer is None or world.member._timer.cancelled()
    assert not world.member._tasks
    for call in (world.member.ensure_active, world.member.poll):
        with pytest.raises(MemberClosed):
            await call(PATIENCE_MS)


async def test_close_has_a_deadline_and_cancels_what_does_not_end() -> None:
    world = Made()
    world.program.hangs = "complete"
    assert not await world.member.ensure_active(0)
    await wait_until(lambda: world.member.state is State.STABLE)
    assert not await world.member.ensure_active(0)
    await wait_until(lambda: world.program.happened[-1:] == ["complete"])
    await in_patience(world.member.close(1))
    assert "leave" not in world.program.happened
    assert "group_leave_timed_out" in world.lines
    assert not world.member._tasks


async def held_by_a_callback() -> Made:
    """Return a member that is in a callback which swallows its cancellation."""
    world = Made()
    assert await world.member.ensure_active(PATIENCE_MS)
    world.program.hangs, world.program.is_stubborn = "prepare", True
    world.member.request_rejoin("news")
    while world.program.happened[-1] != "prepare":
        await world.member.ensure_active(0)
    return world


async def test_a_callback_that_swallows_its_cancellation_does_not_hold_close() -> None:
    world = await held_by_a_callback()
    await in_patience(world.member.close(1))
    assert world.lines[-1] == "group_callback_not_cancelled"
    [left] = world.member._tasks
    sent = len(world.link.requests)
    world.program.gate.set()
    await in_patience(left)
    assert (len(world.link.requests), world.program.happened[-1], world.link.is_closed) == (sent, "prepare", True)


async def test_a_close_that_is_cancelled_again_leaves_no_connection() -> None:
    world = await held_by_a_callback()
    closing = asyncio.create_task(world.member.close(PATIENCE_MS))
    for _ in range(2):
        await asyncio.sleep(0)
        closing.cancel()
    await in_patience(asyncio.wait([closing]))
    assert (closing.cancelled(), world.link.is_closed) == (True, True)
    [left] = world.member._tasks
    sent = len(world.link.requests)
    world.program.gate.set()
    await in_patience(left)
    assert len(world.link.requests) == sent


async def test_who_waits_learns_that_the_member_is_closed() -> None:
    world = Made()
    world.link.hold(JoinGroup)
    waiting = asyncio.create_task(world.member.ensure_active(PATIENCE_MS))
    await wait_until(lambda: world.link.requests)
    await world.member.close(PATIENCE_MS)
    with pytest.raises(MemberClosed):
        await waiting


async def test_close_of_who_never_joined_sends_nothing() -> None:
    world = Made()
    await world.member.close(PATIENCE_MS)
    assert (world.link.requests, world.program.happened) == ([], [])


async def test_a_leave_that_the_program_fails_in_is_a_leave_all_the_same() -> None:
    world = Made()
    assert await world.member.ensure_active(PATIENCE_MS)
    world.program.raises = ["leave"]
    with pytest.raises(CallbackFailed, match="on_leave_prepare"):
        await world.member.close(PATIENCE_MS)
    assert world.link.count(LeaveGroup) == 1


async def test_a_bug_of_ours_is_raised_where_the_program_waits() -> None:
    world = Made()
    world.link.bug = LookupError("a bug")
    for _ in range(2):
        with pytest.raises(LookupError, match="a bug"):
            await world.member.ensure_active(PATIENCE_MS)
    with pytest.raises(LookupError):
        await world.member.close(PATIENCE_MS)


async def test_callbacks_that_a_program_does_not_have_are_left_out() -> None:
    class Small:
        protocol_type = "test"
        metadata = Program.metadata
        on_join_prepare = Program.on_join_prepare
        perform_assignment = Program.perform_assignment
        on_join_complete = Program.on_join_complete
        happen = Program.happen

        def __init__(self) -> None:
            self.happened: list[str] = []
            self.hangs, self.raises = "", list[str]()

    world = Made(Small())  # type: ignore[arg-type]  # a part of it
    assert await world.member.ensure_active(PATIENCE_MS)
    await world.member.close(PATIENCE_MS)
    assert world.program.happened == ["prepare", "perform", "complete"]


async def test_metrics_exist_before_the_first_join_and_age_from_the_last_answer() -> None:
    async with made() as world:
        before = dict(world.registry.numbers())
        assert (
            before["holdfast_heartbeat_age_seconds"]
            == before["holdfast_rebalances_total"]
            == before["holdfast_failed_rebalances_total"]
            == 0
        )
        assert await world.member.ensure_active(PATIENCE_MS)
        await wait_until(lambda: dict(world.registry.numbers())["holdfast_heartbeats_total"] > 1)
        world.link.hold(Heartbeat)
        await wait_until(lambda: dict(world.registry.numbers())["holdfast_heartbeat_age_seconds"] > 0)
        assert dict(world.registry.numbers())["holdfast_rebalances_total"] == 1


async def test_an_empty_protocol_type_is_refused_at_once() -> None:
    program = Program()
    program.protocol_type = ""
    with pytest.raises(InvalidMetadata, match="protocol_type"):
        Made(program)
