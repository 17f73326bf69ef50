"""The clocks of a process."""

from holdfast.clock import make_wall_clock_ms


def test_clock_begins_at_the_walls_time_and_never_goes_back() -> None:
    clock_ms = make_wall_clock_ms()
    times = [clock_ms() for _ in range(1_000)]
    assert times == sorted(times)
    assert times[0] > 1_700_000_000_000
