"""Acknowledgements of the offsets that a member acquired, and the return of all when it leaves."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.delivery.group_config import GroupConfig
from holdfast.delivery.share_partition.batches import DeliveryBatch
from holdfast.delivery.share_partition.locks import Locks
from holdfast.delivery.share_partition.settling import begin
from holdfast.delivery.share_partition.values import (
    ACCEPT,
    ACQUIRED,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgedRange,
    Refused,
    StateWrite,
)
from holdfast.delivery.share_partition.window import Window
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE

_STATES = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class Acknowledgement:
    """The acknowledgements of one request and share partition under way."""

    __slots__ = ("_config", "_limit", "_lock_until_ms", "_locks", "_member_id", "_window", "_write")

    def __init__(
        self, window: Window, locks: Locks, config: GroupConfig, now_ms: float, member_id: str, write: StateWrite
    ) -> None:
        self._window = window
        self._locks = locks
        self._config = config
        self._limit = config.delivery_count_limit
        self._lock_until_ms = now_ms + config.record_lock_duration_ms
        self._member_id = member_id
        self._write = write

    def run(self, batches: Sequence[AcknowledgedRange]) -> Refused | None:
        """Begin the transitions of all batches in order; return why one is refused, after which the caller rolls back."""
        for batch in batches:
            refused = self._acknowledge(batch)
            if refused is not None:
                return refused
        return None

    def _acknowledge(self, asked: AcknowledgedRange) -> Refused | None:
        first, last, types = asked
        lowest, highest = (types[0], types[0]) if len(types) == 1 else (min(types), max(types))
        if lowest < GAP or highest > RENEW:
            return _bad_type(first, last, lowest if lowest < GAP else highest)
        window = self._window
        start_offset = window.start_offset
        if last < start_offset:
            return None
        if len(types) != 1 and len(types) != last - first + 1 >= 1:
            return _bad_length(first, last, len(types))
        index = window.floor(first)
        if index < 0 and first <= start_offset:
            index = window.floor(start_offset)
        if index < 0:
            return _unknown(first, last)
        end = window.floor(last) + 1
        if end <= index:
            return _reversed(first, last)
        known = window.batches[index:end]
        last_known = known[-1].last
        if last_known < first or last_known < last:
            return Refused(
                ErrorCode.INVALID_REQUEST,
                f"The acknowledgement of offsets {first} to {last} goes beyond what was acquired; "
                "it must name only offsets that were sent as acquired.",
            )
        for batch in known:
            if batch.last < start_offset:
                continue
            refused = self._acknowledge_in(batch, first, last, types)
            if refused is not None:
                return refused
        return None

    def _acknowledge_in(self, batch: DeliveryBatch, first: int, last: int, types: Sequence[int]) -> Refused | None:
        """Begin the transitions of a range in one known batch."""
        is_whole = first <= batch.first and batch.last <= last and self._window.start_offset <= batch.first
        if not batch.is_split:
            run = batch.runs[0]
            if run.state != ACQUIRED or run.member_id != self._member_id:
                return self._not_held(max(first, batch.first), min(last, batch.last))
            if is_whole and len(types) == 1:
                return self._acknowledge_runs(batch, 0, 1, types[0])
        begin_offset = max(first, batch.first, self._window.start_offset)
        end_offset = min(last, batch.last)
        if begin_offset > end_offset:
            batch.is_split = True
            return None
        if len(types) == 1 or types.count(types[0]) == len(types):
            start, end = batch.take(begin_offset, end_offset)
            refused = self._acknowledge_runs(batch, start, end, types[0])
            batch.join(start, end)
            return refused
        refused = None
        batch.is_split = True
        offset = begin_offset
        while offset <= end_offset:
            kind = types[offset - first]
            until = offset
            while until < end_offset and types[until + 1 - first] == kind:
                until += 1
            start, end = batch.take(offset, until)
            refused = self._acknowledge_runs(batch, start, end, kind)
            if refused is not None:
                break
            offset = until + 1
        batch.join(0, len(batch.runs))
        return refused

    def _acknowledge_runs(self, batch: DeliveryBatch, start: int, end: int, kind: int) -> Refused | None:
        for run in batch.runs[start:end]:
            if run.state != ACQUIRED or run.member_id != self._member_id:
                return self._not_held(run.first, run.last)
            if kind == RENEW:
                if not self._config.renew_acknowledge_enable:
                    return Refused(
                        ErrorCode.INVALID_RECORD_STATE,
                        "AcknowledgeTypes has 4 (renew), which share.renew.acknowledge.enable of the group does not allow.",
                    )
                run.lock_until_ms = self._lock_until_ms
                self._locks.add(self._lock_until_ms, batch)
                continue
            state = _STATES[kind]
            if state == AVAILABLE and run.count >= self._limit:
                state = ARCHIVED
            begin(self._window, run, state, self._write)
        return None

    def _not_held(self, first: int, last: int) -> Refused:
        return Refused(
            ErrorCode.INVALID_RECORD_STATE,
            f"The offsets {first} to {last} are not held by member {self._member_id}: their lock has ended, "
            "or they were acknowledged before. They must be acquired again.",
        )


def _bad_type(first: int, last: int, kind: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"AcknowledgeTypes of offsets {first} to {last} has {kind}; "
        "it must be 0 (gap), 1 (accept), 2 (release), 3 (reject) or 4 (renew).",
    )


def _bad_length(first: int, last: int, length: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"AcknowledgeTypes of offsets {first} to {last} has {length} types; it must have one for all, or one for each offset.",
    )


def _reversed(first: int, last: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"The acknowledgement has FirstOffset {first} and LastOffset {last}; the first must not be above the last.",
    )


def _unknown(first: int, last: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_RECORD_STATE,
        f"The offsets {first} to {last} are not known as acquired; "
        "an acknowledgement must name only offsets that were sent as acquired.",
    )


def release(window: Window, config: GroupConfig, member_id: str, write: StateWrite) -> None:
    """Begin to give back all that a member holds."""
    limit, start_offset = config.delivery_count_limit, window.start_offset
    for batch in window.batches:
        runs = batch.runs
        if not batch.is_split:
            if runs[0].state != ACQUIRED or runs[0].member_id != member_id:
                continue
            if batch.first < start_offset <= batch.last:
                batch.take(start_offset, batch.last)
        elif batch.first < start_offset <= batch.last:
            batch.take(start_offset, batch.last)
        for run in runs:
            if run.state == ACQUIRED and run.member_id == member_id:
                is_over = run.last < start_offset or run.count >= limit
                begin(window, run, ARCHIVED if is_over else AVAILABLE, write)
        if batch.is_split:
            batch.join(0, len(runs))
