"""The follower of the snapshot topic over the log in memory: loads are answered in bounded time, and the owner keeps the topic tidy."""

from __future__ import annotations

import pytest

from holdfast.records.share.codecs import avro
from holdfast.records.share.snapshot_store.entries import (
    EntryKey,
    ManifestKey,
    decode_entry,
    decode_key,
    encode_entry,
    encode_entry_key,
    encode_manifest_key,
)
from holdfast.runtime.log_protocol import ReadError
from holdfast.runtime.partition.states import State
from holdfast.share.snapshots.restore import Refusal
from tests.pure.records.logs import KEYS, LOG_PARTITION, STATE_TOPIC_ID
from tests.pure.share.snapshots.world import READ_TIMEOUT_MS, Job, Owned, World, followed, go_on, grow, some_log


def test_load_gets_the_newest_manifest_of_its_query() -> None:
    world, log = World(), some_log()
    Job(world, log).run()
    world.ask()
    assert world.answers == []
    world.settle()
    ((partition, instance, point),) = world.answers
    assert (partition, instance) == (LOG_PARTITION, 7)
    assert point is not None
    assert point.offset == len(log.records) - 1


def test_a_second_load_is_answered_from_what_is_followed_already() -> None:
    world, log = World(), some_log()
    job = Job(world, log)
    job.run()
    world.ask()
    world.settle()
    log.do("write")
    job.run()
    world.settle()
    world.ask()
    world.settle()
    assert [point and point.offset for _, _, point in world.answers] == [len(log.records) - 2, len(log.records) - 1]


def test_hanging_topic_delays_a_load_for_the_time_of_the_setting() -> None:
    world = World()
    world.ask()
    world.time_ms += READ_TIMEOUT_MS - 1
    world.follower.tick(world.time_ms)
    assert world.answers == []
    world.time_ms += 1
    world.follower.tick(world.time_ms)
    assert world.answers == [(LOG_PARTITION, 7, None)]
    world.settle()
    assert len(world.answers) == 1
    assert world.refused() == {Refusal.LATE: 1}


def test_refused_calls_are_answered_counted_and_logged() -> None:
    world = World()
    world.is_known = False
    world.ask()
    world.settle()
    assert world.refused() == {Refusal.MISSING: 1}
    world = World()
    world.ask()
    world.follower.read_failed(LOG_PARTITION, 1, ReadError("no broker returned its start and end", is_alarm=False))
    assert world.refused() == {Refusal.UNREADABLE: 1}
    assert world.answers == [(LOG_PARTITION, 7, None)]
    assert world.lines[-1] == (
        "warning",
        "restore_refused",
        {"partition": LOG_PARTITION, "reason": "unreadable", "why": "no broker returned its start and end"},
    )


def test_damage_in_the_topic_costs_a_load_of_the_whole_log_and_one_line() -> None:
    world, log = World(), some_log()
    Job(world, log).run()
    world.ask()
    world.follower.records_read(LOG_PARTITION, 1, [])
    damage = "the record batch at offset 3 is damaged: its checksum is wrong"
    for _ in range(2):  # the second one is of a reading that has ended
        world.follower.read_failed(LOG_PARTITION, 1, ReadError(damage, is_alarm=True))
    assert world.answers == [(LOG_PARTITION, 7, None)]
    assert world.refused() == {Refusal.UNREADABLE: 1}
    assert world.lines == [
        ("warning", "restore_refused", {"partition": LOG_PARTITION, "reason": "unreadable", "why": damage})
    ]
    assert world.log.reads(LOG_PARTITION) is None
    world.lines.clear()
    world.ask()
    world.settle()
    point = world.answers[-1][2]
    assert point is not None, "a copy that is whole again serves the next load"
    assert point.offset == len(log.records) - 1
    assert world.lines == []


def test_damage_after_the_read_records_stops_following_only() -> None:
    world, log = World(), some_log()
    followed(world, log)
    world.lines.clear()
    answers = [*world.answers]
    world.follower.read_failed(LOG_PARTITION, 1, ReadError("the record batch at offset 9 is damaged", is_alarm=True))
    assert (world.answers, world.refused()) == (answers, {})
    assert world.log.reads(LOG_PARTITION) is None
    world.pass_time(30_000)
    assert world.log.reads(LOG_PARTITION) is not None, "it is tried again"


def test_memory_is_bounded_and_a_too_large_topic_is_not_followed_again() -> None:
    world, log = World(bytes_max=1_000), some_log()
    Job(world, log).run()
    world.ask()
    world.settle()
    assert (world.answers, world.refused()) == ([(LOG_PARTITION, 7, None)], {Refusal.TOO_LARGE: 1})
    world.partitions[LOG_PARTITION] = Owned(log)
    world.follower.tick(30_000)
    assert not world.follower._followed


def test_a_recreated_topic_is_read_anew() -> None:
    world, log = World(), some_log()
    Job(world, log).run()
    world.ask()
    world.settle()
    world.log_identity = world.log_identity._replace(topic_id=b"n" * 16)
    world.ask()
    world.settle()
    assert world.answers[-1][2] is None
    assert (world.refused(), world.lines[-1][0]) == ({Refusal.EMPTY: 1}, "debug")


# ---- the owner -----------------------------------------------------------------------------------------------------


def kinds(keys: list[bytes]) -> dict[type, int]:
    decoded = [type(decode_key(key)) for key in keys]
    return {kind: decoded.count(kind) for kind in (EntryKey, ManifestKey) if kind in decoded}


def test_entries_of_the_two_newest_manifests_stay_and_others_are_removed() -> None:
    world, log = World(), some_log()
    job = followed(world, log)
    assert world.removed == []
    for _ in range(3):
        go_on(world, log, job, 8)
    assert world.metrics.manifests_verified.value == 4
    assert kinds(world.removed)[ManifestKey] == 2
    fresh = World()
    fresh.topic = world.topic
    fresh.log = world.topic.open_log()
    fresh.log.start(fresh.follower)
    fresh.start_reading, fresh.stop_reading = fresh.log.start_reading, fresh.log.stop_reading
    fresh.ask()
    fresh.settle()
    point = fresh.answers[0][2]
    assert point is not None
    assert point.offset == len(log.records) - 1
    entries = fresh.follower._followed[LOG_PARTITION].entries
    for offset in entries.manifest_offsets():
        entries.verify(offset, 0)


def test_removals_keep_to_their_rate() -> None:
    world, log = World(removals_per_second_max=2), some_log()
    job = followed(world, log)
    for _ in range(4):
        grow(world, log, job, 8)
    log.log_start = world.partitions[LOG_PARTITION].log_start = len(log.records)
    counts = []
    for _ in range(3):
        world.pass_time(1_000)
        counts.append(len(world.removed))
    assert counts == [2, 4, 6]


def test_refused_removal_is_reported_once_and_retried_with_a_manifest() -> None:
    world, log = World(), some_log()
    job = followed(world, log)
    world.refuses = True
    for verified in (2, 3):
        world.lines.clear()
        go_on(world, log, job, 8)
        for _ in range(2):
            world.pass_time(1_000)
        assert world.metrics.manifests_verified.value == verified
    why = {"partition": LOG_PARTITION, "why": "no such partition"}
    assert world.lines == [("warning", "snapshot_removal_refused", why)]
    world.refuses = False
    go_on(world, log, job)
    assert kinds(world.removed)[ManifestKey] == 2


def test_messages_of_another_state_topic_go_with_the_next_manifest() -> None:
    world, log = World(), some_log()
    job = Job(world, log)
    others = [key[:10] + b"f" * 16 + key[26:] for key in job.run()]
    for key in (*others, b"of a later version"):
        world.write(key, b"whatever")
    followed(world, log)
    world.gone.add(b"f" * 16)
    world.pass_time(1_000)
    assert world.removed == []
    go_on(world, log, job)
    assert [key for key in world.removed if key in others] == others


def write_with_another_state_epoch(world: World, entry_key: bytes) -> None:
    value = next(record.value for record in world.topic.partitions[LOG_PARTITION].records if record.key == entry_key)
    assert value is not None
    entry = decode_entry(value)
    assert entry.snapshot is not None
    world.write(entry_key, encode_entry(entry._replace(snapshot=entry.snapshot._replace(state_epoch=99))))
    world.settle()
    world.pass_time(1_000)


def test_snapshot_unlike_the_owners_state_raises_an_alarm_with_both() -> None:
    world, log = World(), some_log()
    job = followed(world, log)
    log.do("write")
    world.partitions[LOG_PARTITION] = Owned(log)
    (entry_key, _) = job.run()
    world.settle()
    world.pass_time(1_000)
    assert world.metrics.divergences.value == 0
    write_with_another_state_epoch(world, entry_key)
    assert (world.metrics.divergences.value, world.metrics.divergence_alarm.value) == (1, 1)
    level, event, fields = world.lines[-1]
    assert (level, event) == ("error", "snapshot_diverged")
    assert "state_epoch=99" in str(fields["snapshot"])
    assert "state_epoch=0" in str(fields["own_state"])


def test_entries_above_the_end_of_the_log_stop_no_other_checks() -> None:
    world, log = World(), some_log()
    job = followed(world, log)
    above = len(log.records) + 1_000
    world.write(encode_entry_key(STATE_TOPIC_ID, avro.encode_key(KEYS[0]), above), b"?")
    world.write(encode_manifest_key(ManifestKey(STATE_TOPIC_ID, LOG_PARTITION, above)), b"?")
    entry_key = b""
    for _ in range(2):
        log.do("write")
        world.partitions[LOG_PARTITION] = Owned(log)
        (entry_key, _) = job.run()
        world.settle()
        world.pass_time(1_000)
    assert (world.metrics.manifests_verified.value, world.metrics.manifests_disagreeing.value) == (3, 0)
    assert kinds(world.removed)[ManifestKey] == 1
    write_with_another_state_epoch(world, entry_key)
    assert world.metrics.divergence_alarm.value == 1


def test_manifest_ahead_of_its_owner_is_verified_later() -> None:
    world, log = World(), some_log()
    job = followed(world, log)
    log.do("write")
    job.run()
    world.settle()
    world.pass_time(1_000)
    assert world.metrics.manifests_verified.value == 1
    world.partitions[LOG_PARTITION] = Owned(log)
    world.pass_time(1_000)
    world.pass_time(1_000)
    assert world.metrics.manifests_verified.value == 2


@pytest.mark.parametrize("is_serving", [False, True])
def test_only_who_serves_a_partition_does_its_work(is_serving: bool) -> None:
    world, log = World(), some_log()
    job = followed(world, log)
    log.do("write")
    world.partitions[LOG_PARTITION] = Owned(log)
    world.partitions[LOG_PARTITION].state = State.ACTIVE if is_serving else State.LOADING
    job.run()
    world.settle()
    before = world.metrics.manifests_verified.value
    world.pass_time(1_000)
    assert world.metrics.manifests_verified.value - before == is_serving
