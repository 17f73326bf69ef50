"""Which generation of a group a member belongs to.

Source: Apache Kafka `AbstractCoordinator.Generation`.
"""

from dataclasses import dataclass
from typing import ClassVar

#: The number of no generation.
NO_ID = -1


@dataclass(frozen=True, slots=True)
class Generation:
    """Generation of the group, id of the member in it, and the protocol that the group chose: one value, so that it is never torn."""

    #: No generation and no id.
    NONE: ClassVar["Generation"]

    #: The number that the group coordinator hands out; -1: of no generation. It falls back to 1 when Kafka forgets an empty group.
    id: int
    #: Empty: none. A member may have an id before it has a generation (MEMBER_ID_REQUIRED), and keep it when it loses one.
    member_id: str
    #: None: none was chosen.
    protocol: str | None

    @property
    def has_member_id(self) -> bool:
        """Tell whether the group knows the member by an id."""
        return self.member_id != ""

    @property
    def is_joined(self) -> bool:
        """Tell whether this is a generation that the group coordinator handed out."""
        return self.id != NO_ID

    def left(self) -> "Generation":
        """Return the same member without a generation."""
        return Generation(NO_ID, self.member_id, None)

    def __str__(self) -> str:
        number = f"generation {self.id}" if self.is_joined else "no generation"
        member = f"member {self.member_id}" if self.has_member_id else "no member id"
        return f"{number}, {member}, {f'protocol {self.protocol}' if self.protocol is not None else 'no protocol'}"


Generation.NONE = Generation(NO_ID, "", None)
