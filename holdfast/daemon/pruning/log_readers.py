"""The registered readers of the log: consumer groups whose committed offsets the log is not pruned past.

A reader that has never committed blocks all pruning, unless it is registered from its first commit on only.
So does one whose offsets expired, however it is registered, if this process has seen that it once had some.
One that is silent for too long raises an alarm and keeps blocking, until an admin or a setting drops it.
Then it blocks nothing before it commits again, and may find the log pruned past it.
One that this process has not looked up yet may have committed any offset, so it blocks all pruning too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

_NOTHING: Final = -1


class Progress(NamedTuple):
    """How far a reader is in one log partition."""

    group: str
    #: The next record it will read; -1 where it has committed nothing, or its offset expired.
    offset: int
    #: Whether its committed offsets were looked up.
    is_known: bool = True


class Change(Enum):
    """A change in how a reader affects pruning."""

    #: It has something to read and has not moved for too long.
    SILENT = auto()
    #: It blocks pruning no more, because it was silent for much too long.
    DROPPED = auto()
    #: It was dropped, and committed again.
    BACK = auto()


class LogReaders:
    """What the registered readers had committed when they were last looked up.

    Args:
        groups: the consumer groups that are registered.
        from_first_commit: those of them that block nothing before they have committed anything.
        timeout_ms: a reader that has something to read and has not moved for so long is silent.
        drop_after_ms: one that has not moved for so long is dropped; 0 is never.
        clock_ms: monotonic.
        report: called with a change of a reader, its group, and for how many ms it has not moved.
    """

    def __init__(
        self,
        groups: Sequence[str],
        timeout_ms: int,
        clock_ms: Callable[[], int],
        report: Callable[[Change, str, int], None],
        *,
        from_first_commit: Collection[str] = (),
        drop_after_ms: int = 0,
    ) -> None:
        self.groups = tuple(dict.fromkeys(groups))
        self._from_first_commit = frozenset(from_first_commit)
        self._timeout_ms = timeout_ms
        self._drop_after_ms = drop_after_ms
        self._clock_ms = clock_ms
        self._report = report
        #: Groups whose alarm was raised and that have not moved since.
        self._silent: set[str] = set()
        #: Groups that were once seen with an offset; only a restart forgets it.
        self._committed: set[str] = set()
        #: Groups that block nothing before they commit again.
        self._dropped: set[str] = set()
        #: By group; None before the first look-up.
        self._offsets: dict[str, Mapping[int, int] | None] = dict.fromkeys(self.groups)
        self._ends: Mapping[int, int] = {}
        self._moved_ms = dict.fromkeys(self.groups, clock_ms())

    def blocking(self, partition: int, cut_offset: int) -> Progress | None:
        """Return the reader furthest behind that still needs records below the offset, or None."""
        behind = [
            Progress(group, (offsets or {}).get(partition, _NOTHING), offsets is not None)
            for group, offsets in self._offsets.items()
            if self._blocks(group, offsets)
        ]
        slowest = min(behind, key=lambda progress: progress.offset, default=None)
        return slowest if slowest is not None and slowest.offset < cut_offset else None

    def learn(self, group: str, offsets: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Take in what a group has committed and where the log ends, both by log partition.

        What a group does not say it has committed any more, it may read again from the start: that blocks pruning as well,
        and is no movement.
        """
        now_ms, before = self._clock_ms(), self._offsets[group]
        has_read_all = all(offsets.get(partition, _NOTHING) >= end for partition, end in ends.items())
        if offsets:
            self._committed.add(group)
        has_moved = any(offset != (before or {}).get(place, _NOTHING) for place, offset in offsets.items())
        if has_read_all or has_moved:
            self._moved_ms[group] = now_ms
            self._silent.discard(group)
        self._offsets[group], self._ends = dict(offsets), dict(ends)
        if group in self._dropped:
            if before is not None and any(offset > before.get(place, _NOTHING) for place, offset in offsets.items()):
                self._dropped.discard(group)
                self._report(Change.BACK, group, 0)
            return
        if not self._blocks(group, offsets):
            return
        silent_ms = now_ms - self._moved_ms[group]
        if silent_ms >= self._timeout_ms and group not in self._silent:
            self._silent.add(group)
            self._report(Change.SILENT, group, silent_ms)
        if self._drop_after_ms and silent_ms >= self._drop_after_ms:
            self._dropped.add(group)
            self._report(Change.DROPPED, group, silent_ms)

    def drop(self, group: str) -> None:
        """Let a registered reader block nothing before it commits again."""
        assert group in self._offsets
        self._dropped.add(group)

    def describe(self) -> list[dict[str, Any]]:
        """Return every reader for people: its state, how many offsets it is behind, and for how many ms it has not moved."""
        now_ms = self._clock_ms()
        return [
            {
                "group": group,
                "state": self._state(group, offsets),
                "behind": self._behind(offsets),
                "still_ms": now_ms - self._moved_ms[group],
                "committed": {str(place): offset for place, offset in sorted((offsets or {}).items())},
            }
            for group, offsets in self._offsets.items()
        ]

    def _blocks(self, group: str, offsets: Mapping[int, int] | None) -> bool:
        must_be_waited_for = offsets is None or group in self._committed or group not in self._from_first_commit
        return group not in self._dropped and must_be_waited_for

    def _behind(self, offsets: Mapping[int, int] | None) -> int | None:
        if offsets is None:
            return None
        return sum(max(0, end - offsets.get(place, 0)) for place, end in self._ends.items())

    def _state(self, group: str, offsets: Mapping[int, int] | None) -> str:
        if group in self._dropped:
            return "dropped"
        if offsets is None:
            return "not looked up"
        if not offsets and group in self._committed:
            return "lost its offsets"
        if not offsets:
            return "never committed" if self._blocks(group, offsets) else "not started"
        return "silent" if group in self._silent else "reading"
