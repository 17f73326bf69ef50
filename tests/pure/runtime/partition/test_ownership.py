"""The verdicts on records: tables of logs, one record a line."""

import pytest

from holdfast.records.errors import RecordError
from holdfast.records.log.checkpoint import CHECKPOINT_KEY, Checkpoint, encode_checkpoint
from holdfast.records.log.header import encode_header
from holdfast.records.log.log_start import Beginning
from holdfast.runtime.log_protocol import LogRecord
from holdfast.runtime.partition.ownership import OWNER_EPOCH_MAX, Ownership, Verdict, may_take

OURS, THEIRS, OTHERS = b"o" * 16, b"t" * 16, b"x" * 16


def checkpoint(epoch: int, attempt_id: bytes, generation: int = 1, node_id: str = "b") -> Checkpoint:
    return Checkpoint(epoch, attempt_id, node_id, generation, "cluster", b"t" * 16, 1, None)


def record(offset: int, text: str) -> LogRecord:
    """Return a record from text: `epoch/sequence` and what it is; `-` has no header."""
    place, what = text.split(" ", 1)
    if place == "-":
        return LogRecord(offset, b"key", b"value", None)
    epoch, sequence = map(int, place.split("/"))
    header = encode_header(epoch, sequence)
    if what == "data":
        return LogRecord(offset, b"key", b"value", header)
    attempt_id = {"ours": OURS, "theirs": THEIRS, "others": OTHERS}[what]
    return LogRecord(offset, CHECKPOINT_KEY, encode_checkpoint(checkpoint(epoch, attempt_id)), header)


#: Each log with the verdict of each record; `claim` is when we take the next epoch under our attempt id.
LOGS = {
    "empty log, ours": ["claim", "1/0 ours: own", "1/1 data: data"],
    "data before any checkpoint": ["0/0 data: void", "0/-1 data: void", "7/3 data: void", "- data: void"],
    "another node, then ours": [
        "1/0 theirs: rival",
        "1/1 data: data",
        "claim",
        "1/2 data: data",
        "2/0 ours: own",
        "1/3 data: void",
        "2/1 data: data",
    ],
    "a log pruned to a refresh": ["4/9 theirs: rival", "4/10 data: data", "4/8 data: void", "claim", "5/0 ours: own"],
    "a refresh of theirs": ["1/0 theirs: rival", "1/1 theirs: rival", "1/2 data: data"],
    "a refresh of ours": ["claim", "1/0 ours: own", "1/1 ours: refresh", "1/2 data: data"],
    "a refresh of ours under a wrong sequence": ["claim", "1/0 ours: own", "1/2 ours: void", "1/1 ours: refresh"],
    "ours twice": ["claim", "1/0 ours: own", "1/0 ours: void", "1/1 data: data"],
    "theirs, then ours twice": ["claim", "1/0 theirs: rival", "1/0 ours: void", "1/0 ours: void"],
    "of equal epochs the first wins": ["claim", "1/0 theirs: rival", "1/0 ours: void", "1/1 data: data"],
    "of equal epochs the first wins, ours": ["claim", "1/0 ours: own", "1/0 theirs: void", "1/1 data: data"],
    "equal epoch and next sequence, another attempt": ["1/0 theirs: rival", "1/1 others: void", "1/1 data: data"],
    "a higher epoch takes over": ["claim", "1/0 ours: own", "2/0 theirs: rival", "1/1 data: void", "2/1 data: data"],
    "a lower epoch comes late": ["3/0 theirs: rival", "2/0 others: void", "2/1 data: void", "3/1 data: data"],
    "our late attempt under a lower epoch": ["claim", "2/0 theirs: rival", "1/0 ours: void"],
    "nothing after a gap": ["1/0 theirs: rival", "1/2 data: void", "1/3 data: void", "1/1 data: data"],
    "a duplicate": ["1/0 theirs: rival", "1/1 data: data", "1/1 data: void", "1/2 data: data"],
    "a checkpoint twice": ["1/0 theirs: rival", "1/0 theirs: void", "1/1 data: data"],
    "foreign records between": ["1/0 theirs: rival", "- data: void", "1/1 data: data"],
    "epochs may skip": ["1/0 theirs: rival", "9/0 others: rival", "9/1 data: data"],
    "negative sequences never count": ["1/0 theirs: rival", "1/-1 data: void"],
}


@pytest.mark.parametrize("lines", LOGS.values(), ids=LOGS)
def test_verdicts(lines: list[str]) -> None:
    ownership = Ownership()
    judged = []
    for offset, line in enumerate(lines):
        if line == "claim":
            ownership.claim(OURS)
            judged.append(line)
        else:
            text = line.split(":")[0]
            judged.append(f"{text}: {ownership.judge(record(offset, text)).value}")
    assert judged == lines


def test_claim_takes_the_next_epoch() -> None:
    ownership = Ownership()
    ownership.judge(record(0, "6/0 theirs"))
    assert ownership.claim(OURS) == ownership.epoch == 7
    assert ownership.sequence == 1
    assert not ownership.owns()
    assert ownership.judge(record(1, "7/0 ours")) is Verdict.OWN
    assert ownership.owns()


@pytest.mark.parametrize(
    ("before", "epoch"),
    [
        (["4/7 data", "3/9 data", "- data"], 5),
        (["4/7 data", "2/5 theirs"], 5),
        (["2/5 theirs", "4/7 data"], 3),
    ],
    ids=["no checkpoint", "then a lower one", "a stray record behind one"],
)
def test_claim_takes_epoch_above_owner_whose_checkpoint_was_cut(before: list[str], epoch: int) -> None:
    ownership = Ownership()
    ownership.beginning = Beginning(7)
    for offset, text in enumerate(before):
        ownership.judge(record(offset, text))
    assert ownership.claim(OURS) == epoch


def test_winner_is_the_checkpoint_that_counts_with_its_newest_offset() -> None:
    ownership = Ownership()
    for offset, text in enumerate(["1/0 theirs", "1/1 data", "1/2 theirs", "1/3 others", "0/0 others"]):
        ownership.judge(record(offset, text))
    assert ownership.winner == checkpoint(1, THEIRS)
    assert ownership.winner_offset == 2


def test_a_restore_point_brings_along_what_its_checkpoint_says() -> None:
    first, restored = Ownership(), Ownership()
    value = encode_checkpoint(checkpoint(3, THEIRS, generation=7)._replace(cut_offset=12))
    first.judge(LogRecord(20, CHECKPOINT_KEY, value, encode_header(3, 0)))
    restored.begin_at(first.position, first.winning(), 20)
    assert (restored.winner, restored.winner_offset) == (first.winner, 20)
    assert (restored.generation_max, restored.cut_offset) == (7, 12)
    assert restored.judge(record(21, "3/1 data")) is Verdict.DATA


@pytest.mark.parametrize("attempt_id", [OURS, THEIRS], ids=["ours", "theirs"])
def test_newest_cut_is_the_highest_of_counting_checkpoints(attempt_id: bytes) -> None:
    ownership = Ownership()
    ownership.claim(OURS)
    known = []
    for offset, (sequence, cut_offset) in enumerate([(0, -1), (1, 0), (5, 90), (2, 12), (3, 11), (4, -1)]):
        value = encode_checkpoint(checkpoint(1, attempt_id)._replace(cut_offset=cut_offset))
        ownership.judge(LogRecord(offset, CHECKPOINT_KEY, value, encode_header(1, sequence)))
        known.append(ownership.cut_offset)
    assert known == [-1, 0, 0, 12, 12, 12]


def test_highest_generation_is_that_of_checkpoints_that_count() -> None:
    ownership = Ownership()
    for epoch, generation in [(1, 3), (2, 7), (1, 99), (3, 5)]:
        value = encode_checkpoint(checkpoint(epoch, bytes([epoch] * 16), generation))
        ownership.judge(LogRecord(epoch, CHECKPOINT_KEY, value, encode_header(epoch, 0)))
    assert ownership.generation_max == 7


@pytest.mark.parametrize(
    ("text", "is_ahead"),
    [("1/0 data", False), ("1/1 data", True), ("1/2 data", True), ("0/5 data", False), ("- data", False)],
)
def test_is_ahead_recognizes_our_records_after_a_gap(text: str, is_ahead: bool) -> None:
    ownership = Ownership()
    ownership.claim(OURS)
    ownership.judge(record(0, "1/0 ours"))
    assert ownership.is_ahead(record(1, text)) is is_ahead


@pytest.mark.parametrize("header", [b"", b"\x01", b"\x02" * 12, bytes(13)])
@pytest.mark.parametrize("key", [b"key", CHECKPOINT_KEY])
def test_record_whose_header_no_holdfast_writes_is_void_and_moves_nothing(key: bytes, header: bytes) -> None:
    ownership = Ownership()
    before = ownership.position
    foreign = LogRecord(0, key, b"value", header)
    assert ownership.judge(foreign) is Verdict.VOID
    assert ownership.position == before
    assert not ownership.is_ahead(foreign)


@pytest.mark.parametrize(
    "unreadable",
    [
        LogRecord(0, b"key", b"value", b"\x02" + bytes(12)),
        LogRecord(0, CHECKPOINT_KEY, b"nonsense", encode_header(1, 0)),
        LogRecord(0, CHECKPOINT_KEY, None, encode_header(1, 0)),
    ],
)
def test_unreadable_record_raises_and_moves_nothing(unreadable: LogRecord) -> None:
    ownership = Ownership()
    before = ownership.position
    with pytest.raises(RecordError):
        ownership.judge(unreadable)
    assert ownership.position == before
    assert ownership.winner is None


def test_last_epoch_leaves_room_for_one_higher() -> None:
    assert encode_header(OWNER_EPOCH_MAX + 1, 0)


@pytest.mark.parametrize(
    ("winner", "generation", "node_id", "may"),
    [
        (None, 0, "a", True),
        (("b", 4), 5, "a", True),
        (("b", 5), 5, "a", False),
        (("b", 6), 5, "a", False),
        (("a", 4), 5, "a", True),
        (("a", 5), 5, "a", True),
        (("a", 6), 5, "a", False),
    ],
)
def test_may_take(winner: tuple[str, int] | None, generation: int, node_id: str, may: bool) -> None:
    found = None if winner is None else checkpoint(1, THEIRS, node_id=winner[0], generation=winner[1])
    assert may_take(found, generation, node_id) is may
