"""Work that repeats at intervals, even if one turn of it fails."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import structlog
from confluent_kafka import KafkaException

from holdfast.daemon.context import NodeContext
from holdfast.kafka.errors import ConnectionFailed

_log = structlog.get_logger(__name__)


class Duty(NamedTuple):
    """Work that repeats."""

    interval_ms: int
    work: Callable[[], Coroutine[Any, Any, None]]


class Schedule:
    """The tasks of one node that repeat."""

    def __init__(self, retry_ms_max: int, context: NodeContext) -> None:
        """Begin with none; work that Kafka did not answer is tried again after `retry_ms_max` at most."""
        self._retry_ms_max = retry_ms_max
        self._internal_errors = context.internal_errors
        self._limiter = context.limiter
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_ms: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do some work from now on, first after one interval."""
        retry_ms = min(interval_ms, self._retry_ms_max)

        async def repeat() -> None:
            is_unanswered = False
            reported: type[Exception] | None = None  # each kind of failure is logged once, until Kafka answers again
            while True:
                await asyncio.sleep((retry_ms if is_unanswered else interval_ms) / 1_000)
                try:
                    await work()
                    is_unanswered, reported = False, None
                except (KafkaException, ConnectionFailed) as failure:
                    if type(failure) is not reported and not self._limiter.leave_out():
                        _log.warning("maintenance_unanswered", why=str(failure), again_in_ms=retry_ms)
                        reported = type(failure)
                    is_unanswered = True
                except Exception as bug:  # one turn must not be the last of them
                    self._internal_errors.note_bug("maintenance_failed", bug)

        self._tasks.append(asyncio.create_task(repeat(), name="holdfast-maintenance"))

    async def stop(self) -> None:
        """Stop all of it."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
