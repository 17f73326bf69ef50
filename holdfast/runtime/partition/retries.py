"""The pauses before one log partition is loaded again after it failed or was lost."""

from collections.abc import Callable
from typing import final

from holdfast.backoff import Backoff
from holdfast.runtime.settings import PartitionConfig


@final
class Retries:
    """The pauses between the loads of one log partition."""

    def __init__(self, config: PartitionConfig, jitter: Callable[[], float]) -> None:
        self._failures = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._second_look = Backoff(config.retry_backoff_ms, config.retry_backoff_ms, jitter)
        self._alarms = Backoff(config.alarm_backoff_ms, config.alarm_backoff_ms, jitter)

    def on_served(self) -> None:
        """Reset the pauses after failures, because the partition serves."""
        self._failures.reset()

    def pause_ms(self, *, is_alarm: bool = False, is_second: bool = False) -> int:
        """Return the pause after a failure or a loss, which is longer each time, or after an alarm.

        The first alarm may come from a single wrong answer of a broker about the log's start or end, so the log is read again soon, once.
        """
        if not is_alarm:
            return self._failures.next_pause_ms()
        return (self._alarms if is_second else self._second_look).next_pause_ms()
