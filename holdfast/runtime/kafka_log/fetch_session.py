"""The state of an incremental fetch session with one broker, without I/O: it makes requests, and answers change it.

Source: KIP-227 (fetch sessions).
"""

from collections.abc import Mapping
from typing import NamedTuple, final

from holdfast.kafka.metadata import Leader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.requests import FetchAnswer, FetchTarget

_SESSION_EPOCH_MAX = 2**31 - 1


@final
class PartitionFetch:
    """The position of a fetcher in one partition, and its knowledge of the batch below.

    There are three cases: a fetch has shown the leader epoch of that batch, or the batch is ours and was acknowledged, or nothing is known.
    `read_to`, `acknowledged_to` and `confirm` keep the attributes so.
    """

    __slots__ = (
        "acknowledged_header",
        "batch_end_offset",
        "damaged_offset",
        "end_offset",
        "fed_by",
        "instance",
        "is_checked",
        "last_epoch",
        "leader_epoch",
        "log_start_offset",
        "offset",
        "requested_offset",
    )

    def __init__(self, instance: int, offset: int, end_offset: int | None, last_epoch: int) -> None:
        """Set the position, with the leader epoch of the batch below it; -1: not known."""
        self.instance = instance
        self.offset = offset
        #: Offset after the last record to read; None: there is no end.
        self.end_offset = end_offset
        #: Leader epoch of the batch below `offset`, if the load or a fetch has shown it; otherwise -1.
        self.last_epoch = last_epoch
        #: It is settled that the batch below `offset` was not truncated.
        self.is_checked = last_epoch < 0
        #: Header of the record below `offset`, if it is ours and was acknowledged, so that no fetch has shown its leader epoch.
        self.acknowledged_header: bytes | None = None
        #: Leader epoch of the last fetch; -1: there was none.
        self.leader_epoch = -1
        #: Log start that was reported to the listener; -1: none was.
        self.log_start_offset = -1
        #: Offset that the broker's session has; -1: none.
        self.requested_offset = -1
        #: Offset after the last batch; a fetch from there brings no batch that begins below.
        self.batch_end_offset = -1
        #: Offset at which a damaged batch was found first.
        self.damaged_offset = -1
        #: Number of the last fetch that brought records.
        self.fed_by = -1

    def fetch_offset(self, leader_epoch: int) -> int:
        """Return the offset of the next fetch, from a leader of this epoch.

        A new leader may have lost an acknowledged record, so that record is fetched again and compared before any later one counts.
        Until it comes, every second fetch begins at `offset` itself, which a leader refuses if its log ends below.
        """
        if self.leader_epoch not in (-1, leader_epoch):
            self.is_checked, self.requested_offset = False, -1
        self.leader_epoch = leader_epoch
        if self.is_unconfirmed and self.requested_offset != self.offset - 1:
            return self.offset - 1
        return self.offset

    def read_to(self, offset: int, leader_epoch: int) -> None:
        """Move to an offset; a fetch has brought the records below it, with this leader epoch."""
        self.offset, self.last_epoch, self.acknowledged_header = offset, leader_epoch, None

    def acknowledged_to(self, offset: int, header: bytes) -> None:
        """Move to an offset; its leader has acknowledged the record below it, which has this header."""
        self.offset = self.batch_end_offset = offset
        self.last_epoch, self.acknowledged_header = -1, header

    def confirm(self, leader_epoch: int) -> None:
        """Set the leader epoch of the acknowledged record below, which a fetch has shown to be still there."""
        self.is_checked = True
        self.read_to(self.offset, leader_epoch)

    def has_moved_past(self, error_code: int) -> bool:
        """Tell whether a fetch failed only because it began below `offset`, so that one from `offset` may succeed."""
        return self.requested_offset < self.offset and error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def awaits_confirmation(self, log_start_offset: int) -> bool:
        """Tell whether, after a fetch from `offset` itself, it is still open if the record below is there.

        If the log starts at `offset`, that record was committed and another program deleted it, so no fetch can show it any more.
        """
        return self.is_unconfirmed and self.requested_offset == self.offset > log_start_offset

    @property
    def is_unconfirmed(self) -> bool:
        """Tell whether a fetch must show that the acknowledged record below `offset` is still there."""
        return not self.is_checked and self.acknowledged_header is not None


class FetchRequest(NamedTuple):
    """The contents of one fetch request."""

    #: Session id and epoch.
    session: tuple[int, int]
    #: Partitions that are new in the session or have another offset.
    targets: list[FetchTarget]
    #: Partitions to remove from the session.
    forgotten: list[int]
    #: All partitions that the answer may contain.
    partitions: dict[int, PartitionFetch]


class FetchSession:
    """The partitions that one broker has in our session; if it keeps no session, each fetch requests all of them."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[int, PartitionFetch] = {}
        self._fetches = 0

    def next_request(self, wanted: Mapping[int, PartitionFetch], leaders: Mapping[int, Leader]) -> FetchRequest:
        """Return the next request, after which the broker has all wanted partitions with their offsets."""
        forgotten = [partition for partition in self._known if partition not in wanted]
        ordered = list(wanted.items())
        if self._epoch == 0:
            # Without a session a broker serves the first partitions first; within one it rotates them itself.
            ordered.sort(key=lambda each: each[1].fed_by)
        self._fetches += 1
        targets = []
        for partition, fetch in ordered:
            led = leaders.get(partition)
            leader_epoch = -1 if led is None else led[1]
            offset = fetch.fetch_offset(leader_epoch)
            if self._known.get(partition) is not fetch or fetch.requested_offset != offset:
                targets.append(FetchTarget(partition, leader_epoch, offset, fetch.last_epoch))
                fetch.requested_offset = offset
        self._known = dict(wanted)
        return FetchRequest((self._id, self._epoch), targets, forgotten, self._known)

    def on_answer(self, answer: FetchAnswer) -> None:
        """Continue the session, or reset it, as the answer says."""
        if answer.error_code or answer.session_id == 0 or self._epoch == _SESSION_EPOCH_MAX:
            self.reset()
        else:
            self._id = answer.session_id
            self._epoch += 1

    def mark_fed(self, fetch: PartitionFetch) -> None:
        """Mark a partition of which the last fetch brought records."""
        fetch.fed_by = self._fetches

    def reset(self) -> None:
        """Drop the session; the next fetch begins a new one."""
        self._id = self._epoch = 0
        self._known = {}
