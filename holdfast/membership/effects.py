"""The effects that a member asks for, as values: a test can assert the whole list."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from holdfast.membership.coordinator import JoinedMember
from holdfast.membership.requests import Request


class Prepare(NamedTuple):
    """Run `on_join_prepare`."""

    generation_id: int
    member_id: str


class Perform(NamedTuple):
    """Run `perform_assignment`."""

    leader_id: str
    protocol: str
    members: tuple[JoinedMember, ...]


class Complete(NamedTuple):
    """Run `on_join_complete`."""

    generation_id: int
    member_id: str
    protocol: str
    assignment: bytes


class LeavePrepare(NamedTuple):
    """Run `on_leave_prepare`, if the program has it."""

    generation_id: int
    member_id: str
    #: No LeaveGroup follows: a static member may come back within its session.
    keeps_place: bool


class Lost(NamedTuple):
    """Run `on_lost`, if the program has it."""

    reason: str


Callback = Prepare | Perform | Complete | LeavePrepare | Lost
#: The method of the program that each callback is.
METHODS: Final[Mapping[type[Callback], str]] = MappingProxyType(
    {
        Prepare: "on_join_prepare",
        Perform: "perform_assignment",
        Complete: "on_join_complete",
        LeavePrepare: "on_leave_prepare",
        Lost: "on_lost",
    }
)


class Run(NamedTuple):
    """Run a callback; no other runs meanwhile."""

    callback: Callback


class Send(NamedTuple):
    """Send a request to the group coordinator."""

    request: Request


class ForgetCoordinator(NamedTuple):
    """Look the group coordinator up again before the next request."""


class Report(NamedTuple):
    """Raise an error in the program's next turn: one of its callbacks failed."""

    error: Exception


class Note(NamedTuple):
    """A log line: level (`debug`, `info`, `warning`, `error`), event and fields."""

    level: str
    event: str
    fields: dict[str, object]


Effect = Run | Send | ForgetCoordinator | Report | Note
