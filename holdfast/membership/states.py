"""The life of a member of a group, as a table."""

from enum import Enum
from typing import final


class State(Enum):
    """The state of a member in its group."""

    #: No join is in flight. The group may know the member by an id all the same.
    UNJOINED = "unjoined"
    #: From the first moment of a join or rejoin until JoinGroup is answered with a generation; also between two tries.
    JOINING = "joining"
    #: The generation is known. The leader works out the assignment, all others wait for it.
    SYNCING = "syncing"
    #: The assignment is here.
    STABLE = "stable"
    #: The program prepares to leave, or LeaveGroup is in flight.
    LEAVING = "leaving"


#: From each state, the states that may follow.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNJOINED: frozenset({State.JOINING, State.LEAVING}),
    State.JOINING: frozenset({State.SYNCING, State.UNJOINED, State.LEAVING}),
    State.SYNCING: frozenset({State.STABLE, State.JOINING, State.UNJOINED, State.LEAVING}),
    State.STABLE: frozenset({State.JOINING, State.UNJOINED, State.LEAVING}),
    State.LEAVING: frozenset({State.UNJOINED}),
}


@final
class Assigned:
    """The holding of a stable member: the assignment of its generation."""

    def __init__(self, assignment: bytes) -> None:
        self.assignment = assignment
        #: The program has taken it over.
        self.is_delivered = False
        #: A heartbeat was answered since then.
        self.is_settled = False


class IllegalTransition(Exception):
    """A transition that is not in the table; the state is as it was."""

    def __init__(self, start: State, finish: State) -> None:
        super().__init__(f"{start.value} -> {finish.value} is not a legal transition of a member")
        self.start = start
        self.finish = finish


def check_transition(start: State, finish: State) -> None:
    """Raise if `finish` may not follow `start`.

    Raises:
        IllegalTransition: with both states.
    """
    if finish not in TRANSITIONS[start]:
        raise IllegalTransition(start, finish)
