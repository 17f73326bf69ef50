"""Worked examples: several calls in a row, with every record and answer."""

from __future__ import annotations

import pytest

from holdfast.api.results import ReadResult
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot, Update
from tests.vectors.parity import decide_cold_snapshots
from tests.world.records import encode_record
from tests.world.samples import KEY, OTHER_KEY, batch
from tests.world.shard import World

NOW_MS = 1_735_689_600_000


def test_the_worked_trace() -> None:
    """§6.9, limit 2; the row with the reversed range is refused by the service and so is not here."""
    world = World(snapshot_update_records_per_snapshot=2)
    assert world.read(5).error_code == world.write().error_code == ErrorCode.INVALID_REQUEST
    assert world.summarize().error_code == world.delete().error_code == ErrorCode.NONE
    assert world.initialize(0, -1).error_code == ErrorCode.NONE
    assert world.last_record()[1] == Snapshot(0, 0, 0, -1, -1, NOW_MS, NOW_MS, (), 0, 0)
    assert world.read(5).start_offset == -1
    assert world.last_record()[1] == Update(0, 5, -1, -1, ())
    assert world.write(leader_epoch=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    world.write(batch(100, 109, 2, 1), state_epoch=0, leader_epoch=7, start_offset=100, delivery_complete_count=0)
    assert world.last_record()[1] == Update(0, 5, 100, 0, (batch(100, 109, 2, 1),))
    world.write(batch(110, 119, 0, 2), delivery_complete_count=3)
    both = (batch(100, 109, 2, 1), batch(110, 119, 0, 2))
    assert world.last_record()[1] == Snapshot(1, 0, 5, 100, 3, NOW_MS, NOW_MS, both, 5, 0)
    world.write(batch(120, 129, 4, 5), state_epoch=9, delivery_complete_count=4)
    assert world.last_record()[1] == Update(1, 5, 100, 4, (batch(120, 129, 4, 5),))
    world.write(start_offset=110)
    assert world.last_record()[1] == Update(1, 5, 110, -1, ())
    left = (batch(110, 119, 0, 2), batch(120, 129, 4, 5))
    assert world.state() == ShareState(1, 0, 5, 110, -1, NOW_MS, NOW_MS, left, 5, 0, 2)
    world.write()
    assert world.last_record()[1] == Snapshot(2, 0, 5, 110, -1, NOW_MS, NOW_MS, left, 5, 0)
    world.now_ms += 300_000
    world.run(decide_cold_snapshots(world.shard, world.now_ms, 300_000))
    assert world.last_record()[1] == Snapshot(3, 0, 5, 110, -1, NOW_MS, NOW_MS + 300_000, left, 5, 0)
    world.now_ms += 300_000
    assert decide_cold_snapshots(world.shard, world.now_ms, 300_000).records == ()
    world.initialize(0, 50)
    assert world.last_record()[1] == Snapshot(4, 0, 0, 50, 0, world.now_ms, world.now_ms, (), 5, 0)
    assert world.initialize(3, 70).error_code == ErrorCode.NONE
    assert world.initialize(2, 70).error_code == ErrorCode.FENCED_STATE_EPOCH
    for _ in range(2):
        assert world.delete().error_code == ErrorCode.NONE
    world.initialize(0, 1)
    assert world.last_record()[1] == Snapshot(0, 0, 0, 1, 0, world.now_ms, world.now_ms, (), 0, 0)


@pytest.mark.parametrize("limit", [500, 0])
def test_the_reviews_example_keeps_a_count_when_the_start_offset_moves(limit: int) -> None:
    """§7 row 8: a write moves the start offset; the batches it does not name keep their counts."""
    world = World(snapshot_update_records_per_snapshot=limit)
    world.initialize(0, 100)
    world.write(batch(100, 109, 0, 1), batch(110, 119, 0, 2), batch(120, 129, 0, 1))
    world.write(batch(120, 129, 2, 1), start_offset=110)
    expected = ReadResult(0, None, 0, 110, (batch(110, 119, 0, 2), batch(120, 129, 2, 1)))
    assert world.read() == expected
    assert world.loaded().read() == expected


@pytest.mark.parametrize("codec", Codec)
def test_a_log_of_before_loads_as_it_was_meant(codec: Codec) -> None:
    """The former version let a Write take start offset and count back, wrote -1 for unchanged, and took negative epochs."""
    world = World(codec=codec)
    before: list[Snapshot | Update] = [
        Snapshot(0, -1, 0, 100, 0, NOW_MS, NOW_MS, (), 0, -1),
        Update(0, 5, 100, 0, ()),
        Update(0, 5, -1, 9, (batch(100, 104, 2, 1), batch(105, 109, 0, 1))),
        Update(0, 5, 110, 3, (batch(110, 119, 2, 1),)),
        Update(0, 5, 90, -1, (batch(95, 99, 0, 2), batch(120, 129, 2, 1))),
    ]
    world.log = [encode_record(codec, KEY, value) for value in before]
    # Two batches that touch and are equal, as some snapshots held them.
    apart = (batch(0, 4, 2, 1), batch(5, 9, 2, 1))
    world.log.append(encode_record(codec, OTHER_KEY, Snapshot(7, 2, 1, -1, -1, NOW_MS, NOW_MS, apart, 3, 2)))
    world = world.loaded(codec=codec)
    meant = (batch(95, 99, 0, 2), batch(110, 129, 2, 1))
    assert world.state() == ShareState(0, -1, 5, 90, -1, NOW_MS, NOW_MS, meant, 5, -1, 4)
    other = world.state(OTHER_KEY)
    assert other is not None
    assert (tuple(other.state_batches), other.leader_epoch_fence) == (apart, 3)
    # From here on the rules of today hold.
    assert world.write(state_epoch=0, leader_epoch=5, start_offset=80, delivery_complete_count=7).error_code == 0
    assert world.last_record()[1] == Update(0, 5, 90, -1, ())
    world.write(key=OTHER_KEY, start_offset=-1, delivery_complete_count=4)
    other = world.state(OTHER_KEY)
    assert other is not None
    assert (tuple(other.state_batches), other.start_offset, other.delivery_complete_count) == (
        (batch(0, 9, 2, 1),),
        -1,
        4,
    )
