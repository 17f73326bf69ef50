"""Every decision about the share partitions of one log partition.

`decide_*` look at the newest state and return records and an answer; they change nothing.

Two epochs fence, with one owner each: Initialize raises the state epoch, Read the leader epoch, Write neither. A fence is the highest
epoch ever seen for a share partition; it travels in every snapshot, because Initialize sets the stored leader epoch back to 0.

A Write may be late: values that only grow are compared with the state when it comes, and the record holds the result. So a record
means the same in all versions, and `records.share.replay` compares nothing.

Source: KIP-932; Apache Kafka 4.4.0's `ShareCoordinatorShard`, as recorded in the shard vectors.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, Protocol

from mypy_extensions import mypyc_attr

from holdfast.api.results import (
    DeleteResult,
    InitializeResult,
    ReadResult,
    SummaryResult,
    WriteResult,
    make_read_result,
)
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.native import maker
from holdfast.records.share.batches import StateBatch, make_batch
from holdfast.records.share.codecs.sizes import (
    BATCH_BYTES_MAX,
    batches_bytes,
    room_bytes,
    widest_batch_bytes,
)
from holdfast.records.share.combining import combine
from holdfast.records.share.keys import GROUP_ID_BYTES_MAX, SharePartitionKey
from holdfast.records.share.replay import ShareState
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.state_machine import Decision, StateMachine, make_decision
from holdfast.share.config import ShardConfig
from holdfast.share.load import RestoredRuns, ShareLoad
from holdfast.share.refusals import (
    refuse_growth,
    refuse_leader_epoch,
    refuse_negative_epoch,
    refuse_partition,
    refuse_state_epoch,
    refuse_uninitialized,
    refuse_unknown,
    refuse_write,
)
from holdfast.share.state import ShardState

#: In requests, records and answers: a start offset not decided or unchanged, an unknown count.
_NONE: Final = -1

_INITIALIZED: Final = InitializeResult()
_WRITTEN: Final = WriteResult()
_DELETED: Final = DeleteResult()
#: The summary of a share partition that was never initialised is a success.
_UNINITIALIZED: Final = SummaryResult(start_offset=_NONE)

#: One is made for every write; `values.make_update` takes longer, but is there before the module in C.
_make_update: Final[Callable[[tuple[int, int, int, int, Sequence[StateBatch]]], Update]] = maker(Update)


class MetadataImage(Protocol):
    """The part of the cluster's metadata that a shard needs."""

    def partition_count(self, topic_id: bytes) -> int | None:
        """Return the number of partitions of the topic, or None when the id is unknown."""


# The simulation watches it as a subclass, whichever build it runs on.
@mypyc_attr(allow_interpreted_subclasses=True)
class ShareShard(StateMachine):
    """The state machine of one log partition; it has a state, and decides about it."""

    def __init__(self, config: ShardConfig) -> None:
        self.config = config
        self.state = ShardState(config)
        self.load = ShareLoad(config.snapshot_update_records_per_snapshot, self.state.offsets)
        self._image: MetadataImage | None = None
        #: Forgets the states step by step; None: they must not be forgotten yet.
        self._discarding: Iterator[None] | None = None
        #: This number of batches fits into a snapshot for any numbers and group id; only above it are they measured.
        self._batches_that_fit = min(
            config.state_batches_max,
            (config.snapshot_bytes_max - room_bytes(config.codec, GROUP_ID_BYTES_MAX)) // BATCH_BYTES_MAX[config.codec],
        )

    # ---- the state machine -----------------------------------------------------------------------------------------

    def restore(self, content: RestoredRuns) -> None:
        """Begin to load with what a snapshot store holds up to an offset, which is this shard's own from now on."""
        self.load.begin_with(content)

    def load_record(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Take one raw record that counts, in offset order.

        Raises:
            RecordError: its first bytes already say that it cannot be decoded.
        """
        self.load.take(key, value, offset)

    def fold_loaded(self, is_time_up: Callable[[], bool]) -> bool:
        """Fold what was loaded so far; returns whether all is folded, or time was up before.

        Raises:
            LoadFailed: a record cannot be decoded, or an update's snapshot is not in the log; names offset and key.
        """
        for key, state in self.load.fold(self.state.newest, is_time_up):
            self.state.put_loaded(key, state)
        return self.load.is_folded

    def on_log_accepted(self) -> None:
        """Learn, while loading, that an admin accepted the log so far: what cannot be used of it is left out."""
        self.load.accept()

    def on_loaded(self, image: Any) -> None:  # noqa: ANN401 - the runtime's type for any machine's image
        """Begin to serve with the metadata `image`, None while there is none."""
        self._image = image

    def on_new_metadata_image(self, image: Any) -> None:  # noqa: ANN401
        """Take a newer metadata `image`."""
        self._image = image

    def on_unloaded(self) -> None:
        """Let go of the metadata; the instance sees nothing but `discard` after this."""
        self._image = None

    def discard(self, is_time_up: Callable[[], bool]) -> bool:
        """Free a share partition or more; returns True when nothing is left, and False when time was up."""
        if self._discarding is None:
            self._discarding = chain(self.load.discard(), self.state.discard())
        return all(not is_time_up() for _ in self._discarding)

    def encode(self, key: SharePartitionKey, value: Snapshot | Update | None) -> tuple[bytes, bytes | None]:
        """Return the bytes of a record's key and value, None for a tombstone."""
        return self.state.encode(key, value)

    def replay(self, key: SharePartitionKey, value: Snapshot | Update | None, position: int) -> None:
        """Apply one record at `position`, which is above all positions before."""
        self.state.replay(key, value, position)

    def revert(self, position: int) -> None:
        """Undo every replay above `position`."""
        self.state.revert(position)

    def committed(
        self, key: SharePartitionKey, value: Snapshot | Update | None, offset: int, position: int, size_bytes: int
    ) -> None:
        """Learn that the record replayed at `position` counts and lies at `offset`; `size_bytes` are its key and value."""
        self.state.commit(key, value, offset, position)

    # ---- the five calls --------------------------------------------------------------------------------------------

    def decide_initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int) -> Decision:
        """Decide to start over at `start_offset` under `state_epoch`: one snapshot that replaces everything but the fences."""
        if key.partition < 0:
            return refuse_partition(InitializeResult, key)
        if state_epoch < 0:
            return refuse_negative_epoch(InitializeResult, "state", state_epoch)
        state = self.state.timeline.current.get(key)
        snapshot_epoch, leader_epoch_fence, state_epoch_fence = 0, 0, state_epoch
        if state is not None:
            if state_epoch < state.state_epoch_fence:
                return refuse_state_epoch(InitializeResult, state_epoch, state)
            snapshot_epoch = state.snapshot_epoch + 1
            leader_epoch_fence = max(0, state.leader_epoch_fence)
            state_epoch_fence = max(state_epoch, state.state_epoch_fence)
        if not self._is_known(key):
            return refuse_unknown(InitializeResult, key)
        if state is None and (refusal := self._refuse_another(key)) is not None:
            return refusal
        snapshot = Snapshot(
            snapshot_epoch,
            state_epoch,
            0,
            start_offset,
            _NONE if start_offset == _NONE else 0,
            now_ms,
            now_ms,
            (),
            leader_epoch_fence,
            state_epoch_fence,
        )
        return Decision(((key, snapshot),), _INITIALIZED)

    def decide_write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        state_batches: Sequence[StateBatch],
        now_ms: int,
    ) -> Decision:
        """Decide to add `state_batches` and move the start offset: one update, or a snapshot after enough updates.

        A start offset below the stored one, such as -1, leaves it and the count as they are; at an equal one the count never falls.
        Epochs above the fences are taken and raise nothing.
        """
        state = self.state.timeline.current.get(key)
        if leader_epoch < 0 or state_epoch < 0 or state is None:
            return refuse_write(key, leader_epoch, state_epoch)
        if leader_epoch < state.leader_epoch_fence:
            return refuse_leader_epoch(WriteResult, leader_epoch, state)
        if state_epoch < state.state_epoch_fence:
            return refuse_state_epoch(WriteResult, state_epoch, state)
        if not self._is_known(key):
            return refuse_unknown(WriteResult, key)
        # Records hold tuples, and the module in C nothing else.
        if type(state_batches) is list:
            state_batches = tuple(map(make_batch, state_batches))
        start = state.start_offset
        if start_offset > start:
            start = start_offset
        elif start_offset < start or delivery_complete_count < state.delivery_complete_count:
            delivery_complete_count = state.delivery_complete_count
        totals = self.config.totals
        if (
            state_batches
            and not totals.has_room(len(state_batches) * self.state.batch_size_bytes)
            and len(combine(state.state_batches, state_batches, start)) > len(state.state_batches)
        ):
            totals.refusals += 1
            return Decision((), WriteResult(ErrorCode.UNKNOWN_SERVER_ERROR, totals.why_no_growth()))
        if len(state.state_batches) + len(state_batches) > self._batches_that_fit:
            refusal = self._refuse_growth(key, state, state_batches, start)
            if refusal is not None:
                return refusal
        if state.update_count >= self.config.snapshot_update_records_per_snapshot and self._has_room(
            key, state, state_batches, start
        ):
            snapshot = _snapshot(state, state.leader_epoch, start, delivery_complete_count, state_batches, now_ms)
            return Decision(((key, snapshot),), _WRITTEN)
        # The record holds its batches in order and without overlaps; a lone batch above the start offset already is.
        if len(state_batches) > 1 or (state_batches and state_batches[0][0] < start):
            state_batches = combine((), state_batches, start)
        update = _make_update((state.snapshot_epoch, state.leader_epoch, start, delivery_complete_count, state_batches))
        return make_decision((((key, update),), _WRITTEN, False))

    def decide_read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Decision:
        """Decide what a new leader is answered; a `leader_epoch` above the fence is written, so that it fences after a reload too."""
        state = self.state.timeline.current.get(key)
        if key.partition < 0:
            return refuse_partition(ReadResult, key)
        if leader_epoch < 0:
            return refuse_negative_epoch(ReadResult, "leader", leader_epoch)
        if state is None:
            return refuse_uninitialized(ReadResult, key)
        if leader_epoch < state.leader_epoch_fence:
            return refuse_leader_epoch(ReadResult, leader_epoch, state)
        if not self._is_known(key):
            return refuse_unknown(ReadResult, key)
        response = make_read_result((0, None, state.state_epoch, state.start_offset, state.state_batches))
        if leader_epoch == state.leader_epoch_fence:
            return make_decision(((), response, False))
        start_offset, delivery_complete_count = state.start_offset, state.delivery_complete_count
        if state.update_count >= self.config.snapshot_update_records_per_snapshot and self._has_room(
            key, state, (), start_offset
        ):
            snapshot = _snapshot(state, leader_epoch, start_offset, delivery_complete_count, (), now_ms)
            return Decision(((key, snapshot),), response)
        update = Update(state.snapshot_epoch, leader_epoch, start_offset, delivery_complete_count, ())
        return make_decision((((key, update),), response, False))

    def decide_summary(self, key: SharePartitionKey) -> Decision:
        """Decide what the group coordinator is answered; never writes and checks no epoch."""
        if key.partition < 0:
            return refuse_partition(SummaryResult, key)
        if not self._is_known(key):
            return refuse_unknown(SummaryResult, key)
        state = self.state.timeline.current.get(key)
        if state is None:
            return Decision((), _UNINITIALIZED)
        return Decision(
            (),
            SummaryResult(
                0, None, state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count
            ),
        )

    def decide_delete(self, key: SharePartitionKey) -> Decision:
        """Decide to forget a share partition: one tombstone, or nothing when it is unknown already."""
        if key.partition < 0:
            return refuse_partition(DeleteResult, key)
        if not self._is_known(key):
            return refuse_unknown(DeleteResult, key)
        return Decision(((key, None),) if key in self.state.timeline.current else (), _DELETED)

    # ---- maintenance -----------------------------------------------------------------------------------------------

    # ---- for the host (daemon.shards.Shard) ------------------------------------------------------------------------

    def live_bytes(self) -> int:
        """Return how many bytes one snapshot of every share partition would take."""
        return self.state.live_bytes

    def key_count(self) -> int:
        """Return how many share partitions have state."""
        return self.state.share_partition_count()

    def oldest_snapshot(self) -> tuple[SharePartitionKey, int] | None:
        """Return the share partition whose newest snapshot is the oldest, and the offset of that; None: there is no state."""
        return self.state.offsets.oldest()

    def decide_pruning_slice(
        self,
        below_offset: int,
        records_max: int,
        bytes_max: int,
        left_out: Container[SharePartitionKey] = frozenset(),
    ) -> Decision:
        """Decide snapshots of live share partitions whose newest snapshot lies below `below_offset`, oldest first.

        The content is the state's, under the next snapshot epoch. Both timestamps stay: they say when the share partition was last
        written in full by a call, and pruning is no such thing. Share partitions with a snapshot on its way to the log are passed
        over, and so are those `left_out`, which the log refused. At least one record, at most `records_max`; a record that would
        exceed `bytes_max` (an estimate) waits for the next slice.

        Returns:
            no records when nothing is left to be decided; what is on its way is in the log once `is_prunable_to` says so.
        """
        records: list[tuple[SharePartitionKey, Snapshot]] = []
        size_bytes = 0
        for key in self.state.offsets.below(below_offset):
            state = self.state.timeline.current.get(key)
            if state is None or key in self.state.pending_snapshots or key in left_out:
                continue
            size_bytes += self.state.estimate_size(key, state)
            if len(records) == records_max or (records and size_bytes > bytes_max):
                break
            records.append((key, Snapshot(state.snapshot_epoch + 1, *state[1:10])))
        return Decision(tuple(records), None)

    def is_prunable_to(self, offset: int) -> bool:
        """Tell whether every live share partition has a committed snapshot at or above `offset`."""
        oldest = self.state.offsets.oldest()
        return oldest is None or oldest[1] >= offset

    def decide_topic_cleanup(self, topic_ids: Iterable[bytes], records_max: int | None = None) -> Decision:
        """Decide tombstones for the share partitions of deleted topics, at most `records_max`; topic ids ascending.

        Returns:
            no records when nothing is left.
        """
        keys = chain.from_iterable(self.state.topics.get(topic_id, ()) for topic_id in sorted(topic_ids))
        return Decision(tuple((key, None) for key in islice(keys, records_max)), None)

    def _refuse_growth(
        self, key: SharePartitionKey, state: ShareState, state_batches: Sequence[StateBatch], start_offset: int
    ) -> Decision | None:
        """Return the refusal of a write that takes a state above its bounds; what is above already may still shrink."""
        config, before = self.config, state.state_batches
        count_max, room = config.state_batches_max, self._batches_room(key)
        count = len(before) + len(state_batches)
        # Ascending, so the outermost offsets of the state are the widest.
        widest = widest_batch_bytes(config.codec, (*before[:1], *before[-1:], *state_batches))
        if count <= count_max and count * widest <= room:
            return None
        after = combine(before, state_batches, start_offset)
        if len(after) > max(count_max, len(before)):
            return refuse_growth(key, f"would have more than {count_max} state batches")
        size = batches_bytes(config.codec, after)
        written = batches_bytes(config.codec, combine((), state_batches, start_offset))
        if size > room and size > batches_bytes(config.codec, before):
            return refuse_growth(key, f"would take {size - room} bytes more than one record of the log can have")
        if written > room:
            return refuse_growth(
                key, f"is given state batches that take {written - room} bytes more than one record can have"
            )
        return None

    def _has_room(
        self, key: SharePartitionKey, state: ShareState, state_batches: Sequence[StateBatch], start_offset: int
    ) -> bool:
        """Tell whether a snapshot of a state after a write fits into the log; one that was let grow before may not."""
        if len(state.state_batches) + len(state_batches) <= self._batches_that_fit:
            return True
        after = combine(state.state_batches, state_batches, start_offset)
        return batches_bytes(self.config.codec, after) <= self._batches_room(key)

    def _batches_room(self, key: SharePartitionKey) -> int:
        return self.config.snapshot_bytes_max - room_bytes(self.config.codec, len(key.group_id.encode()))

    def _refuse_another(self, key: SharePartitionKey) -> Decision | None:
        """Return the refusal of a share partition for which there is no room; what has state already is never refused."""
        totals = self.config.totals
        size, size_max = len(key.group_id.encode()), totals.bounds.group_id_bytes_max
        if size > size_max:
            code, text = (
                ErrorCode.INVALID_REQUEST,
                f"The group id has {size} bytes; group_id_bytes_max allows {size_max}.",
            )
        elif (why := totals.why_not(key, self.state.snapshot_size_bytes + size)) is not None:
            code, text = ErrorCode.UNKNOWN_SERVER_ERROR, why
        else:
            return None
        totals.refusals += 1
        return Decision((), InitializeResult(code, text))

    def _is_known(self, key: SharePartitionKey) -> bool:
        image = self._image
        if image is None:
            return False
        partition_count = image.partition_count(key.topic_id)
        return partition_count is not None and key.partition < partition_count


def _snapshot(
    state: ShareState,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    state_batches: Sequence[StateBatch],
    now_ms: int,
) -> Snapshot:
    return Snapshot(
        state.snapshot_epoch + 1,
        state.state_epoch,
        leader_epoch,
        start_offset,
        delivery_complete_count,
        now_ms,
        now_ms,
        combine(state.state_batches, state_batches, start_offset),
        max(leader_epoch, state.leader_epoch_fence),
        state.state_epoch_fence,
    )
