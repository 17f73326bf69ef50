"""The judgement over a run: what became of each record, from the journals of all consumers and from the log of the states.

A time in a journal is a bit late: a record was acquired before its consumer wrote it down, but after the poll before had returned.
Comparisons take the time that accuses nobody wrongly.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from confluent_kafka import AcknowledgeType

from holdfast.records.errors import UnknownRecordType
from holdfast.records.log.header import decode_header, is_foreign
from holdfast.records.share.batches import AVAILABLE
from holdfast.records.share.codecs.codec import decode_record
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState, replay
from holdfast.runtime.log_protocol import LogRecord

FINAL: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)

#: Deliveries of a record in a row that its consumers did not hear of; each counts for the limit.
_UNHEARD_MAX: Final = 3

#: A partition and an offset.
Place = tuple[int, int]


@dataclass(slots=True)
class Delivery:
    """A record as one consumer got it once."""

    consumer: str
    place: Place
    count: int
    #: When the poll before had returned: it was acquired later than that.
    not_before_s: float
    given_s: float
    #: The verdict of its consumer, and its time; None: it said nothing.
    said: int | None = None
    asked_s: float = float("inf")
    #: Kafka's error code, 0 for success; None: no answer was heard.
    code: int | None = None
    answered_s: float = float("inf")
    #: When its consumer ended, of itself or not.
    consumer_ended_s: float = float("inf")

    @property
    def is_settled(self) -> bool:
        """Tell whether an accept or a reject was answered with success."""
        return self.said in FINAL and self.code == 0


@dataclass
class Findings:
    """The result of a run."""

    deliveries: int = 0
    settled: int = 0
    #: Deliveries of a record that had been delivered before, by what explains them.
    duplicates: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    #: Lines about faults of the gateway.
    faults: list[str] = field(default_factory=list)


def read_journal(path: Path, ended_s: float) -> list[Delivery]:
    """Return the deliveries of a consumer, in order; `ended_s` is when its process was gone at the latest."""
    found: list[Delivery] = []
    open_now: dict[Place, Delivery] = {}
    not_before_s = 0.0
    for line in path.read_bytes().split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:  # it died while it wrote
            continue
        now_s, kind = event["t"], event["e"]
        if kind == "began":
            not_before_s = now_s
        elif kind == "given":
            for partition, offset, count, _ in event["r"]:
                delivery = Delivery(path.name, (partition, offset), count, not_before_s, now_s)
                open_now[delivery.place] = delivery
                found.append(delivery)
            not_before_s = now_s
        elif kind == "asked":
            for partition, offset, said in event["a"]:
                open_now[partition, offset].said = said
                open_now[partition, offset].asked_s = now_s
        elif kind == "answered":
            for offset in event["o"]:
                answered = open_now.get((event["p"], offset))
                if answered is not None and answered.code is None and answered.said is not None:
                    answered.code, answered.answered_s = event["code"], now_s
        elif kind in ("died", "closing"):
            ended_s = min(ended_s, now_s)
    for each in found:
        each.consumer_ended_s = ended_s
    return found


class Ledger:
    """All deliveries of a run.

    Args:
        produced: the place of each record that the producer was told of.
        deliveries: of all consumers.
        disturbed_s: when something was done to a node, a broker or a connection, and when that was over.
        lock_s: how long a lock lasts.
        deliveries_max: of one record, by the group's limit.
    """

    def __init__(
        self,
        produced: Iterable[Place],
        deliveries: Iterable[Delivery],
        disturbed_s: Sequence[float],
        lock_s: float,
        deliveries_max: int,
    ) -> None:
        self._produced = set(produced)
        self._disturbed_s = sorted(disturbed_s)
        self._lock_s = lock_s
        self._deliveries_max = deliveries_max
        self._by_place: defaultdict[Place, list[Delivery]] = defaultdict(list)
        for each in deliveries:
            self._by_place[each.place].append(each)
        for of_place in self._by_place.values():
            of_place.sort(key=lambda each: each.given_s)

    def judge(self) -> Findings:
        """Return what the run shows."""
        findings = Findings()
        for place in sorted(self._produced - self._by_place.keys()):
            findings.faults.append(f"skipped: {place} was never delivered")
        for place, of_place in sorted(self._by_place.items()):
            findings.deliveries += len(of_place)
            findings.codes.update(each.code for each in of_place if each.code is not None)
            is_settled = any(each.is_settled for each in of_place)
            findings.settled += is_settled
            is_done = is_settled or any(each.said in FINAL for each in of_place)
            if not is_done and max(each.count for each in of_place) < self._deliveries_max - _UNHEARD_MAX:
                findings.faults.append(f"lost: {place} was delivered {len(of_place)} times and never settled")
            self._judge_again(of_place, findings)
            for before, after in pairwise(of_place):
                self._judge_pair(before, after, findings)
        return findings

    @staticmethod
    def _judge_again(of_place: list[Delivery], findings: Findings) -> None:
        """Find deliveries that were acquired after the record was settled."""
        settled_s = min((each.answered_s for each in of_place if each.is_settled), default=float("inf"))
        for each in of_place:
            if each.not_before_s > settled_s:
                text = f"again: {each.place} was settled {each.not_before_s - settled_s:.3f} s before it was acquired"
                findings.faults.append(f"{text} by {each.consumer}")

    def _judge_pair(self, before: Delivery, after: Delivery, findings: Findings) -> None:
        """Explain the second of two deliveries, and find locks that two members had at once."""
        is_disturbed = self._is_disturbed(before.not_before_s, after.given_s)
        lock_ended_s = before.not_before_s + self._lock_s
        held_until_s = min(before.asked_s, before.consumer_ended_s, lock_ended_s)
        if after.given_s < held_until_s and not is_disturbed:
            text = f"{before.place} was locked by {before.consumer} until {held_until_s:.3f}"
            findings.faults.append(f"two locks: {text} and given to {after.consumer} at {after.given_s:.3f}")
        if before.said == AcknowledgeType.RELEASE:
            why = "it was released"
        elif before.said is None and before.consumer_ended_s < after.given_s:
            why = "its consumer ended"
        elif before.code:
            why = "its acknowledgement was refused"
        elif before.said is not None and before.code is None:
            why = "the answer was not heard"
        elif is_disturbed:
            why = "it was in flight at a disturbance"
        elif after.given_s >= lock_ended_s:
            why = "its lock ended"
        else:
            why = "nothing explains it"
            findings.faults.append(f"unexplained: {before} and {after}")
        findings.duplicates[why] += 1

    def _is_disturbed(self, from_s: float, to_s: float) -> bool:
        at = bisect_left(self._disturbed_s, from_s)
        return at < len(self._disturbed_s) and self._disturbed_s[at] <= to_s


def audit_log(log: Iterable[LogRecord], group: str) -> tuple[dict[SharePartitionKey, ShareState], list[str]]:
    """Return the states of a group at the end of a log partition, and where a start offset or a delivery count fell on the way."""
    states: dict[SharePartitionKey, ShareState] = {}
    faults: list[str] = []
    owner_epoch = -1
    for record in log:
        if is_foreign(record.header) or record.header is None:
            continue
        epoch, _ = decode_header(record.header)
        if epoch < owner_epoch:  # a former owner's, which counts no more
            continue
        owner_epoch = epoch
        try:
            key, value, _ = decode_record(record.key, record.value)
        except UnknownRecordType:
            continue
        if key.group_id != group:
            continue
        before = states.get(key)
        after = replay(before, value, 500)  # type: ignore[arg-type]  # no record of ours is a no-op
        if after is None:
            faults.append(f"the state of {key} is gone at offset {record.offset}")
            continue
        states[key] = after
        if before is not None:
            faults += [f"{text}, of {key} at offset {record.offset} of the log" for text in _find_falls(before, after)]
    return states, faults


def _find_falls(before: ShareState, after: ShareState) -> Iterable[str]:
    if after.start_offset < before.start_offset:
        yield f"the start offset fell from {before.start_offset} to {after.start_offset}"
    known = _by_offset(before)
    for offset, (state, count) in _by_offset(after).items():
        state_before, count_before = known.get(offset, (AVAILABLE, 0))
        if count < count_before:
            yield f"the delivery count of {offset} fell from {count_before} to {count}"
        # An acknowledgement whose answer said that it was not written may have been.
        if state == AVAILABLE != state_before and count == count_before:
            yield f"offset {offset} was in state {state_before} and is available again"


def _by_offset(state: ShareState) -> Mapping[int, tuple[int, int]]:
    return {
        offset: (delivery_state, count)
        for first, last, delivery_state, count in state.state_batches
        for offset in range(max(first, state.start_offset), last + 1)
    }
