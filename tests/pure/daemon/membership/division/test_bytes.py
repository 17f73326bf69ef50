"""Metadata and assignments as bytes: round trips, fields of a newer version, and bytes that hold none."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.daemon.membership.division.assignment import (
    Assignment,
    AssignmentError,
    decode_assignment,
    encode_assignment,
)
from holdfast.daemon.membership.division.bounds import (
    DUTIES_MAX,
    FORMER_OWNERS_MAX,
    GENERATION_MAX,
    OFFSET_MAX,
    WAIT_MS_MAX,
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

numbers = st.integers(0, 2**31 - 1)
tasks = st.lists(numbers, max_size=5, unique=True).map(sorted).map(tuple)
offsets = st.integers(-1, OFFSET_MAX)
generations = st.integers(0, GENERATION_MAX)
waits = st.integers(0, WAIT_MS_MAX)
texts = st.text(st.characters().filter(str.isprintable), max_size=20)
hosts = texts.map(lambda text: text.replace(" ", ""))
duties = st.lists(texts, max_size=3, unique=True).map(sorted).map(tuple)
nodes = st.builds(Node, st.integers(-1, 2**31 - 1), hosts, st.integers(0, 65_535))
formers = st.lists(st.builds(FormerOwner, nodes, tasks, waits), max_size=2).map(tuple)
works = st.builds(Work, tasks, duties)


@given(
    st.builds(
        MemberMetadata,
        nodes,
        texts,
        offsets,
        generations,
        st.just(GENERATION_MAX),
        tasks,
        st.just(()),
        duties,
        formers,
        tasks,
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
        offsets,
        works,
        st.builds(
            OwnershipMap,
            generations,
            st.lists(st.builds(MappedMember, texts, nodes, works), max_size=3).map(tuple),
            st.lists(st.builds(AbsentNode, st.integers(-1, 2**31 - 1), waits, works), max_size=2).map(tuple),
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


def test_an_older_leader_passes_over_what_is_out_of_reach() -> None:
    said = encode_metadata(METADATA._replace(out_of_reach=(2, 3)))
    assert said == encode_metadata(METADATA)[:-1] + bytes.fromhex("010009030000000200000003")
    for content in (b"\x01", b"\x02\x00\x00\x00\x02\x00", b"\x03\x00\x00\x00\x02"):
        with pytest.raises(MalformedBody):
            decode_metadata(encode_metadata(METADATA)[:-1] + b"\x01\x00" + bytes([len(content)]) + content)


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


PLACE = METADATA.node
#: Of each field a value that no honest node says.
IMPOSSIBLE_METADATA: list[dict[str, Any]] = [
    *({"node": node} for node in (Node(-2, "h", 1), Node(1, "h", -1), Node(1, "h", 65_536), Node(1, "h" * 256, 1))),
    *({"node": Node(1, host, 1)} for host in ("x\x1b[31m", "two words", "line\nend", "\u202eh")),
    *({"machine": machine} for machine in ("m" * 256, "m\x00", "\u2028")),
    *({"config_offset": offset} for offset in (-2, OFFSET_MAX + 1, 2**62, 2**63 - 1)),
    *({"generation_seen": seen} for seen in (-1, 2, GENERATION_MAX + 1, 2**62, 2**63 - 2, 2**63 - 1)),
    *({"generation": generation} for generation in (-1, 6, 2**60)),
    *({"tasks": tasks} for tasks in ((-1,), (1, 0), (0, 0))),
    *({name: names} for name in ("duties", "duties_offered") for names in (("x\x1b[2J",), ("y" * 256,), ("b", "a"))),
    {"duties_offered": tuple(f"duty {number:02}" for number in range(DUTIES_MAX + 1))},
    {"may_serve": METADATA.may_serve * (FORMER_OWNERS_MAX + 1)},
    *({"may_serve": (FormerOwner(PLACE, tasks, 1),)} for tasks in ((-1,), (1, 1))),
    *({"may_serve": (FormerOwner(PLACE, (), wait_ms),)} for wait_ms in (-1, WAIT_MS_MAX + 1, 2**62)),
    {"may_serve": (FormerOwner(Node(1, "h\r", 1), (), 1),)},
]


@pytest.mark.parametrize("said", IMPOSSIBLE_METADATA, ids=[f"{index}" for index in range(len(IMPOSSIBLE_METADATA))])
def test_metadata_that_no_honest_node_says_is_unreadable(said: dict[str, Any]) -> None:
    with pytest.raises(MalformedBody):
        decode_metadata(encode_metadata(METADATA._replace(**said)))


MAP = ASSIGNMENT.map
MEMBER = MAP.members[0]
IMPOSSIBLE_ASSIGNMENTS: list[Assignment] = [
    *(ASSIGNMENT._replace(reason=reason) for reason in ("x\x1b[31m", "a\nb", "r" * 4_097)),
    *(ASSIGNMENT._replace(leader_id=name) for name in ("m\x1b", "m" * 1_025)),
    *(ASSIGNMENT._replace(leader=node) for node in (Node(-2, "h", 1), Node(1, "h h", 1), Node(1, "h", 70_000))),
    *(ASSIGNMENT._replace(config_offset=offset) for offset in (-2, OFFSET_MAX + 1, 2**62)),
    *(ASSIGNMENT._replace(work=work) for work in (Work((-5,)), Work((1, 1)), Work((), ("\x1b",)))),
    *(ASSIGNMENT._replace(map=replace(MAP, generation=each)) for each in (-5, GENERATION_MAX + 1, 2**63 - 1)),
    *(
        ASSIGNMENT._replace(map=replace(MAP, members=(member,)))
        for member in (
            MEMBER._replace(member_id="evil\x1b[2J"),
            MEMBER._replace(node=Node(1, "x\x1b[31m", 1)),
            MEMBER._replace(work=Work((-5, 999_999))),
        )
    ),
    *(
        ASSIGNMENT._replace(map=replace(MAP, absent=(absent,)))
        for absent in (AbsentNode(7, 2**63 - 1, Work((0,))), AbsentNode(-2, 1, Work()), AbsentNode(7, -1, Work()))
    ),
    *(
        ASSIGNMENT._replace(map=replace(MAP, former=former))
        for former in (MAP.former * (FORMER_OWNERS_MAX + 1), (FormerOwner(PLACE, (0,), 2**62),))
    ),
]


@pytest.mark.parametrize(
    "sent", IMPOSSIBLE_ASSIGNMENTS, ids=[f"{index}" for index in range(len(IMPOSSIBLE_ASSIGNMENTS))]
)
def test_an_assignment_that_no_honest_leader_sends_is_unreadable(sent: Assignment) -> None:
    with pytest.raises(MalformedBody):
        decode_assignment(encode_assignment(sent))
