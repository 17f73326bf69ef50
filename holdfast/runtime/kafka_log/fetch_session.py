"""The state of an incremental fetch session with one broker, without I/O: what the next fetch requests, and what an answer changes.

Source: KIP-227 (fetch sessions).
"""

from collections.abc import Mapping
from typing import NamedTuple, final

from holdfast.kafka.leaders import Leader
from holdfast.kafka.protocol.error_codes import ErrorCode
from holdfast.kafka.protocol.requests import FetchAnswer, FetchTarget

_SESSION_EPOCH_MAX = 2**31 - 1


@final
class PartitionFetch:
    """One partition as a fetcher sees it: how far it was read, and what is known of the batch below.

    Either a fetch has shown its leader epoch, or it is ours and was acknowledged, or nothing is known; `read_to` and its like keep to that.
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
        """Begin at an offset, with the leader epoch of the batch below it, -1 if that is not known."""
        self.instance = instance
        self.offset = offset
        #: Behind the last record to be read; None: it goes on for ever.
        self.end_offset = end_offset
        #: Of the batch below `offset`, if the load or a fetch has shown it; else -1.
        self.last_epoch = last_epoch
        #: No fetch has to show any more whether the batch below `offset` was truncated.
        self.is_checked = last_epoch < 0
        #: Of the record below `offset`, if it is ours and was acknowledged, so that no fetch has shown its leader epoch; else None.
        self.acknowledged_header: bytes | None = None
        #: Under which the last fetch was sent; -1: there was none.
        self.leader_epoch = -1
        #: As the listener knows it; -1: nothing was said of it.
        self.log_start_offset = -1
        #: What the broker's session knows; -1: nothing.
        self.requested_offset = -1
        #: Behind the last batch; a fetch from there brings none that begins before.
        self.batch_end_offset = -1
        #: Where a damaged batch was found first.
        self.damaged_offset = -1
        #: Number of the fetch that last brought something.
        self.fed_by = -1

    def fetch_offset(self, leader_epoch: int) -> int:
        """Return where the next fetch begins, from a leader of this epoch.

        A leader that was elected since may have lost what was acknowledged; so that is fetched again and looked at, before anything counts.
        Until something comes, every other fetch begins at `offset` itself, which a leader refuses whose log ends below.
        """
        if self.leader_epoch not in (-1, leader_epoch):
            self.is_checked, self.requested_offset = False, -1
        self.leader_epoch = leader_epoch
        if self.is_unconfirmed and self.requested_offset != self.offset - 1:
            return self.offset - 1
        return self.offset

    def read_to(self, offset: int, leader_epoch: int) -> None:
        """Go on at an offset, below which a fetch has brought records of this leader epoch."""
        self.offset, self.last_epoch, self.acknowledged_header = offset, leader_epoch, None

    def acknowledged_to(self, offset: int, header: bytes) -> None:
        """Go on at an offset, below which the record of this header lies as its leader says."""
        self.offset = self.batch_end_offset = offset
        self.last_epoch, self.acknowledged_header = -1, header

    def confirm(self, leader_epoch: int) -> None:
        """Learn that the record below, which was acknowledged, is still there, in a batch of this leader epoch."""
        self.is_checked = True
        self.read_to(self.offset, leader_epoch)

    def has_moved_past(self, error_code: int) -> bool:
        """Tell whether a fetch failed only for an offset below ours, so that one from ours may not."""
        return self.requested_offset < self.offset and error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def awaits_confirmation(self, log_start_offset: int) -> bool:
        """Tell whether an answer to a fetch from `offset` itself leaves open if the record below is still there.

        Where the log starts at `offset`, that record was committed and another program deleted it, so no fetch can show it any more.
        """
        return self.is_unconfirmed and self.requested_offset == self.offset > log_start_offset

    @property
    def is_unconfirmed(self) -> bool:
        """Tell whether a fetch has to show first that the record below `offset`, which was acknowledged, is still there."""
        return not self.is_checked and self.acknowledged_header is not None


class FetchRequest(NamedTuple):
    """What one fetch requests of a broker."""

    #: Session id and epoch.
    session: tuple[int, int]
    #: Partitions that are new in the session, or moved.
    targets: list[FetchTarget]
    #: Partitions to be left out from now on.
    forgotten: list[int]
    #: All partitions that the broker may answer about.
    partitions: dict[int, PartitionFetch]


class FetchSession:
    """What one broker knows of our partitions; from one that keeps no session everything is requested each time."""

    def __init__(self) -> None:
        """Begin without a session."""
        self._id = 0
        self._epoch = 0
        self._known: dict[int, PartitionFetch] = {}
        self._fetches = 0

    def next_request(self, wanted: Mapping[int, PartitionFetch], leaders: Mapping[int, Leader]) -> FetchRequest:
        """Return what to request, so that the broker knows of all wanted partitions and where each is to be read."""
        forgotten = [partition for partition in self._known if partition not in wanted]
        ordered = list(wanted.items())
        if self._epoch == 0:
            # A broker serves the first ones first; within a session it sees to turns itself.
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
        """Follow what the broker says of the session."""
        if answer.error_code or answer.session_id == 0 or self._epoch == _SESSION_EPOCH_MAX:
            self.reset()
        else:
            self._id = answer.session_id
            self._epoch += 1

    def mark_fed(self, fetch: PartitionFetch) -> None:
        """Note that the last fetch brought records of a partition."""
        fetch.fed_by = self._fetches

    def reset(self) -> None:
        """Begin again without a session, as after a failure."""
        self._id = self._epoch = 0
        self._known = {}
