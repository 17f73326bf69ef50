"""How busy the event loop is: how late its ticks come, how long its thread works, and what one request takes of it."""

from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Final

from holdfast.runtime.metrics import RuntimeMetrics

#: Timing each request would cost more than it says.
_REQUESTS_PER_TIMING: Final = 64


class LoopClock:
    """The measurements of the thread that it is called on."""

    def __init__(self, metrics: RuntimeMetrics, tick_ms: int) -> None:
        """Begin; `tick` is to be called every `tick_ms`."""
        #: How often the loop has ticked.
        self.ticks = 0
        self._metrics = metrics
        self._tick_ms = tick_ms
        #: When the last tick ended.
        self._ticked_s = 0.0
        self._worked_before_s = thread_time()
        self._until_timed = _REQUESTS_PER_TIMING

    def tick(self) -> None:
        """Measure how late this tick is, and how long this thread has worked in all."""
        self.ticks += 1
        now_s = perf_counter()
        if self._ticked_s:
            late_ms = (now_s - self._ticked_s) * 1_000 - self._tick_ms
            self._metrics.event_queue_time.record(max(0.0, late_ms))
        self._metrics.loop_busy_ms.value = int((thread_time() - self._worked_before_s) * 1_000)
        self._ticked_s = now_s

    def is_timing_due(self) -> bool:
        """Count a request, and return whether it is one of those that are timed."""
        self._until_timed -= 1
        return not self._until_timed

    def time_request(self, work: Callable[[], None], operation_count: int) -> None:
        """Do the work of a request and record how long one of its operations took."""
        self._until_timed = _REQUESTS_PER_TIMING
        began_s = perf_counter()
        work()
        each_ms = (perf_counter() - began_s) * 1_000 / max(1, operation_count)
        self._metrics.event_processing_time.record(each_ms)
