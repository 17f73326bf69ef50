"""One operation per share partition of a request, and the request that waits for them all.

An operation knows nothing but its share partition, its request and where its result belongs. `PendingRequest` answers once, when the
last result is in; operations of one request are independent, so some may succeed while others fail.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

from holdfast.api.results import (
    PATIENT_CALLER,
    Caller,
    DeleteResult,
    InitializePartition,
    InitializeResult,
    PartitionRequest,
    PartitionResult,
    PreviewPartition,
    PreviewResult,
    ReadOrInitializePartition,
    ReadOrInitializeResult,
    ReadPartition,
    ReadResult,
    StateResponse,
    SummaryResult,
    WritePartition,
    WriteResult,
)
from holdfast.api.share_state import BATCH_SIZE
from holdfast.daemon.internal_errors import InternalErrors
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.native import twins
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, OFFSET_MAX, StateBatch
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import replay
from holdfast.runtime.errors import CoordinatorError
from holdfast.runtime.state_machine import Decision, Operation
from holdfast.share.decisions import ShareShard
from holdfast.share.errors import error_of
from holdfast.share.read_or_initialize import decide_read_or_initialize

Topics = list[tuple[bytes, list[PartitionRequest]]]
Respond = Callable[[StateResponse], None]

#: An error's text is repeated for every share partition that fails.
_ERROR_TEXT_MAX: Final = 200

_are_well_formed: Final = None if twins is None else twins.are_well_formed


class Metrics(Protocol):
    """The reports of the service."""

    def write_recorded(self, count: int) -> None:
        """Count writes of share partitions: all of a Write, valid or not, and each Read that writes."""

    def write_latency(self, latency_ms: float) -> None:
        """Record the time from before the split of a Write to its last completion."""


class PendingRequest:
    """A request in flight; answers exactly once, when every share partition has its result.

    Args:
        topics: of the request.
        count: share partitions in it, 1 or more.
        respond: takes the answer.
        metrics: where writes are counted and timed.
        clock_ms: monotonic; given for a Write, whose time is taken, else None.
        internal_errors: where a bug in `respond` goes.
        caller: says how large the answer may be.
    """

    __slots__ = (
        "_clock_ms",
        "_internal_errors",
        "_respond",
        "_started_ms",
        "_topics",
        "caller",
        "metrics",
        "results",
        "waiting",
    )

    def __init__(
        self,
        topics: Topics,
        count: int,
        respond: Respond,
        metrics: Metrics,
        internal_errors: InternalErrors,
        clock_ms: Callable[[], float] | None = None,
        caller: Caller = PATIENT_CALLER,
    ) -> None:
        self.caller = caller
        self._topics = topics
        self._respond = respond
        self.metrics = metrics
        self._internal_errors = internal_errors
        self._clock_ms = clock_ms
        if clock_ms is not None:
            self._started_ms = clock_ms()
        #: one per share partition of the request, in the order of the request; None until it completes
        self.results: list[PartitionResult | None] = [None] * count
        #: results still missing
        self.waiting = count

    def refuse(self, result: PartitionResult) -> None:
        """Answer every share partition with `result`, before any of them was run."""
        self.results = [result] * self.waiting
        self.waiting = 0
        self._finish()

    def complete(self, index: int, result: PartitionResult) -> None:
        """Take the result of the share partition that was number `index` of the request; the last one answers the request."""
        self.results[index] = result
        self.waiting -= 1
        if not self.waiting:
            self._finish()

    def _finish(self) -> None:
        if self._clock_ms is not None:
            self.metrics.write_latency(self._clock_ms() - self._started_ms)
        try:
            self._respond(merge(self._topics, self.results))
        except Exception as bug:
            # The connection may fail at its answer; the shard that completed the last part goes on.
            self._internal_errors.note_bug("share_answer_delivery_failed", bug)


def merge(topics: Topics, results: list[PartitionResult | None]) -> StateResponse:
    """Return one entry per share partition of the request; topics and partitions in the order in which they are first named.

    A share partition that is named more than once is answered with the first error, or the last result when all succeeded.
    """
    if len(results) == 1 and len(topics) == 1:
        only = results[0]
        assert only is not None
        topic_id, partitions = topics[0]
        # By its place: compiled code looks for a field of a named tuple by name.
        return [(topic_id, [(partitions[0][0], only)])]
    merged: dict[bytes, dict[int, PartitionResult]] = {}
    following = iter(results)
    for topic_id, partitions in topics:
        entries = merged.setdefault(topic_id, {})
        for request in partitions:
            result = next(following)
            assert result is not None
            earlier = entries.get(request.partition)
            if earlier is None or not earlier.error_code:
                entries[request.partition] = result
    return [(topic_id, list(entries.items())) for topic_id, entries in merged.items() if entries]


class ShareOperation(Operation):
    """Base of the operations of the five calls, and of those that are no call of the protocol."""

    __slots__ = ("index", "key", "pending", "request")

    #: The call that it belongs to, as log lines and errors name it.
    call: ClassVar[str]
    result_type: ClassVar[
        type[
            InitializeResult
            | ReadResult
            | ReadOrInitializeResult
            | WriteResult
            | DeleteResult
            | SummaryResult
            | PreviewResult
        ]
    ]

    def __init__(self, key: SharePartitionKey, request: Any, pending: PendingRequest, index: int) -> None:  # noqa: ANN401
        self.key = key
        self.request = request
        self.pending = pending
        self.index = index

    @property
    def name(self) -> str:
        """Say in the log which one it is."""
        return self.call

    @classmethod
    def failure(cls, error: Exception) -> PartitionResult:
        """Return the result of a share partition whose operation failed."""
        code, text = error_of(error)
        return cls.result_type(code, f"{cls.call}: {text}"[:_ERROR_TEXT_MAX])

    def complete(self, outcome: Any) -> None:  # noqa: ANN401 - what `decide` returned, or a failure
        """Take the result of this share partition; the last one answers its request."""
        if isinstance(outcome, CoordinatorError):
            outcome = self.failure(outcome)
        self.pending.complete(self.index, outcome)


class InitializeOperation(ShareOperation):
    """The initialization of one share partition."""

    __slots__ = ()
    call = "initialize-share-group-state"
    result_type = InitializeResult

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide an Initialize; a start offset below -1 is malformed."""
        request: InitializePartition = self.request
        if request.start_offset < -1:
            return _malformed(InitializeResult, _bad_start_offset(request.start_offset))
        return machine.decide_initialize(self.key, request.state_epoch, request.start_offset, now_ms)


class ReadOperation(ShareOperation):
    """The read of one share partition for its leader."""

    __slots__ = ()
    call = "read-update-leader-epoch-state"
    result_type = ReadResult

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide a Read; one that writes counts as a write, and one whose answer has no room left must be requested again."""
        request: ReadPartition = self.request
        decision = machine.decide_read(self.key, request.leader_epoch, now_ms)
        result = decision.response
        if isinstance(result, ReadResult) and result.state_batches:
            size_bytes = len(result.state_batches) * BATCH_SIZE
            if not self.pending.caller.reserve(size_bytes):
                return Decision((), ReadResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, _ANSWER_FULL))
        if decision.records:
            self.pending.metrics.write_recorded(1)
        return decision


class ReadOrInitializeOperation(ShareOperation):
    """The first call of a leader in the process of the node."""

    __slots__ = ()
    call = "read-or-initialize"
    result_type = ReadOrInitializeResult

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide it; one that writes counts as a write."""
        request: ReadOrInitializePartition = self.request
        decision = decide_read_or_initialize(machine, self.key, request.leader_epoch, request.start_offset, now_ms)
        if decision.records:
            self.pending.metrics.write_recorded(1)
        return decision


class WriteOperation(ShareOperation):
    """The write of one share partition."""

    __slots__ = ()
    call = "write-share-group-state"
    result_type = WriteResult

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide a Write; state batches that mean nothing are malformed."""
        request: WritePartition = self.request
        _, state_epoch, leader_epoch, start_offset, delivery_complete_count, state_batches = request
        malformed = find_malformed(state_batches)
        if malformed is not None:
            return _malformed(WriteResult, _bad_batch(malformed))
        if start_offset < -1:
            return _malformed(WriteResult, _bad_start_offset(start_offset))
        return machine.decide_write(
            self.key, state_epoch, leader_epoch, start_offset, delivery_complete_count, state_batches, now_ms
        )


class DeleteOperation(ShareOperation):
    """The deletion of one share partition."""

    __slots__ = ()
    call = "delete-share-group-state"
    result_type = DeleteResult

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide a Delete."""
        return machine.decide_delete(self.key)


class SummaryOperation(ShareOperation):
    """Summarize one share partition."""

    __slots__ = ()
    call = "read-share-group-state-summary"
    result_type = SummaryResult

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide a ReadSummary."""
        return machine.decide_summary(self.key)


class PreviewOperation(ShareOperation):
    """The effect of a call on one share partition, found by deciding it and recording nothing."""

    __slots__ = ()
    call = "preview"
    result_type = PreviewResult

    def decide(self, machine: ShareShard, now_ms: int) -> Decision:
        """Decide the call; its records are replayed on a value of our own, and go nowhere."""
        request: PreviewPartition = self.request
        would_be = self._decide_call(request, machine, now_ms)
        before = after = machine.state.newest(self.key)
        for _, value in would_be.records:
            after = replay(after, value, machine.config.snapshot_update_records_per_snapshot)
        code, text = would_be.response[:2]
        return Decision((), PreviewResult(code, text, before, after), would_be.is_malformed)

    def _decide_call(self, request: PreviewPartition, machine: ShareShard, now_ms: int) -> Decision:
        call, newest = request.call, machine.state.newest(self.key)
        state_epoch, leader_epoch = (0, 0) if newest is None else (newest.state_epoch_fence, newest.leader_epoch_fence)
        if isinstance(call, WritePartition):
            call = call._replace(
                state_epoch=_name_epoch(call.state_epoch, state_epoch),
                leader_epoch=_name_epoch(call.leader_epoch, leader_epoch),
            )
            return WriteOperation(self.key, call, self.pending, self.index).decide(machine, now_ms)
        if isinstance(call, InitializePartition):
            return InitializeOperation(self.key, call, self.pending, self.index).decide(machine, now_ms)
        if isinstance(call, ReadPartition):
            # Not as an operation, which reserves room for the batches that it answers, and counts as a write.
            return machine.decide_read(self.key, _name_epoch(call.leader_epoch, leader_epoch), now_ms)
        return machine.decide_delete(self.key)


def _name_epoch(epoch: int, current: int) -> int:
    """Return the epoch that a previewed call names, where -1, which no call can name, stands for the current one."""
    return max(0, current) if epoch == -1 else epoch


#: Retriable, and each time those that were answered are not requested again.
_ANSWER_FULL: Final = "The answer is full; request this share partition again, with fewer beside it."


def _malformed(result_type: Callable[[int, str], PartitionResult], text: str) -> Decision:
    return Decision((), result_type(ErrorCode.INVALID_REQUEST, text), is_malformed=True)


def find_malformed(batches: Sequence[StateBatch]) -> StateBatch | None:
    """Return the first state batch that means nothing, None where each means something."""
    if _are_well_formed is not None and _are_well_formed(batches):
        return None
    for batch in batches:
        first_offset, last_offset, delivery_state, delivery_count = batch
        if not 0 <= first_offset <= last_offset <= OFFSET_MAX or delivery_count < 0:
            return batch
        if delivery_state not in (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED):
            return batch
    return None


def _bad_start_offset(start_offset: int) -> str:
    return f"The start offset is {start_offset}; it must be -1 or more."


def _bad_batch(batch: StateBatch) -> str:
    first_offset, last_offset, delivery_state, delivery_count = batch
    if first_offset < 0:
        fault = "its first offset must be 0 or more"
    elif last_offset < first_offset:
        fault = "its last offset must not be below its first"
    elif last_offset > OFFSET_MAX:
        fault = f"its last offset must be {OFFSET_MAX} or less"
    elif delivery_count < 0:
        fault = "its delivery count must be 0 or more"
    else:
        fault = "its delivery state must be 0 (available), 2 (acknowledged), 3 (archiving) or 4 (archived)"
    return f"The state batch {first_offset}-{last_offset} with state {delivery_state} and count {delivery_count} is malformed: {fault}."
