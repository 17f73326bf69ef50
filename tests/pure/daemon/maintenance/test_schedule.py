"""Work by the clock is done again, whatever becomes of one turn of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from holdfast.daemon.maintenance.schedule import Schedule
from holdfast.daemon.topics.state_topic import TopicDisputed
from holdfast.kafka.errors import ConnectionFailed
from holdfast.metrics.instruments import Counter
from holdfast.metrics.line_limit import LineLimiter
from tests.simulated.memory_log import MemoryTopic
from tests.waiting import PATIENCE_S
from tests.world.context import make_context
from tests.world.maintenance import World

RETRY_MS = 30_000


async def lines_until(
    is_over: asyncio.Event,
    work: Callable[[], Coroutine[Any, Any, None]],
    bugs: Counter | None = None,
    limiter: LineLimiter | None = None,
    timeout_s: float = PATIENCE_S,
) -> list[MutableMapping[str, Any]]:
    """Do some work again and again until it says that it is over; returns the lines that were logged."""
    schedule = Schedule(RETRY_MS, make_context(bugs=bugs, limiter=limiter))
    with capture_logs() as lines:
        schedule.every(1, work)
        async with asyncio.timeout(timeout_s):
            await is_over.wait()
    await schedule.stop()
    return lines


async def test_work_that_fails_is_done_again() -> None:
    problems: list[Exception | None] = [ConnectionFailed("no broker"), RuntimeError("a bug"), None]
    done = asyncio.Event()

    async def work() -> None:
        if problems[0] is None:
            done.set()
        elif problem := problems.pop(0):
            raise problem

    lines = await lines_until(done, work, bugs := Counter())
    assert [line["event"] for line in lines] == ["maintenance_unanswered", "maintenance_failed"]
    assert bugs.value == 1


async def test_work_that_kafka_did_not_answer_is_reported_once() -> None:
    attempts = 0
    is_over = asyncio.Event()

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 5:
            is_over.set()
        raise ConnectionFailed(f"no broker, in other words {attempts}")

    lines = await lines_until(is_over, work, timeout_s=60)
    assert [(line["event"], line["why"]) for line in lines] == [
        ("maintenance_unanswered", "no broker, in other words 1")
    ]


async def test_another_kind_of_failure_behind_an_outage_is_reported_as_well() -> None:
    failures = [ConnectionFailed(why) for why in ("no broker", "no broker")]
    failures += [TopicDisputed(why) for why in ("two topics of one name", "two topics of one name")]
    is_over = asyncio.Event()

    async def work() -> None:
        if not failures:
            is_over.set()
            return
        raise failures.pop(0)

    lines = await lines_until(is_over, work)
    assert [line["why"] for line in lines] == ["no broker", "two topics of one name"]


async def test_work_that_kafka_did_not_answer_is_reported_when_the_silence_that_is_reported_is_over() -> None:
    attempts, is_over = 0, asyncio.Event()

    async def work() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 6:
            is_over.set()
        raise ConnectionFailed(f"no broker, at attempt {attempts}")

    limiter = LineLimiter()
    limiter.leave_effects_to(lambda _: attempts < 3)
    lines = await lines_until(is_over, work, limiter=limiter)
    assert [line["why"] for line in lines] == ["no broker, at attempt 3"]


async def test_a_log_that_is_not_trusted_is_looked_at_again_as_after_any_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    intervals_ms: dict[object, int] = {}
    monkeypatch.setattr(Schedule, "every", lambda _, interval_ms, work: intervals_ms.update({work: interval_ms}))
    world = await World(MemoryTopic(2), alarm_backoff_ms=70_000, retry_backoff_max_ms=20_000).serve()
    world.maintenance.start(world.settings)
    assert intervals_ms[world.maintenance.log_checks.look_again] == 70_000
