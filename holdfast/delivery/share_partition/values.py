"""The values that go into a share partition, and those that come out of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.batches import StateBatch

#: The state of an offset that a member holds; the others are in `records.share.batches`. It is never persisted.
ACQUIRED: Final = 1

#: Types of an acknowledgement, by Kafka's numbers.
GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

#: Codes of a failed write after which the leader drops the share partition, and all locks with it.
FENCING_ERRORS: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

#: The coordinator's error codes that mean something to the caller of a load or of a write.
_CALLERS_ERRORS: Final = {
    int(ErrorCode.NONE): ErrorCode.NONE,
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): ErrorCode.COORDINATOR_NOT_AVAILABLE,
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE): ErrorCode.COORDINATOR_NOT_AVAILABLE,
    int(ErrorCode.NOT_COORDINATOR): ErrorCode.COORDINATOR_NOT_AVAILABLE,
    int(ErrorCode.GROUP_ID_NOT_FOUND): ErrorCode.GROUP_ID_NOT_FOUND,
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    int(ErrorCode.FENCED_LEADER_EPOCH): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    int(ErrorCode.FENCED_STATE_EPOCH): ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class AcquireMode(IntEnum):
    """How exactly the number of wanted records is kept, by Kafka's numbers."""

    #: Whole record batches: more records than wanted may be acquired.
    BATCH_OPTIMIZED = 0
    #: Never more than wanted.
    RECORD_LIMIT = 1


class Condition(IntEnum):
    """How far a share partition is in its life."""

    EMPTY = 0
    LOADING = 1
    ACTIVE = 2
    #: It could not be loaded; the leader drops it, and loads a new one.
    FAILED = 3
    #: It acquires nothing more; what was acquired may still be settled.
    FENCED = 4


class RecordBatch(Protocol):
    """The head of a record batch, as a reader of the topic has it."""

    @property
    def base_offset(self) -> int:
        """Return its first offset."""

    @property
    def last_offset(self) -> int:
        """Return its last offset, inclusive."""

    @property
    def producer_id(self) -> int:
        """Return its producer, or -1."""

    @property
    def is_transactional(self) -> bool:
        """Tell whether a transaction wrote it."""

    @property
    def is_control(self) -> bool:
        """Tell whether it is a marker of a transaction."""


#: First and last offset, inclusive, and the types of an acknowledgement: one for all offsets, or one for each.
AcknowledgedRange = tuple[int, int, Sequence[int]]


class OffsetRange(NamedTuple):
    """A range of offsets."""

    first_offset: int
    #: Inclusive.
    last_offset: int


class AcquiredRange(NamedTuple):
    """A range of offsets that a member acquired."""

    first_offset: int
    #: Inclusive.
    last_offset: int
    delivery_count: int


class Acquired(NamedTuple):
    """The offsets that a member acquired, and the record batches that it is sent."""

    ranges: Sequence[AcquiredRange]
    #: How many offsets they are.
    offset_count: int
    #: Indexes of the first batch that is sent, and of the one after the last.
    first_index: int
    end_index: int


NOTHING_ACQUIRED: Final = Acquired((), 0, 0, 0)


class Refused(NamedTuple):
    """An acknowledgement was refused as a whole."""

    error_code: ErrorCode
    #: Names the field, and what to do.
    message: str


class Settled(NamedTuple):
    """The consequences of an answer to a write."""

    #: The answer to the caller of the acknowledgement.
    error_code: ErrorCode
    #: The start offset moved.
    is_moved: bool
    #: Records may be acquired that could not be before.
    is_available: bool
    #: The leader must drop the share partition.
    is_fenced: bool

    @property
    def may_wake(self) -> bool:
        """Tell whether a fetch that waits may get something now."""
        return self.is_moved or self.is_available


class WriteValues(NamedTuple):
    """The fields of a call that writes, which may carry several writes."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


class StateWrite:
    """A write of states, from the event that made it to its answer; each range that it changes points to it meanwhile.

    The log has the start offset that holds *when the write has succeeded*, where it follows from the batches in it: the
    coordinator cuts the state there, so states stay short, and an idle group's start offset is not one write late.
    `start_offset_before` and `complete_count_before` are those of the moment, which Kafka would send.
    """

    __slots__ = (
        "batches",
        "complete_count_before",
        "delivery_complete_count",
        "delivery_count_limit",
        "is_of_locks",
        "leader_epoch",
        "member_id",
        "start_offset",
        "start_offset_before",
        "state_epoch",
    )

    def __init__(
        self, state_epoch: int, leader_epoch: int, member_id: str, delivery_count_limit: int, *, is_of_locks: bool
    ) -> None:
        self.state_epoch: Final = state_epoch
        self.leader_epoch: Final = leader_epoch
        #: The member that held the offsets, and gets them back when the write fails.
        self.member_id: Final = member_id
        #: The limit that was in force when the write was made.
        self.delivery_count_limit: Final = delivery_count_limit
        #: Locks that ended: the states changed at once, and no answer changes them again.
        self.is_of_locks: Final = is_of_locks
        self.batches: list[StateBatch] = []
        self.start_offset = -1
        self.delivery_complete_count = -1
        self.start_offset_before = -1
        self.complete_count_before = -1

    def add(self, first_offset: int, last_offset: int, state: int, count: int) -> None:
        """Add a range, joined with the one before it where they touch and are equal."""
        batches = self.batches
        if batches:
            before = batches[-1]
            if (
                before.last_offset + 1 == first_offset
                and before.delivery_state == state
                and before.delivery_count == count
            ):
                batches[-1] = StateBatch(before.first_offset, last_offset, state, count)
                return
        batches.append(StateBatch(first_offset, last_offset, state, count))


def callers_error(error_code: int) -> ErrorCode:
    """Return what the coordinator's error means to the caller of a load or of a write."""
    return _CALLERS_ERRORS.get(error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
