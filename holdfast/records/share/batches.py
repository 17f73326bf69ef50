"""State batches: what became of ranges of offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

#: Delivery states that are persisted; 1 (acquired) never is. 2 and 4 are terminal: what is archiving is on its way to a topic of
#: dead letters, and archived when it is there (KIP-1191).
AVAILABLE: Final = 0
ACKNOWLEDGED: Final = 2
ARCHIVING: Final = 3
ARCHIVED: Final = 4
#: Delivery states by name, as Kafka calls them.
STATE_NAMES: Final = {
    AVAILABLE: "available",
    ACKNOWLEDGED: "acknowledged",
    ARCHIVING: "archiving",
    ARCHIVED: "archived",
}

#: Highest offset that a batch may cover, so that each has one after it.
OFFSET_MAX: Final = (1 << 63) - 2


class StateBatch(NamedTuple):
    """The delivery state of a range of offsets."""

    first_offset: int
    #: Inclusive.
    last_offset: int
    delivery_state: int
    delivery_count: int


#: Make a batch of its four fields in order, wholly in C: a third of the time that the class itself takes.
make_batch: Final[Callable[[Iterable[int]], StateBatch]] = partial(tuple.__new__, StateBatch)


class SettledBatches(tuple[StateBatch, ...]):
    """Mark batches as ascending, free of overlaps and joined where they can be.

    It is an ordinary tuple to everyone else. `combine` hands it out so that the next `combine` looks only at what the
    incoming batches touch, for a state of any size. Its twin `native.twins.PackedBatches` takes a sixth of the memory.
    """

    __slots__ = ()
