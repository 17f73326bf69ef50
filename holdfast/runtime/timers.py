"""Timers of one partition: at most one per key, run by `tick`, never after cancel, replacement or unload."""

from collections.abc import Callable

Task = Callable[[int], None]


class Timers:
    """A bag of named deadlines; the clock is the caller's."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[int, Task]] = {}

    def schedule(self, name: str, at_ms: int, task: Task) -> None:
        """Run `task(now_ms)` at the first tick at or after `at_ms`, in place of an earlier timer of that name."""
        self._tasks[name] = (at_ms, task)

    def cancel(self, name: str) -> None:
        """Forget the timer of that name, if there is one."""
        self._tasks.pop(name, None)

    def cancel_all(self) -> None:
        """Forget every timer."""
        self._tasks.clear()

    def is_scheduled(self, name: str) -> bool:
        """Tell whether a timer of that name waits."""
        return name in self._tasks

    def tick(self, now_ms: int) -> None:
        """Run what is due, earliest first; a task may schedule again."""
        if not self._tasks:
            return
        due = sorted((at, name) for name, (at, _) in self._tasks.items() if at <= now_ms)
        for at, name in due:
            waiting = self._tasks.get(name)
            if waiting is not None and waiting[0] == at:
                del self._tasks[name]
                waiting[1](now_ms)
