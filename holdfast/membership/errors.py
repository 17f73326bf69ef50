"""One table of the reactions of a member to each error of its group coordinator, and the exceptions that it raises.

Source: Apache Kafka `AbstractCoordinator`, the handlers of its four answers.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from holdfast.kafka.protocol.error_codes import ErrorCode, error_name


class Reaction(Enum):
    """The reaction of a member to an error code."""

    #: Try again after a back-off.
    WAIT = "wait"
    #: Look the group coordinator up, and try again after a back-off.
    LOOK_UP = "look up"
    #: Join again, with id and generation kept.
    REJOIN = "rejoin"
    #: Join again, with the id that the answer brought.
    TAKE_MEMBER_ID = "take member id"
    #: Join again, with the id kept and the generation gone.
    FORGET_GENERATION = "forget generation"
    #: Join again as a new member: id and generation are gone.
    FORGET_MEMBER = "forget member"
    #: Give up: another try would be answered the same.
    GIVE_UP = "give up"


#: The reaction to each error code; one that is not named here is waited for, as a broker of a later version may mean it.
REACTIONS: Final[Mapping[int, Reaction]] = MappingProxyType(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.WAIT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.LOOK_UP,
        ErrorCode.NOT_COORDINATOR: Reaction.LOOK_UP,
        ErrorCode.NETWORK_EXCEPTION: Reaction.LOOK_UP,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION: Reaction.FORGET_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Reaction.GIVE_UP,
        ErrorCode.INVALID_GROUP_ID: Reaction.GIVE_UP,
        ErrorCode.INVALID_SESSION_TIMEOUT: Reaction.GIVE_UP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Reaction.GIVE_UP,
        ErrorCode.GROUP_MAX_SIZE_REACHED: Reaction.GIVE_UP,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.GIVE_UP,
        ErrorCode.UNSUPPORTED_VERSION: Reaction.GIVE_UP,
    }
)
#: After the first of these in a row the next try is made at once: they are steps of every join, or say that waiting changes nothing.
AT_ONCE: Final = frozenset(
    {Reaction.REJOIN, Reaction.TAKE_MEMBER_ID, Reaction.FORGET_GENERATION, Reaction.FORGET_MEMBER}
)
#: Remedies of a person for each error that is final.
ADVICE: Final[Mapping[int, str]] = MappingProxyType(
    {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "another program uses this group id: give group.id a name that no other program has; "
        "or a member is of a version that cannot serve this log: stop it",
        ErrorCode.INVALID_GROUP_ID: "Kafka takes no such group id: change group.id",
        ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms must lie within the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "the client needs an ACL that allows READ on the group, such as by "
        "kafka-acls.sh --add --operation Read --group with this group.id",
        ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full: raise the broker's group.max.size, or start fewer members",
        ErrorCode.FENCED_INSTANCE_ID: "another member has come with this group.instance.id: give each member one of its own",
        ErrorCode.UNSUPPORTED_VERSION: "the broker is too old: Apache Kafka 3.2 or newer is needed",
    }
)


def reaction_to(error_code: int) -> Reaction:
    """Return what to do about an error."""
    return REACTIONS.get(error_code, Reaction.WAIT)


class MembershipError(Exception):
    """Something about the membership went wrong."""


class MembershipFailed(MembershipError):
    """The group coordinator refuses for good; the text names the error, and the setting or ACL to change."""

    def __init__(self, group_id: str, error_code: int, message: str) -> None:
        said = f" ({message})" if message else ""
        super().__init__(f"Group {group_id}: {error_name(error_code)}{said}; {ADVICE[error_code]}.")
        self.group_id = group_id
        self.error_code = error_code


class CallbackFailed(MembershipError):
    """A callback of the program raised, and the member goes on."""

    def __init__(self, callback: str, error: Exception) -> None:
        super().__init__(f"{callback} failed: {error!r}")
        self.callback = callback
        #: The exception that the program raised.
        self.error = error


class InvalidMetadata(MembershipError):
    """An answer of `metadata` or `protocol_type` cannot be sent; the text names the fault."""


class InvalidAssignment(MembershipError):
    """`perform_assignment` did not return one assignment for each member; the text names the members."""


class MemberClosed(MembershipError):
    """The member was closed."""
