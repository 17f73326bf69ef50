"""The clock of waits and durations, which never goes back."""

import time


def now_ms() -> int:
    """Return the milliseconds since some moment of the past, which is the same for the whole process."""
    return time.monotonic_ns() // 1_000_000


def exact_now_ms() -> float:
    """Return the same with its fraction, for durations of less than a millisecond."""
    return time.monotonic_ns() / 1_000_000
