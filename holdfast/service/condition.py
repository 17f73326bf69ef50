"""The condition that a program reports to its service manager."""

from typing import NamedTuple


class Condition(NamedTuple):
    """The condition of a program at one moment."""

    #: Its start is over, with or without success, so programs that wait for it may begin.
    has_started: bool
    #: It can do all of its work now.
    is_ready: bool
    is_stopping: bool
    #: It reads its settings again.
    is_reloading: bool
    #: One line for people.
    status: str
    #: Steps of its start that are done; any growth is progress.
    progress: int
    #: Turns of its work; another number than before shows that the work goes on.
    turns: int
