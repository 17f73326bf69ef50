"""The judgement of a node: its loads, its answers and its state, against the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.records.log.checkpoint import CHECKPOINT_KEY, decode_checkpoint
from holdfast.records.log.header import decode_header
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.runtime.errors import CoordinatorError, NotAvailable, OperationFailed, RecordTooLarge
from holdfast.runtime.partition.lifecycle import Partition
from holdfast.runtime.partition.ownership import Ownership, Verdict
from holdfast.runtime.partition.states import State
from holdfast.share.decisions import ShareShard
from holdfast.share.operations import ShareOperation
from holdfast.share.state_bounds import StateTotals
from tests.configs import state_bounds
from tests.shards import states_at, summarize
from tests.simulated.checks.expect import explains
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.checks.truth import Truth, content
from tests.simulated.parts.machine import WatchedOperation, WatchedShard

if TYPE_CHECKING:
    from tests.simulated.parts.node import Node

#: Answers that promise that nothing was written.
UNWRITTEN = (NotAvailable, RecordTooLarge, OperationFailed)


def check_loaded(node: Node, shard: WatchedShard) -> None:
    """Compare what is about to be served with the truth."""
    index = shard.index
    partition = node.runtime.partitions[index]
    truth = shard.truth = node.world.truth_of(node.log.reads(index), index)
    shard.attempt_id = partition.ownership.attempt_id
    if truth.awaits_load:
        truth.awaits_load, truth.is_judged = False, True
    if not truth.is_judged:
        return
    node.world.count("load")
    _check_identity(node, partition, truth)
    where = f"{node.name}/{index}, which stands at {partition.reading.position}"
    end = min(partition.reading.position, truth.next_offset)
    if end == 0 or truth.owner_at(end - 1) != partition.ownership.attempt_id:
        violate(Invariant.LOAD_ENDS_AT_ITS_CHECKPOINT, where)
    wanted = truth.contents(end)
    found = {key: shard.newest(key) for key in shard.newest_states()}
    if found == wanted:
        if partition.reading.restored_from_offset >= 0:
            _check_restored_load(node, partition, shard, truth, end)
        return
    for key in {*found, *wanted}:
        if found.get(key) == wanted.get(key):
            continue
        for offset in truth.answered.get(key, ()):
            if offset < end and any(content(state) == found.get(key) for state in _earlier(truth, key, offset)):
                violate(Invariant.ANSWERED_WRITES_STAY, f"the write at {offset} is not in the load of {where}")
    violate(Invariant.LOAD_IS_COMPLETE, f"{where}: {found} in place of {wanted}")


def _check_identity(node: Node, partition: Partition, truth: Truth) -> None:
    """See that no checkpoint of another log stands before our own, unless an admin accepted it later."""
    log, found, accepted_at = truth.log, None, -1
    for offset in range(log.log_start_offset, min(partition.reading.position, truth.next_offset)):
        record = log.records[offset]
        if record.key != CHECKPOINT_KEY or not truth.counts_at(offset):
            continue
        checkpoint = decode_checkpoint(record.value or b"")
        named = (checkpoint.cluster_id, checkpoint.topic_id, checkpoint.partition_count, checkpoint.placement)
        if checkpoint.reason is not None and named == tuple(partition.tenancy.config.log):
            found, accepted_at = None, offset
        elif named != tuple(partition.tenancy.config.log):
            found = offset
    damaged_at = node.world.damage_before(partition.index, min(partition.reading.position, truth.next_offset))
    if damaged_at > accepted_at:
        text = f"{node.name}/{partition.index} serves, though nobody accepted what is at {damaged_at}"
        violate(Invariant.DAMAGE_IS_TOLD, text)
    if found is not None:
        violate(
            Invariant.IDENTITY_IS_CHECKED, f"{node.name}/{partition.index} serves, and offset {found} names another log"
        )


def _check_restored_load(node: Node, partition: Partition, shard: WatchedShard, truth: Truth, end: int) -> None:
    node.world.count("restored load")
    whole, ownership = ShareShard(replace(shard.config, totals=StateTotals(state_bounds()))), Ownership()
    for offset in range(partition.log_start, end):
        record = truth.log.records[offset]
        if offset not in truth.log.holes and ownership.judge(record) is Verdict.DATA:
            whole.load_record(record.key or b"", record.value, offset)
    whole.fold_loaded(lambda: False)
    wanted = (states_at(whole, 0), summarize(whole), ownership.position)
    found = (states_at(shard, 0), summarize(shard), partition.ownership.position)
    if found != wanted:
        where = f"{node.name}/{partition.index} from {partition.reading.restored_from_offset}"
        violate(Invariant.RESTORE_IS_A_WHOLE_LOAD, f"{where}: {found} in place of {wanted}")


def _earlier(truth: Truth, key: SharePartitionKey, offset: int) -> list[ShareState | None]:
    return [None, *(state for at, state in truth.versions[key] if at <= offset)]


def judge_answer(node: Node, operation: WatchedOperation, outcome: object) -> None:
    """Look at an answer before it leaves."""
    if node.world.is_tracing:
        node.world.trace(f"  {node.name}: {operation} gets {outcome!r}")
    decision, shard = operation.decision, operation.shard
    if isinstance(outcome, CoordinatorError):
        node.world.count(f"outcome: {type(outcome).__name__}")
        # Of several records the log may take the first ones and refuse the next.
        may_be_half = decision is not None and len(decision.records) > 1 and not isinstance(outcome, OperationFailed)
        if isinstance(outcome, UNWRITTEN) and operation.appends and not may_be_half:
            violate(Invariant.REFUSED_IS_UNWRITTEN, f"{operation} gets {outcome!r}")
        return
    assert decision is not None
    assert shard is not None
    truth = shard.truth
    assert truth is not None
    if decision.is_malformed or not truth.is_judged:
        return
    if decision.records:
        _judge_write(node, operation, shard, truth)
    else:
        _judge_read(node, operation, shard, truth)


def _judge_write(node: Node, operation: WatchedOperation, shard: WatchedShard, truth: Truth) -> None:
    node.world.count("answered write")
    if not operation.appends:
        violate(Invariant.ANSWERED_AFTER_COMMIT, f"{operation} is answered, and nothing was appended")
    append = operation.appends[-1]
    offset = truth.counted.get(append)
    if offset is None:
        if append in truth.void:
            violate(Invariant.SUPERSEDED_IS_SILENT, f"{operation} is answered, and its record is void")
        violate(Invariant.ANSWERED_AFTER_COMMIT, f"{operation} is answered, and its record is not in the log")
    assert append.header is not None
    sequence = decode_header(append.header)[1]
    if sequence <= shard.answered_sequence:
        violate(Invariant.ANSWERED_IN_ORDER, f"{operation}: {sequence} after {shard.answered_sequence}")
    shard.answered_sequence = sequence
    truth.floor = max(truth.floor, offset + 1)
    inner = operation.inner
    if isinstance(inner, ShareOperation):
        truth.answered.setdefault(inner.key, []).append(offset)
        if not explains(truth.state(inner.key, offset + 1), inner.request, operation.outcome):  # type: ignore[arg-type]
            violate(Invariant.LINEARIZABLE, f"{operation} at {offset}: {inner.request} gets {operation.outcome}")


def _judge_read(node: Node, operation: WatchedOperation, shard: WatchedShard, truth: Truth) -> None:
    node.world.count("answered read")
    if node.may_know_the_past(operation):
        return
    inner = operation.inner
    if isinstance(inner, ShareOperation):
        for end, state in truth.ends_with(inner.key, operation.floor):
            if explains(state, inner.request, operation.outcome):  # type: ignore[arg-type]
                truth.floor = max(truth.floor, end)
                break
        else:
            states = list(truth.ends_with(inner.key, operation.floor))
            text = (
                f"{operation}: {inner.request} gets {operation.outcome}; the states since {operation.floor}: {states}"
            )
            violate(Invariant.LINEARIZABLE, text)
    if node.runtime.partitions[shard.index].reading.position < operation.index_floor:
        violate(Invariant.READ_INDEX, f"{operation} is answered below {operation.index_floor}")


def check_partition(node: Node, partition: Partition) -> None:
    """Compare a partition with itself and with the truth."""
    try:
        partition.validate()
    except AssertionError as broken:
        violate(Invariant.PARTITION_IS_VALID, f"{node.name}/{partition.index}: {broken or 'see the traceback'}")
    if partition.state is State.ACTIVE:
        shard = partition.machine
        assert isinstance(shard, WatchedShard)
        if shard.image is not node.image:
            violate(Invariant.IMAGE_IS_THE_NEWEST, f"{node.name}/{partition.index}")
        _check_active(node, partition, shard)


def _check_active(node: Node, partition: Partition, shard: WatchedShard) -> None:
    truth = shard.truth
    assert truth is not None
    seen = (partition.committed_sequence, partition.ownership.sequence, shard.undoable(), partition.reading.position)
    if not truth.is_judged or seen == shard.checked:
        return
    shard.checked = seen
    where = f"{node.name}/{partition.index} at sequence {partition.committed_sequence}"
    if not partition.committed_sequence < partition.ownership.sequence:
        violate(Invariant.COMMITTED_IS_WRITTEN, where)
    if partition.committed_offset > truth.log.high_watermark:
        violate(Invariant.COMMITTED_IS_WRITTEN, f"{where}: offset {partition.committed_offset}")
    if (
        len(partition.parking) > partition.tenancy.config.parked_writes_max + 1
    ):  # a result of two records may pass it by one
        violate(Invariant.PARKING_IS_BOUNDED, f"{where}: {len(partition.parking)}")
    unmet = shard.unmet
    while unmet and unmet[0] in truth.counted:
        unmet.popleft()
    for append in unmet:
        if append in truth.void and append not in truth.counted and truth.void[append] < partition.reading.position:
            violate(Invariant.GAP_ENDS_AN_EPOCH, f"{where}: its record at {truth.void[append]} is void")
    # As the command line reads it: at the last committed position.
    states = node.runtime.read(partition.index, lambda machine, position: states_at(machine, position))
    assert isinstance(states, dict)
    found = {key: state[:5] + state[7:10] for key, state in states.items()}
    if found != (wanted := truth.contents(partition.committed_offset)):
        violate(Invariant.STATE_IS_THE_LOG, f"{where}: {found} in place of {wanted}")
    parked_count = 0
    for parked in partition.parking.records:
        if parked.key is not None:
            parked_count += 1
            state = replay(states.get(parked.key), parked.value, shard.config.snapshot_update_records_per_snapshot)
            if state is None:
                states.pop(parked.key, None)
            else:
                states[parked.key] = state
    if states != shard.newest_states():
        violate(Invariant.STATE_IS_WHAT_WAS_SENT, f"{where}: {shard.newest_states()} in place of {states}")
    if shard.undoable() != parked_count:
        violate(Invariant.TIMELINE_IS_BOUNDED, f"{where}: {shard.undoable()} changes, {parked_count} parked")
