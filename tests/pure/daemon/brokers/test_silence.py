"""Brokers that fall silent: when a node stops being ready because of it, and how often that is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from holdfast.daemon.brokers.silence import BrokerSilence, named
from holdfast.metrics.registry import Registry

MAX_MS = 15_000
LOOK_S = 1.0
DOUBT_S = 6.0
NEXT_TRY_S = 3.0
NOON_S = 1_735_732_800.0


class World:
    """Brokers that lead log partitions and were heard at some second."""

    def __init__(self, leaders: Mapping[int, int], partition_count: int | None = None) -> None:
        self.now_s = 1_000.0
        self.leaders = dict(leaders)
        self.partition_count = len(leaders) if partition_count is None else partition_count
        self.silent: set[int] = set()
        self.heard: dict[int, float] = {}
        self.registry = Registry()
        self.silence = BrokerSilence(MAX_MS, LOOK_S, DOUBT_S, self.registry, lambda: NOON_S + self.now_s)
        self.lines: list[EventDict] = []
        self.look()

    def look(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.heard |= dict.fromkeys(set(self.leaders.values()) - self.silent, self.now_s)
        with capture_logs() as lines:
            known = set(self.heard)
            self.silence.look(self.now_s, self.leaders, self.partition_count, known, self.heard.get, NEXT_TRY_S)
        self.lines += lines

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_S)):
            self.look(LOOK_S)

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines]

    def gauges(self) -> dict[str, float]:
        return dict(self.registry.numbers())


@pytest.fixture
def world() -> World:
    return World({0: 1, 1: 2, 2: 3, 3: 1})


def test_brokers_that_answer_are_no_problem_and_their_gauges_stay_low(world: World) -> None:
    world.wait(100)
    assert (world.silence.problem, world.lines) == ("", [])
    assert world.gauges() == {f"holdfast_broker_silence_seconds{{broker={broker}}}": 0 for broker in (1, 2, 3)}


def test_log_partitions_are_cut_off_while_no_broker_that_answers_leads_them() -> None:
    world = World({0: 1, 1: 2, 3: 2}, partition_count=4)
    world.wait(15)
    assert world.silence.cut_off == frozenset()
    world.wait(1)
    assert world.silence.cut_off == {2}, "it has no leader"
    world.silent = {2}
    world.wait(16)
    assert world.silence.cut_off == {1, 2, 3}
    world.leaders = {0: 1, 1: 1, 2: 1, 3: 2}
    world.look(1)
    assert world.silence.cut_off == {3}
    world.silent = set()
    world.look(1)
    assert world.silence.cut_off == frozenset()


def test_the_last_answer_is_told_as_soon_as_another_one_is_due(world: World) -> None:
    world.wait(10)
    last_s = NOON_S + world.now_s
    world.silent = {1}
    world.wait(DOUBT_S)
    assert [world.silence.leader_unheard_since_s(number) for number in range(5)] == [None] * 5
    world.wait(1)
    assert [world.silence.leader_unheard_since_s(number) for number in range(5)] == [last_s, None, None, last_s, None]
    assert world.silence.cut_off == frozenset()
    world.silent = set()
    world.look(LOOK_S)
    assert world.silence.leader_unheard_since_s(0) is None


def test_every_log_partition_is_cut_off_when_no_broker_answers() -> None:
    world = World({0: 1, 1: 1})
    world.look(LOOK_S)
    world.silent = {1}
    # Its last answer is that it leads one of them no more, and the other goes on to be known as its own.
    world.leaders = {0: 1}
    world.look(LOOK_S)
    world.wait(MAX_MS / 1_000)
    assert world.silence.problem.startswith("no broker answers")
    assert world.silence.cut_off == {0, 1}


def test_when_no_broker_answers_it_is_reported_at_the_bound_once_a_minute_and_at_the_end(world: World) -> None:
    world.silent = {1, 2, 3}
    world.wait(15)
    assert (world.silence.problem, world.lines) == ("", []), "the bound is not passed yet"
    world.wait(1)
    assert world.silence.problem == "no broker answers, for 16 s; queried brokers 1, 2, 3"
    assert world.lines == [
        {
            "event": "brokers_lost",
            "log_level": "error",
            "since": "2025-01-01T12:16:40+00:00",
            "silent_ms": 16_000,
            "again_in_ms": 3_000,
            "brokers": "1, 2, 3",
        }
    ]
    world.wait(8 * 60)
    assert world.events() == ["brokers_lost"] * 9
    assert world.gauges()["holdfast_broker_silence_seconds{broker=1}"] == 496
    world.silent = set()
    world.wait(1)
    assert world.silence.problem == ""
    assert world.lines[9:] == [{"event": "brokers_recovered", "log_level": "info", "silent_ms": 497_000}]
    world.wait(100)
    assert len(world.lines) == 10


def test_one_silent_broker_of_several_is_named_with_what_it_leads(world: World) -> None:
    world.silent = {1}
    world.wait(16)
    assert world.silence.problem == "broker 1 did not answer for 16 s, and leads log partitions 0, 3"
    assert world.events() == ["broker_lost"]
    assert (world.lines[0]["brokers"], world.lines[0]["leads"]) == ("1", "0, 3")


def test_a_silent_broker_that_leads_no_more_is_no_problem_and_has_no_gauge(world: World) -> None:
    world.silent = {1}
    world.wait(10)
    world.leaders = {0: 2, 1: 2, 2: 3, 3: 3}
    world.wait(100)
    assert (world.silence.problem, world.lines) == ("", [])
    assert set(world.gauges()) == {f"holdfast_broker_silence_seconds{{broker={broker}}}" for broker in (2, 3)}


def test_a_broker_that_begins_to_lead_has_the_whole_bound_to_answer(world: World) -> None:
    world.silent = {4}
    world.wait(100)
    world.leaders[0] = 4
    world.look(LOOK_S)
    world.wait(15)
    assert world.silence.problem == ""
    world.wait(1)
    assert world.silence.problem == "broker 4 did not answer for 16 s, and leads log partition 0"


def test_log_partitions_without_a_leader_are_a_problem_after_the_bound() -> None:
    world = World({0: 1}, partition_count=3)
    world.wait(15)
    assert world.silence.problem == ""
    world.wait(1)
    assert world.silence.problem == "no broker has led log partitions 1, 2 for 16 s"
    assert world.events() == ["leaders_lost"]
    world.leaders |= {1: 1, 2: 1}
    world.wait(1)
    assert (world.silence.problem, world.events()[1:]) == ("", ["brokers_recovered"])


def test_brokers_that_went_when_they_led_no_more_are_no_brokers_that_answer(world: World) -> None:
    world.leaders = {}
    world.silent = {1, 2, 3}
    world.wait(20)
    assert world.silence.problem.startswith("no broker answers, for ")
    assert world.events() == ["brokers_lost"]


def test_time_in_which_this_process_did_not_run_says_nothing_about_brokers(world: World) -> None:
    world.silent = {1, 2, 3}
    for _ in range(6):
        world.look(3_600.0)
    assert (world.silence.problem, world.lines) == ("", []), "each look counts for two intervals at most"
    world.wait(4)
    assert world.silence.problem.startswith("no broker answers, for 16 s")


def test_within_one_silence_the_three_events_together_are_reported_once_a_minute(world: World) -> None:
    world.silent = {1, 2, 3}
    world.wait(16)
    for answering in ({1}, {2}, {1, 2}):
        world.silent = {1, 2, 3} - answering
        world.wait(5)
        assert world.silence.problem
    assert world.events() == ["brokers_lost"]
    world.silent = set()
    world.wait(1)
    assert world.lines[1:] == [{"event": "brokers_recovered", "log_level": "info", "silent_ms": 32_000}]


def test_the_time_of_the_last_answer_stays_the_same_however_late_the_looks_are(world: World) -> None:
    world.silent = {1, 2, 3}
    for late_s in (1.0, 3.5, 2.0) * 60:
        world.look(late_s)
    world.silent = {2}  # another broker answers meanwhile, and the outage goes on
    world.wait(200)
    assert len(world.lines) > 5
    assert {line["since"] for line in world.lines} == {"2025-01-01T12:16:40+00:00"}


def test_what_others_say_of_a_silent_broker_is_left_out_and_counted(world: World) -> None:
    silence = world.silence
    world.silent = {1}
    world.wait(6)
    assert not silence.leave_out(0), "it may answer yet"
    world.wait(1)
    assert [silence.leave_out(partition) for partition in (0, 1, 2, 3, None)] == [True, False, False, True, True]
    world.wait(9)
    assert silence.leave_out(0)
    assert [(line["event"], line["left_out"]) for line in world.lines] == [("broker_lost", 3)]
    world.silent = set()
    world.wait(1)
    assert world.lines[1] == {
        "event": "brokers_recovered",
        "log_level": "info",
        "silent_ms": 17_000,
        "left_out": 1,
    }
    assert not silence.leave_out(0)
    assert not silence.leave_out(None)


def test_lines_that_were_left_out_for_a_silence_too_short_to_be_reported_are_counted_all_the_same(world: World) -> None:
    world.silent = {1}
    world.wait(10)
    assert world.silence.leave_out(0)
    assert world.lines == []
    world.silent = set()
    world.wait(5)
    assert world.lines == [{"event": "broker_answers_missed", "log_level": "warning", "left_out": 1}]


def test_of_many_numbers_the_first_are_named() -> None:
    assert named([3, 1, 2]) == "1, 2, 3"
    assert named(range(100)) == "0, 1, 2, 3, 4 and 95 more"
