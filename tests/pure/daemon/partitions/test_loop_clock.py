"""How busy the loop is: what it worked, but for what it polled, and never less than before."""

from time import thread_time

from holdfast.daemon.partitions.loop_clock import LoopClock
from holdfast.metrics.registry import Registry
from holdfast.runtime.metrics import RuntimeMetrics


def work_s(seconds: float) -> None:
    ends_s = thread_time() + seconds
    while thread_time() < ends_s:
        pass


def test_polling_for_answers_is_no_work() -> None:
    metrics = RuntimeMetrics(Registry())
    clock = LoopClock(metrics)
    work_s(0.02)
    metrics.busy_poll_ms.value = 3_600_000
    clock.tick(0)
    assert metrics.loop_busy_ms.value == 0


def test_the_total_never_goes_down() -> None:
    metrics = RuntimeMetrics(Registry())
    clock = LoopClock(metrics)
    work_s(0.02)
    clock.tick(0)
    worked_ms = metrics.loop_busy_ms.value
    assert worked_ms >= 20
    metrics.busy_poll_ms.value = 1
    clock.tick(0)
    assert metrics.loop_busy_ms.value >= worked_ms
