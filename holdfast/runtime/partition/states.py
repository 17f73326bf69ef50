"""The life of one log partition on a node, as a table."""

from enum import Enum
from typing import final


class State(Enum):
    """The state of a log partition on this node."""

    #: Not loaded so far.
    INITIAL = "initial"
    #: The log is read up to our own checkpoint.
    LOADING = "loading"
    #: Reads and writes are served.
    ACTIVE = "active"
    #: Memory and log may disagree, or the load failed; it loads again after a back-off.
    FAILED = "failed"
    #: Not ours; it can be loaded again, from scratch.
    CLOSED = "closed"


#: From each state, the states that may follow.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.INITIAL: frozenset({State.LOADING, State.CLOSED}),
    State.LOADING: frozenset({State.ACTIVE, State.FAILED, State.CLOSED}),
    State.ACTIVE: frozenset({State.FAILED, State.CLOSED}),
    State.FAILED: frozenset({State.LOADING, State.CLOSED}),
    State.CLOSED: frozenset({State.LOADING}),
}


@final
class Closed:
    """The phase of a partition that is INITIAL or CLOSED."""

    def __init__(self, retry_at_ms: int | None) -> None:
        #: When it should be loaded again; None: not without an event.
        self.retry_at_ms = retry_at_ms


@final
class Failed:
    """The phase of a partition that is FAILED."""

    def __init__(self, retry_at_ms: int) -> None:
        #: When it should be loaded again.
        self.retry_at_ms = retry_at_ms


class IllegalTransition(Exception):
    """A transition that is not in the table; the state stays as it was."""

    def __init__(self, partition: int, start: State, finish: State) -> None:
        super().__init__(f"partition {partition}: {start.value} -> {finish.value} is not a legal transition")
        self.partition = partition
        self.start = start
        self.finish = finish


def check_transition(partition: int, start: State, finish: State) -> None:
    """Raise if `finish` may not follow `start`.

    Raises:
        IllegalTransition: with both states.
    """
    if finish not in TRANSITIONS[start]:
        raise IllegalTransition(partition, start, finish)
