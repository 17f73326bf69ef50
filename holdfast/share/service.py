"""The share service: takes a share-state request apart, sends each share partition to its shard, and answers once.

Which log partition a share partition belongs to is Kafka's own hash over the state topic's real partition count, of the parts of a key
that the placement of the log names; both are taken once at start-up.
All five calls run as write operations: they see the newest state, and their answers wait for every write before them.

Source: KIP-932; Apache Kafka 4.3.1's `ShareCoordinatorService`.
"""

from collections.abc import Callable
from typing import Final

import structlog

from holdfast.api.results import StateRequest
from holdfast.api.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.daemon.partitions.timed_writes import Runtime
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.log.checkpoint import Placement
from holdfast.records.share.keys import (
    GROUP_ID_BYTES_MAX,
    SharePartitionKey,
    group_hash,
    is_group_id_too_long,
    log_partition,
)
from holdfast.runtime.errors import NotAvailable
from holdfast.share.operations import (
    DeleteOperation,
    InitializeOperation,
    Metrics,
    PendingRequest,
    PreviewOperation,
    ReadOperation,
    ReadOrInitializeOperation,
    Respond,
    ShareOperation,
    SummaryOperation,
    WriteOperation,
)

_log = structlog.get_logger(__name__)

#: No call of the protocol: what one of the others would do.
PREVIEW: Final = -1
#: No call of the protocol: the first one of a leader in this process.
READ_OR_INITIALIZE: Final = -2

_OperationType = type[
    InitializeOperation
    | ReadOperation
    | ReadOrInitializeOperation
    | WriteOperation
    | DeleteOperation
    | SummaryOperation
    | PreviewOperation
]

_OPERATIONS: Final[dict[int, _OperationType]] = {
    INITIALIZE: InitializeOperation,
    READ: ReadOperation,
    WRITE: WriteOperation,
    DELETE: DeleteOperation,
    SUMMARY: SummaryOperation,
    PREVIEW: PreviewOperation,
    READ_OR_INITIALIZE: ReadOrInitializeOperation,
}

#: Keys with longer group ids are not remembered, so that what is remembered has a bound in bytes.
_CACHED_GROUP_ID_MAX: Final = 256

#: Share partitions whose log partition is remembered, in 100 MiB at most: several times those of a busy cluster.
CACHED_KEYS_MAX: Final = 100_000
_NOT_ACTIVE: Final = "this node does not serve share state now"


def _at_once(task: Callable[[], None]) -> None:
    task()


class ShareService:
    """The five share-state calls of this node.

    Args:
        runtime: where the operations run.
        metrics: what is counted and timed.
        clock_ms: monotonic.
        internal_errors: where bugs go that a caller is answered with.
        key_cache_size_max: share partitions whose log partition is remembered; the hash takes Python some microseconds.
        end_with: runs a task when the requests at hand have all come; they are then split together, and their operations run together.
    """

    def __init__(
        self,
        runtime: Runtime,
        metrics: Metrics,
        clock_ms: Callable[[], float],
        internal_errors: InternalErrors,
        key_cache_size_max: int = CACHED_KEYS_MAX,
        end_with: Callable[[Callable[[], None]], None] = _at_once,
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._internal_errors = internal_errors
        self._key_cache_size_max = key_cache_size_max
        self._end_with = end_with
        #: (API key, request, what takes the answer, ms waited) of requests that must be split, in order.
        self._taken: list[tuple[int, StateRequest, Respond, int]] = []
        #: The group that was hashed last: the parts of a large request have the same, and its hash takes time for each character.
        self._hashed_group = ""
        self._group_hash = group_hash("")
        #: Partitions of the state topic; 0 before start-up and after shutdown.
        self._partition_count = 0
        self._placement = Placement.BY_GROUP
        #: share partition to itself (one object, so that its parts are built once) and its log partition
        self._places: dict[tuple[str, bytes, int], tuple[SharePartitionKey, int]] = {}

    # ---- life ------------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Tell whether calls are taken: between start-up and shutdown."""
        return self._partition_count > 0

    def start_up(self, partition_count: int, placement: Placement = Placement.BY_GROUP) -> None:
        """Begin to take calls, for a state topic of `partition_count` partitions; a second call only warns.

        Share partitions lie by the `placement` of the log.

        Raises:
            ValueError: the count is below 1.
        """
        if partition_count < 1:
            raise ValueError(f"partition_count is {partition_count}; the state topic has 1 or more.")
        if self.is_active:
            _log.warning("share_service_start_repeated", partition_count=self._partition_count)
            return
        self._partition_count, self._placement = partition_count, placement
        self._hashed_group, self._group_hash = "", group_hash("", placement)

    def shut_down(self) -> None:
        """Refuse all further calls; those in flight are answered by the runtime. A second call only warns."""
        if not self.is_active:
            _log.warning("share_service_shutdown_repeated")
            return
        self._partition_count = 0
        self._places.clear()

    def partition_for(self, key: SharePartitionKey) -> int:
        """Return the log partition that holds `key`.

        Raises:
            NotAvailable: before start-up and after shutdown.
        """
        return (self._places.get(key) or self._place(key, group_hash(key.group_id, self._placement)))[1]

    def partition_of_topic(self, topic_id: bytes, partition: int) -> int | None:
        """Return the log partition that holds the state of all groups of a topic partition; None where each has its own.

        Raises:
            NotAvailable: before start-up and after shutdown.
        """
        if self._placement is not Placement.BY_TOPIC_PARTITION and self.is_active:
            return None
        return self.partition_for(SharePartitionKey("", topic_id, partition))

    # ---- calls -----------------------------------------------------------------------------------------------------

    def handle(self, api_key: int, request: StateRequest, respond: Respond, waited_ms: int = 0) -> None:
        """Carry out a share-state request; `respond` is called exactly once, maybe before this returns.

        The API key is one of 83 to 87, `PREVIEW` or `READ_OR_INITIALIZE`.
        The time that the request has waited before is taken off its time.
        A request that names nothing, or holds a topic without partitions, is answered with nothing at all, as Kafka does.
        """
        self._taken.append((api_key, request, respond, waited_ms))
        if len(self._taken) == 1:
            self._end_with(self._carry_out)

    def _carry_out(self) -> None:
        """Split the requests that were taken, and run their operations, all in order."""
        taken, self._taken = self._taken, []
        operations: list[tuple[int, ShareOperation]] = []
        for api_key, request, respond, waited_ms in taken:
            if waited_ms:  # its operations have less time than those of others
                self._run(operations, 0)
                operations = []
            before = len(operations)
            try:
                self._begin(api_key, request, respond, operations)
            except Exception as bug:  # the others are carried out all the same
                del operations[before:]
                self._fail(api_key, request, respond, bug)
            if waited_ms:
                self._run(operations, waited_ms)
                operations = []
        self._run(operations, 0)

    def _begin(
        self, api_key: int, request: StateRequest, respond: Respond, operations: list[tuple[int, ShareOperation]]
    ) -> None:
        """Add the operations of a request to others, or answer it."""
        group_id, topics, caller = request
        if not caller.is_wanted:
            # The client is gone; what was not begun is left out.
            respond([])
            return
        count = 0
        has_empty_topic = False
        for _, partitions in topics:
            if partitions:
                count += len(partitions)
            else:
                has_empty_topic = True
        # An Initialize with a topic without partitions leaves only that topic out.
        is_empty = not group_id or not count or (has_empty_topic and api_key != INITIALIZE)
        # Write and Read look at the request first, the other three at the service.
        if is_empty and (self.is_active or api_key in (WRITE, READ) or not count):
            respond([])
            return
        operation_type = _OPERATIONS[api_key]
        clock_ms = self._clock_ms if api_key == WRITE else None  # writes are timed, and counted
        if clock_ms is not None:
            self._metrics.write_recorded(count)
        pending = PendingRequest(topics, count, respond, self._metrics, self._internal_errors, clock_ms, caller)
        if not self.is_active:
            pending.refuse(operation_type.failure(NotAvailable(_NOT_ACTIVE)))
        elif is_group_id_too_long(group_id):
            text = f"The group id has {len(group_id.encode())} bytes; it may have {GROUP_ID_BYTES_MAX}."
            pending.refuse(operation_type.result_type(ErrorCode.INVALID_REQUEST, text))
        else:
            self._split(request, operation_type, pending, operations)

    def _split(
        self,
        request: StateRequest,
        operation_type: _OperationType,
        pending: PendingRequest,
        operations: list[tuple[int, ShareOperation]],
    ) -> None:
        places = self._places
        group_id, topics, _ = request
        hash_of_group: int | None = None
        index = 0
        for topic_id, partitions in topics:
            for partition_request in partitions:
                # By its place: compiled code looks for a field of a named tuple by name.
                name = (group_id, topic_id, partition_request[0])
                place = places.get(name)
                if place is None:
                    if hash_of_group is None:
                        hash_of_group = self._hash(group_id)
                    place = self._place(SharePartitionKey(*name), hash_of_group)
                key, log_partition_index = place
                operation: ShareOperation
                # By their names: compiled code makes them without a look at the arguments.
                if operation_type is WriteOperation:
                    operation = WriteOperation(key, partition_request, pending, index)
                elif operation_type is ReadOperation:
                    operation = ReadOperation(key, partition_request, pending, index)
                else:
                    operation = operation_type(key, partition_request, pending, index)
                operations.append((log_partition_index, operation))
                index += 1

    def _hash(self, group_id: str) -> int:
        if group_id is not self._hashed_group:
            self._hashed_group, self._group_hash = group_id, group_hash(group_id, self._placement)
        return self._group_hash

    def _run(self, operations: list[tuple[int, ShareOperation]], waited_ms: int) -> None:
        if not operations:
            return
        try:
            self._runtime.write_many(operations, waited_ms)
        except Exception as bug:
            calls = ", ".join(sorted({operation.call for _, operation in operations}))
            self._internal_errors.note_bug("share_operations_run_failed", bug, operation=calls)
            for _, operation in operations:
                if operation.pending.results[operation.index] is None:
                    operation.pending.complete(operation.index, operation.failure(bug))

    def _fail(self, api_key: int, request: StateRequest, respond: Respond, bug: Exception) -> None:
        """Answer a request that could not be split."""
        operation_type, (_, topics, caller) = _OPERATIONS[api_key], request
        self._internal_errors.note_bug("share_request_failed", bug, operation=operation_type.call)
        count = sum(len(partitions) for _, partitions in topics)
        pending = PendingRequest(topics, count, respond, self._metrics, self._internal_errors, None, caller)
        pending.refuse(operation_type.failure(bug))

    def _place(self, key: SharePartitionKey, hash_of_group: int) -> tuple[SharePartitionKey, int]:
        if not self.is_active:
            raise NotAvailable(_NOT_ACTIVE)
        place = key, log_partition(key, self._partition_count, self._placement, hash_of_group)
        if len(key.group_id) <= _CACHED_GROUP_ID_MAX:
            if len(self._places) >= self._key_cache_size_max:
                self._places.clear()
            self._places[key] = place
        return place
