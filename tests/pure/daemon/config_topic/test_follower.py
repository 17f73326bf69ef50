"""The follower of the config topic: when what is read begins to hold, and what stays while the topic cannot be read."""

from __future__ import annotations

from holdfast.daemon.config_topic.follower import ConfigFollower
from holdfast.runtime.log_protocol import LogRecord, ReadError

UNREAD = "config_topic_unread"


class World:
    """A follower, the log that it starts to read, and what it reports."""

    def __init__(self, bytes_max: int = 100) -> None:
        self.is_topic_there = True
        self.started: list[int] = []
        self.is_reading = False
        self.changes: list[dict[str, str]] = []
        self.pauses = 0
        self.notes: list[str] = []
        self.follower = ConfigFollower(self, self, bytes_max)

    # The log.

    def has_topic(self) -> bool:
        return self.is_topic_there

    def start_reading(self, partition: int, instance: int) -> None:
        assert partition == 0
        self.started.append(instance)
        self.is_reading = True

    def stop_reading(self, partition: int) -> None:
        self.is_reading = False

    # The host.

    def progressed(self) -> None:
        pass

    def values_changed(self) -> None:
        self.changes.append(self.texts())

    def read_again_later(self) -> None:
        self.pauses += 1

    def note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.notes.append(event)

    # What a test does.

    def texts(self) -> dict[str, str]:
        return self.follower.values.texts()

    def read(self, *records: tuple[int, str, str | None], instance: int = 0) -> None:
        found = [
            LogRecord(offset, name.encode(), None if text is None else text.encode(), None)
            for offset, name, text in records
        ]
        self.follower.records_read(0, instance or self.started[-1], found)

    def reach_end(self, next_offset: int, instance: int = 0) -> None:
        self.follower.caught_up(0, instance or self.started[-1], next_offset)

    def fail(self, why: str = "no broker returned its start and end", instance: int = 0) -> None:
        self.follower.read_failed(0, instance or self.started[-1], ReadError(why, is_alarm=False))


def test_values_hold_when_the_end_is_reached_and_each_later_change_at_once() -> None:
    world = World()
    world.follower.begin()
    world.read((3, "a", "1"), (4, "b", "1"))
    world.read((5, "a", "2"))
    assert (world.texts(), world.changes, world.follower.ended) == ({}, [], 0)
    world.reach_end(7)
    assert (world.changes, world.follower.values.offset, world.follower.ended) == ([{"a": "2", "b": "1"}], 6, 1)
    world.read((7, "a", None))
    world.read((8, "b", "1"))
    assert world.changes[1:] == [{"b": "1"}]
    world.follower.position_reached(0, 1, 12)
    assert world.follower.values.offset == 11
    assert world.notes == ["config_topic_read"]


def test_what_was_read_holds_until_the_topic_is_read_to_its_end_again() -> None:
    world = World()
    world.follower.begin()
    world.read((0, "a", "1"), (1, "b", "1"))
    world.reach_end(2)
    world.fail("truncated")
    world.fail("truncated")
    assert (world.texts(), world.pauses, world.notes[1:]) == ({"a": "1", "b": "1"}, 2, [UNREAD])
    world.follower.begin()
    world.read((2, "b", "2"))
    assert world.texts() == {"a": "1", "b": "1"}
    world.reach_end(3)
    assert (world.changes[1:], world.notes[2:]) == ([{"b": "2"}], ["config_topic_read"])
    world.follower.begin()
    world.read((2, "b", "2"))
    world.reach_end(3)
    assert (len(world.changes), world.notes[3:], world.follower.ended) == (2, [], 3)


def test_a_topic_that_is_not_there_is_an_end_and_is_looked_for_again() -> None:
    world = World()
    world.is_topic_there = False
    world.follower.begin()
    world.fail()
    assert (world.follower.ended, world.follower.values.offset, world.pauses, world.notes) == (1, -1, 1, [])
    world.is_topic_there = True
    world.follower.begin()
    world.fail()
    assert (world.follower.ended, world.pauses, world.notes) == (1, 2, [UNREAD])


def test_a_topic_that_was_not_there_a_moment_ago_is_not_looked_for_twice() -> None:
    world = World()
    world.is_topic_there = False
    world.follower.begin_without_topic()
    assert (world.started, world.follower.ended, world.pauses, world.notes) == ([], 1, 1, [])
    world.is_topic_there = True
    world.follower.begin()
    world.read((0, "a", "1"))
    world.reach_end(1)
    assert (world.texts(), world.follower.ended) == ({"a": "1"}, 2)


def test_what_an_earlier_reading_still_brings_is_left_out() -> None:
    world = World()
    world.follower.begin()
    world.follower.begin()
    world.read((0, "a", "1"), instance=1)
    world.follower.position_reached(0, 1, 9)
    world.reach_end(9, instance=1)
    world.fail(instance=1)
    assert (world.texts(), world.follower.values.offset, world.follower.ended, world.pauses) == ({}, -1, 0, 0)
    world.reach_end(0)
    assert (world.follower.values.offset, world.follower.ended) == (-1, 2)


def test_more_than_may_be_kept_ends_reading_and_what_held_goes_on() -> None:
    world = World(bytes_max=4)
    world.follower.begin()
    world.read((0, "a", "123"))
    world.reach_end(1)
    world.read((1, "b", "1"))
    assert (world.texts(), world.is_reading, world.pauses) == ({"a": "123"}, False, 1)
    assert world.notes == ["config_topic_read", UNREAD]


def test_records_that_are_no_settings_are_named() -> None:
    world = World()
    world.follower.begin()
    world.read((0, "", "1"), (1, "a", "1"))
    world.reach_end(2)
    assert (world.texts(), world.notes) == ({"a": "1"}, ["config_records_passed_over", "config_topic_read"])
