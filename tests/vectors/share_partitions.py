"""The file with one life of a share partition per line: loads, acquisitions, acknowledgements, locks, and the log's start.

After each step everything that was recorded is compared: what was acquired and sent, who is answered, what is written, and the whole
state. Two things are compared by their meaning:

- Kafka has a lock for each offset of a split batch, and writes each one of them for itself. Ours writes neighbours that are equal as one
  range, and what ended in one tick as one write, so the recorded ranges are joined before they are compared.
- Ours writes the start offset that holds when the write has succeeded; the recorded one, of the moment, is compared with
  `start_offset_before`.

A scenario with tags shows a fault of Kafka's that ours has not: it is run up to the step before the first one. So is one that comes to
a dead end without a tag.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_partition.batches import DeliveryBatch, DeliveryRun
from holdfast.delivery.share_partition.partition import SharePartition
from holdfast.delivery.share_partition.record_batches import find_aborted
from holdfast.delivery.share_partition.values import (
    AcquireMode,
    Condition,
    Refused,
    StateWrite,
    callers_error,
)
from holdfast.kafka.protocol.error_codes import ErrorCode
from tests.vectors.fields import Fields, Mismatch, check
from tests.vectors.parity import join_neighbours

#: For an answer of the recorded persister that has no code.
NO_CODE = -1
CONDITIONS = {
    Condition.EMPTY: "EMPTY",
    Condition.LOADING: "INITIALIZING",
    Condition.ACTIVE: "ACTIVE",
    Condition.FAILED: "FAILED",
    Condition.FENCED: "FENCED",
}
MODES = {"batch_optimized": AcquireMode.BATCH_OPTIMIZED, "record_limit": AcquireMode.RECORD_LIMIT}


class Head(NamedTuple):
    """The head of a record batch."""

    base_offset: int
    last_offset: int
    kind: str = ""
    producer_id: int = -1

    @property
    def is_transactional(self) -> bool:
        return self.kind in ("txn", "abort", "commit")

    @property
    def is_control(self) -> bool:
        return self.kind in ("abort", "commit")


class ShareScenario:
    """Run the steps of one scenario on our share partition."""

    def __init__(self, case: Fields) -> None:
        with case.take_object("config") as fields:
            self._reset = fields.take("reset")
            leader_epoch = fields.take("leaderEpoch")
            self._partition = SharePartition(leader_epoch, _take_config(fields))
        #: By their recorded numbers, until they are answered: the write, and whose call waits for it.
        self._writes: dict[int, tuple[StateWrite, int | None]] = {}
        self._waiting_load: int | None = None

    def run(self, step: Fields) -> None:
        """Run one step and compare all that is recorded of it."""
        op, self._now_ms = step.take("op"), step.take("now")
        run = getattr(self, f"_run_{op}", None)
        if run is None:
            raise Mismatch(f"unknown operation {op}")
        with step.take_object("args") as args, step.take_object("expect") as expected:
            self._completed: list[tuple[int, int]] = []
            self._is_woken = False
            start_offset = self._partition.start_offset
            run(args, expected)
            recorded = [_take_completed(each) for each in expected.take_if_there("completed", [])]
            check("completed", self._completed, recorded)
            # Kafka wakes too when the start offset could have moved and did not.
            is_woken = expected.take("woken") > 0 and (self._is_woken or self._partition.start_offset > start_offset)
            check("woken", self._is_woken, is_woken)
            expected.take_if_there("fired")
            with expected.take_object("state") as state:
                self._check_state(state)

    # Loading

    def _run_initialize(self, args: Fields, expected: Fields) -> None:
        call, read = args.take("call"), args.take("read")
        match self._partition.condition:
            case Condition.EMPTY:
                self._partition.begin_load()
                check("reads", 1, expected.take("reads"))
                self._waiting_load = call
                if read != "later":
                    with Fields("read", read) as answer:
                        self._answer_read(answer, expected)
            case condition:
                check("read", read, "none")
                # An initialization of one that is loaded succeeds; the others are answered by the caller of the core.
                answers = {Condition.ACTIVE: ErrorCode.NONE, Condition.FAILED: ErrorCode.UNKNOWN_SERVER_ERROR}
                self._complete(call, answers.get(condition, ErrorCode.LEADER_NOT_AVAILABLE))

    def _run_completeRead(self, args: Fields, expected: Fields) -> None:  # noqa: N802
        self._answer_read(args, expected)

    def _answer_read(self, answer: Fields, expected: Fields) -> None:
        offsets = {"earliest": answer.take("logStart"), "latest": answer.take("logEnd")}
        offsets["byDuration"] = answer.take("byDuration")
        call, self._waiting_load = self._waiting_load, None
        error: Any = answer.take_if_there("error", 0)
        unusable = [answer.take_if_there(name) for name in ("exception", "malformed")]
        unreachable = answer.take_if_there("logOffsets")
        if error or any(unusable):
            answer.take_if_there("startOffset"), answer.take_if_there("stateEpoch"), answer.take_if_there("batches")
            self._partition.load_failed()
            return self._complete(call, callers_error(error or NO_CODE))
        state_epoch, start_offset = answer.take("stateEpoch"), answer.take("startOffset")
        batches = answer.take_batches("batches")
        if start_offset < 0:
            asked = {"by_duration": "byDuration"}.get(self._reset, self._reset)
            check("asked of the log", [asked], expected.take("askedLog"))
            if unreachable is not None:
                self._partition.load_failed()
                codes = {"notLeader": ErrorCode.NOT_LEADER_OR_FOLLOWER}
                return self._complete(call, codes.get(str(unreachable), ErrorCode.UNKNOWN_SERVER_ERROR))
            start_offset = offsets[asked]
        wrong = self._partition.loaded(state_epoch, start_offset, batches)
        return self._complete(call, ErrorCode.NONE if wrong is None else ErrorCode.UNKNOWN_SERVER_ERROR)

    # Acquiring

    def _run_acquire(self, args: Fields, expected: Fields) -> None:
        heads = [Head(*head) for head in args.take("records")]
        aborted = [(producer_id, first) for producer_id, first in args.take_if_there("aborted", [])]
        is_committed = args.take("isolation") == "read_committed"
        acquired = self._partition.acquire(
            self._now_ms,
            args.take("member"),
            MODES[args.take("mode")],
            args.take("batchSize"),
            args.take("maxRecords"),
            args.take("fetchOffset"),
            heads,
            find_aborted(heads, aborted, lambda head: head.kind == "abort") if is_committed else (),
        )
        start_offset = self._partition.start_offset
        recorded = expected.take("acquired")
        # Kafka hands out offsets below the start offset as well.
        ranges = [[max(first, start_offset), last, count] for first, last, count in recorded if last >= start_offset]
        check("acquired", [list(each) for each in acquired.ranges], ranges)
        check("count", acquired.offset_count, sum(last - first + 1 for first, last, _ in ranges))
        check("recorded count", sum(last - first + 1 for first, last, _ in recorded), expected.take("count"))
        sent, recorded_sent = heads[acquired.first_index : acquired.end_index], expected.take_if_there("sent")
        if ranges == recorded:
            check("sent", [sent[0].base_offset, sent[-1].last_offset] if sent else None, recorded_sent)

    # Settling

    def _run_acknowledge(self, args: Fields, expected: Fields) -> None:
        batches = [(first, last, types) for first, last, types in args.take("batches")]
        written = self._partition.acknowledge(self._now_ms, args.take("member"), batches)
        call, persister = args.take("call"), args.take("persister")
        if isinstance(written, Refused):
            return self._complete(call, written.error_code)
        return self._write(call, written, persister, expected)

    def _run_release(self, args: Fields, expected: Fields) -> None:
        call, persister = args.take("call"), args.take("persister")
        self._write(call, self._partition.release(args.take("member")), persister, expected)

    def _run_tick(self, args: Fields, expected: Fields) -> None:
        args.take("ms")
        deadline_ms = self._partition.next_deadline_ms()
        is_due = deadline_ms is not None and deadline_ms <= self._now_ms
        write = self._partition.tick(self._now_ms)
        check("due", write is None or is_due, True)
        self._is_woken = write is not None
        recorded = [dict(each) for each in expected.take_if_there("writes", [])]
        persister = args.take("persister")
        check("written at all", write is not None, recorded != [])
        if write is None:
            return
        ours = [tuple(batch) for batch in write.batches]
        theirs = [tuple(batch) for each in recorded for batch in each["batches"]]
        check("written", join_neighbours(sorted(ours)), join_neighbours(sorted(theirs)))
        check(
            "epochs", (write.state_epoch, write.leader_epoch), (recorded[0]["stateEpoch"], recorded[0]["leaderEpoch"])
        )
        check("start offset before", write.start_offset_before, recorded[0]["startOffset"])
        if persister == "later":
            for each in recorded:
                self._writes[each["write"]] = write, None
        else:
            self._partition.write_done(write, _code(persister))

    def _run_completeWrite(self, args: Fields, _expected: Fields) -> None:  # noqa: N802
        write, call = self._writes.pop(args.take("write"))
        self._answer_write(call, write, args.take("result"))

    def _write(self, call: int, write: StateWrite | None, persister: str, expected: Fields) -> None:
        recorded: Any = expected.take_if_there("writes", [])
        check("number of writes", 0 if write is None else 1, len(recorded))
        if write is None:
            return self._complete(call, ErrorCode.NONE)
        with Fields("write", recorded[0]) as fields:
            check("state epoch", write.state_epoch, fields.take("stateEpoch"))
            check("leader epoch", write.leader_epoch, fields.take("leaderEpoch"))
            check("start offset before", write.start_offset_before, fields.take("startOffset"))
            check("complete before", write.complete_count_before, fields.take("deliveryCompleteCount"))
            batches = [tuple(batch) for batch in fields.take_batches("batches")]
            check("written", join_neighbours(write.batches), join_neighbours(batches))
            number = fields.take("write")
        if persister == "later":
            self._writes[number] = write, call
            return None
        return self._answer_write(call, write, persister)

    def _answer_write(self, call: int | None, write: StateWrite, result: str) -> None:
        settled = self._partition.write_done(write, _code(result))
        if write.is_of_locks:
            return
        self._is_woken = settled.is_moved
        self._complete(call, settled.error_code)

    # The rest

    def _run_logStart(self, args: Fields, _expected: Fields) -> None:  # noqa: N802
        self._partition.move_log_start(args.take("offset"))

    def _run_config(self, args: Fields, _expected: Fields) -> None:
        self._partition.config = _take_config(args)

    def _run_fence(self, _args: Fields, _expected: Fields) -> None:
        self._partition.fence()

    def _complete(self, call: int | None, error_code: int) -> None:
        assert call is not None
        self._completed.append((call, int(error_code)))

    def _check_state(self, state: Fields) -> None:
        partition, window = self._partition, self._partition.window
        gap_start = window.gap_start()
        ours = {
            "partition": CONDITIONS[partition.condition],
            "startOffset": partition.start_offset,
            "endOffset": partition.end_offset,
            "findNext": window.has_available,
            "nextFetchOffset": partition.next_fetch_offset(),
            "canAcquire": partition.can_acquire(),
            "deliveryCompleteCount": partition.delivery_complete_count,
            "gapStart": None if gap_start < 0 else gap_start,
            "batches": [_describe(batch) for batch in window.batches],
        }
        for name, value in ours.items():
            recorded = state.take(name)
            if name == "nextFetchOffset" and partition.condition is not Condition.FAILED:
                # Kafka fetches below the start offset as well, and may find no way out of there.
                recorded = max(recorded, partition.start_offset)
            if name == "gapStart" and recorded is not None and recorded < partition.start_offset:
                # Ours has no gap there.
                recorded = value
            check(name, value, recorded)


def run_share_scenario(case: Fields) -> int:
    """Run a scenario up to the first fault of Kafka's, and return how many steps that is."""
    case.take("name"), case.take("kafka")
    tags = case.take_list("tags")
    scenario, steps = ShareScenario(case), case.take_list("steps")
    for number, fields in enumerate(steps):
        if tags and ("quirks" in fields["expect"] or "throws" in fields["expect"]):
            return number
        if _is_dead_end(fields["expect"]["state"]):
            return number
        with Fields(f"step {number}", fields) as step:
            try:
                scenario.run(step)
            except Mismatch as mismatch:
                raise Mismatch(f"step {number} ({fields.get('op')}): {mismatch}") from mismatch
    check("tags", tags, [])
    return len(steps)


def _is_dead_end(state: dict[str, Any]) -> bool:
    """Tell whether nothing moves Kafka's share partition any more, which no tag names.

    Either nothing may be acquired though nobody holds anything, or an offset below the start offset is available, and holds it.
    """
    runs = [run for batch in state["batches"] for run in (batch[2] if isinstance(batch[2], list) else [batch])]
    is_settled = all(delivery_state in (2, 4) and not ongoing for _, _, delivery_state, _, _, _, ongoing in runs)
    is_below = any(
        delivery_state == 0 and not ongoing and last < state["startOffset"]
        for _, last, delivery_state, _, _, _, ongoing in runs
    )
    return (not state["canAcquire"] and is_settled) or is_below


def _describe(batch: DeliveryBatch) -> list[Any]:
    if not batch.is_split:
        return list(_describe_run(batch.runs[0]))
    runs = join_neighbours(_describe_run(run) for run in batch.runs)
    return [batch.first, batch.last, [list(run) for run in runs]]


def _describe_run(run: DeliveryRun) -> tuple[Any, ...]:
    lock = None if run.lock_until_ms < 0 else int(run.lock_until_ms)
    return run.first, run.last, run.state, run.count, run.member_id, lock, int(run.write is not None)


def _take_config(fields: Fields) -> GroupConfig:
    return GroupConfig(
        record_lock_duration_ms=fields.take("lockMs"),
        delivery_count_limit=fields.take("deliveryLimit"),
        partition_max_record_locks=fields.take("maxLocks"),
        renew_acknowledge_enable=fields.take("renew"),
    )


def _take_completed(recorded: dict[str, Any]) -> tuple[int, int]:
    with Fields("completed", recorded) as fields:
        fields.take_if_there("exception")
        check("name of the error", ErrorCode(recorded["error"]).name, fields.take("name"))
        return fields.take("call"), fields.take("error")


def _code(result: str) -> int:
    if result == "ok":
        return 0
    return int(result) if result.isdecimal() else NO_CODE
