"""What the leader of the group sends to each member: its work, the whole ownership map, or why there is none.

An assignment stands complete for every member, one without work too; where the leader has divided nothing, it says why.
The form is that of `division.metadata`:

    error int16 | reason string | leader's member id string | its host string | its port int32 | its node id int32
    | config offset int64 | ownership generation int64 | tasks [int32] | duties [string]
    | members [member id string, host string, port int32, node id int32, tasks [int32], duties [string], tagged fields]
    | absent [node id int32, wait in ms int64, tasks [int32], duties [string], tagged fields]
    | former owners [host string, port int32, node id int32, tasks [int32], wait in ms int64, tagged fields] | tagged fields

Source: Kafka Connect's `Assignment` (`ConnectProtocol`), KIP-415, KIP-482.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from holdfast.daemon.membership.division.bounds import (
    read_generation,
    read_node_id,
    read_offset,
    read_text,
    read_wait,
)
from holdfast.daemon.membership.division.metadata import (
    decode_former_owners,
    decode_numbers,
    decode_place,
    decode_strings,
    encode_former_owners,
    encode_numbers,
    encode_place,
    encode_strings,
)
from holdfast.daemon.membership.division.ownership_map import AbsentNode, MappedMember, OwnershipMap, Work
from holdfast.daemon.server.cluster_view import Node
from holdfast.kafka.protocol.body import BodyReader
from holdfast.kafka.protocol.primitives import MalformedBody, encode_string, encode_varint

_ERROR: Final = Struct(">h")
_OFFSETS: Final = Struct(">qq")
_ABSENT: Final = Struct(">iq")
#: Of the longest sentence: it names two nodes and their machines.
_REASON_CHARACTERS_MAX: Final = 4_096


class AssignmentError(IntEnum):
    """Why a member has got no work."""

    NONE = 0
    #: The leader could not read the config topic as far as a member has; nobody got any.
    CONFIG_MISMATCH = 1
    #: Another member has the same node id at another address, and keeps it.
    NODE_ID_IN_USE = 2
    #: The leader could not read what this member says of itself.
    METADATA_UNREADABLE = 3


class Assignment(NamedTuple):
    """What one member is sent."""

    error: AssignmentError
    #: One sentence without its full stop, for a person; empty without an error.
    reason: str
    leader_id: str
    #: Where the leader is reached.
    leader: Node
    #: Offset of the config topic that the leader has divided for, or that it has missed.
    config_offset: int
    work: Work
    #: Of everybody; without members where the leader has divided nothing.
    map: OwnershipMap


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment."""
    error, reason, leader_id, leader, config_offset, work, divided = assignment
    parts = [
        _ERROR.pack(error),
        encode_string(reason),
        encode_string(leader_id),
        encode_place(leader),
        _OFFSETS.pack(config_offset, divided.generation),
        _encode_work(work),
        encode_varint(len(divided.members) + 1),
    ]
    for member in divided.members:
        parts += (encode_string(member.member_id), encode_place(member.node), _encode_work(member.work), b"\x00")
    parts.append(encode_varint(len(divided.absent) + 1))
    for absent in divided.absent:
        parts += (_ABSENT.pack(absent.node_id, absent.wait_ms), _encode_work(absent.work), b"\x00")
    parts += (encode_former_owners(divided.former), b"\x00")
    return b"".join(parts)


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in these bytes.

    Raises:
        MalformedBody: they hold none, or a number or text that no honest leader would send (`division.bounds`).
    """
    reader = BodyReader(data, 0, is_flexible=True)
    error, reason = _decode_error(reader), read_text(reader, "reason", _REASON_CHARACTERS_MAX)
    leader_id, leader = read_text(reader, "leader id"), decode_place(reader, "leader")
    config_offset, generation = read_offset(reader, "config offset"), read_generation(reader, "generation")
    work = _decode_work(reader)
    members = tuple(_decode_member(reader) for _ in range(reader.count("members")))
    absent = tuple(_decode_absent(reader) for _ in range(reader.count("absent")))
    former = decode_former_owners(reader)
    reader.end()
    divided = OwnershipMap(generation, members, absent, former)
    return Assignment(error, reason, leader_id, leader, config_offset, work, divided)


def _decode_error(reader: BodyReader) -> AssignmentError:
    offset, number = reader.offset, reader.int16("error")
    try:
        return AssignmentError(number)
    except ValueError:
        raise MalformedBody("error", offset, f"the error {number} is unknown") from None


def _encode_work(work: Work) -> bytes:
    return encode_numbers(work.tasks) + encode_strings(work.duties)


def _decode_work(reader: BodyReader) -> Work:
    return Work(decode_numbers(reader, "tasks"), decode_strings(reader, "duties"))


def _decode_member(reader: BodyReader) -> MappedMember:
    member = MappedMember(read_text(reader, "member id"), decode_place(reader, "node"), _decode_work(reader))
    reader.tags("members")
    return member


def _decode_absent(reader: BodyReader) -> AbsentNode:
    absent = AbsentNode(read_node_id(reader, "node id"), read_wait(reader, "wait"), _decode_work(reader))
    reader.tags("absent")
    return absent
