"""A member, its program and its group coordinator, driven by lines of text: each command returns what it made happen, as lines.

The member is the real one; requests stay in flight until they are answered, callbacks run until they return or raise.

    turn · tick · wait MS · status                         wait ticks whenever a tick is due on the way
    answer join GENERATION MEMBER LEADER [MEMBER…] [via=PROTOCOL] [kept]
    answer sync TEXT · answer heartbeat · answer leave     the oldest request of that kind
    answer KIND ERROR [MEMBER]
    return [MEMBER=TEXT…] · raise TEXT                     how the callback ends that runs
    rejoin REASON · leave [place] · metadata NAME=TEXT…    with `place`, a static member gives that up, too
    given joined · given COMMAND                           told nothing of
    freeze MS · count · static                             the last as the first command
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.membership import JoinedMember, MembershipSettings
from holdfast.membership.effects import (
    METHODS,
    Callback,
    Effect,
    ForgetCoordinator,
    LeavePrepare,
    Report,
    Run,
    Send,
)
from holdfast.membership.lifecycle import MemberLifecycle
from holdfast.membership.metrics import MembershipMetrics
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
    SyncGroup,
)
from holdfast.membership.states import State
from holdfast.metrics.registry import Registry

SETTINGS = MembershipSettings(
    group_id="workers",
    session_timeout_ms=1_000,
    rebalance_timeout_ms=5_000,
    heartbeat_interval_ms=300,
    retry_backoff_ms=100,
    retry_backoff_max_ms=400,
)
KINDS: dict[str, type[Request]] = {
    "join": JoinGroup,
    "sync": SyncGroup,
    "heartbeat": Heartbeat,
    "leave": LeaveGroup,
}


class World:
    """Everything around one member, and the commands that move it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.registry = Registry()
        self.metrics = MembershipMetrics(self.registry)
        self.protocols: list[tuple[str, bytes]] = [("p", b"me")]
        self.member = self._make_member(SETTINGS)
        #: Requests that are not answered, oldest first.
        self.in_flight: list[Request] = []
        self.callback: Callback | None = None
        #: It left at least once: requests that it gave up may be in flight still.
        self.has_left = False
        self.told: list[str] = []

    def _make_member(self, settings: MembershipSettings) -> MemberLifecycle:
        return MemberLifecycle(settings, lambda: self.protocols, lambda: 1.0, self.metrics)

    def run(self, line: str) -> list[str]:
        """Carry out one command and return what happened, checking what must always hold."""
        self.told = []
        verb, *words = shlex.split(line)
        getattr(self, f"_{verb}")(*words)
        self.check()
        return self.told

    def check(self) -> None:
        """Check what holds at all times."""
        member = self.member
        if (stable := member.generation_if_stable) is not None:
            assert member.state is State.STABLE
            assert stable == member.generation
        assert not (member.is_active and self.callback is not None)
        assert (member.state in (State.SYNCING, State.STABLE)) <= member.generation.is_joined
        assert sum(isinstance(each, JoinGroup) for each in self.in_flight) <= 1 or self.has_left

    # ---- commands ----------------------------------------------------------------------------------------------------

    def _given(self, *words: str) -> None:
        """Carry out a command, or bring the member into generation 1, and tell nothing of it."""
        joined = ("turn", "return", "answer join 1 m1 m0", "answer sync work", "turn", "return")
        for line in joined if words == ("joined",) else [shlex.join(words)]:
            self.run(line)
        self.told = []

    def _turn(self) -> None:
        self.take(self.member.turn(self.now_ms))

    def _tick(self) -> None:
        self.take(self.member.tick(self.now_ms))

    def _wait(self, ms: str) -> None:
        until_ms = self.now_ms + int(ms)
        while (next_ms := self.member.next_tick_ms) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self._tick()
        self.now_ms = until_ms

    def _freeze(self, ms: str) -> None:
        """Let time pass in which the process stands still."""
        self.now_ms += int(ms)

    def _rejoin(self, reason: str) -> None:
        self.take(self.member.request_rejoin(reason, self.now_ms))

    def _leave(self, place: str = "") -> None:
        self.has_left = True
        self.take(self.member.leave(keeps_place=place != "place"))

    def _metadata(self, *protocols: str) -> None:
        self.protocols = [(name, text.encode()) for name, _, text in (each.partition("=") for each in protocols)]

    def _static(self) -> None:
        """Begin as a static member."""
        self.member = self._make_member(replace(SETTINGS, group_instance_id="i1"))

    def _return(self, *assignments: str) -> None:
        self.callback = None
        named = {member: text.encode() for member, _, text in (each.partition("=") for each in assignments)}
        self.take(self.member.callback_returned(named or None, self.now_ms))

    def _raise(self, text: str) -> None:
        self.callback = None
        self.take(self.member.callback_raised(RuntimeError(text), self.now_ms))

    def _answer(self, kind: str, *words: str) -> None:
        request = next(each for each in self.in_flight if isinstance(each, KINDS[kind]))
        self.in_flight.remove(request)
        self.take(self.member.answered(request, answer_of(kind, words), self.now_ms))

    def _status(self) -> None:
        member = self.member
        stable = "stable" if member.generation_if_stable is not None else "not stable"
        self.told.append(f"{member.state.value}, {member.generation}, {stable}{', active' * member.is_active}")

    def _count(self) -> None:
        """Tell what was counted that is not 0."""
        self.told += [
            f"{name} {value:g}"
            for name, value in self.registry.numbers()
            if value and name.endswith(("_total", "}", "_sum"))
        ]

    # ---- what the member wants done ----------------------------------------------------------------------------------

    def take(self, effects: list[Effect]) -> None:
        """Record the effects that the member asks for."""
        for effect in effects:
            match effect:
                case Send(request):
                    self.in_flight.append(request)
                    self.told.append(f"send {text_of(request)}")
                case Run(callback):
                    assert self.callback is None, "a callback runs already"
                    self.callback = callback
                    arguments = callback[:2] if isinstance(callback, LeavePrepare) else callback
                    self.told.append(f"run {METHODS[type(callback)]}({', '.join(map(text_of_value, arguments))})")
                case ForgetCoordinator():
                    self.told.append("forget the coordinator")
                case Report(error):
                    self.told.append(f"report {type(error).__name__}: {error}")
                case note:
                    left_out = ("group", "generation", "exc_info")
                    fields = ", ".join(f"{name}={value}" for name, value in note.fields.items() if name not in left_out)
                    self.told.append(f"{note.level}: {note.event} ({fields})")


def answer_of(kind: str, words: tuple[str, ...]) -> Answer:
    """Return the answer that a command describes."""
    if words and words[0] in ErrorCode.__members__:
        return Refused(ErrorCode[words[0]], member_id=words[1] if len(words) > 1 else "")
    if kind == "join":
        generation, member_id, leader_id, *rest = words
        protocol = next((word.removeprefix("via=") for word in rest if word.startswith("via=")), "p")
        members = tuple(
            JoinedMember(word, None, f"of {word}".encode()) for word in rest if word != "kept" and "=" not in word
        )
        return Joined(int(generation), member_id, protocol, leader_id, members, "kept" in rest)
    return Synced(words[0].encode()) if kind == "sync" else Acknowledged()


def text_of(request: Request) -> str:
    """Return a request as one line."""
    match request:
        case JoinGroup(generation, protocols, reason):
            offered = " ".join(f"{name}={data.decode()}" for name, data in protocols)
            return f"JoinGroup {offered}, {generation}{f', because {reason}' * bool(reason)}"
        case SyncGroup(generation, assignments):
            handed = "".join(f" {member_id}={data.decode()}" for member_id, data in assignments)
            return f"SyncGroup{handed}, {generation}"
        case _:
            return f"{type(request).__name__}, {request.generation}"


def text_of_value(value: object) -> str:
    """Return an argument of a callback as text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, tuple):
        return " ".join(each.member_id for each in value)
    return str(value) if value != "" else '""'
