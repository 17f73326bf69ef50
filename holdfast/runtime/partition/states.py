"""The life of one log partition on a node, as a table."""

from enum import Enum
from typing import final


class State(Enum):
    """What a partition is to this node."""

    #: To be loaded, nothing read yet.
    INITIAL = "initial"
    #: The log is read up to our own checkpoint.
    LOADING = "loading"
    #: Serving.
    ACTIVE = "active"
    #: Memory and log may disagree, or the load failed; loads again after a back-off.
    FAILED = "failed"
    #: Not ours; can be loaded again, from scratch.
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
    """What a partition holds that is not ours, or was not loaded yet."""

    def __init__(self, retry_at_ms: int | None) -> None:
        #: When it is loaded again by itself; None: it is not.
        self.retry_at_ms = retry_at_ms


@final
class Failed:
    """What a partition holds whose load or serving failed."""

    def __init__(self, retry_at_ms: int) -> None:
        #: When it is loaded again.
        self.retry_at_ms = retry_at_ms


class IllegalTransition(Exception):
    """A transition that is not in the table; the state is as it was."""

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
