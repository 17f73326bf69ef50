"""Metadata and assignments as bytes: round trips, fields of a newer version, and bytes that hold none."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.membership.division.assignment import (
    Assignment,
    AssignmentError,
    decode_assignment,
    encode_assignment,
)
from holdfast.daemon.membership.division.metadata import MemberMetadata, decode_metadata, encode_metadata
from holdfast.daemon.membership.division.ownership_map import AbsentNode, FormerOwner, MappedMember, OwnershipMap, Work
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.protocol.primitives import MalformedBody

METADATA = MemberMetadata(
    Node(7, "::1", 9492),
    "kelp 1f3c",
    41,
    3,
    5,
    (0, 2, 10),
    ("compaction",),
    ("compaction", "verify"),
    (FormerOwner(Node(9, "::1", 9494), (1, 4), 60_000),),
)
ASSIGNMENT = Assignment(
    AssignmentError.NONE,
    "",
    "m-1",
    Node(7, "kelp.example", 9492),
    41,
    Work((0, 2), ("compaction",)),
    OwnershipMap(
        6,
        (
            MappedMember("m-1", Node(7, "kelp.example", 9492), Work((0, 2), ("compaction",))),
            MappedMember("m-2", Node(8, "::1", 9493), Work((1,))),
        ),
        (AbsentNode(9, 30_000, Work((3, 4))),),
        (FormerOwner(Node(9, "::1", 9494), (1, 4), 60_000),),
    ),
)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20)
nodes = st.builds(Node, int32s, texts, int32s)
formers = st.lists(st.builds(FormerOwner, nodes, st.lists(int32s, max_size=5).map(tuple), int64s), max_size=2).map(
    tuple
)
works = st.builds(Work, st.lists(int32s, max_size=5).map(tuple), st.lists(texts, max_size=3).map(tuple))


@given(
    st.builds(
        MemberMetadata,
        nodes,
        texts,
        int64s,
        int64s,
        int64s,
        works.map(lambda w: w.tasks),
        st.just(()),
        st.just(("a",)),
        formers,
    )
)
def test_metadata_is_read_as_it_was_written(metadata: MemberMetadata) -> None:
    assert decode_metadata(encode_metadata(metadata)) == metadata


@given(
    st.builds(
        Assignment,
        st.sampled_from(AssignmentError),
        texts,
        texts,
        nodes,
        int64s,
        works,
        st.builds(
            OwnershipMap,
            int64s,
            st.lists(st.builds(MappedMember, texts, nodes, works), max_size=3).map(tuple),
            st.lists(st.builds(AbsentNode, int32s, int64s, works), max_size=2).map(tuple),
            formers,
        ),
    )
)
def test_an_assignment_is_read_as_it_was_written(assignment: Assignment) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_the_bytes_of_a_version_never_change() -> None:
    assert encode_metadata(METADATA).hex() == (
        "043a3a31" "0000251400000007" "0a6b656c702031663363"
        "0000000000000029" "0000000000000003" "0000000000000005"
        "04" "00000000" "00000002" "0000000a" "020b636f6d70616374696f6e" "030b636f6d70616374696f6e07766572696679"
        "02" "043a3a31" "0000251600000009" "03" "00000001" "00000004" "000000000000ea60" "00" "00"
    )  # fmt: skip
    assert encode_assignment(ASSIGNMENT._replace(map=OwnershipMap(6, ()))).hex() == (
        "0000" "01" "046d2d31" "0d6b656c702e6578616d706c650000251400000007"
        "0000000000000029" "0000000000000006" "03" "00000000" "00000002" "020b636f6d70616374696f6e" "01" "01" "01" "00"
    )  # fmt: skip


def test_fields_of_a_newer_version_are_passed_over() -> None:
    newer = b"\x02\x05\x03abc\x09\x00"  # two tagged fields
    assert decode_metadata(encode_metadata(METADATA)[:-1] + newer) == METADATA
    assert decode_assignment(encode_assignment(ASSIGNMENT)[:-1] + newer) == ASSIGNMENT


@pytest.mark.parametrize(
    ("data", "decode"),
    [(encode_metadata(METADATA), decode_metadata), (encode_assignment(ASSIGNMENT), decode_assignment)],
)
def test_every_cut_is_an_error_and_so_are_more_bytes(data: bytes, decode: object) -> None:
    assert callable(decode)
    for broken in (*(data[:end] for end in range(len(data))), data + b"\x00"):
        with pytest.raises(MalformedBody):
            decode(broken)


def test_an_error_that_a_newer_leader_may_give_is_unreadable_here() -> None:
    with pytest.raises(MalformedBody, match="the error 99 is unknown"):
        decode_assignment(b"\x00\x63" + encode_assignment(ASSIGNMENT)[2:])


def changed(data: bytes) -> st.SearchStrategy[bytes]:
    """Return these bytes with one of them replaced."""
    places, values = st.integers(0, len(data) - 1), st.integers(0, 255)
    return st.builds(lambda place, value: data[:place] + bytes([value]) + data[place + 1 :], places, values)


@given(st.binary(max_size=60) | changed(encode_metadata(METADATA)))
def test_any_bytes_are_malformed_or_metadata_that_is_written_the_same(data: bytes) -> None:
    with suppress(MalformedBody):
        said = decode_metadata(data)
        assert decode_metadata(encode_metadata(said)) == said


@given(st.binary(max_size=60) | changed(encode_assignment(ASSIGNMENT)))
def test_any_bytes_are_malformed_or_an_assignment_that_is_written_the_same(data: bytes) -> None:
    with suppress(MalformedBody):
        found = decode_assignment(data)
        assert decode_assignment(encode_assignment(found)) == found
