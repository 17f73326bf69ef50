"""When workers are started, started again, stopped and killed, and how it ends."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM, Signals

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from holdfast.daemon.node_exit import NodeExit
from holdfast.daemon.settings.components.host import HostSettings
from holdfast.workers.fleet import Fleet

A, B = 1, 2
SETTINGS = HostSettings(workers=2, worker_stop_timeout_ms=1_000)


#: Of a worker by its node id: it was started, after so many restarts, or was sent a signal.
Done = tuple[int, int | Signals]


class World:
    """A fleet of two workers, what it wants of their processes, and the time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.done: list[Done] = []
        self.fleet = Fleet((A, B), SETTINGS, self, lambda: 1.0, restart_backoff_ms=100, restart_backoff_max_ms=400)
        self.fleet.begin(0)
        assert self.take() == [(A, 0), (B, 0)]

    def start(self, node_id: int, restarts: int) -> None:
        self.done.append((node_id, restarts))

    def send_signal(self, node_id: int, number: Signals) -> None:
        self.done.append((node_id, number))

    def take(self) -> list[Done]:
        done, self.done = self.done, []
        return done

    def ended(self, node_id: int, exit_code: int) -> int | None:
        """Let a worker end, and return after how many ms there is something to do."""
        self.fleet.ended(node_id, exit_code, self.now_ms)
        due_ms = self.fleet.due_ms()
        return None if due_ms is None else due_ms - self.now_ms

    def after(self, ms: int) -> list[Done]:
        """Let time pass, and return what is done then."""
        self.now_ms += ms
        self.fleet.tick(self.now_ms)
        return self.take()


def test_a_worker_that_dies_is_started_again_after_pauses_that_grow_and_the_other_goes_on() -> None:
    world = World()
    for restarts, pause_ms in enumerate((100, 200, 400, 400), 1):
        assert world.ended(A, -SIGKILL) == pause_ms
        assert world.after(pause_ms - 1) == []
        assert world.after(1) == [(A, restarts)]
    assert not world.fleet.is_stopping


def test_a_worker_that_ran_for_longer_than_the_longest_pause_begins_with_the_first_pause_again() -> None:
    world = World()
    assert world.ended(A, 1) == 100
    world.after(100)
    assert world.ended(A, 1) == 200
    world.after(200)
    world.now_ms += 401
    assert world.ended(A, 1) == 100


def test_a_worker_that_somebody_stopped_is_started_again() -> None:
    world = World()
    assert world.ended(B, NodeExit.STOPPED) == 100
    assert world.after(100) == [(B, 1)]


def test_a_stop_reaches_all_at_once_and_starts_nothing_again() -> None:
    world = World()
    world.ended(A, 1)
    world.fleet.request_stop(world.now_ms)
    assert world.take() == [(B, SIGTERM)]
    assert world.after(100) == [], "what waits for its start stays down"
    assert not world.fleet.is_over
    world.ended(B, NodeExit.STOPPED)
    assert (world.fleet.is_over, world.fleet.exit) == (True, NodeExit.STOPPED)


def test_a_worker_that_the_stop_reaches_before_it_heeds_signals_has_stopped_well() -> None:
    world = World()
    world.fleet.request_stop(0)
    world.ended(A, -SIGTERM)
    world.ended(B, NodeExit.STOPPED)
    assert world.fleet.exit is NodeExit.STOPPED


def test_what_does_not_stop_in_time_is_killed_once_and_counts_as_failed() -> None:
    world = World()
    world.fleet.request_stop(0)
    world.take()
    world.ended(A, NodeExit.STOPPED)
    assert world.after(999) == []
    with capture_logs() as lines:
        assert world.after(1) == [(B, SIGKILL)]
        assert world.after(5_000) == []
        world.ended(B, -SIGKILL)
    assert [(line["event"], line["node_id"]) for line in lines] == [("worker_killed", B), ("worker_stop_failed", B)]
    assert (world.fleet.is_over, world.fleet.exit) == (True, NodeExit.FAILED_TO_STOP)


def test_a_step_of_a_workers_stop_that_failed_makes_all_of_it_fail() -> None:
    world = World()
    world.fleet.request_stop(0)
    world.ended(A, NodeExit.FAILED_TO_STOP)
    world.ended(B, NodeExit.STOPPED)
    assert world.fleet.exit is NodeExit.FAILED_TO_STOP


@pytest.mark.parametrize("code", [NodeExit.WRONG_USAGE, NodeExit.SUPERSEDED])
def test_a_worker_that_would_end_so_again_is_given_up_and_the_last_one_ends_all(code: NodeExit) -> None:
    world = World()
    with capture_logs() as lines:
        assert world.ended(A, code) is None
    assert [(line["event"], line["node_id"], line["exit_code"]) for line in lines] == [("worker_given_up", A, code)]
    assert world.after(10_000) == []
    assert not world.fleet.is_stopping, "the other one serves"
    world.ended(B, code)
    assert (world.fleet.is_over, world.fleet.exit) == (True, code)


def test_where_every_worker_is_refused_from_its_first_start_on_all_ends_so() -> None:
    world = World()
    world.ended(A, NodeExit.REFUSED)
    assert world.after(100) == [(A, 1)]
    world.ended(B, NodeExit.REFUSED)
    assert world.take() == [(A, SIGTERM)]
    world.ended(A, -SIGTERM)
    assert (world.fleet.is_over, world.fleet.exit) == (True, NodeExit.REFUSED)


def test_a_worker_that_serves_after_a_refusal_is_not_ended_because_another_one_is_refused() -> None:
    world = World()
    world.ended(A, NodeExit.REFUSED)
    world.after(100)
    world.now_ms += 10_000
    world.ended(B, NodeExit.REFUSED)
    assert not world.fleet.is_stopping


def test_a_worker_that_has_died_in_another_way_since_is_no_sign_that_all_are_refused() -> None:
    world = World()
    world.ended(A, NodeExit.REFUSED)
    world.after(100)
    world.ended(A, -SIGKILL)
    world.ended(B, NodeExit.REFUSED)
    assert not world.fleet.is_stopping


def test_an_outage_of_kafka_after_a_good_start_ends_nothing() -> None:
    world = World()
    world.now_ms = 401
    for restarts in (1, 2, 3):
        for node_id in (A, B):
            world.ended(node_id, NodeExit.REFUSED)
        assert world.after(400) == [(A, restarts), (B, restarts)]


CODES = st.sampled_from((0, 1, 2, 3, 4, -9, -11, -15))


@given(st.lists(st.tuples(st.sampled_from((A, B, None)), CODES, st.integers(0, 2_000))))
def test_whatever_happens_a_stop_ends_all_and_no_worker_runs_twice(story: list[tuple[int | None, int, int]]) -> None:
    world, running = World(), {A, B}

    def carry_out() -> None:
        for node_id, what in world.take():
            if not isinstance(what, Signals):
                assert node_id not in running
                running.add(node_id)

    for who, code, ms in story:
        if who in running:
            running.remove(who)
            world.ended(who, code)
        world.now_ms += ms
        world.fleet.tick(world.now_ms)
        carry_out()
    world.fleet.request_stop(world.now_ms)
    carry_out()
    for node_id in tuple(running):
        assert not world.fleet.is_over
        world.ended(node_id, 0)
    assert world.fleet.is_over
    assert world.fleet.exit in NodeExit
    assert world.after(10_000) == []
