"""What a node says its process is doing."""

from __future__ import annotations

import asyncio
import io
import threading

import structlog

from holdfast.daemon.admin import stacks
from holdfast.daemon.admin.stacks import describe_process
from holdfast.daemon.settings.logging import LAST_LINES, configure_logging
from holdfast.daemon.settings.models import LoggingSettings


def described() -> tuple[dict[str, object], int]:
    """Return the description, and in how many steps it was made."""
    steps, count = describe_process(), 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            return end.value, count


async def innermost(secret: str) -> None:
    await asyncio.Event().wait()


async def outer() -> None:
    await innermost("open sesame")


async def test_a_task_is_shown_with_all_that_it_awaits_and_without_values() -> None:
    waiting = asyncio.create_task(outer(), name="holdfast-waiting")
    await asyncio.sleep(0)
    found, _ = described()
    [task] = [each for each in found["tasks"] if each["name"] == "holdfast-waiting"]  # type: ignore[attr-defined]
    assert task["stack"].index("in outer") < task["stack"].index("in innermost") < task["stack"].index("in wait")
    assert "sesame" not in task["stack"].replace('innermost("open sesame")', "")
    waiting.cancel()


async def test_threads_are_shown_by_name() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="holdfast-orders")
    thread.start()
    found, _ = described()
    end.set()
    thread.join()
    threads = found["threads"]
    assert isinstance(threads, dict)
    [stack] = [stack for name, stack in threads.items() if name.startswith("holdfast-orders (")]
    assert "threading.py" in stack


async def test_many_tasks_are_taken_in_steps_and_bounded() -> None:
    tasks = [asyncio.create_task(asyncio.sleep(1_000)) for _ in range(stacks._TASKS_MAX + 10)]
    await asyncio.sleep(0)
    found, steps = described()
    assert found["tasks_left_out"] == 11  # with that of the test
    assert steps == stacks._TASKS_MAX // stacks._TASKS_PER_STEP
    for task in tasks:
        task.cancel()


def test_the_last_lines_are_kept_as_json_without_secrets_and_bounded() -> None:
    configure_logging(LoggingSettings(log_format="console"), io.StringIO(), lines_kept=2)
    log = structlog.get_logger("holdfast.daemon.test")
    log.info("node_starting")
    log.info("login_tried", sasl_password="open sesame", user="me")
    log.warning("line_long", text="x" * 5_000)
    first, second = LAST_LINES.lines()
    assert first.startswith('{"event": "login_tried", "level": "info", "timestamp": ')
    assert ('"user": "me"' in first, "sesame" in first) == (True, False)
    assert len(second) == 1_000
    configure_logging(LoggingSettings(), io.StringIO(), lines_kept=0)
    log.info("node_starting")
    assert LAST_LINES.lines() == []
