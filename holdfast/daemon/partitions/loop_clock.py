"""How busy the event loop is: how late its ticks come, and how long its thread works."""

from time import perf_counter, thread_time

from holdfast.runtime.metrics import RuntimeMetrics


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

    def tick(self) -> None:
        """Measure how late this tick is, and how long this thread has worked in all, polling apart."""
        self.ticks += 1
        now_s = perf_counter()
        if self._ticked_s:
            late_ms = (now_s - self._ticked_s) * 1_000 - self._tick_ms
            self._metrics.event_queue_time.record(max(0.0, late_ms))
        busy, worked_ms = self._metrics.loop_busy_ms, int((thread_time() - self._worked_before_s) * 1_000)
        busy.value = max(busy.value, worked_ms - self._metrics.busy_poll_ms.value)  # both are cut to whole ms
        self._ticked_s = now_s
