"""The memory of a follower has a bound; beyond it, the fewest partitions go without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.records.share.codecs import avro
from holdfast.records.share.snapshot_store.entries import encode_entry_key
from holdfast.records.share.snapshot_store.snapshot_set import SnapshotSet
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.states import State
from holdfast.share.snapshots.restore import Refusal
from tests.pure.records.logs import KEYS, LOG_PARTITION, PARTITION_COUNT, STATE_TOPIC_ID
from tests.pure.share.snapshots.world import Job, Owned, World, some_log

LARGE, SMALL, OTHER, _, MEDIUM = range(PARTITION_COUNT)
LOOKED_AGAIN_MS = 30_000


def entry_key(number: int) -> bytes:
    return encode_entry_key(STATE_TOPIC_ID, avro.encode_key(KEYS[0]), 1_000 + number)


def size_of_an_entry() -> int:
    entries = SnapshotSet(STATE_TOPIC_ID, LOG_PARTITION)
    entries.add(entry_key(0), b"?")
    return entries.size_bytes


ENTRY = size_of_an_entry()


class ManyWorld(World):
    """A world that may keep ten entries, of several log partitions; each has as many entries as `fill` said last."""

    def __init__(self) -> None:
        super().__init__(bytes_max=10 * ENTRY)
        self.counts = dict.fromkeys(range(PARTITION_COUNT), 0)
        self.reads_begun: list[int] = []
        self.start_reading = self._note_and_start

    def _note_and_start(self, partition: int, instance: int, from_offset: int = 0) -> None:
        self.reads_begun.append(partition)
        self.log.start_reading(partition, instance, from_offset)

    def fill(self, partition: int, count: int) -> None:
        before, self.counts[partition] = self.counts[partition], count
        for number in range(before, count):
            self.topic.write_foreign(partition, entry_key(number), b"?", None)
        for number in range(count, before):
            self.topic.write_foreign(partition, entry_key(number), None, None)
        self.settle()
        assert sum(self.kept().values()) <= 10

    def serve(self, partition: int, count: int) -> None:
        """Fill a partition, load it, and have the load end."""
        self.fill(partition, count)
        self.follower.find_restore_point(partition, 7, 0)
        self.settle()
        self.partitions[partition] = cast("Owned", SimpleNamespace(state=State.ACTIVE, machine=None))

    def kept(self) -> dict[int, int]:
        """Return how many entries are kept of which partition."""
        return {index: each.entries.size_bytes // ENTRY for index, each in self.follower._followed.items()}


@pytest.fixture
def world() -> ManyWorld:
    world = ManyWorld()
    world.serve(LARGE, 6)
    world.serve(SMALL, 3)
    world.lines.clear()
    return world


def test_the_partition_that_takes_most_is_put_aside_whichever_one_grew(world: ManyWorld) -> None:
    world.fill(SMALL, 4)
    assert world.kept() == {LARGE: 6, SMALL: 4}, "exactly the bound"
    world.fill(SMALL, 5)
    assert world.kept() == {SMALL: 5}
    ((level, event, fields),) = world.lines
    assert (level, event, fields["partition"], fields["bytes"]) == ("warning", "snapshots_put_aside", LARGE, 6 * ENTRY)
    assert world.log.reads(LARGE) is None


def test_a_load_is_given_room_by_the_partition_that_takes_most(world: ManyWorld) -> None:
    world.serve(OTHER, 2)
    assert world.kept() == {SMALL: 3, OTHER: 2}
    assert world.refused()[Refusal.EMPTY] == 3, "no partition has a manifest, and none was too large"
    assert Refusal.TOO_LARGE not in world.refused()


def test_a_load_of_the_partition_that_takes_most_reads_the_log_alone(world: ManyWorld) -> None:
    world.serve(OTHER, 9)
    assert world.kept() == {LARGE: 6, SMALL: 3}
    assert world.refused()[Refusal.TOO_LARGE] == 1
    assert [event for _, event, _ in world.lines] == ["restore_refused"]


def test_partition_put_aside_returns_with_room_for_a_quarter_more(world: ManyWorld) -> None:
    world.fill(SMALL, 5)
    for count in (4, 3):
        world.fill(SMALL, count)
        world.pass_time(LOOKED_AGAIN_MS)
        assert world.kept() == {SMALL: count}
    world.fill(SMALL, 2)
    world.pass_time(LOOKED_AGAIN_MS - 1)
    assert world.kept() == {SMALL: 2}
    world.pass_time(1)
    assert world.kept() == {SMALL: 2, LARGE: 6}


@pytest.mark.parametrize("count", [9, 10])
def test_partition_that_fits_only_alone_is_followed_when_no_other_is(world: ManyWorld, count: int) -> None:
    world.fill(LARGE, 7)
    world.fill(SMALL, 0)
    world.fill(LARGE, count)
    world.fill(SMALL, 11 - count)
    assert world.kept() == {SMALL: 11 - count}
    world.follower.forget(SMALL)
    del world.partitions[SMALL]
    world.pass_time(LOOKED_AGAIN_MS)
    assert world.kept() == {LARGE: count}


def test_partition_above_the_bound_is_not_read_again_before_its_load(world: ManyWorld) -> None:
    world.fill(LARGE, 12)
    world.follower.forget(SMALL)
    del world.partitions[SMALL]
    world.reads_begun.clear()
    for _ in range(3):
        world.pass_time(LOOKED_AGAIN_MS)
    assert (world.kept(), world.reads_begun) == ({}, [])
    world.serve(LARGE, 4)
    assert world.kept() == {LARGE: 4}
    world.serve(OTHER, 3)
    world.serve(SMALL, 3)
    assert world.kept() == {LARGE: 4, OTHER: 3, SMALL: 3}, "what it took before does not count any more"


def test_partitions_put_aside_are_not_read_if_they_do_not_fit_together(world: ManyWorld) -> None:
    world.fill(SMALL, 5)
    world.serve(OTHER, 6)
    assert world.kept() == {SMALL: 5}
    world.fill(SMALL, 0)
    world.reads_begun.clear()
    for _ in range(3):
        world.pass_time(LOOKED_AGAIN_MS)
    assert (world.kept(), world.reads_begun) == ({SMALL: 0, LARGE: 6}, [LARGE])


def test_of_what_was_put_aside_the_smallest_is_followed_first(world: ManyWorld) -> None:
    world.serve(OTHER, 2)
    world.serve(MEDIUM, 5)
    world.fill(OTHER, 3)
    assert world.kept() == {SMALL: 3, OTHER: 3}
    world.fill(SMALL, 0)
    world.fill(OTHER, 0)
    world.pass_time(LOOKED_AGAIN_MS)
    assert world.kept() == {SMALL: 0, OTHER: 0, MEDIUM: 5}


def test_former_size_of_a_partition_does_not_count_after_it_is_read_again(world: ManyWorld) -> None:
    world.fill(SMALL, 5)
    world.fill(SMALL, 2)
    world.pass_time(LOOKED_AGAIN_MS)
    world.fill(LARGE, 1)
    world.serve(MEDIUM, 6)
    world.fill(SMALL, 4)
    assert world.kept() == {SMALL: 4, LARGE: 1}
    world.fill(SMALL, 1)
    world.pass_time(LOOKED_AGAIN_MS)
    assert world.kept() == {SMALL: 1, LARGE: 1, MEDIUM: 6}


def test_partition_put_aside_during_reading_still_counts_its_size(world: ManyWorld) -> None:
    world.fill(SMALL, 5)
    world.fill(SMALL, 3)
    world.serve(OTHER, 3)
    world.follower.find_restore_point(LARGE, 8, 0)
    records = [LogRecord(number, entry_key(number), b"?", None) for number in range(5)]
    world.follower.records_read(LARGE, world.follower._followed[LARGE].instance, records)
    assert world.kept() == {SMALL: 3, OTHER: 3}
    world.fill(OTHER, 0)
    world.pass_time(LOOKED_AGAIN_MS)
    assert world.kept() == {SMALL: 3, OTHER: 0}
    world.fill(SMALL, 2)
    world.pass_time(LOOKED_AGAIN_MS)
    assert world.kept() == {SMALL: 2, OTHER: 0, LARGE: 6}


def test_memory_of_a_partition_that_was_with_another_node_is_unknown(world: ManyWorld) -> None:
    world.fill(SMALL, 5)
    world.follower.forget(LARGE)
    world.fill(LARGE, 1)
    world.pass_time(LOOKED_AGAIN_MS)
    assert world.kept() == {SMALL: 5, LARGE: 1}


def test_a_load_that_is_put_aside_while_it_chooses_is_answered_once() -> None:
    world, log = ManyWorld(), some_log()
    Job(world, log).run()
    world.ask()
    world.topic.run_until_quiet()
    assert (world.answers, len(world.tasks)) == ([], 1), "it chooses"
    kept = world.kept()[LOG_PARTITION]
    world.write(entry_key(0), b"?" * (10 - kept + 1) * ENTRY)
    world.settle()
    assert world.answers == [(LOG_PARTITION, 7, None)]
    assert world.refused() == {Refusal.TOO_LARGE: 1}
