"""What tests look up in a timeline and production does not: all entries at a position, and the length of its undo log."""

from typing import TypeVar

from holdfast.runtime.timeline import TimelineMap

K = TypeVar("K")
V = TypeVar("V")


def items_at(timeline: TimelineMap[K, V], position: int) -> dict[K, V]:
    """Return all entries as they were at `position`, those included that were removed after it."""
    keys = {*timeline.current, *(key for _, key, _ in timeline._undo)}
    found = {key: timeline.get_at(position, key) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def undoable_count(timeline: TimelineMap[K, V]) -> int:
    """Return how many changes can still be undone."""
    return len(timeline._undo)
