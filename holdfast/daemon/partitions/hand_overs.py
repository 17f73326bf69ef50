"""The last hand-overs of a node: when it took a log partition, or another node took one from it, and why as far as that is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.runtime.partition.states import State

if TYPE_CHECKING:  # the command line tool merges, and needs no more
    from holdfast.records.log.checkpoint import Checkpoint
    from holdfast.runtime.partition.lifecycle import Partition

#: Hand-overs that a node remembers, and reasons.
KEPT_MAX: Final = 64


class HandOver(NamedTuple):
    """A log partition that has another owner from now on."""

    #: When the new owner served, as that one knows it; or when the former one read that it has lost the log partition.
    at_ms: int
    log_partition: int
    #: The node of the owner before, by the log; None: the log had none.
    from_node: str | None
    to_node: str
    owner_epoch: int
    #: Ownership generation under which it was taken.
    generation: int
    #: From the start of the load to serving; the owner before serves until shortly before its end. None: the new owner knows it.
    load_ms: int | None
    #: Known from the start; None: the division may tell it.
    why: str | None


class HandOvers:
    """The last hand-overs of this node, and why the log was divided.

    Args:
        now_ms: the time, by the clock of the log partitions.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._kept: deque[HandOver] = deque(maxlen=KEPT_MAX)
        #: Why the log was divided, by ownership generation.
        self._divided: dict[int, str] = {}
        #: By log partition, why it is loaded again.
        self._why: dict[int, str] = {}
        #: Log partitions that this process has served.
        self._served: set[int] = set()

    def divided(self, generation: int, why: str) -> None:
        """Remember why the group has divided the log under an ownership generation."""
        self._divided[generation] = why
        while len(self._divided) > KEPT_MAX:
            del self._divided[min(self._divided)]

    def asked(self, index: int) -> None:
        """Remember that an admin has asked for a log partition."""
        self._why[index] = "an admin asked for it (`holdfast partitions take`)"

    def changed(self, partition: Partition) -> None:
        """Note a log partition that has entered another state."""
        if partition.state is State.FAILED:
            self._why[partition.index] = f"it had failed: {partition.failure}"
        elif partition.state is State.CLOSED:  # the next load has another reason
            self._why.pop(partition.index, None)
        if partition.state is not State.ACTIVE:
            return
        ownership, reading = partition.ownership, partition.reading
        ours, former = ownership.winning(), ownership.former
        why = self._why.pop(partition.index, None)
        if ours.reason is not None:
            why = f"an admin accepted the log: {ours.reason}"
        elif why is None and partition.tenancy.is_static and partition.index not in self._served:
            why = "the node started"
        self._served.add(partition.index)
        self._kept.append(
            HandOver(
                reading.load_ended_ms,
                partition.index,
                None if former is None else former.node_id,
                ours.node_id,
                ours.owner_epoch,
                ours.generation,
                reading.load_ended_ms - reading.load_began_ms,
                why,
            )
        )

    def lost(self, partition: Partition, winner: Checkpoint) -> None:
        """Note that another node has taken a log partition which this one has served."""
        if not partition.reading.load_ended_ms:
            return
        this_node = partition.tenancy.config.node_id
        self._kept.append(
            HandOver(
                self._now_ms(),
                partition.index,
                this_node,
                winner.node_id,
                winner.owner_epoch,
                winner.generation,
                None,
                None,
            )
        )

    def describe(self) -> list[dict[str, Any]]:
        """Return the hand-overs for people, the newest first."""
        return merge(
            [[each._replace(why=each.why or self._divided.get(each.generation))._asdict() for each in self._kept]]
        )


def merge(answers: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the hand-overs of several nodes, the newest first, each once: the new owner knows more of it than the one before."""
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for row in (row for rows in answers for row in rows):
        place = row["log_partition"], row["owner_epoch"]
        known = best.get(place)
        if known is None or (known["load_ms"] is None and row["load_ms"] is not None):
            best[place] = row
    return sorted(best.values(), key=lambda row: (-row["at_ms"], row["log_partition"], -row["owner_epoch"]))
