"""The shell goes on after any failure of a tick."""

import asyncio
import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from holdfast.console.commands.serve import COLLECTOR_THRESHOLDS
from holdfast.kafka.connection_options import ConnectionOptions
from holdfast.runtime.kafka_log import shell as shell_module
from holdfast.runtime.kafka_log.log import KafkaLogConfig
from holdfast.runtime.kafka_log.shell import _LOADING_THRESHOLD, CoordinatorShell, Observer, _LoopHost
from tests.configs import kafka_log_config
from tests.pure.runtime.counter import Bugs, Counter
from tests.pure.runtime.kafka_log.fetcher_world import make_metrics
from tests.pure.runtime.world import CONFIG
from tests.waiting import wait_until

NOBODY = kafka_log_config(
    topic="topic",
    connection=ConnectionOptions(bootstrap=(("127.0.0.1", 1),)),
)


class StumblingObserver:
    """An observer that raises in its first ticks."""

    def __init__(self) -> None:
        self.ticks = 0
        self.notes: list[tuple[str, str]] = []

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.notes.append((level, event))

    def partition_changed(self, partition: object) -> None:
        raise AssertionError("nothing was loaded")

    def superseded(self, partition: object, winner: object, offset: int) -> None:
        raise AssertionError("nothing was loaded")

    def ticked(self, late_ms: float) -> bool:
        assert late_ms >= 0
        self.ticks += 1
        if self.ticks <= 2:
            raise RuntimeError("a bug in a tick")
        return True


def make_shell(observer: Observer, *, tick_ms: int = 1, log_config: KafkaLogConfig = NOBODY) -> CoordinatorShell:
    """Return a shell that has not started, and whose log reaches no broker."""
    return CoordinatorShell(
        CONFIG,
        log_config,
        lambda _: Counter("none", print, Bugs()),
        observer,
        metrics=make_metrics(),
        tick_ms=tick_ms,
    )


async def test_clock_goes_on_after_a_tick_that_fails() -> None:
    observer = StumblingObserver()
    shell = make_shell(observer)
    shell._ticker = asyncio.create_task(shell._tick())
    await wait_until(lambda: observer.ticks >= 4)
    assert observer.notes == [("error", "tick_failed")] * 2
    assert await shell.stop(5)
    assert shell.runtime.is_closed


@pytest.mark.virtual_time
@pytest.mark.parametrize(("is_at_work", "tick_ms", "ticks"), [(True, 50, 20), (False, 50, 4), (False, 500, 2)])
async def test_a_node_of_which_nothing_is_due_soon_ticks_less_often(is_at_work: bool, tick_ms: int, ticks: int) -> None:
    ticked: list[float] = []

    class Idler(StumblingObserver):
        def ticked(self, late_ms: float) -> bool:
            ticked.append(asyncio.get_running_loop().time())
            return is_at_work

    shell = make_shell(Idler(), tick_ms=tick_ms)
    shell._ticker = asyncio.create_task(shell._tick())
    await wait_until(lambda: bool(ticked))
    began_s = ticked.pop()
    await asyncio.sleep(1.01)
    assert len([moment for moment in ticked if moment <= began_s + 1.005]) == ticks
    assert await shell.stop(5)


async def test_a_tick_is_late_by_what_the_one_before_took_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[float] = []
    now_ms = 0.0

    async def sleep(pause_s: float) -> None:
        nonlocal now_ms
        now_ms += pause_s * 1_000
        if len(late) == 4:
            await real_sleep(60)
        await real_sleep(0)

    class Slow(StumblingObserver):
        def ticked(self, late_ms: float) -> bool:
            nonlocal now_ms
            late.append(late_ms)
            now_ms += (0.0, 800.0, 0.0, 0.0)[len(late) - 1]
            return True

    real_sleep = asyncio.sleep
    shell = make_shell(Slow(), tick_ms=50)
    monkeypatch.setattr(shell_module, "exact_now_ms", lambda: now_ms)
    monkeypatch.setattr(shell_module, "asyncio", SimpleNamespace(sleep=sleep))
    ticker = asyncio.create_task(shell._tick())
    await wait_until(lambda: len(late) == 4)
    ticker.cancel()
    assert late == [0, 0, 800, 0]
    monkeypatch.undo()
    assert await shell.stop(5)


async def test_a_topic_that_has_taken_the_name_is_the_log_from_then_on() -> None:
    shell = make_shell(StumblingObserver(), log_config=replace(NOBODY, topic_id=bytes(15) + b"1"))
    wanted_ids = shell._log._brokers._wanted_ids.values()
    assert [*wanted_ids] == [bytes(15) + b"1"]
    shell.renew_log(bytes(15) + b"2")
    assert [*wanted_ids] == [shell.runtime.config.log.topic_id] == [bytes(15) + b"2"]
    assert await shell.stop(5)


async def test_the_collector_looks_at_less_at_once_in_a_turn_in_which_loads_work() -> None:
    before, looked_at = gc.get_threshold(), list[int]()

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(number)) for number in range(about["generation"] + 1)))

    gc.collect()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    gc.callbacks.append(note)
    try:
        ended = asyncio.Event()
        _LoopHost(StumblingObserver(), asyncio.get_running_loop()).begin_load_turn(ended.set)
        held = [[number] for number in range(9_000)]
        gc.callbacks.remove(note)
        await ended.wait()
        assert gc.get_threshold() == COLLECTOR_THRESHOLDS
    finally:
        gc.set_threshold(*before)
    assert len(held) == 9_000
    assert len(looked_at) >= 4
    assert max(looked_at) < 5_000


def test_collector_runs_five_times_as_often_while_a_load_works() -> None:
    assert COLLECTOR_THRESHOLDS[0] == 5 * _LOADING_THRESHOLD
