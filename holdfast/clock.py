"""The clocks of a process, which never go back."""

from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Final

# Final, for it is used at every request: docs/decisions/build.md.
_monotonic_ns: Final[Callable[[], int]] = monotonic_ns


def now_ms() -> int:
    """Return the milliseconds since some moment of the past, which is the same for the whole process."""
    return _monotonic_ns() // 1_000_000


def exact_now_ms() -> float:
    """Return the same with its fraction, for durations of less than a millisecond."""
    return _monotonic_ns() / 1_000_000


def make_wall_clock_ms() -> Callable[[], int]:
    """Return a clock that starts at the wall's time and never jumps: deadlines and record timestamps share it."""
    offset_ns = time_ns() - _monotonic_ns()

    def wall_now_ms() -> int:
        return (_monotonic_ns() + offset_ns) // 1_000_000

    return wall_now_ms
