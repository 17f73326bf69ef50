"""A log whose start fell back after a cut: every reader reads what the cut log says."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.console.sources.log_reader import find_beginning
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from holdfast.records.log.fencing import START, step
from holdfast.records.log.header import decode_header, is_foreign
from holdfast.records.log.log_start import Beginning
from holdfast.records.share.codecs.codec import Codec
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.snapshot_store.entries import decode_entry
from holdfast.records.share.snapshot_store.folding import RawRecord
from tests.pure.docs.test_log_format import example
from tests.pure.records.logs import UNCUT, LogWriter, random_log
from tests.pure.records.share.snapshot_store.test_folding import Job, load, snapshot_set

#: Without records of other programs, whose keys are those of Kafka's codec.
WRITTEN = tuple(move for move in UNCUT if move != "foreign")


class Message:
    """A record as a consumer hands it over."""

    def __init__(self, record: RawRecord) -> None:
        self._record = record

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def offset(self) -> int:
        return self._record.offset

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self._record.header is None else [("hf", self._record.header)]


def whole_from(records: list[RawRecord]) -> int | None:
    """Find where a log is whole from, as a load does."""
    beginning, position = Beginning(records[0].offset), START
    for record in records:
        if record.header is None or is_foreign(record.header) or record.key is None:
            continue
        header = decode_header(record.header)
        if record.key == CHECKPOINT_KEY:
            checkpoint = decode_checkpoint(record.value or b"")
            position, _ = beginning.step(position, record.offset, *header, checkpoint)
        else:
            position, _ = step(position, *header, None)
        if beginning.is_found:
            return beginning.offset
    return None


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 32), st.randoms(use_true_random=False))
def test_all_readers_agree_with_the_cut_log_after_its_start_fell_back(seed: int, random: Random) -> None:
    log = random_log(seed, 30)
    for move in ("cut", *random.choices(UNCUT, k=5)):
        log.do(move)
    position, states, _ = load(log.kept())
    assert states.keys() == log.states.keys()
    for start in range(1, log.log_start + 1):
        records = log.records[start:]
        begin = whole_from(records)
        assert begin is not None, f"nothing is named behind {start}"
        assert start <= begin <= log.log_start
        assert load(log.records[begin:])[:2] == (position, states)
        if not is_foreign(records[0].header):
            assert find_beginning(map(Message, records)) == begin  # type: ignore[arg-type]
    start = random.randint(1, max(1, log.log_start))
    job = Job({})
    job.run(log.records[start:], random)
    assert job.mark.position == position
    assert job.mark.waiting_count == 0
    held = {decode_entry(one.entry) for one in job.store.values() if one.entry is not None}
    assert held == set(states.values())
    entries = snapshot_set(job.topic)
    newest = entries.manifest_offsets()[0]
    assert newest == job.mark.covered_offset
    assert entries.verify(newest, start) == states, f"the fold began at {start}, and {log.log_start} was the cut"


@pytest.mark.parametrize(
    ("named", "is_whole"),
    [
        ([(3, 10), (4, -1), (5, 20)], True),
        ([(3, 10), (5, -1), (4, 20)], False),
        ([(3, 10), (4, -1), (5, 10)], False),
        ([(3, 10), (4, -1), (5, 21)], False),
        ([(3, -1), (4, 9)], False),
        ([(3, -1), (4, 11)], False),
        ([(3, -1), (4, 10)], True),
        ([(3, 10)], False),
    ],
    ids=[
        "the newest that counts",
        "one that does not count",
        "one before the newest",
        "no checkpoint above the newest",
        "below the only one",
        "above the only one",
        "the only one",
        "itself",
    ],
)
def test_a_log_is_whole_from_the_newest_checkpoint_that_the_next_one_names(
    named: list[tuple[int, int]], is_whole: bool
) -> None:
    """Each checkpoint is a sequence and the cut that it names; they lie at 10, 20, 30."""
    beginning, position = Beginning(7), START
    for index, (sequence, cut_offset) in enumerate(named, start=1):
        value = Checkpoint(2, b"o" * 16, "b", 1, "cluster", b"t" * 16, 1, None, cut_offset=cut_offset)
        position, _ = beginning.step(position, index * 10, 2, sequence, value)
    assert beginning.is_found is is_whole
    assert beginning.offset == (named[-1][1] if is_whole else 7)


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_example_reads_a_log_whose_start_fell_back_as_the_cut_log(random: Random) -> None:
    log = LogWriter(random, (Codec.AVRO,))
    for move in (*random.choices(WRITTEN, k=30), "cut", *random.choices(WRITTEN, k=5)):
        log.do(move)
    for start in range(log.log_start + 1):
        reader = example.StateReader()
        for record in log.records[start:]:
            reader.take(0, record.offset, record.key, record.value, record.header)
        found = {SharePartitionKey(*place): state for place, state in reader.states.items()}
        assert {key: (state["start_offset"], state["state_epoch_fence"]) for key, state in found.items()} == {
            key: (state.start_offset, state.state_epoch_fence) for key, state in log.states.items()
        }
