"""The runtime as calls reach it: what one of many requests takes of the loop is timed."""

from collections.abc import Iterable
from time import perf_counter
from typing import Final

from holdfast.daemon.share.service import Runtime
from holdfast.metrics.instruments import Histogram
from holdfast.runtime.state_machine import Operation

#: Timing each request would cost more than it says.
_REQUESTS_PER_TIMING: Final = 64


class TimedWrites:
    """The operations of calls on their way to the runtime (`share.service.Runtime`)."""

    def __init__(self, runtime: Runtime, processing_time: Histogram) -> None:
        """Pass operations on to `runtime`; `processing_time` gets how many ms one of them took, for some requests."""
        self._runtime = runtime
        self._processing_time = processing_time
        self._until_timed = _REQUESTS_PER_TIMING

    def write_many(self, operations: Iterable[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run each operation on its log partition; what the request has waited before is taken off its time."""
        self._until_timed -= 1
        if self._until_timed:
            self._runtime.write_many(operations, waited_ms)
        else:
            self._until_timed = _REQUESTS_PER_TIMING
            self._time(list(operations), waited_ms)

    def _time(self, operations: list[tuple[int, Operation]], waited_ms: int) -> None:
        began_s = perf_counter()
        self._runtime.write_many(operations, waited_ms)
        self._processing_time.record((perf_counter() - began_s) * 1_000 / max(1, len(operations)))
