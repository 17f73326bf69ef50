"""Rules that hold for a member in any order of events; and once nothing fails any more, the member works."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.membership.effects import Complete, LeavePrepare, Lost, Perform, Prepare, Run, Send
from holdfast.membership.effects import Effect as MemberEffect
from holdfast.membership.requests import Heartbeat, JoinGroup, LeaveGroup, Request, SyncGroup
from holdfast.membership.states import State
from tests.pure.membership.world import KINDS, World

#: Codes that pass; the final ones have tests of their own, and end everything.
PASSING = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "NETWORK_EXCEPTION",
    "REBALANCE_IN_PROGRESS",
    "MEMBER_ID_REQUIRED fresh",
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "UNKNOWN_SERVER_ERROR",
)
#: JoinGroups that may leave at one instant: the first, and the free tries after errors that cost no wait.
JOINS_AT_ONCE_MAX = 3
#: Rounds of turn, answers and ends of callbacks in which a member comes to work; it needs six, beside waits.
ROUNDS_MAX = 20


class Watched(World):
    """A world that watches the order of what the member wants done."""

    def __init__(self) -> None:
        super().__init__()
        self.is_prepared = False
        self.holds = False
        self.joins_at: tuple[int, int] = (0, 0)
        self.generations = 0

    def take(self, effects: list[MemberEffect]) -> None:
        for effect in effects:
            match effect:
                case Run(Prepare()):
                    assert not self.is_prepared, "prepared twice"
                case Run(Complete()):
                    self.is_prepared, self.holds = False, True
                case Run(Lost()):
                    assert self.holds, "lost what the program did not have"
                    self.holds = False
                case Run(LeavePrepare()):
                    self.holds = False
                case Send(JoinGroup()):
                    assert self.is_prepared, "JoinGroup without prepare"
                    instant, count = self.joins_at
                    self.joins_at = (self.now_ms, count + 1 if instant == self.now_ms else 1)
                    assert self.joins_at[1] <= JOINS_AT_ONCE_MAX, "a hot loop"
                case Send(request):
                    assert request.generation.has_member_id
                    assert request.generation == self.member.generation
        super().take(effects)

    def end_callback(self, *, fails: bool) -> None:
        """End the callback that runs."""
        callback = self.callback
        if isinstance(callback, Prepare) and not fails:
            self.is_prepared = self.member.state is State.JOINING
        if fails:
            self.run("raise no")
        elif isinstance(callback, Perform):
            self.run("return " + " ".join(f"{member.member_id}=work" for member in callback.members))
        else:
            self.run("return")

    def answer(self, request: Request, error: str | None) -> None:
        """Answer a request; one of an earlier generation changes nothing."""
        kind = next(name for name, each in KINDS.items() if isinstance(request, each))
        self.in_flight.remove(request)
        self.in_flight.insert(0, request)
        member = self.member
        before = (member.state, member.generation, member.is_active, self.callback)
        is_late = request.generation != member.generation
        if error is not None:
            self.run(f"answer {kind} {error}")
        elif isinstance(request, JoinGroup):
            self.generations += 1
            self.run(f"answer join {self.generations} {request.generation.member_id or 'fresh'} fresh fresh other")
        else:
            self.run(f"answer {kind} work")
        if is_late:
            assert (member.state, member.generation, member.is_active, self.callback) == before

    def forget_leave(self) -> None:
        """Forget the leave, because the program began again."""
        self.is_prepared, self.joins_at = False, (0, 0)


def play(world: Watched, choice: int, detail: int) -> None:
    """Let one thing happen that can."""
    if choice < 4 and world.in_flight:
        request = world.in_flight[detail % len(world.in_flight)]
        error = None if choice < 2 else PASSING[detail % len(PASSING)]
        world.answer(request, error)
    elif choice < 7 and world.callback is not None:
        world.end_callback(fails=choice == 6)
    elif choice < 10:
        world.run("turn")
    elif choice < 12:
        world.run(f"wait {detail * 5}")
    elif choice == 12:
        world.run(f"freeze {detail * 40}")
        world.run("tick")
    elif choice == 13:
        world.run("rejoin news")
    elif detail < 20:
        was = world.member.state
        world.run("leave")
        if was is not State.LEAVING:
            world.forget_leave()


def settle(world: Watched) -> None:
    """Let nothing go wrong any more, and wait until the member works.

    Raises:
        AssertionError: it does not come to work.
    """
    for _ in range(ROUNDS_MAX):
        if world.member.is_active:
            return
        world.run("turn")
        if world.callback is not None:
            world.end_callback(fails=False)
        for request in [each for each in world.in_flight if not isinstance(each, Heartbeat)]:
            world.answer(request, None)
        if world.callback is None:
            world.run("freeze 500")
    raise AssertionError(f"it does not come to work: {world.run('status')}, {world.in_flight}, {world.callback}")


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 14), st.integers(0, 99)), min_size=20, max_size=60))
def test_whatever_comes_the_order_holds_and_the_member_comes_to_work(
    is_joined: bool, steps: list[tuple[int, int]]
) -> None:
    world = Watched()
    if is_joined:
        settle(world)
        world.run("wait 300")
    for choice, detail in steps:
        play(world, choice, detail)
    settle(world)
    assert world.member.state is State.STABLE
    assert not any(isinstance(each, SyncGroup | LeaveGroup) for each in world.in_flight)
