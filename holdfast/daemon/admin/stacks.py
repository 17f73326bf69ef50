"""What this process is doing: the stacks of its threads and of the tasks of its loop, without the values of any variable."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Any, Final

from holdfast.daemon.settings.logging import LAST_LINES

#: Of more tasks, the first are shown and the others counted.
_TASKS_MAX: Final = 500
_FRAMES_MAX: Final = 40
#: What can wait, by how the names of its attributes begin, and the one that says for what.
_AWAITING: Final = {"cr": "cr_await", "gi": "gi_yieldfrom", "ag": "ag_await"}
#: The loop turns to others after so many tasks.
_TASKS_PER_STEP: Final = 20


def describe_process() -> Generator[None, None, dict[str, Any]]:
    """Return the stacks of all threads and tasks, and the last log lines, each as text; a step for some of the tasks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = {
        f"{names.get(ident, 'unknown')} ({ident})": _text(traceback.extract_stack(frame, _FRAMES_MAX))
        for ident, frame in sys._current_frames().items()
    }
    all_tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    tasks = []
    for number, task in enumerate(all_tasks[:_TASKS_MAX], 1):
        tasks.append({"name": task.get_name(), "stack": _stack_of(task)})
        if not number % _TASKS_PER_STEP:
            yield
    return {
        "threads": threads,
        "tasks": tasks,
        "tasks_left_out": len(all_tasks) - len(tasks),
        "log_lines": LAST_LINES.lines(),
    }


def _stack_of(task: asyncio.Task[Any]) -> str:
    """Return where a task waits, from its coroutine to the innermost that it awaits."""
    frames: list[tuple[FrameType, int]] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < _FRAMES_MAX:
        kind = next((kind for kind in _AWAITING if hasattr(awaited, f"{kind}_frame")), None)
        if kind is None:
            break
        frame = getattr(awaited, f"{kind}_frame")
        if frame is not None:
            frames.append((frame, frame.f_lineno))
        awaited = getattr(awaited, _AWAITING[kind])
    return _text(traceback.StackSummary.extract(iter(frames), lookup_lines=True))


def _text(summary: traceback.StackSummary) -> str:
    return "".join(summary.format())
