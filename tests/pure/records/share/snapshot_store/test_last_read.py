"""A fold goes on only in the log that it has read: what is lost from the log's end, and grown over, is seen."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.records.log.checkpoint import CHECKPOINT_KEY
from holdfast.records.share.snapshot_store.folding import NEW, Mark, RawRecord, fold
from holdfast.records.share.snapshot_store.last_read import LastRead, digest_record
from tests.pure.records.logs import STATE_TOPIC_ID, UNCUT, DictStore, LogWriter


def fold_all(records: list[RawRecord], mark: Mark = NEW, store: DictStore | None = None) -> Mark:
    return fold(STATE_TOPIC_ID, 0, 1, mark, DictStore() if store is None else store, records).mark


def last_read_of(records: list[RawRecord]) -> LastRead:
    last_read = fold_all(records).last_read()
    assert last_read is not None
    return last_read


def refusal(last_read: LastRead, records: list[RawRecord], log_start: int = 0) -> str:
    held = {record.offset: record for record in records[log_start:]}
    return last_read.refusal(log_start, {offset: held[offset] for offset in last_read.offsets() if offset in held})


def write_log(seed: int, moves: int = 30) -> LogWriter:
    log = LogWriter(Random(seed))
    for move in Random(seed).choices(UNCUT, k=moves):
        log.do(move)
    return log


def test_a_log_that_only_grew_is_the_same_however_it_was_cut_into_batches() -> None:
    for seed in range(50):
        records = write_log(seed).records
        mark, store, at = NEW, DictStore(), 0
        random = Random(seed)
        while at < len(records):
            end = random.randint(at + 1, len(records))
            mark, at = fold_all(records[at:end], mark, store), end
            last_read = mark.last_read()
            assert last_read == last_read_of(records[:end])
            assert last_read is not None
            assert not refusal(last_read, records)


def test_a_log_that_lost_its_end_and_grew_over_it_is_another_one() -> None:
    for seed in range(50):
        log = write_log(seed)
        before, kept = last_read_of(log.records), log.records[: Random(seed).randrange(len(log.records))]
        assert refusal(before, kept) == "is not there any more"
        # A new owner appends, and so do other programs.
        other = write_log(seed + 1_000, 60)
        grown = [record._replace(offset=at) for at, record in enumerate([*kept, *other.records])]
        assert refusal(before, grown) in (
            "is another one now",
            f"follows another checkpoint now than the one at offset {before.checkpoint_offset}",
        )


def test_the_record_read_last_is_compared_although_it_does_not_count() -> None:
    log = write_log(3)
    log.do("foreign")
    last_read = last_read_of(log.records)
    other = log.records[-1]._replace(value=b"!")
    assert refusal(last_read, [*log.records[:-1], other]) == "is another one now"


def test_the_checkpoint_tells_two_attempts_of_one_epoch_apart() -> None:
    log, other = LogWriter(Random(1)), LogWriter(Random(1))
    taken, by_other = log.records[0], write_log(2, 0).records[0]
    assert taken.header == by_other.header
    log.do("foreign")
    other.do("foreign")
    assert log.records[1] == other.records[1]
    assert refusal(last_read_of(log.records), [by_other, log.records[1]]) == (
        "follows another checkpoint now than the one at offset 0"
    )


def test_a_cut_off_checkpoint_is_passed_over_and_a_cut_off_record_refused() -> None:
    log = LogWriter(Random(1))
    log.do("foreign")
    last_read = last_read_of(log.records)
    assert last_read.offsets() == [1, 0]
    assert not refusal(last_read, log.records, log_start=1)
    assert refusal(last_read, log.records, log_start=2) == "is not there any more"


def test_a_checkpoint_that_was_read_last_is_read_once() -> None:
    log = LogWriter(Random(1))
    last_read = last_read_of(log.records)
    assert last_read.offsets() == [0]
    assert not refusal(last_read, log.records)


def test_nothing_is_compared_before_a_record_was_read() -> None:
    assert NEW.last_read() is None


@pytest.mark.parametrize("field", [0, 1, 2])
def test_a_missing_field_differs_from_an_empty_one(field: int) -> None:
    digests = set()
    for value in (None, b"", b"x"):
        fields: list[bytes | None] = [CHECKPOINT_KEY, b"value", b"header"]
        fields[field] = value
        digests.add(digest_record(*fields))
    assert len(digests) == 3
    assert digest_record(b"ab", b"", None) != digest_record(b"a", b"b", None)
