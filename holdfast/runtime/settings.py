"""What a partition is given: its bounds, the identity of its log, and the calls it may make."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.runtime.errors import Alarm
from holdfast.runtime.metrics import RuntimeMetrics
from holdfast.runtime.state_machine import StateMachine


class LogIdentity(NamedTuple):
    """Which log this is; every checkpoint says it, and a load refuses another's."""

    cluster_id: str
    topic_id: bytes
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionConfig:
    """Bounds of one partition."""

    node_id: str
    log: LogIdentity
    #: Where clients reach this node, as its checkpoints say; any text.
    advertised_address: str
    #: Records and answers that may wait; beyond: COORDINATOR_NOT_AVAILABLE.
    parked_writes_max: int
    #: A load that has not read its own checkpoint by then fails and says how far it came.
    load_timeout_ms: int
    #: A load that read nothing for so long says so.
    load_stall_ms: int
    #: An append that was neither read back nor reported as failed by then fails the partition.
    append_stall_ms: int
    #: Partitions that load at the same time where they are tried again, those that stall left out; the others wait for a later tick.
    loads_max: int
    #: First wait before a failed or lost partition is loaded again; doubles.
    retry_backoff_ms: int
    #: The longest such wait.
    retry_backoff_max_ms: int
    #: The wait after an alarm, for each load reads the whole log.
    alarm_backoff_ms: int


class LogTrust:
    """Whether the log as a whole is trusted; one for all partitions of a node."""

    def __init__(self) -> None:
        #: Why no partition of this log may be taken, if so.
        self.alarm: Alarm | None = None


class Ports(NamedTuple):
    """What a partition uses of the node while it handles an event."""

    #: `Log.append`.
    append: Callable[[int, bytes, bytes | None, bytes], None]
    #: Returns the round of requests that will bring the read index.
    request_read_index: Callable[[int], int]
    #: Begins work that takes long, in the slice of time of this turn; returns what tells whether that is over.
    begin_slice: Callable[[], Callable[[], bool]]
    #: Takes the machine of a partition that is done, and frees what it holds in such slices.
    discard: Callable[[int, StateMachine], None]
    random_bytes: Callable[[int], bytes]
    #: From 0 to 1.
    jitter: Callable[[], float]
    trust: LogTrust
    metrics: RuntimeMetrics
    #: Whether anything can find restore points for loads.
    has_restore_points: bool
    #: Whether owners can be queried if they still serve.
    queries_owners: bool
