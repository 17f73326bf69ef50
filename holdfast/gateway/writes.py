"""The Writes of one share partition: one is on its way at a time, and what comes meanwhile goes as one Write after it.

Eight consumers of one share partition so make one record where each would make its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from holdfast.delivery.share_partition.values import StateWrite
from holdfast.records.share.batches import StateBatch

#: Takes what became of a Write: Kafka's error code, 0 where it is in the log.
Done = Callable[[int], None]


class Gathered(NamedTuple):
    """A Write as it goes to the log."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


#: Sends a Write to the log.
Send = Callable[[Gathered, Done], None]


@final
class Writes:
    """The Writes of one share partition, in order."""

    __slots__ = ("_in_flight", "_send", "_waiting")

    def __init__(self, send: Send) -> None:
        self._send: Final = send
        #: Those of the Write on its way.
        self._in_flight: list[Done] = []
        self._waiting: list[tuple[StateWrite, Done]] = []

    @property
    def are_done(self) -> bool:
        """Tell whether no Write is on its way."""
        return not self._in_flight and not self._waiting

    def add(self, write: StateWrite, done: Done) -> None:
        """Send a Write as soon as the one before it was answered."""
        self._waiting.append((write, done))
        if not self._in_flight:
            self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._in_flight = [done for _, done in waiting]
        self._send(gather([write for write, _ in waiting]), self._on_answer)

    def _on_answer(self, error_code: int) -> None:
        answered, self._in_flight = self._in_flight, []
        for done in answered:
            done(error_code)
        # An outcome may have added one, which went at once.
        if self._waiting and not self._in_flight:
            self._go_on()


def gather(writes: Sequence[StateWrite]) -> Gathered:
    """Return one Write with the changes of several, in order.

    A later change of an offset has a higher delivery count or a later state, by which the log tells what holds. Each start offset holds if
    its own changes do, so the highest one does; offsets below it that the last one counts as complete are complete no less.
    """
    last = writes[-1]
    start_offset = max(write.start_offset for write in writes)
    complete_count = max(0, last.delivery_complete_count - (start_offset - last.start_offset))
    batches = last.batches if len(writes) == 1 else join([batch for write in writes for batch in write.batches])
    return Gathered(last.state_epoch, last.leader_epoch, start_offset, complete_count, tuple(batches))


def join(batches: list[StateBatch]) -> list[StateBatch]:
    """Return batches with neighbours of one state and count as one."""
    joined: list[StateBatch] = []
    for batch in batches:
        if joined:
            first, last, state, count = joined[-1]
            if batch.first_offset == last + 1 and batch.delivery_state == state and batch.delivery_count == count:
                joined[-1] = StateBatch(first, batch.last_offset, state, count)
                continue
        joined.append(batch)
    return joined
