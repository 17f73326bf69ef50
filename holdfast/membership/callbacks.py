"""The callbacks of a member: one runs at a time, and those that came meanwhile wait."""

from collections import deque
from typing import NamedTuple, final

from holdfast.membership.effects import Callback, Run
from holdfast.membership.generation import Generation


class Ended(NamedTuple):
    """A callback that has ended."""

    callback: Callback
    #: The generation that it was begun under.
    generation: Generation


@final
class Callbacks:
    """The callback that runs, and those that wait for its end: at most one `Lost` and one `LeavePrepare`."""

    def __init__(self) -> None:
        self._running: Ended | None = None
        self._waiting: deque[Callback] = deque()

    @property
    def is_idle(self) -> bool:
        """Tell whether no callback runs."""
        return self._running is None

    def run(self, callback: Callback, generation: Generation) -> list[Run]:
        """Begin a callback, or have it wait; returns what must be done now."""
        if self._running is not None:
            self._waiting.append(callback)
            return []
        self._running = Ended(callback, generation)
        return [Run(callback)]

    def end(self) -> Ended:
        """Handle the end of the callback that runs."""
        ended, self._running = self._running, None
        assert ended is not None
        return ended

    def run_next(self, generation: Generation) -> list[Run]:
        """Begin the callback that waits longest, if one does and none runs."""
        if self._running is not None or not self._waiting:
            return []
        return self.run(self._waiting.popleft(), generation)
