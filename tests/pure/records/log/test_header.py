"""The record header and the checkpoint: what says who wrote a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.records.errors import ForeignHeader, Undecodable, UnknownVersion
from holdfast.records.log.checkpoint import (
    CHECKPOINT_KEY,
    CHECKPOINT_TYPE,
    Checkpoint,
    Placement,
    decode_checkpoint,
    encode_checkpoint,
    is_checkpoint_key,
)
from holdfast.records.log.header import HEADER_NAME, decode_header, encode_header, find_header, is_foreign
from holdfast.records.log.single_object import SingleObject
from tests.pure.records.strategies import int32s, int64s, texts, topic_ids

checkpoints = st.builds(
    Checkpoint,
    int32s,
    topic_ids,
    texts,
    int32s,
    texts,
    topic_ids,
    int32s,
    texts | st.none(),
    texts,
    texts | st.none(),
    int64s,
    st.sampled_from(Placement),
)
CHECKPOINT = Checkpoint(4, bytes(range(16)), "node-1", 3, "abc", bytes(16), 50, None)


def test_the_header_has_thirteen_bytes() -> None:
    assert HEADER_NAME == "hf"
    assert encode_header(7, 258).hex(" ") == "01 00 00 00 07 00 00 00 00 00 00 01 02"


@given(int32s, int64s)
def test_a_header_is_read_back(owner_epoch: int, sequence: int) -> None:
    assert decode_header(encode_header(owner_epoch, sequence)) == (owner_epoch, sequence)


@pytest.mark.parametrize("data", [b"", b"\x01", encode_header(7, 258)[:-1], encode_header(7, 258) + b"\x00"])
def test_a_header_of_another_length_is_foreign(data: bytes) -> None:
    with pytest.raises(
        ForeignHeader, match=f"The header cannot be decoded: no Holdfast writes one of {len(data)} bytes"
    ):
        decode_header(data)
    assert is_foreign(data)


@pytest.mark.parametrize("version", [0, 0x80, 0xFF])
@pytest.mark.parametrize("size", [1, 13, 20])
def test_a_header_of_no_version_is_foreign(version: int, size: int) -> None:
    assert is_foreign(bytes([version]) + bytes(size - 1))


@pytest.mark.parametrize(
    ("data", "expected"), [(b"\x02" + bytes(11), True), (b"\x02" + bytes(12), False), (b"\x7f" * 40, False)]
)
def test_a_header_of_a_later_version_is_as_long_as_ours_or_foreign(data: bytes, expected: bool) -> None:
    assert is_foreign(data) is expected
    with pytest.raises(ForeignHeader if expected else UnknownVersion):
        decode_header(data)


def test_a_record_without_a_header_is_foreign_and_one_with_ours_is_not() -> None:
    assert is_foreign(None)
    assert not is_foreign(encode_header(7, 258))


def test_a_header_of_another_version_says_which() -> None:
    with pytest.raises(UnknownVersion, match="version 2 is unknown"):
        decode_header(b"\x02" + encode_header(7, 258)[1:])


def test_the_checkpoint_key_is_its_type() -> None:
    assert (CHECKPOINT_TYPE, CHECKPOINT_KEY) == (1000, b"\x03\xe8")
    assert is_checkpoint_key(b"\x03\xe8")
    assert not is_checkpoint_key(b"\x03\xe8\x00")


@given(checkpoints)
def test_a_checkpoint_is_read_back(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


@given(checkpoints, st.data())
def test_a_checkpoint_cut_short_is_undecodable(checkpoint: Checkpoint, data: st.DataObject) -> None:
    value = encode_checkpoint(checkpoint)
    with pytest.raises(Undecodable):
        decode_checkpoint(value[: data.draw(st.integers(0, len(value) - 1))])


@given(checkpoints, st.binary(max_size=80), st.data())
def test_a_broken_checkpoint_is_read_or_undecodable(checkpoint: Checkpoint, junk: bytes, data: st.DataObject) -> None:
    value = encode_checkpoint(checkpoint)
    place = data.draw(st.integers(0, len(value)))
    try:
        decoded = decode_checkpoint(value[:place] + junk)
    except Undecodable:
        return
    assert isinstance(decoded, Checkpoint)


def test_bytes_behind_a_checkpoint_are_undecodable() -> None:
    with pytest.raises(Undecodable, match="1 bytes follow"):
        decode_checkpoint(encode_checkpoint(CHECKPOINT) + b"\x00")


def test_the_fingerprints_of_the_checkpoint_never_change() -> None:
    assert encode_checkpoint(CHECKPOINT)[:10].hex() == "c3014b12a4c600674b45"
    by_topic_partition = CHECKPOINT._replace(placement=Placement.BY_TOPIC_PARTITION)
    assert encode_checkpoint(by_topic_partition)[:10].hex() == "c301c9590fa88397a8d5"


def test_a_version_without_placements_reads_logs_by_group_alone() -> None:
    before = {SingleObject(f"share_checkpoint_{version}").prefix for version in (1, 2)}
    assert {encode_checkpoint(CHECKPOINT._replace(placement=each))[:10] in before: each for each in Placement} == {
        True: Placement.BY_GROUP,
        False: Placement.BY_TOPIC_PARTITION,
    }


def test_a_checkpoint_without_a_placement_is_of_a_log_by_group() -> None:
    assert decode_checkpoint(SingleObject("share_checkpoint_2").encode(CHECKPOINT._asdict())) == CHECKPOINT


@pytest.mark.parametrize("reason", [None, "copied from the old cluster"])
def test_an_old_checkpoint_without_an_address_is_read_with_the_defaults(reason: str | None) -> None:
    older = SingleObject("share_checkpoint_1")
    assert older.prefix.hex() == "c30115a1e734959de9d2"
    written = Checkpoint(*CHECKPOINT[:7], reason, "node-1:9492", "another reason", 7)
    assert decode_checkpoint(older.encode(written._asdict())) == Checkpoint(*CHECKPOINT[:7], reason, "", None, -1)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (None, None),
        ([], None),
        ([("hf", b"1")], b"1"),
        ([("hf", None)], None),
        ([("other", b"1")], None),
        ([("hf", b"1"), ("other", b"2")], b"1"),
        ([("hf", b"1"), ("hf", b"2")], b"2"),
        ((("hf", b"1"), ("other", b"2")), b"1"),
    ],
)
def test_the_last_header_of_our_name_counts(headers: object, found: bytes | None) -> None:
    assert find_header(headers) == found
