"""The messages to a service manager that follow from the condition of a program and the time.

This module has no socket and no clock: its driver (`service.notifier`) looks at the program every `look_interval_ms`.

Source: systemd's sd_notify(3); `service_notify_message` and `service_extend_timeout` of its `service.c`.
"""

from typing import Final, NamedTuple, final

from holdfast.service.condition import Condition

#: Longest status; a longer one is cut.
_STATUS_CHARACTERS_MAX: Final = 300
#: Time after a notice that it starts or stops within which the next one must come. A notice follows every third of it.
_EXTENSION_MS: Final = 30_000
_LOOK_INTERVAL_MS: Final = 1_000
#: The service manager expects two notices in its time; we look twice before each of them is due.
_LOOKS_PER_WATCHDOG: Final = 4


class Bounds(NamedTuple):
    """Bounds on the time that a program may take."""

    #: Its start, without any progress, in ms; then the service manager's own bound counts.
    start_stall_ms: int
    #: Its stop in all, in ms; then the service manager's own bound counts.
    stop_ms: int
    #: Time without a sign of work after which the service manager ends it, in ms; None: it does not.
    watchdog_ms: int | None

    @property
    def look_interval_ms(self) -> int:
        """Return the time between two looks at the program, in ms."""
        if self.watchdog_ms is None:
            return _LOOK_INTERVAL_MS
        return max(1, min(_LOOK_INTERVAL_MS, self.watchdog_ms // _LOOKS_PER_WATCHDOG))

    @property
    def silence_max_ms(self) -> int | None:
        """Return the time for which a part of the program may show no sign of work, in ms; None: for ever."""
        return None if self.watchdog_ms is None else self.watchdog_ms // 2


@final
class Notices:
    """The notices that the service manager of one program has got, and the next ones."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._status = ""
        self._is_ready = False
        self._is_stopping = False
        self._is_reloading = False
        self._progress = -1
        #: Time of the last progress of its start, or of the begin of its stop.
        self._began_ms = 0
        #: Time of the next notice that it takes longer; a time in the past: at the next look.
        self._extension_due_ms = 0
        self._turns = -1
        self._watchdog_due_ms = 0

    def look(self, condition: Condition, now_ms: int) -> list[str]:
        """Return the messages that follow from a look at the program, in their order; each is a datagram."""
        lines = []
        if condition.is_stopping and not self._is_stopping:
            self._is_stopping, self._began_ms, self._extension_due_ms = True, now_ms, now_ms
            lines.append("STOPPING=1")
        if condition.has_started and not (self._is_ready or self._is_stopping):
            self._is_ready = True
            lines.append("READY=1")
        elif self._is_reloading and not (condition.is_reloading or self._is_stopping):
            self._is_reloading = False
            lines.append("READY=1")
        if self._is_stopping or not self._is_ready:
            lines += self._extend(condition, now_ms)
        status = _one_line(condition.status)
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={status}")
        lines += self._beat(condition, now_ms)
        return ["\n".join(lines)] if lines else []

    def reload_begins(self, now_us: int) -> list[str]:
        """Return the messages for the begin of a reload; none while the program starts or stops, which a reload must not end.

        `now_us` is the monotonic clock of the machine, in µs.
        """
        if not self._is_ready or self._is_stopping:
            return []
        self._is_reloading = True
        return [f"RELOADING=1\nMONOTONIC_USEC={now_us}"]

    def _extend(self, condition: Condition, now_ms: int) -> list[str]:
        if self._is_stopping:
            rest_ms = self._began_ms + self._bounds.stop_ms - now_ms
        else:
            if condition.progress > self._progress:
                self._progress, self._began_ms = condition.progress, now_ms
            rest_ms = self._began_ms + self._bounds.start_stall_ms - now_ms
        if rest_ms <= 0 or now_ms < self._extension_due_ms:
            return []
        self._extension_due_ms = now_ms + _EXTENSION_MS // 3
        return [f"EXTEND_TIMEOUT_USEC={min(rest_ms, _EXTENSION_MS) * 1_000}"]

    def _beat(self, condition: Condition, now_ms: int) -> list[str]:
        if self._bounds.watchdog_ms is None or condition.turns == self._turns or now_ms < self._watchdog_due_ms:
            return []
        self._turns = condition.turns
        # One look before it is due, because the next look may be late.
        self._watchdog_due_ms = now_ms + self._bounds.watchdog_ms // 2 - self._bounds.look_interval_ms // 2
        return ["WATCHDOG=1"]


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _STATUS_CHARACTERS_MAX else line[: _STATUS_CHARACTERS_MAX - 1] + "…"
