"""How many log lines of one kind are written in a minute, whatever causes them; what was left out is counted in the next one."""

from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Final

_MINUTE_S: Final = 60.0
#: Kinds of lines that are counted apart; beyond, all counts start at zero.
_KINDS_MAX: Final = 1_000


class LineLimit:
    """So many lines of each kind in each minute; beyond a number of kinds all counts start at zero.

    Whatever is left out is told by a line that comes later: the next one of its kind, or of any kind where its count was given up.
    """

    def __init__(self, per_minute_max: int, clock: Callable[[], float] = monotonic) -> None:
        """Allow `per_minute_max` lines of each kind in each minute of `clock`, which gives seconds."""
        self._per_minute_max = per_minute_max
        self._clock = clock
        self._turn = Lock()
        #: by kind: when its minute began, how many lines it had in it, how many were left out since the last line
        self._kinds: dict[str, tuple[float, int, int]] = {}
        #: left out, and of kinds whose counts were given up
        self._untold = 0

    def admit(self, kind: str, untold: int = 0) -> dict[str, int] | None:
        """Return fields for a line that may be written, which say how many were left out before it; None: it may not.

        Args:
            kind: of the line.
            untold: lines that another limit has left out, and that this line would tell of.
        """
        with self._turn:
            now = self._clock()
            if kind not in self._kinds and len(self._kinds) >= _KINDS_MAX:
                self._untold += sum(left_out for _, _, left_out in self._kinds.values())
                self._kinds.clear()
            began, written, left_out = self._kinds.get(kind, (now, 0, 0))
            if now - began >= _MINUTE_S:
                began, written = now, 0
            if written >= self._per_minute_max:
                self._kinds[kind] = (began, written, left_out + untold + 1)
                return None
            self._kinds[kind] = (began, written + 1, 0)
            left_out += untold + self._untold
            self._untold = 0
        return {"left_out": left_out} if left_out else {}
