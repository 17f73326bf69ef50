"""A restore point is used only after exactly the record that it names; in any other case the load reads the log from its start."""

from __future__ import annotations

import pytest

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint, encode_checkpoint
from holdfast.records.log.fencing import Position
from holdfast.records.log.header import encode_header
from holdfast.runtime.coordinator import LoadAdvisers
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.restore_point import RestorePoint
from holdfast.runtime.partition.states import State
from tests.configs import partition_config
from tests.pure.runtime.counter import Bugs, Counter
from tests.pure.runtime.stalling import stalled
from tests.simulated.memory_log import MemoryTopic
from tests.world.process import Process

ATTEMPT = b"a" * 16
CHECKPOINT = Checkpoint(3, ATTEMPT, "b", 2, "memory", (1).to_bytes(16, "big"), 1, None)
RESTORE_POINT = RestorePoint(4, Position(3, ATTEMPT, 5), CHECKPOINT, 40, 10)


def record(
    sequence: int = 4, offset: int = 4, epoch: int = 3, key: bytes = b"key", value: bytes | None = b"1"
) -> LogRecord:
    return LogRecord(offset, key, value, encode_header(epoch, sequence))


@pytest.mark.parametrize(
    ("found", "refusal"),
    [
        (record(), ""),
        (record(value=None), ""),
        (record(key=CHECKPOINT_KEY, value=encode_checkpoint(CHECKPOINT)), ""),
        (record(offset=5), "no record lies at its offset"),
        (record()._replace(header=None), "the record at its offset is another program's"),
        (record()._replace(header=b"?"), "the record at its offset is another program's"),
        (record()._replace(header=b"\x02" * 13), "the record at its offset cannot be read"),
        (record(sequence=5), "the record at its offset is another one"),
        (record(epoch=4), "the record at its offset is another one"),
        (
            record(key=CHECKPOINT_KEY, value=encode_checkpoint(CHECKPOINT._replace(attempt_id=bytes(16)))),
            "the checkpoint at its offset is another one",
        ),
        (record(key=CHECKPOINT_KEY, value=b"?"), "the record at its offset cannot be read"),
    ],
)
def test_a_restore_point_names_its_record(found: LogRecord, refusal: str) -> None:
    assert RESTORE_POINT.refusal(found) == refusal


class World:
    """A runtime over a log of one partition, with a finder that answers as the test says."""

    def __init__(self, point: RestorePoint | None) -> None:
        self.point = point
        self.judged: list[tuple[int, str]] = []
        self.asked: list[int] = []
        self.bugs = Bugs()
        self.topic = MemoryTopic()
        write = self.topic.write_foreign
        write(0, CHECKPOINT_KEY, encode_checkpoint(CHECKPOINT), encode_header(3, 0))
        for sequence in range(1, 8):
            write(0, b"key", b"1", encode_header(3, sequence))
        self.topic.commit(0)
        self.process = Process(
            self.topic,
            partition_config(node_id="a", log=self.topic.identity),
            lambda _: Counter("machine", lambda _: None, self.bugs),
            advisers=LoadAdvisers(restore_points=self),
        )
        self.runtime = self.process.runtime
        self.process.start()

    def load(self) -> Partition:
        self.process.load()
        return self.runtime.partitions[0]

    def find_restore_point(self, partition: int, instance: int, log_start: int) -> None:
        self.asked.append(log_start)
        self.runtime.restore_point_found(partition, instance, self.point)

    def restore_point_judged(self, partition: int, offset: int, refusal: str) -> None:
        self.judged.append((offset, refusal))


def test_a_load_that_stalls_says_that_it_waits_for_a_restore_point(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(RESTORE_POINT)
    monkeypatch.setattr(world, "find_restore_point", lambda *_: None)
    assert stalled(world.load())["waiting_for"] == "a restore point"


def value_of(partition: Partition) -> int:
    machine = partition.machine
    assert isinstance(machine, Counter)
    return machine.value


def test_load_continues_after_its_restore_point() -> None:
    world = World(RESTORE_POINT)
    partition = world.load()
    assert (partition.state, value_of(partition), partition.reading.restored_from_offset) == (State.ACTIVE, 40 + 3, 4)
    assert (partition.ownership.epoch, partition.generation) == (4, 3)
    assert partition.reading.bytes_counted == 5 * 10 + 3 * len(b"key1")
    assert (world.asked, world.judged) == ([0], [(4, "")])


@pytest.mark.parametrize(
    ("point", "refusal"),
    [
        (RESTORE_POINT._replace(position=Position(3, ATTEMPT, 6)), "the record at its offset is another one"),
        (RESTORE_POINT._replace(offset=8), "the log does not hold its offset"),
        (RESTORE_POINT._replace(offset=-1), "the log does not hold its offset"),
    ],
)
def test_load_restarts_without_restore_point_that_log_does_not_confirm(point: RestorePoint, refusal: str) -> None:
    world = World(point)
    partition = world.load()
    assert (partition.state, value_of(partition), partition.reading.restored_from_offset) == (State.ACTIVE, 7, -1)
    assert world.judged == [(point.offset, refusal)]


def test_time_of_restarted_load_counts_from_its_first_start(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(RESTORE_POINT._replace(position=Position(3, ATTEMPT, 6)))
    find = world.find_restore_point

    def find_late(partition: int, instance: int, log_start: int) -> None:
        world.process.clock.now_ms += 500
        find(partition, instance, log_start)

    monkeypatch.setattr(world, "find_restore_point", find_late)
    reading = world.load().reading
    assert [offset for offset, refusal in world.judged if refusal] == [4]
    assert reading.load_ended_ms - reading.load_began_ms == 500


def test_a_hole_at_the_offset_of_a_restore_point_refuses_it() -> None:
    world = World(RESTORE_POINT._replace(offset=8, position=Position(3, ATTEMPT, 9)))
    world.topic.write_hole(0)
    world.topic.commit(0)
    partition = world.load()
    assert (partition.state, value_of(partition)) == (State.ACTIVE, 7)
    assert world.judged == [(8, "no record lies at its offset")]


def test_unloadable_restore_point_causes_load_of_whole_log() -> None:
    world = World(RESTORE_POINT)
    world.bugs.armed.append("fold_loaded")
    partition = world.load()
    assert (partition.state, value_of(partition), partition.reading.restored_from_offset) == (State.ACTIVE, 7, -1)
    ((offset, refusal),) = world.judged
    assert offset == 4
    assert refusal.startswith("loading failed: ")


def test_without_a_restore_point_the_whole_log_is_read() -> None:
    world = World(None)
    assert value_of(world.load()) == 7
    assert world.judged == []


def test_log_accepted_or_without_its_end_is_read_from_its_start() -> None:
    world = World(RESTORE_POINT)
    partition = world.load()
    world.topic.make()
    world.topic.write_foreign(0, CHECKPOINT_KEY, encode_checkpoint(CHECKPOINT), encode_header(3, 0))
    world.topic.commit(0)
    world.process.settle()
    assert partition.state is State.FAILED
    world.asked.clear()
    world.runtime.accept(0, "it is meant to be so")
    world.process.settle()
    assert world.asked == []


def test_load_from_restore_point_knows_that_log_was_accepted() -> None:
    world = World(RESTORE_POINT._replace(checkpoint=CHECKPOINT._replace(accepted_reason="restored")))
    partition = world.load()
    assert (partition.state, partition.reading.restored_from_offset) == (State.ACTIVE, 4)
    own = decode_checkpoint(world.topic.partitions[0].records[-1].value or b"")
    assert (own.owner_epoch, own.reason, own.accepted_reason) == (4, None, "restored")


@pytest.mark.parametrize(
    ("checkpoint_offset", "checkpoint", "refusal"),
    [
        (0, CHECKPOINT, ""),
        (0, CHECKPOINT._replace(attempt_id=b"b" * 16), "its newest checkpoint is another one"),
        (0, CHECKPOINT._replace(node_id="c"), "its newest checkpoint is another one"),
        (1, CHECKPOINT, "its newest checkpoint is not in the log"),
        (4, CHECKPOINT, ""),
        (-1, CHECKPOINT, ""),
    ],
)
def test_load_compares_newest_checkpoint_of_its_restore_point(
    checkpoint_offset: int, checkpoint: Checkpoint, refusal: str
) -> None:
    """If the log lost its end, another attempt may have taken the same epoch and written as many records."""
    position = Position(3, checkpoint.attempt_id, 5)
    world = World(RESTORE_POINT._replace(position=position, checkpoint=checkpoint, checkpoint_offset=checkpoint_offset))
    partition = world.load()
    assert world.judged == [(4, refusal)]
    assert partition.state is State.ACTIVE
    assert (value_of(partition), partition.reading.restored_from_offset) == ((7, -1) if refusal else (43, 4))


def test_a_newest_checkpoint_that_was_cut_off_is_not_compared() -> None:
    world = World(RESTORE_POINT._replace(checkpoint=CHECKPOINT._replace(node_id="c"), checkpoint_offset=0))
    world.topic.partitions[0].log_start_offset = 2
    partition = world.load()
    assert (partition.state, partition.reading.restored_from_offset, world.judged) == (State.ACTIVE, 4, [(4, "")])
