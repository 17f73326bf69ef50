"""The runtime as calls reach it: what some of many operations take of the loop is timed."""

from collections.abc import Sequence
from time import perf_counter
from typing import Final, Protocol

from holdfast.metrics.instruments import Histogram
from holdfast.runtime.state_machine import Operation

#: Timing each one would cost more than it says.
_OPERATIONS_PER_TIMING: Final = 64


class Runtime(Protocol):
    """The part of the coordinator runtime that calls use."""

    def write_many(self, operations: Sequence[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run each operation on its log partition, in order; complete each exactly once, maybe at once.

        The time that their request has waited before is taken off the time of the operations.
        """


class TimedWrites:
    """The operations of calls on their way to the runtime."""

    def __init__(self, runtime: Runtime, processing_time: Histogram) -> None:
        """Pass operations on to `runtime`; `processing_time` gets the mean of what some of them took, in ms."""
        self._runtime = runtime
        self._processing_time = processing_time
        self._until_timed = _OPERATIONS_PER_TIMING

    def write_many(self, operations: Sequence[tuple[int, Operation]], waited_ms: int = 0) -> None:
        """Run each operation on its log partition; what their request has waited before is taken off their time."""
        self._until_timed -= len(operations)
        if self._until_timed > 0:
            self._runtime.write_many(operations, waited_ms)
            return
        self._until_timed = _OPERATIONS_PER_TIMING
        began_s = perf_counter()
        self._runtime.write_many(operations, waited_ms)
        self._processing_time.record((perf_counter() - began_s) * 1_000 / len(operations))
