"""What registered readers committed, and when one of them is silent."""

from __future__ import annotations

import pytest

from holdfast.daemon.readers import LogReaders, Progress

TIMEOUT_MS = 1_000
END = {0: 100, 1: 100}


class World:
    """Two readers and a clock."""

    def __init__(self, *groups: str) -> None:
        self.now_ms = 5_000
        self.alarms: list[tuple[str, int]] = []
        self.readers = LogReaders(
            groups, TIMEOUT_MS, lambda: self.now_ms, lambda group, silent_ms: self.alarms.append((group, silent_ms))
        )

    def learn(self, group: str, *offsets: int, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.readers.learn(group, {p: offset for p, offset in enumerate(offsets) if offset >= 0}, END)


@pytest.fixture
def world() -> World:
    return World("fast", "slow")


def test_without_readers_nothing_is_held() -> None:
    assert World().readers.holding(0, 10) is None


def test_a_reader_nobody_has_looked_up_holds_everything(world: World) -> None:
    world.learn("fast", 50, 50)
    assert world.readers.holding(0, 1) == Progress("slow", -1)


def test_the_slowest_reader_is_the_one_that_holds(world: World) -> None:
    world.learn("fast", 50, 9)
    world.learn("slow", 40, 10)
    assert world.readers.holding(0, 41) == Progress("slow", 40)
    assert world.readers.holding(1, 10) == Progress("fast", 9)
    assert world.readers.holding(0, 40) is None


def test_a_reader_that_went_back_holds_more(world: World) -> None:
    world.learn("slow", 40, 40)
    world.learn("fast", 50, 50)
    world.learn("slow", 20, 40)
    assert world.readers.holding(0, 30) == Progress("slow", 20)


def test_a_reader_whose_commits_expired_holds_everything_again(world: World) -> None:
    world.learn("slow", 40, 40)
    world.learn("fast", 50, 50)
    world.learn("slow", -1, 40)
    assert world.readers.holding(0, 1) == Progress("slow", -1)


def test_the_alarm_is_raised_once_for_each_silence(world: World) -> None:
    world.learn("slow", 40, 40)
    world.learn("slow", 40, 40, after_ms=TIMEOUT_MS - 1)
    assert world.alarms == []
    world.learn("slow", 40, 40, after_ms=1)
    world.learn("slow", 40, 40, after_ms=5 * TIMEOUT_MS)
    assert world.alarms == [("slow", TIMEOUT_MS)]
    assert world.readers.silent == {"slow"}
    world.learn("slow", 41, 40, after_ms=1)
    assert world.readers.silent == set()
    world.learn("slow", 41, 40, after_ms=TIMEOUT_MS)
    assert world.alarms == [("slow", TIMEOUT_MS), ("slow", TIMEOUT_MS)]


def test_a_reader_that_never_committed_is_silent_too(world: World) -> None:
    world.learn("slow", after_ms=TIMEOUT_MS)
    assert world.alarms == [("slow", TIMEOUT_MS)]


def test_a_reader_that_has_read_everything_is_not_silent_but_waits(world: World) -> None:
    world.learn("fast", 100, 100)
    world.learn("fast", 100, 100, after_ms=10 * TIMEOUT_MS)
    assert world.alarms == []
    world.learn("fast", 100, 99, after_ms=TIMEOUT_MS)
    world.learn("fast", 100, 99, after_ms=TIMEOUT_MS - 1)
    assert world.alarms == []
    world.learn("fast", 100, 99, after_ms=1)
    assert world.alarms == [("fast", TIMEOUT_MS)]


def test_one_reader_that_moves_does_not_speak_for_another(world: World) -> None:
    for turn in range(4):
        world.learn("fast", turn, turn, after_ms=TIMEOUT_MS // 2)
        world.learn("slow", 1, 1)
    assert [group for group, _ in world.alarms] == ["slow"]
