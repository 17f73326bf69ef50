"""Check the values of a program before they are sent."""

from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.membership.coordinator import JoinedMember
from holdfast.membership.errors import InvalidAssignment, InvalidMetadata


def check_protocol_type(protocol_type: str) -> None:
    """Raise if a group cannot be of this sort.

    Raises:
        InvalidMetadata: it is empty.
    """
    if not protocol_type:
        raise InvalidMetadata("protocol_type is empty; it names the sort of group, and all members have the same")


def check_protocols(protocols: Sequence[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """Return the protocols of a member as they are sent.

    Raises:
        InvalidMetadata: there is none, two have one name, or one has no name or no bytes.
    """
    if not protocols:
        raise InvalidMetadata("metadata names no protocol; a member needs one that all others have, too")
    for name, metadata in protocols:
        if not name:
            raise InvalidMetadata("metadata has a protocol with an empty name")
        if not isinstance(metadata, bytes):
            raise InvalidMetadata(f"the metadata of protocol {name} is {type(metadata).__name__}, not bytes")
    twice = sorted(name for name, count in Counter(name for name, _ in protocols).items() if count > 1)
    if twice:
        raise InvalidMetadata(f"metadata names a protocol more than once: {', '.join(twice)}")
    return tuple(protocols)


def check_assignments(
    members: Sequence[JoinedMember], assignments: Mapping[str, bytes]
) -> tuple[tuple[str, bytes], ...]:
    """Return the assignments as they are sent, in the order of the members.

    Raises:
        InvalidAssignment: a member has none, somebody has one who is no member, or one is no bytes.
    """
    wanted = [member.member_id for member in members]
    missing = [member_id for member_id in wanted if member_id not in assignments]
    unknown = [member_id for member_id in assignments if member_id not in wanted]
    wrong = [member_id for member_id in wanted if not isinstance(assignments.get(member_id, b""), bytes)]
    faults = [
        f"{what}: {', '.join(map(str, who))}"
        for what, who in (
            ("members without an assignment", missing),
            ("assignments of no member", unknown),
            ("assignments that are no bytes", wrong),
        )
        if who
    ]
    if faults:
        raise InvalidAssignment(f"perform_assignment returned {'; '.join(faults)}")
    return tuple((member_id, assignments[member_id]) for member_id in wanted)
