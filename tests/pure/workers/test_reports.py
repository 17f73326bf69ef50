"""What workers report, and the condition of a host that follows from it."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from holdfast.service.condition import Condition
from holdfast.workers.reports import HostCondition, Report, Reporter, decode_report

A, B = 11, 12
STARTING: Final = Condition(
    has_started=False, is_ready=False, is_stopping=False, is_reloading=False, status="starting", progress=3, turns=1
)
READY: Final = STARTING._replace(has_started=True, is_ready=True, status="ready: 4 log partitions")


class World:
    """A host of two workers, of which the second has not been started, and the time."""

    def __init__(self, silence_max_ms: int | None = 1_000) -> None:
        self.now_ms = 5_000
        self.host = HostCondition((A, B), silence_max_ms)
        self.host.started(A, self.now_ms)

    def reported(self, node_id: int, condition: Condition, reloads: int = 0) -> None:
        self.host.reported(node_id, Report(condition, reloads), self.now_ms)

    def read(self, *, is_stopping: bool = False, given_up: tuple[int, ...] = ()) -> Condition:
        return self.host.read(self.now_ms, is_stopping=is_stopping, given_up=given_up)

    def begin(self) -> None:
        """Let both run and be ready."""
        self.host.started(B, self.now_ms)
        self.reported(A, READY)
        self.reported(B, READY)


def test_a_report_is_a_line_that_is_read_as_it_was_written() -> None:
    report = Report(READY._replace(status='"a"\nb'), 2)
    assert "\n" not in report.encode()
    assert decode_report(report.encode()) == report


@pytest.mark.parametrize("line", ["", "{", '{"event": "a_b"}', "Fatal Python error", json.dumps(["condition"])])
def test_another_line_of_a_worker_is_no_report(line: str) -> None:
    assert decode_report(line) is None


def test_a_reload_is_reported_when_it_was_done() -> None:
    said: list[Any] = []
    reporter = Reporter(lambda: READY, lambda line: said.append(decode_report(line)))
    reporter.look()
    reporter.reload(lambda: said.append("reload"))
    assert said == [Report(READY, 0), "reload", Report(READY, 1)]


def test_a_host_has_started_when_all_workers_have_and_names_the_one_that_has_not() -> None:
    world = World()
    assert world.read().status == f"worker {A}: starting: it has reported nothing yet (and 1 more)"
    world.reported(A, READY)
    assert world.read()[:2] == (False, False)
    assert world.read().status == f"worker {B}: does not run"
    world.host.started(B, world.now_ms)
    world.reported(B, STARTING)
    assert world.read()[:2] == (False, False)
    assert world.read().status == f"worker {B}: starting"
    assert world.read().progress == 6
    world.reported(B, READY)
    assert world.read()[:2] == (True, True)
    assert world.read().status == "ready: 2 workers"


def test_a_worker_that_is_given_up_keeps_nobody_from_the_start_and_is_named() -> None:
    world = World()
    world.reported(A, READY)
    found = world.read(given_up=(B,))
    assert (found.has_started, found.is_ready) == (True, False)
    assert found.status == f"worker {B}: given up; its log says why"
    assert not world.read(given_up=(A, B)).has_started


def test_the_host_turns_only_while_the_loop_of_each_worker_does() -> None:
    world = World()
    world.begin()
    turns = world.read().turns
    world.now_ms += 1_000
    assert world.read().turns == turns + 1
    world.reported(A, READY._replace(turns=2))
    world.now_ms += 1
    found = world.read()
    assert found.turns == turns + 1, "it goes on to report, and its work does not"
    assert (found.is_ready, found.status) == (False, f"worker {B}: its loop does not turn")
    world.reported(B, READY)
    assert world.read().turns == turns + 1
    world.reported(B, READY._replace(turns=2))
    assert world.read().turns == turns + 2


def test_a_worker_that_ended_or_has_just_been_started_holds_no_turn_up() -> None:
    world = World()
    world.begin()
    world.now_ms += 2_000
    world.reported(A, READY._replace(turns=2))
    world.host.ended(B)
    turns = world.read().turns
    world.host.started(B, world.now_ms)
    world.now_ms += 1_000
    assert world.read().turns == turns + 1
    world.now_ms += 1
    assert world.read().turns == turns + 1, "it never reported"


def test_nobody_is_silent_where_nobody_watches() -> None:
    world = World(None)
    world.begin()
    turns = world.read().turns
    world.now_ms += 10**9
    assert world.read().turns == turns + 1


def test_a_reload_is_over_when_each_worker_that_runs_has_done_it() -> None:
    world = World()
    world.begin()
    assert not world.read().is_reloading
    for node_id in (A, B):
        world.host.reload_sent(node_id)
    assert world.read().is_reloading
    world.reported(A, READY, reloads=1)
    assert world.read().is_reloading
    world.host.ended(B)
    assert not world.read().is_reloading
    world.host.started(B, world.now_ms)
    assert not world.read().is_reloading, "a new process reads them anyway"


def test_a_stop_of_the_host_is_one() -> None:
    world = World()
    world.begin()
    assert world.read(is_stopping=True).is_stopping
    assert not world.read(is_stopping=True).is_ready
