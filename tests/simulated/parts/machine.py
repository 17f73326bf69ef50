"""The real shard, and a real operation, watched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.records.share.keys import SharePartitionKey
from holdfast.records.share.values import Snapshot, Update
from holdfast.runtime.errors import CoordinatorError
from holdfast.runtime.state_machine import Decision, Operation
from holdfast.share.config import ShardConfig
from holdfast.share.decisions import ShareShard
from holdfast.share.state_bounds import StateTotals
from tests.configs import state_bounds
from tests.simulated.checks.invariants import Invariant, violate
from tests.simulated.checks.truth import Content, Truth, content
from tests.simulated.memory_log import Append
from tests.timelines import undoable_count

if TYPE_CHECKING:
    from tests.simulated.parts.node import Node


class Fault(Exception):
    """A bug that the simulation planted in an operation."""


class HeldShards:
    """The shards of a node that still hold something, and what the node counts of them."""

    def __init__(self) -> None:
        self.totals = StateTotals(state_bounds())
        self._shards: list[WatchedShard] = []

    def add(self, shard: WatchedShard) -> None:
        """Watch one more."""
        self._shards.append(shard)

    def remove(self, shard: WatchedShard) -> None:
        """Watch one no longer, which holds nothing."""
        self._shards.remove(shard)

    def check(self, where: str) -> None:
        """See that what is counted is what the shards hold, those that are being freed included."""
        held = StateTotals(self.totals.bounds)
        for shard in self._shards:
            for key, state in shard.state.timeline.current.items():
                held.add(key, shard.state.estimate_size(key, state))
        if _counts(held) != _counts(self.totals):
            violate(Invariant.HELD_IS_COUNTED, f"{where}: {_counts(self.totals)} in place of {_counts(held)}")


def _counts(totals: StateTotals) -> tuple[int, int, dict[str, int]]:
    return totals.share_partitions, totals.state_bytes, totals._groups


class WatchedShard(ShareShard):
    """A share shard that sees to its own life: load*, on_loaded, calls, on_unloaded once, discard*, nothing after."""

    def __init__(self, config: ShardConfig, node: Node, index: int) -> None:
        super().__init__(replace(config, totals=node.held.totals))
        node.held.add(self)
        self.node = node
        self.index = index
        self.phase = "loading"
        self.attempt_id: bytes | None = None  #: of the checkpoint by which it serves
        self.truth: Truth | None = None  #: of the log that was loaded; set when it is
        self.answered_sequence = -1  #: of the newest write that was answered
        self.unmet: deque[Append] = deque()  #: what it sent while it served and was not seen to count
        self.checked: object = None  #: what was looked at last

    def _expect(self, phase: str, call: str) -> None:
        if self.phase != phase:
            violate(Invariant.ONE_LIFE_PER_INSTANCE, f"{call} while {self.phase}, at {self.node.name}/{self.index}")

    def load_record(self, key: bytes, value: bytes | None, offset: int) -> None:
        self._expect("loading", "load_record")
        super().load_record(key, value, offset)

    def fold_loaded(self, is_time_up: Callable[[], bool]) -> bool:
        self._expect("loading", "fold_loaded")
        return super().fold_loaded(is_time_up)

    def on_loaded(self, image: Any) -> None:
        self._expect("loading", "on_loaded")
        self.phase = "serving"
        super().on_loaded(image)
        self.node.check_loaded(self)
        self._check_held()

    def replay(self, key: SharePartitionKey, value: Snapshot | Update | None, position: int) -> None:
        self._expect("serving", "replay")
        super().replay(key, value, position)
        self.node.raise_planted("replay")

    def revert(self, position: int) -> None:
        self._expect("serving", "revert")
        super().revert(position)

    def committed(
        self, key: SharePartitionKey, value: Snapshot | Update | None, offset: int, position: int, size_bytes: int
    ) -> None:
        self._expect("serving", "committed")
        truth = self.truth
        assert truth is not None
        if truth.is_judged and not (offset < truth.next_offset and truth.counts_at(offset)):
            where = f"offset {offset} at {self.node.name}/{self.index}"
            if offset < truth.next_offset and truth.owner_at(offset) != self.attempt_id:
                violate(Invariant.SUPERSEDED_IS_SILENT, f"{where} is void and about to be answered")
            violate(Invariant.COUNTED_IS_NOT_VOID, where)
        self.node.seen_committed[self.index] = max(offset + 1, self.node.seen_committed.get(self.index, 0))
        super().committed(key, value, offset, position, size_bytes)
        self.node.raise_planted("committed")

    def on_new_metadata_image(self, image: Any) -> None:
        self._expect("serving", "on_new_metadata_image")
        super().on_new_metadata_image(image)

    def on_unloaded(self) -> None:
        if self.phase == "unloaded":
            violate(Invariant.ONE_LIFE_PER_INSTANCE, f"unloaded twice at {self.node.name}/{self.index}")
        self.phase = "unloaded"
        self.node.has_unloaded = True
        super().on_unloaded()
        self._check_held()

    def discard(self, is_time_up: Callable[[], bool]) -> bool:
        self._expect("unloaded", "discard")
        is_done = super().discard(is_time_up)
        if is_done:
            self.node.held.remove(self)
        self._check_held()
        return is_done

    def _check_held(self) -> None:
        self.node.held.check(f"{self.node.name}/{self.index}, {self.phase}")

    @property
    def image(self) -> object:
        """Return the metadata that it decides by."""
        return self._image

    def fingerprint(self) -> tuple[object, ...]:
        """Return everything that a decision might change."""
        states = self.state.timeline
        pending = tuple(self.state.pending_snapshots.items())
        return (
            states.current.copy(),
            undoable_count(states),
            pending,
            self.state.live_bytes,
            len(self.state.topics),
            self.state.offsets.oldest(),
        )

    def undoable(self) -> int:
        """Return how many changes can be undone."""
        return undoable_count(self.state.timeline)

    def newest(self, key: SharePartitionKey) -> Content | None:
        """Return the content of the newest state of a key."""
        return content(self.state.timeline.current.get(key))

    def newest_states(self) -> dict[SharePartitionKey, Any]:
        """Return every key's newest state; not to be changed."""
        return self.state.timeline.current


class WatchedOperation(Operation):
    """An operation of the real service, with what it must not do wrong."""

    __slots__ = (
        "after_sequence",
        "appends",
        "decision",
        "floor",
        "index",
        "index_floor",
        "inner",
        "name",
        "node",
        "outcome",
        "outcomes",
        "shard",
        "step",
    )

    def __init__(self, inner: Operation, node: Node, index: int) -> None:
        self.inner = inner
        self.node = node
        self.index = index
        self.name = inner.name  # type: ignore[misc]
        self.deadline_ms = 0
        self.is_done = False
        self.appends: list[Append] = []  #: what it handed to the log
        self.outcome: object = None
        self.outcomes = 0
        self.shard: WatchedShard | None = None  #: the instance that decided; None: none did
        self.decision: Decision | None = None
        self.floor = 0  #: the answer must reflect the log up to here
        self.index_floor = 0  #: the high watermark when it was asked
        self.step = node.world.step

    def decide(self, machine: WatchedShard, now_ms: int) -> Decision:
        """Decide, and see that nothing changed."""
        self.node.decided = self
        self.node.raise_planted("decide")
        truth = machine.truth
        assert truth is not None
        self.shard, self.floor, self.index_floor = machine, truth.floor, truth.log.high_watermark
        before = machine.fingerprint()
        decision = self.inner.decide(machine, now_ms)
        if machine.fingerprint() != before:
            violate(Invariant.DECIDE_IS_PURE, f"{self.name} changed {before} to {machine.fingerprint()}")
        self.decision = decision
        return decision

    def complete(self, outcome: object) -> None:
        """Take the outcome to the node's judgement, then to whoever asked."""
        self.outcomes += 1
        if self.outcomes > 1:
            violate(Invariant.ANSWERED_ONCE, f"{self} got {self.outcome} and then {outcome}")
        self.outcome = outcome
        self.node.judge(self, outcome)
        self.inner.complete(outcome)

    def is_served(self) -> bool:
        """Tell whether the shard's own answer left."""
        return self.outcomes > 0 and not isinstance(self.outcome, CoordinatorError)

    def __repr__(self) -> str:
        return f"{self.name} of step {self.step} at {self.node.name}/{self.index}"
