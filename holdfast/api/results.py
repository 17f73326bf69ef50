"""Requests and results of the five share-state calls, per share partition: plain values between wire, service and shard.

`NamedTuple`s because one is made for every share partition of every request.
Each result begins with Kafka's error code (0 is success) and a text that is None on success.
A failed result carries the defaults Kafka sends: epochs 0, start offset 0, no batches, delivery complete count -1.

Source: KIP-932, message schemas 83 to 87.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.records.native import maker
from holdfast.records.share.batches import StateBatch
from holdfast.records.share.replay import ShareState


class InitializePartition(NamedTuple):
    """One share partition of an InitializeShareGroupState request."""

    partition: int
    state_epoch: int
    start_offset: int  #: -1: not decided yet


class ReadPartition(NamedTuple):
    """One share partition of a ReadShareGroupState request."""

    partition: int
    leader_epoch: int  #: 0 or more


class ReadOrInitializePartition(NamedTuple):
    """The first call of a leader in the process of the node; no call of the protocol (`share_state_access`)."""

    partition: int
    leader_epoch: int  #: 0 or more
    start_offset: int | None  #: Of a share partition without state, 0 or more; None: such a one stays as it is.


class WritePartition(NamedTuple):
    """One share partition of a WriteShareGroupState request."""

    partition: int
    state_epoch: int  #: 0 or more
    leader_epoch: int  #: 0 or more
    start_offset: int  #: below the stored one, as -1 is: unchanged, and so is the count
    delivery_complete_count: int  #: -1: unknown (always in version 0)
    state_batches: Sequence[StateBatch]


class DeletePartition(NamedTuple):
    """One share partition of a DeleteShareGroupState request."""

    partition: int


class SummaryPartition(NamedTuple):
    """One share partition of a ReadShareGroupStateSummary request."""

    partition: int
    leader_epoch: int  #: ignored, as Kafka does


class PreviewPartition(NamedTuple):
    """What a call would do to one share partition; no call of the protocol."""

    partition: int
    call: InitializePartition | ReadPartition | WritePartition | DeletePartition


class InitializeResult(NamedTuple):
    """The answer to Initialize for one share partition."""

    error_code: int = 0
    error_message: str | None = None


class WriteResult(NamedTuple):
    """The answer to Write for one share partition."""

    error_code: int = 0
    error_message: str | None = None


class DeleteResult(NamedTuple):
    """The answer to Delete for one share partition."""

    error_code: int = 0
    error_message: str | None = None


class ReadResult(NamedTuple):
    """The answer to Read for one share partition."""

    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: Sequence[StateBatch] = ()


#: Makes a ReadResult of its five fields; one is made for every read.
make_read_result: Final[Callable[[tuple[int, str | None, int, int, Sequence[StateBatch]]], ReadResult]] = maker(
    ReadResult
)


class ReadOrInitializeResult(NamedTuple):
    """The answer to `ReadOrInitializePartition`."""

    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    start_offset: int = 0
    state_batches: Sequence[StateBatch] = ()
    #: False: there is no state, and no start offset was given; or an error.
    has_state: bool = False


class SummaryResult(NamedTuple):
    """The answer to ReadSummary for one share partition."""

    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1


class PreviewResult(NamedTuple):
    """The answer to a preview for one share partition: the error that the call would get, and the states; None: there is none."""

    error_code: int = 0
    error_message: str | None = None
    before: ShareState | None = None
    after: ShareState | None = None


PartitionRequest = (
    InitializePartition
    | ReadPartition
    | ReadOrInitializePartition
    | WritePartition
    | DeletePartition
    | SummaryPartition
    | PreviewPartition
)
PartitionResult = (
    InitializeResult | ReadResult | ReadOrInitializeResult | WriteResult | DeleteResult | SummaryResult | PreviewResult
)


class Caller(Protocol):
    """The client of a request, as far as it matters for how much is done for it."""

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for the answer."""

    def reserve(self, size_bytes: int) -> bool:
        """Promise so many bytes of state batches in the answer; returns whether there is room for them."""

    def go_on(self, task: Callable[[], None]) -> None:
        """Run a task of the request, which waited for an event, when it is this client's turn; maybe at once."""


class PatientCaller:
    """A caller who waits for ever, and takes an answer of any size."""

    __slots__ = ()

    @property
    def is_wanted(self) -> bool:
        """Always."""
        return True

    def reserve(self, size_bytes: int) -> bool:
        """Take it."""
        return True

    def go_on(self, task: Callable[[], None]) -> None:
        """Run it at once."""
        task()


PATIENT_CALLER: Final = PatientCaller()


class StateRequest(NamedTuple):
    """A share-state request: `topics` holds (topic id, partitions) in the order of the wire, duplicates included."""

    group_id: str
    topics: list[tuple[bytes, list[PartitionRequest]]]
    caller: Caller = PATIENT_CALLER


#: A share-state response: (topic id, [(partition, result)]); each topic id and each partition of it once.
StateResponse = list[tuple[bytes, list[tuple[int, PartitionResult]]]]
