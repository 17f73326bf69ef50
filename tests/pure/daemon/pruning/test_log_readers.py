"""What registered readers committed, and when one of them is silent."""

from __future__ import annotations

import pytest

from holdfast.daemon.pruning.log_readers import Change, LogReaders, Progress

TIMEOUT_MS = 1_000
END = {0: 100, 1: 100}


class World:
    """Some readers and a clock."""

    def __init__(self, *groups: str, from_first_commit: tuple[str, ...] = (), drop_after_ms: int = 0) -> None:
        self.now_ms = 5_000
        self.told: list[tuple[Change, str, int]] = []
        self.readers = LogReaders(
            groups,
            TIMEOUT_MS,
            lambda: self.now_ms,
            lambda change, group, silent_ms: self.told.append((change, group, silent_ms)),
            from_first_commit=from_first_commit,
            drop_after_ms=drop_after_ms,
        )

    def learn(self, group: str, *offsets: int, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.readers.learn(group, {p: offset for p, offset in enumerate(offsets) if offset >= 0}, END)

    @property
    def alarms(self) -> list[tuple[str, int]]:
        return [(group, silent_ms) for change, group, silent_ms in self.told if change is Change.SILENT]

    def state_of(self, group: str) -> str:
        (state,) = (row["state"] for row in self.readers.describe() if row["group"] == group)
        return str(state)


@pytest.fixture
def world() -> World:
    return World("fast", "slow")


def test_without_readers_nothing_is_held() -> None:
    assert World().readers.blocking(0, 10) is None


def test_a_reader_nobody_has_looked_up_holds_everything(world: World) -> None:
    world.learn("fast", 50, 50)
    assert world.readers.blocking(0, 1) == Progress("slow", -1, is_known=False)
    (_, row) = world.readers.describe()
    assert (row["state"], row["behind"], row["committed"]) == ("not looked up", None, {})
    world.readers.drop("slow")
    assert world.readers.blocking(0, 1) is None
    assert world.state_of("slow") == "dropped"


def test_the_slowest_reader_is_the_one_that_holds(world: World) -> None:
    world.learn("fast", 50, 9)
    world.learn("slow", 40, 10)
    assert world.readers.blocking(0, 41) == Progress("slow", 40)
    assert world.readers.blocking(1, 10) == Progress("fast", 9)
    assert world.readers.blocking(0, 40) is None


def test_a_reader_that_went_back_holds_more(world: World) -> None:
    world.learn("slow", 40, 40)
    world.learn("fast", 50, 50)
    world.learn("slow", 20, 40)
    assert world.readers.blocking(0, 30) == Progress("slow", 20)


def test_a_reader_whose_commits_expired_holds_everything_again(world: World) -> None:
    world.learn("slow", 40, 40)
    world.learn("fast", 50, 50)
    world.learn("slow", -1, 40)
    assert world.readers.blocking(0, 1) == Progress("slow", -1)


def test_the_alarm_is_raised_once_for_each_silence(world: World) -> None:
    world.learn("slow", 40, 40)
    world.learn("slow", 40, 40, after_ms=TIMEOUT_MS - 1)
    assert world.alarms == []
    world.learn("slow", 40, 40, after_ms=1)
    world.learn("slow", 40, 40, after_ms=5 * TIMEOUT_MS)
    assert world.alarms == [("slow", TIMEOUT_MS)]
    assert world.state_of("slow") == "silent"
    world.learn("slow", 41, 40, after_ms=1)
    assert world.state_of("slow") == "reading"
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


# ---- a reader that nobody may run ------------------------------------------------------------------------------------


def test_a_reader_from_its_first_commit_on_holds_nothing_before_and_everything_then() -> None:
    world = World("job", from_first_commit=("job",))
    assert world.readers.blocking(0, 1) == Progress("job", -1, is_known=False), "it may have committed"
    assert world.state_of("job") == "not looked up"
    world.learn("job", after_ms=10 * TIMEOUT_MS)
    assert world.readers.blocking(0, 1) is None
    assert world.told == [], "who does not run is not silent"
    assert world.state_of("job") == "not started"
    world.learn("job", 5)
    assert world.readers.blocking(0, 10) == Progress("job", 5)
    assert world.readers.blocking(1, 10) == Progress("job", -1)
    world.learn("job")
    assert world.readers.blocking(0, 10) == Progress("job", -1), (
        "its commits expired, and it may begin again at the start"
    )


# ---- dropping --------------------------------------------------------------------------------------------------------


def test_a_reader_silent_for_too_long_is_dropped_by_the_setting() -> None:
    world = World("slow", drop_after_ms=3 * TIMEOUT_MS)
    world.learn("slow", 40, 40)
    world.learn("slow", 40, 40, after_ms=3 * TIMEOUT_MS - 1)
    assert world.readers.blocking(0, 50) is not None
    world.learn("slow", 40, 40, after_ms=1)
    world.learn("slow", 40, 40, after_ms=TIMEOUT_MS)
    assert world.told[1:] == [(Change.DROPPED, "slow", 3 * TIMEOUT_MS)]
    assert world.readers.blocking(0, 50) is None
    assert world.state_of("slow") == "dropped"


def test_a_dropped_reader_that_commits_again_is_one_again() -> None:
    world = World("slow")
    world.learn("slow", 40, 40)
    world.readers.drop("slow")
    world.learn("slow", 40, 40)
    world.learn("slow", 40)
    assert world.readers.blocking(0, 50) is None, "commits that expire are no sign of life"
    world.learn("slow", 41)
    assert world.told == [(Change.BACK, "slow", 0)]
    assert world.readers.blocking(0, 50) == Progress("slow", 41)


def test_a_reader_dropped_before_anybody_looked_is_not_back_at_the_first_look() -> None:
    world = World("slow")
    world.readers.drop("slow")
    world.learn("slow", 40, 40)
    assert world.readers.blocking(0, 50) is None


def test_it_is_shown_how_far_behind_each_reader_is() -> None:
    world = World("fast", "slow")
    world.learn("fast", 100, 90)
    world.learn("slow", 40, after_ms=10)
    assert world.readers.describe() == [
        {"group": "fast", "state": "reading", "behind": 10, "still_ms": 10, "committed": {"0": 100, "1": 90}},
        {"group": "slow", "state": "reading", "behind": 160, "still_ms": 0, "committed": {"0": 40}},
    ]


def test_a_job_whose_offsets_expired_still_holds_the_log_and_its_alarm_stays() -> None:
    world = World("job", from_first_commit=("job",))
    world.learn("job", 40, 40)
    world.learn("job", 40, 40, after_ms=TIMEOUT_MS)
    assert world.alarms == [("job", TIMEOUT_MS)]
    world.learn("job")
    holding = world.readers.blocking(0, 1)
    assert holding is not None
    assert (holding.group, holding.offset) == ("job", -1)
    assert world.state_of("job") == "lost its offsets"
    world.learn("job", after_ms=TIMEOUT_MS)
    assert world.alarms == [("job", TIMEOUT_MS)], "an expiry is no movement, so there is no second alarm either"
    world.learn("job", 41, 40)
    world.learn("job", 41, 40, after_ms=TIMEOUT_MS)
    assert world.alarms == [("job", TIMEOUT_MS)] * 2


def test_offsets_of_some_log_partitions_that_expire_are_no_movement() -> None:
    world = World("job")
    world.learn("job", 40, 40)
    world.learn("job", 40, after_ms=TIMEOUT_MS)
    assert world.alarms == [("job", TIMEOUT_MS)]
