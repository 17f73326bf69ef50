"""The arguments of a partition: its bounds, the identity of its log, and the calls that it may make."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.records.log.checkpoint import Placement
from holdfast.runtime.errors import Alarm
from holdfast.runtime.load_slices import SLICE_MS
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.state_machine import StateMachine


class LogIdentity(NamedTuple):
    """The identity of a log; every checkpoint carries it, and a load refuses that of another log."""

    cluster_id: str
    topic_id: bytes
    partition_count: int
    placement: Placement = Placement.BY_GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionConfig:
    """Bounds of one partition."""

    node_id: str
    log: LogIdentity
    #: Address at which clients reach this node, for its checkpoints; any text.
    advertised_address: str
    #: Records and answers that may wait; any more are refused with COORDINATOR_NOT_AVAILABLE.
    parked_writes_max: int
    #: Time after which a load that has not read its own checkpoint fails; the error says how far it came.
    load_timeout_ms: int
    #: Time after which an append that was neither read back nor reported as failed fails the partition.
    append_stall_ms: int
    #: Retried partitions that may load at the same time, not counting loads that stall; the others wait for a later tick.
    loads_max: int
    #: First pause before a failed or lost partition is loaded again; it doubles each time.
    retry_backoff_ms: int
    #: The longest such pause.
    retry_backoff_max_ms: int
    #: The pause after an alarm; it is long because each load reads the whole log.
    alarm_backoff_ms: int
    #: Time after which an operation that waits is answered with a time-out.
    write_timeout_ms: int
    #: Time without progress after which a load writes a line; an election of leaders takes less.
    load_stall_ms: int = 30_000
    #: Time that long work may hold the loop in one turn.
    slice_ms: int = SLICE_MS


class LogTrust:
    """Whether the log as a whole is trusted; one for all partitions of a node."""

    def __init__(self) -> None:
        #: The reason why no partition of this log may be taken; None: they may.
        self.alarm: Alarm | None = None


class Surroundings(NamedTuple):
    """The clock and the chance of a node."""

    clock_ms: Callable[[], int]
    random_bytes: Callable[[int], bytes]
    #: Returns a number from 0 to 1.
    jitter: Callable[[], float]


class Ports(NamedTuple):
    """The calls and values of the node that a partition uses while it handles an event."""

    #: `Log.append`.
    append: Callable[[int, bytes, bytes | None, bytes], None]
    #: Returns the round of requests that will bring the read index.
    request_read_index: Callable[[int], int]
    #: Begins long work in the time slice of this turn; returns a function that tells whether the slice is over.
    begin_slice: Callable[[], Callable[[], bool]]
    #: Takes the machine of a partition that is done, and frees its memory in such slices.
    discard: Callable[[int, StateMachine], None]
    random_bytes: Callable[[int], bytes]
    #: From 0 to 1.
    jitter: Callable[[], float]
    trust: LogTrust
    metrics: RuntimeMetrics
    #: Whether loads may ask for restore points.
    has_restore_points: bool
    #: Whether loads may ask owners if they still serve.
    queries_owners: bool
