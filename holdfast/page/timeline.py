"""The changes of one offset of a share partition, folded from the records of its log partition; pure.

The records may come from the log and, of what it does not have any more, from the history. Each part is folded by itself, and `tell`
joins them: the log can be read on while the history stays as it is.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from holdfast.page.log_fold import Folded
from holdfast.page.source import CHANGES_MAX, LOG, Change
from holdfast.records.share.batches import ACKNOWLEDGED, ARCHIVED, ARCHIVING, AVAILABLE, STATE_NAMES
from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.replay import ShareState

#: Nothing was written about the offset: it was never given out, or is for the first time.
UNTOLD: Final = "untold"
#: The start offset is above it.
FINISHED: Final = "finished"
DELETED: Final = "deleted"

_TEXTS: Final = {
    STATE_NAMES[AVAILABLE]: "not finished by {times}; to be given out again",
    STATE_NAMES[ACKNOWLEDGED]: "acknowledged at delivery {count}",
    STATE_NAMES[ARCHIVING]: "given up after {times}; on its way to the topic of dead letters",
    STATE_NAMES[ARCHIVED]: "given up after {times}",
}


class _Telling(NamedTuple):
    """A record that says of an offset something else than the one before it."""

    at_ms: int
    state: str
    delivery_count: int | None
    before: str | None  #: the state; None: nothing was said before
    start_offset: int  #: of the share partition; -1: none is known
    owner_epoch: int | None
    state_epoch: int
    log_offset: int


class OffsetTimeline:
    """The tale of one offset; it is given what the records of one log partition did, in offset order."""

    def __init__(self, key: SharePartitionKey, offset: int, log_partition: int, source: str = LOG) -> None:
        self._key = key
        self._offset = offset
        self._said: tuple[str, int | None] | None = None
        self.log_partition = log_partition
        self.source = source
        #: The first record about it.
        self.first: _Telling | None = None
        #: The newest changes after that, and how many there are with those that were dropped because of their number.
        self.later: deque[_Telling] = deque(maxlen=CHANGES_MAX)
        self.later_count = 0
        #: The share partition was there before the first record that was read.
        self.began_before = False

    def take(self, folded: Folded) -> None:
        """Take what the next record did."""
        if folded.key != self._key:
            return
        said = describe_offset(folded.after, self._offset)
        if said == self._said:
            return
        epoch = folded.after or folded.before
        telling = _Telling(
            at_ms=folded.timestamp_ms,
            state=said[0],
            delivery_count=said[1],
            before=None if self._said is None else self._said[0],
            start_offset=-1 if folded.after is None else folded.after.start_offset,
            owner_epoch=folded.owner_epoch,
            state_epoch=-1 if epoch is None else epoch.state_epoch,
            log_offset=folded.offset,
        )
        if self.first is None:
            self.first = telling
            self.began_before = folded.after is not None and folded.after.snapshot_epoch > 0
        else:
            self.later.append(telling)
            self.later_count += 1
        self._said = said


class Told(NamedTuple):
    """The changes of one offset, by all parts together."""

    changes: tuple[Change, ...]  #: the newest ones, oldest first
    total: int  #: how many there are, with those that are older


def tell(*parts: OffsetTimeline) -> Told:
    """Return the changes by parts that follow one another in the log: what both say at their border is one change."""
    changes: deque[Change] = deque(maxlen=CHANGES_MAX)
    last: _Telling | None = None
    total = 0
    for part in parts:
        if part.first is None:
            continue
        for telling in (part.first, *part.later):
            if telling is part.first and last is not None:
                if last[1:3] == telling[1:3]:
                    continue
                telling = telling._replace(before=last.state)
            last = telling
            # A share partition that begins says nothing of most offsets.
            if telling.state != UNTOLD or telling.before is not None:
                changes.append(_change(telling, part))
                total += 1
        total += part.later_count - len(part.later)
    return Told(tuple(changes), total)


def _change(telling: _Telling, part: OffsetTimeline) -> Change:
    return Change(
        at_ms=telling.at_ms,
        state=telling.state,
        delivery_count=telling.delivery_count,
        text=_text(telling, part),
        owner_epoch=telling.owner_epoch,
        state_epoch=telling.state_epoch,
        log_partition=part.log_partition,
        log_offset=telling.log_offset,
        source=part.source,
    )


def _text(telling: _Telling, part: OffsetTimeline) -> str:
    state, count = telling.state, telling.delivery_count
    if state == DELETED:
        return "the state of the share partition was deleted"
    if state == UNTOLD:
        return "the state says nothing of it any more; it was begun again"
    if state == FINISHED:
        return _text_of_finished(telling, part)
    times = f"{count} deliver{'y' if count == 1 else 'ies'}"
    return _TEXTS.get(state, "state {state}").format(times=times, count=count, state=state)


def _text_of_finished(telling: _Telling, part: OffsetTimeline) -> str:
    start_offset, before = telling.start_offset, telling.before
    if before is None and part.began_before:
        return f"finished before the {part.source} begins, where the start offset is {start_offset} already"
    if before is None:
        return f"not for this group, which begins at offset {start_offset}"
    # A record that is acknowledged often takes the start offset along in the same step.
    known = "" if before in (UNTOLD, DELETED) else f"; it was {before} before"
    return f"finished: the start offset went on to {start_offset}{known}"


def describe_offset(state: ShareState | None, offset: int) -> tuple[str, int | None]:
    """Return what a state says of an offset: a state's name, and how often it was delivered, None: it does not say."""
    if state is None:
        return DELETED, None
    if offset < state.start_offset:
        return FINISHED, None
    for first, last, delivery_state, delivery_count in state.state_batches:
        if first <= offset <= last:
            return STATE_NAMES.get(delivery_state, str(delivery_state)), delivery_count
    return UNTOLD, None
