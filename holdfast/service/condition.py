"""What a program says of itself to whoever looks after it."""

from typing import NamedTuple


class Condition(NamedTuple):
    """The condition of a program at one moment."""

    #: Its start is over, whatever became of it: what follows it may begin.
    has_started: bool
    #: It does now all that it is there for.
    is_ready: bool
    is_stopping: bool
    #: It reads its settings again.
    is_reloading: bool
    #: One line for people.
    status: str
    #: What it has done of its start; any growth is progress.
    progress: int
    #: Turns of the work that it is there for; another number than before shows that it goes on.
    turns: int
