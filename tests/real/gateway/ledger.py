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

from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, AVAILABLE
from tests.real.gateway.state_log import Fate

#: The states that verdicts lead to, if they are final.
_STATES: Final = {int(AcknowledgeType.ACCEPT): ACKNOWLEDGED, int(AcknowledgeType.REJECT): ARCHIVED}

#: Answers that say that nothing was written. After any other error, as after no answer, it may have been.
_NOTHING_WRITTEN: Final = (
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
)

#: The end of a record, as the ledger and the log prove it.
SETTLED: Final = "settled"
SETTLED_UNHEARD: Final = "settled by a word whose answer was not heard"
GIVEN_UP: Final = "given up at the limit of deliveries"

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
        return self.said in _STATES and self.code == 0

    @property
    def may_be_settled(self) -> bool:
        """Tell whether an accept or a reject may have been written, though nobody heard so."""
        return self.said in _STATES and self.code != 0 and self.code not in _NOTHING_WRITTEN


@dataclass
class Findings:
    """The result of a run."""

    deliveries: int = 0
    #: Records, by how they ended.
    ends: Counter[str] = field(default_factory=Counter)
    #: A line about each record that was given up, and what proves it.
    given_up: list[str] = field(default_factory=list)
    #: Deliveries of a record that had been delivered before, by what explains them.
    duplicates: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    #: Lines about faults of the gateway.
    faults: list[str] = field(default_factory=list)


def read_journal(path: Path, ended_s: float) -> list[Delivery]:
    """Return the deliveries of a consumer, in order; `ended_s` is when its process was gone at the latest.

    A consumer that was ended before it began has no journal.
    """
    if not path.exists():
        return []
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
        places: of all records of the topic.
        deliveries: of all consumers.
        fates: what the log says of each place.
        disturbed_s: when something was done to a node, a broker or a connection, and when that was over.
        lock_s: how long a lock lasts.
        deliveries_max: of one record, by the group's limit.
    """

    def __init__(
        self,
        places: Iterable[Place],
        deliveries: Iterable[Delivery],
        fates: Mapping[Place, Fate],
        disturbed_s: Sequence[float],
        lock_s: float,
        deliveries_max: int,
    ) -> None:
        self._fates = fates
        self._disturbed_s = sorted(disturbed_s)
        self._lock_s = lock_s
        self._deliveries_max = deliveries_max
        self._by_place: defaultdict[Place, list[Delivery]] = defaultdict(list)
        for each in deliveries:
            self._by_place[each.place].append(each)
        for of_place in self._by_place.values():
            of_place.sort(key=lambda each: each.given_s)
        self._places = sorted({*places, *self._by_place})

    def judge(self) -> Findings:
        """Return what the run shows."""
        findings = Findings()
        for place in self._places:
            of_place = self._by_place.get(place)
            if of_place is None:
                findings.faults.append(f"skipped: {place} was never delivered")
                continue
            findings.deliveries += len(of_place)
            findings.codes.update(each.code for each in of_place if each.code is not None)
            self._judge_end(place, of_place, findings)
            self._judge_again(of_place, findings)
            for each in of_place:
                self._judge_refusal(each, findings)
            for before, after in pairwise(of_place):
                self._judge_pair(before, after, findings)
        return findings

    def _judge_end(self, place: Place, of_place: list[Delivery], findings: Findings) -> None:
        """Find how a record ended: by the word of a consumer, by the limit, or against the rules."""
        fate = self._fates.get(place)
        if fate is None or not fate.is_finished:
            findings.faults.append(f"unfinished: {place} may be delivered again, {_of_log(fate)}")
            return
        settled = [each for each in of_place if each.is_settled]
        if settled:
            findings.ends[SETTLED] += 1
            # The log may have it from an earlier word, whose answer said that it was not written.
            words = [each for each in of_place if each.is_settled or each.may_be_settled]
            if not any(_agrees(each, fate) for each in words):
                findings.faults.append(f"another end: {place} was settled otherwise than {_of_log(fate)}: {settled}")
        elif any(_agrees(each, fate) and self._may_be_last(each, of_place) for each in of_place if each.may_be_settled):
            findings.ends[SETTLED_UNHEARD] += 1
        elif self._is_given_up(of_place, fate):
            findings.ends[GIVEN_UP] += 1
            findings.given_up.append(f"{place}: {_of_log(fate)}; {_in_short(of_place)}")
        else:
            findings.faults.append(f"lost: {place} was never settled, {_of_log(fate)}; {_in_short(of_place)}")

    @staticmethod
    def _may_be_last(one: Delivery, of_place: list[Delivery]) -> bool:
        """Tell whether no delivery was certainly acquired later, which shows that the word at this one was not written."""
        return all(each.not_before_s <= one.given_s for each in of_place if each is not one)

    def _is_given_up(self, of_place: list[Delivery], fate: Fate) -> bool:
        """Tell whether a record had all its deliveries.

        The log tells so itself, unless the Write of its end moved the start offset. Then it was available to its last delivery
        in the log before, or a consumer got that delivery.
        """
        if fate.state == ARCHIVED:
            return fate.delivery_count >= self._deliveries_max
        heard = max(each.count for each in of_place)
        return fate.state == AVAILABLE and max(fate.delivery_count + 1, heard) >= self._deliveries_max

    @staticmethod
    def _judge_again(of_place: list[Delivery], findings: Findings) -> None:
        """Find deliveries that were acquired after the record was settled."""
        settled_s = min((each.answered_s for each in of_place if each.is_settled), default=float("inf"))
        for each in of_place:
            if each.not_before_s > settled_s:
                text = f"again: {each.place} was settled {each.not_before_s - settled_s:.3f} s before it was acquired"
                findings.faults.append(f"{text} by {each.consumer}")

    def _judge_refusal(self, delivery: Delivery, findings: Findings) -> None:
        """Find errors that nothing led to: no disturbance and no end of a lock."""
        is_over = delivery.answered_s >= delivery.not_before_s + self._lock_s
        if delivery.code and not is_over and not self._is_disturbed(delivery.not_before_s, delivery.answered_s):
            findings.faults.append(f"refused: nothing explains the code of {delivery}")

    def _judge_pair(self, before: Delivery, after: Delivery, findings: Findings) -> None:
        """Explain the second of two deliveries, and find locks that two members had at once."""
        is_disturbed = self._is_disturbed(before.not_before_s, after.given_s)
        lock_ended_s = before.not_before_s + self._lock_s
        held_until_s = min(before.asked_s, before.consumer_ended_s, lock_ended_s)
        is_gone = before.consumer_ended_s < after.given_s
        if after.given_s < held_until_s and not is_disturbed:
            text = f"{before.place} was locked by {before.consumer} until {held_until_s:.3f}"
            findings.faults.append(f"two locks: {text} and given to {after.consumer} at {after.given_s:.3f}")
        if before.said == AcknowledgeType.RELEASE:
            why = "it was released"
        elif before.said is None and is_gone:
            why = "its consumer ended"
        elif before.code:
            why = "its acknowledgement was refused"
        elif before.said is not None and before.code is None and (is_disturbed or is_gone):
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


def _agrees(delivery: Delivery, fate: Fate) -> bool:
    """Tell whether the log may have its end from the word at a delivery: it says the same, or passed the record with it."""
    if fate.state == AVAILABLE:
        return True
    return fate.state == _STATES[delivery.said or 0] and fate.delivery_count == delivery.count


def _of_log(fate: Fate | None) -> str:
    if fate is None:
        return "the log says nothing of it"
    passed = ", and the start offset passed it" if fate.is_passed else ""
    return f"the log has it in state {fate.state} with delivery count {fate.delivery_count}{passed}"


def _in_short(of_place: list[Delivery]) -> str:
    return "; ".join(
        f"{each.consumer} got delivery {each.count}, said {each.said}, heard {each.code}" for each in of_place
    )
