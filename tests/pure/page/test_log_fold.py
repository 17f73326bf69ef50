"""Which records of a log partition count, and what they make of share partitions."""

from __future__ import annotations

from holdfast.page.log_fold import LogFold
from tests.pure.page.samples import KEY, Log, acknowledged, available, snapshot, update


def read(log: Log) -> LogFold:
    """Read a log as its readers do, a second time where that is wanted."""
    fold = LogFold(log.start)
    for record in log.records:
        fold.take(record)
    if fold.read_again(is_at_end=True):
        for record in log.records:
            fold.take(record)
    return fold


def test_all_records_of_a_brokers_own_topic_count() -> None:
    log = Log(start=40)
    log.put(KEY, snapshot(5))
    log.put(KEY, update(7, available(9, 2)))
    fold = read(log)
    assert fold.is_foreign
    assert fold.states[KEY].start_offset == 7
    assert list(fold.states[KEY].state_batches) == [available(9, 2)]
    assert (fold.next_offset, fold.first_ms, fold.gaps()) == (42, log.at_ms, [])


def test_a_broker_applies_an_update_whose_snapshot_was_pruned() -> None:
    log = Log(start=40)
    log.put(KEY, update(7, available(9, 2)))
    fold = read(log)
    assert fold.states[KEY].start_offset == 7
    assert fold.gaps() == []


def test_a_tombstone_ends_a_share_partition() -> None:
    log = Log()
    log.put(KEY, snapshot(5))
    log.put(KEY, None)
    assert read(log).states == {}


def test_records_of_a_holdfast_that_are_void_change_nothing() -> None:
    log = Log()
    log.put_checkpoint(1, 0)
    log.put(KEY, snapshot(5), hf=(1, 1))
    log.put_checkpoint(2, 0)
    log.put(KEY, update(9), hf=(1, 2))  # a zombie's
    log.put(KEY, update(6), hf=(2, 1))
    fold = read(log)
    assert (fold.states[KEY].start_offset, fold.owner) == (6, "7")


def test_a_pruned_log_of_a_holdfast_counts_from_where_it_is_whole() -> None:
    log = Log(start=40)
    log.put(KEY, update(3), hf=(1, 8))  # its snapshot was pruned
    log.put_checkpoint(1, 9)
    log.put(KEY, snapshot(5), hf=(1, 10))
    log.put_checkpoint(1, 11, cut_offset=41)
    log.put(KEY, update(6, acknowledged(8, 8)), hf=(1, 12))
    fold = read(log)
    assert fold.states[KEY].start_offset == 6
    assert fold.gaps() == []


def test_a_record_that_cannot_be_read_is_told_of() -> None:
    log = Log()
    log.put(KEY, snapshot(5))
    log.put_bytes(b"\x00\x00\x00", b"")
    fold = read(log)
    assert fold.gaps() == ["1 of its records cannot be decoded, the first at offset 1"]
    assert fold.states[KEY].start_offset == 5


def test_a_topic_without_states_is_told_from_one_with_some() -> None:
    log = Log()
    log.put_bytes(b"order 17", b"a dozen")
    assert read(log).wrong_topic == "its record at offset 0 is none of a coordinator"
