"""The clocks of a process, which never go back."""

import time
from collections.abc import Callable


def now_ms() -> int:
    """Return the milliseconds since some moment of the past, which is the same for the whole process."""
    return time.monotonic_ns() // 1_000_000


def exact_now_ms() -> float:
    """Return the same with its fraction, for durations of less than a millisecond."""
    return time.monotonic_ns() / 1_000_000


def make_wall_clock_ms() -> Callable[[], int]:
    """Return a clock that starts at the wall's time and never jumps: deadlines and record timestamps share it."""
    offset_ns = time.time_ns() - time.monotonic_ns()

    def wall_now_ms() -> int:
        return (time.monotonic_ns() + offset_ns) // 1_000_000

    return wall_now_ms
