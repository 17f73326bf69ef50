"""Whole lives of members, with the event loop around them, over a simulated group coordinator in virtual time; one seed for each life."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import CallbackFailed, JoinedMember, MembershipSettings
from holdfast.membership.kafka_group import Member
from holdfast.membership.requests import Answer, JoinGroup, Refused, Request, SyncGroup
from tests.simulated.group.group import STABLE, Enclosed, Group
from tests.virtual_loop import VirtualLoop

LIVES: Final = 12
FAULTS: Final = 60
#: In which the group is whole again when nothing goes wrong any more: sessions, a rebalance and the longest back-offs.
CONVERGENCE_S: Final = 30.0
#: And then stays so.
REST_S: Final = 20.0
SETTINGS: Final = MembershipSettings(
    group_id="g",
    session_timeout_ms=3_000,
    rebalance_timeout_ms=4_000,
    heartbeat_interval_ms=800,
    retry_backoff_ms=100,
    retry_backoff_max_ms=1_000,
    request_timeout_ms=1_000,
)
_LOST: Final = Refused(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")


class Life:
    """One group, its members, and what goes wrong."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = asyncio.get_running_loop()
        self._ids = 0
        self.group = Group(self.now_ms, self._make_id, self.random.choice((0, 300)))
        self.programs: list[Program] = []
        self.is_calm = False

    def now_ms(self) -> int:
        return int(self.loop.time() * 1_000)

    def _make_id(self) -> str:
        self._ids += 1
        return f"m{self.random.randrange(1_000):03}-{self._ids}"

    async def run(self) -> None:
        ticking = asyncio.create_task(self._tick())
        for _ in range(self.random.choice((1, 2, 4))):
            self.programs.append(Program(self))
        for _ in range(self.random.randrange(FAULTS)):
            await self._go_wrong()
            await asyncio.sleep(self.random.choice((0.01, 0.3, 1.0, 4.0)))
        self.is_calm = True
        for program in self.programs:
            program.link.is_cut, program.raises, program.is_idle = False, "", False
        ends_s = self.loop.time() + CONVERGENCE_S
        while why := self._why_not_whole():
            assert self.loop.time() < ends_s, why
            await asyncio.sleep(0.1)
        rebalances = self.group.rebalances
        await asyncio.sleep(REST_S)
        assert (self._why_not_whole(), self.group.rebalances) == ("", rebalances), "it rests"
        for program in self.programs:
            await program.close()
        assert self.group.places == {}, "all have left"
        ticking.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.group.tick()

    async def _go_wrong(self) -> None:
        program = self.random.choice(self.programs)
        match self.random.randrange(6):
            case 0:
                program.link.is_cut = not program.link.is_cut
            case 1:
                program.raises = self.random.choice(("prepare", "perform", "complete", "lost"))
            case 2:
                program.is_idle = not program.is_idle
            case 3:
                program.member.request_rejoin("it likes to")
            case 4 if len(self.programs) > 1:
                self.programs.remove(program)
                program.link.is_cut = False
                await program.close()
            case _ if len(self.programs) < 5:
                self.programs.append(Program(self))

    def _why_not_whole(self) -> str:
        group, stable = self.group, [program.member.generation_if_stable for program in self.programs]
        if group.state != STABLE or len(group.places) != len(self.programs):
            return f"the group is {group.state}, with {sorted(group.places)}"
        if {each.id if each else None for each in stable} != {group.generation}:
            return f"members are in {stable}, and the group in {group.generation}"
        if not all(program.member._life.is_active for program in self.programs):
            return "somebody wishes to join again"
        work = sorted(each for program in self.programs for each in program.work)
        return "" if work == [*range(10)] else f"they do {work}"


class Link:
    """The way of one member to the group: slow, and sometimes cut."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._in_flight: set[asyncio.Future[Answer]] = set()
        self.is_cut = False
        self.is_closed = False

    async def exchange(self, request: Request) -> Answer:
        assert not self.is_closed, "nothing is sent after the end"
        life = self._life
        answer: asyncio.Future[Answer] = life.loop.create_future()
        self._in_flight.add(answer)
        life.loop.call_later(life.random.choice((0.001, 0.02)), self._arrive, request, answer)
        is_held = isinstance(request, JoinGroup | SyncGroup)
        try:
            async with asyncio.timeout(5.0 if is_held else 1.0):
                found = await answer
                await asyncio.sleep(life.random.choice((0.001, 0.02, 0.3)))
        except TimeoutError:
            return _LOST
        finally:
            self._in_flight.discard(answer)
        return _LOST if self.is_cut else found

    def _arrive(self, request: Request, answer: asyncio.Future[Answer]) -> None:
        def respond(found: Answer) -> None:
            if not answer.done():
                answer.set_result(found)

        if not self.is_cut:
            self._life.group.handle(Enclosed(request, SETTINGS), respond)

    def forget(self) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        for answer in self._in_flight:
            if not answer.done():
                answer.set_result(_LOST)

    def close(self) -> None:
        self.disconnect()
        self.is_closed = True


class Program:
    """A program that shares ten pieces of work with its like, and fails now and then."""

    protocol_type = "test"

    def __init__(self, life: Life) -> None:
        self._life = life
        self.work: tuple[int, ...] = ()
        self.raises = ""
        #: It does something else than to poll; heartbeats must go on.
        self.is_idle = False
        self._running = ""
        self.member = Member(self, ConnectionOptions(bootstrap=(("nowhere", 1),)), SETTINGS, random=life.random)
        self.link = Link(life)
        member: Any = self.member
        member._link = self.link
        self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            try:
                if self.is_idle:
                    await asyncio.sleep(0.5)
                else:
                    await self.member.poll(700)
            except CallbackFailed as failed:
                if str(failed.error) != "planted":
                    raise

    async def close(self) -> None:
        self._polling.cancel()
        await asyncio.wait([self._polling])
        if not self._polling.cancelled() and (bug := self._polling.exception()):
            raise bug
        self.raises = ""
        await self.member.close(10_000)
        self.work = ()

    async def _happen(self, name: str) -> None:
        assert not self._running, f"{name} beside {self._running}"
        self._running = name
        try:
            await asyncio.sleep(self._life.random.choice((0.0, 0.1, 1.0)))
            if self.raises == name:
                self.raises = ""
                raise RuntimeError("planted")
        finally:
            self._running = ""

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        return [("p", b"")]

    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        await self._happen("prepare")
        self.work = ()

    async def perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes]:
        assert leader_id == self.member.member_id, "the leader alone"
        await self._happen("perform")
        ids = sorted(each.member_id for each in members)
        return {each: bytes(range(index, 10, len(ids))) for index, each in enumerate(ids)}

    async def on_join_complete(self, generation: int, member_id: str, protocol: str, assignment: bytes) -> None:
        before = self.member.generation
        await self._happen("complete")
        if self.member.generation == before:
            assert self.member.generation_if_stable is None, "not before it has returned"
        self.work = tuple(assignment)

    async def on_lost(self, reason: str) -> None:
        self.work = ()
        await self._happen("lost")


@pytest.mark.parametrize("seed", range(LIVES))
def test_members_come_together_again_whatever_went_wrong(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def live() -> None:
            await Life(seed).run()

        runner.run(live())
