"""The limiter of log lines: each kind has a number in a minute, and a silent broker has lines of its own in place of its effects."""

from collections.abc import Callable
from threading import Lock
from typing import Final

from holdfast.clock import now_ms

_MINUTE_MS: Final = 60_000
#: Kinds of one event that are counted apart; beyond, all counts of the event start at zero.
_KINDS_MAX: Final = 1_000


class _Event:
    """The counts of one event."""

    def __init__(self) -> None:
        #: by kind: when its minute began, how many lines it had in it, how many were left out since the last line
        self.kinds: dict[str, tuple[int, int, int]] = {}
        #: left out, and of kinds whose counts were given up
        self.untold = 0


class LineLimiter:
    """The limiter of the lines of one process: each line asks it where it is written, from any thread."""

    def __init__(self, clock_ms: Callable[[], int] = now_ms) -> None:
        """Count the minutes of `clock_ms`."""
        self._clock_ms = clock_ms
        self._turn = Lock()
        self._events: dict[str, _Event] = {}
        self._is_effect: Callable[[int | None], bool] = _none_is

    def leave_effects_to(self, is_effect: Callable[[int | None], bool]) -> None:
        """Let a watch over brokers tell from now on, and count, which lines are about the effects of a silent one; see `leave_out`."""
        self._is_effect = is_effect

    def leave_out(self, partition: int | None = None) -> bool:
        """Tell whether a silent broker causes a line about a log partition (None: any), so that the line about the broker is enough."""
        return self._is_effect(partition)

    def admit(self, event: str, per_minute_max: int, kind: str = "", untold: int = 0) -> dict[str, int] | None:
        """Return fields for a line that may be written, which say how many were left out before it; None: it may not.

        The next line of the kind counts them, or the next one of any kind of the event where the count of theirs was given up.

        Args:
            event: of the line: one of our names, for each has counts of its own.
            per_minute_max: lines of this event and kind.
            kind: of the line among those of its event; a client may choose it.
            untold: lines that were left out for another reason, and that this line would tell of.
        """
        with self._turn:
            now = self._clock_ms()
            counts = self._events.get(event)
            if counts is None:
                counts = self._events[event] = _Event()
            kinds = counts.kinds
            if kind not in kinds and len(kinds) >= _KINDS_MAX:
                counts.untold += sum(left_out for _, _, left_out in kinds.values())
                kinds.clear()
            began, written, left_out = kinds.get(kind, (now, 0, 0))
            if now - began >= _MINUTE_MS:
                began, written = now, 0
            if written >= per_minute_max:
                kinds[kind] = (began, written, left_out + untold + 1)
                return None
            kinds[kind] = (began, written + 1, 0)
            left_out += untold + counts.untold
            counts.untold = 0
        return {"left_out": left_out} if left_out else {}


def _none_is(_: int | None) -> bool:
    """Take no line for one about a silent broker, where no watch looks for silence."""
    return False
