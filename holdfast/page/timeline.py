"""The changes of one offset of a share partition, folded from the records of its log partition; pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from holdfast.page.log_fold import Folded
from holdfast.page.source import CHANGES_MAX, Change
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


class OffsetTimeline:
    """The changes of one offset; it is given what the records of one log partition did, in offset order."""

    def __init__(self, key: SharePartitionKey, offset: int, log_partition: int) -> None:
        self._key = key
        self._offset = offset
        self._log_partition = log_partition
        self._said: tuple[str, int | None] | None = None
        #: The newest ones.
        self.changes: deque[Change] = deque(maxlen=CHANGES_MAX)
        #: How many there are, those included that were dropped because of their number.
        self.count = 0
        #: The share partition was there before the first record that was read.
        self.began_before = False

    def take(self, folded: Folded) -> None:
        """Take what the next record did."""
        if folded.key != self._key:
            return
        said = describe_offset(folded.after, self._offset)
        if self._said is None:
            self.began_before = folded.after is not None and folded.after.snapshot_epoch > 0
            if said[0] == UNTOLD:  # a share partition that begins says nothing of most offsets
                self._said = said
                return
        if said == self._said:
            return
        state, count = said
        epoch = folded.after or folded.before
        change = Change(
            at_ms=folded.timestamp_ms,
            state=state,
            delivery_count=count,
            text=self._text(folded.after, said),
            owner_epoch=folded.owner_epoch,
            state_epoch=-1 if epoch is None else epoch.state_epoch,
            log_partition=self._log_partition,
            log_offset=folded.offset,
        )
        self._said = said
        self.changes.append(change)
        self.count += 1

    def _text(self, after: ShareState | None, said: tuple[str, int | None]) -> str:
        state, count = said
        if state == DELETED:
            return "the state of the share partition was deleted"
        if state == UNTOLD:
            return "the state says nothing of it any more; it was begun again"
        if state == FINISHED:
            assert after is not None
            return self._text_of_finished(after.start_offset)
        times = f"{count} deliver{'y' if count == 1 else 'ies'}"
        return _TEXTS.get(state, "state {state}").format(times=times, count=count, state=state)

    def _text_of_finished(self, start_offset: int) -> str:
        if self._said is None and self.began_before:
            return f"finished before the log begins, where the start offset is {start_offset} already"
        if self._said is None:
            return f"not for this group, which begins at offset {start_offset}"
        before = self._said[0]
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
