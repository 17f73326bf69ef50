"""Consumer groups that read the log, and what a node makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.daemon.pruning.log_readers import Change, LogReaders
from tests.simulated.checks.invariants import Invariant, violate

if TYPE_CHECKING:
    from tests.simulated.parts.node import Node
    from tests.simulated.parts.world import World

TIMEOUT_MS = 3_000
LOOK_INTERVAL_MS = 300


class Group:
    """One consumer group."""

    def __init__(self, name: str, *, is_from_first_commit: bool) -> None:
        self.name = name
        self.is_from_first_commit = is_from_first_commit
        self.committed: dict[int, int] = {}
        self.is_silent = False
        self.moved_ms = 0  #: when it committed something else last


class Groups:
    """The consumer groups of a life; maybe none."""

    def __init__(self, world: World) -> None:
        random = self._random = world.random
        self._world = world
        self.drop_after_ms = random.choice((0, 0, 6_000))
        count = random.choice((0, 0, 1, 2)) if world.is_pruning else 0
        self.groups = [Group(f"reader-{number}", is_from_first_commit=random.random() < 0.4) for number in range(count)]
        self.is_calm = False

    def step(self) -> None:
        """Let each group commit how far it has read."""
        for group in self.groups:
            if self.is_calm:
                self._commit(group, 1.0)
            elif not group.is_silent and self._random.random() < 0.5:
                self._commit(group, self._random.random())

    def _commit(self, group: Group, share: float) -> None:
        for index, partition in enumerate(self._world.topic.partitions):
            before = group.committed.get(index, 0)
            offset = before + round(share * max(0, partition.high_watermark - before))
            if group.committed.get(index) != offset:
                group.committed[index] = offset
                group.moved_ms = self._world.clock_ms()

    def _any(self) -> Group | None:
        return self._random.choice(self.groups) if self.groups else None

    def fall_silent(self) -> bool:
        """Let a group commit nothing any more, or go on."""
        group = self._any()
        if group is not None:
            group.is_silent = not group.is_silent
        return group is not None and group.is_silent

    def go_back(self) -> bool:
        """Let a group read some records again."""
        group = self._any()
        if group is None or not any(group.committed.values()):
            return False
        group.committed = {index: self._random.randint(0, offset) for index, offset in group.committed.items()}
        group.moved_ms = self._world.clock_ms()
        return True


class NodeReaders:
    """The real `LogReaders` of one process, and what it may believe."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._groups = node.world.groups
        groups = self._groups.groups
        self.readers = LogReaders(
            [group.name for group in groups],
            TIMEOUT_MS,
            node.world.clock_ms,
            self._changed,
            from_first_commit={group.name for group in groups if group.is_from_first_commit},
            drop_after_ms=self._groups.drop_after_ms,
        )
        self._looked: dict[str, dict[int, int]] = {}
        #: By group, when a look found another commit than the one before: it may have gone back and forth between two looks.
        self._found_ms: dict[str, int] = {}
        self._is_dropped: dict[str, dict[int, int]] = {}  #: group to what it had committed when it was dropped
        self._next_ms = 0

    def tick(self, now_ms: int) -> None:
        """Look the groups up; some looks fail."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + LOOK_INTERVAL_MS
        ends = {
            index: partition.committed_offset
            for index, partition in self._node.runtime.partitions.items()
            if self._node.serves(index)
        }
        for group in self._groups.groups:
            if self._groups.is_calm or self._node.world.random.random() < 0.8:
                if self._looked.get(group.name) != group.committed:
                    self._found_ms[group.name] = now_ms
                committed = self._looked[group.name] = dict(group.committed)
                self.readers.learn(group.name, dict(committed), ends)

    def _changed(self, change: Change, name: str, silent_ms: int) -> None:
        self._node.world.count(f"reader {change.name.lower()}")
        (group,) = [group for group in self._groups.groups if group.name == name]
        still_ms = self._node.world.clock_ms() - min(group.moved_ms, self._found_ms[name])
        limit_ms = {Change.SILENT: TIMEOUT_MS, Change.DROPPED: self._groups.drop_after_ms, Change.BACK: 0}[change]
        if still_ms < limit_ms:
            violate(Invariant.READERS_ARE_HELD, f"{self._node.name} tells {change} of {name}, still for {still_ms} ms")
        if change is Change.DROPPED:
            self._is_dropped[name] = dict(self._looked[name])
        else:
            self._is_dropped.pop(name, None)

    def check_cut(self, index: int, before_offset: int) -> None:
        """See that a cut leaves every reader what it has not read."""
        for group in self._groups.groups:
            if group.name in self._is_dropped:
                continue
            committed = self._looked.get(group.name)
            if committed is not None and not committed and group.is_from_first_commit:
                continue  # it was not seen to have begun
            offset = -1 if committed is None else committed.get(index, -1)
            if offset < before_offset:
                text = f"{self._node.name}/{index} cuts to {before_offset}, and {group.name} stands at {offset}"
                violate(Invariant.READERS_ARE_HELD, text)
