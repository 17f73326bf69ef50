"""How busy the event loop is: how late its ticks come, and how long its thread works."""

from time import thread_time

from holdfast.runtime.metrics import RuntimeMetrics


class LoopClock:
    """The measurements of the thread that it is called on."""

    def __init__(self, metrics: RuntimeMetrics) -> None:
        """Begin before the first tick."""
        #: How often the loop has ticked.
        self.ticks = 0
        self._metrics = metrics
        self._worked_before_s = thread_time()

    def tick(self, late_ms: float) -> None:
        """Take in how late this tick is, and how long this thread has worked in all, polling apart."""
        self.ticks += 1
        self._metrics.event_queue_time.record(late_ms)
        busy, worked_ms = self._metrics.loop_busy_ms, int((thread_time() - self._worked_before_s) * 1_000)
        busy.value = max(busy.value, worked_ms - self._metrics.busy_poll_ms.value)  # both are cut to whole ms
